//! Order under full load.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use busload_cluster::proxy::Direction;
use busload_postgres::{Error, Row, Table};
use tokio::task::JoinSet;

use crate::failure::{
    load::Load,
    support::{Database, table, table_of},
};

const QUERY: &str = "timeout=20s&connections=3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_asked_after_a_write_was_acknowledged_sees_it_whoever_reads() {
    let database = Database::new("read_after_write");
    // Two tables, as in two processes; one is far away, so that its answers are old when they
    // arrive.
    let proxy = database.proxy();
    proxy.delay(Direction::ToClient, Duration::from_millis(3));
    let far = database.url_at(proxy.port());
    let tables = [table(&database.url(), QUERY).await, table(&far, QUERY).await];
    let load = Load::start(&tables, 16, 128);
    load.reads(30_000).await;
    let report = load.check(&tables[0]).await;
    assert_eq!(report.errors.first(), None);
    let statements: u64 = tables.iter().map(|table| table.stats().statements).sum();
    println!("{} reads, {} writes, {statements} statements", report.reads, report.writes);
    assert!(2 * statements < u64::try_from(report.reads).unwrap() + report.writes);
}

/// A write, and when it was requested and acknowledged, on a clock that only counts.
#[derive(Clone, Copy, Debug)]
struct Times {
    asked: u64,
    acknowledged: u64,
}

const WRITERS: usize = 64;
const KEYS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_one_key_take_effect_in_the_order_they_were_asked_in() {
    let database = Database::new("order_of_writers");
    database.sql(
        "CREATE TABLE made (n bigserial PRIMARY KEY, k text, v text); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO made (k, v) VALUES (NEW.k, NEW.v); RETURN NEW; END'; \
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()",
    );
    let table = table(&database.url(), QUERY).await;
    let clock = Arc::new(AtomicU64::new(0));
    let asked: Arc<Mutex<BTreeMap<(usize, String), Times>>> = Arc::default();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (table, clock, all) = (table.clone(), Arc::clone(&clock), Arc::clone(&asked));
        writers.spawn(async move {
            for number in 0..60 {
                let key = (writer + number) % KEYS;
                let value = format!("{writer} {number}");
                let asked = clock.fetch_add(1, SeqCst);
                table.set(key.to_string().as_bytes(), value.clone()).await.unwrap();
                let times = Times { asked, acknowledged: clock.fetch_add(1, SeqCst) };
                all.lock().unwrap().insert((key, value), times);
            }
        });
    }
    writers.join_all().await;
    let asked = asked.lock().unwrap();
    for key in 0..KEYS {
        let made = database.sql(&format!("SELECT v FROM made WHERE k = '{key}' ORDER BY n"));
        let made: Vec<Times> = made.lines().map(|value| asked[&(key, value.to_owned())]).collect();
        in_order(&made);
        let last = database.sql(&format!("SELECT v FROM t WHERE k = '{key}'"));
        let last = asked[&(key, last.trim().to_owned())];
        // No write was requested after the last one was acknowledged, or it would have replaced it.
        assert!(
            asked
                .iter()
                .filter(|((other, _), _)| *other == key)
                .all(|(_, times)| times.asked < last.acknowledged)
        );
    }
    let stats = table.stats();
    assert!(
        stats.rows_written < 60 * u64::try_from(WRITERS).unwrap(),
        "some were joined: {stats:?}"
    );
}

/// Checks that no write precedes one that was acknowledged before it was requested.
fn in_order(made: &[Times]) {
    let mut latest_asked = 0;
    for times in made {
        assert!(latest_asked < times.acknowledged, "{times:?} behind one asked at {latest_asked}");
        latest_asked = latest_asked.max(times.asked);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_one_row_that_many_write_are_all_kept() {
    let database = Database::new("columns");
    let columns: Vec<String> = (0..WRITERS).map(|writer| format!("c{writer}")).collect();
    database
        .sql(&format!("CREATE TABLE wide (k text PRIMARY KEY, {} text)", columns.join(" text, ")));
    let wide = table_of(&database.url(), &format!("relation=wide&key=k&{QUERY}")).await;
    let mut writers = JoinSet::new();
    for (writer, column) in columns.into_iter().enumerate() {
        let wide = wide.clone();
        writers.spawn(async move {
            for number in 0..20 {
                let key = format!("row {}", (writer + number) % 2);
                let added = wide
                    .set_fields(key.as_bytes(), [(column.as_str(), number.to_string())])
                    .await
                    .unwrap();
                assert!(added <= 1);
                let row = wide.get(key.as_bytes()).await.unwrap().expect("just written");
                assert_eq!(row.get(writer), Some(number.to_string().as_bytes()));
            }
        });
    }
    writers.join_all().await;
    for row in 0..2 {
        let found = wide.get(format!("row {row}").as_bytes()).await.unwrap().expect("written");
        for writer in 0..WRITERS {
            let last = if (writer + 19) % 2 == row { "19" } else { "18" };
            assert_eq!(found.get(writer), Some(last.as_bytes()), "column {writer} of row {row}");
        }
    }
}

/// One request, and the model's answer to it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get,
    Set { columns: [bool; 2], number: u32 },
    Clear { columns: [bool; 2] },
    Delete,
}

const NAMES: [&str; 2] = ["a", "b"];

type ModelRow = [Option<u32>; 2];

/// A row of the model.
#[derive(Debug, Default)]
struct Model {
    row: Option<ModelRow>,
    /// The columns set since the row was made, without other requests between: all that may be one
    /// statement.
    made_with: Option<[bool; 2]>,
}

/// Answer that a request got.
#[derive(Debug, Eq, PartialEq)]
enum Answer {
    Row(Option<ModelRow>),
    Count(u64),
}

/// Answers that a request may get.
#[derive(Debug, Eq, PartialEq)]
enum Expected {
    This(Answer),
    /// Columns added to a row that the same run of requests made: whether they are counted depends
    /// on whether they were pending together.
    Count(u64, u64),
}

impl Expected {
    fn is_met_by(&self, answer: &Answer) -> bool {
        match self {
            Self::This(expected) => answer == expected,
            Self::Count(one, other) => {
                *answer == Answer::Count(*one) || *answer == Answer::Count(*other)
            }
        }
    }
}

impl Step {
    fn random(random: &mut impl FnMut(u32) -> u32, number: u32) -> Self {
        let columns = [[true, false], [false, true], [true, true]][random(3) as usize];
        match random(10) {
            0..4 => Self::Get,
            4..8 => Self::Set { columns, number },
            8 => Self::Clear { columns },
            _ => Self::Delete,
        }
    }

    fn on_model(self, model: &mut Model) -> Expected {
        let made_with = model.made_with.take();
        Expected::This(match self {
            Self::Get => Answer::Row(model.row),
            Self::Set { columns, number } => {
                return Self::set_on_model(model, made_with, columns, number);
            }
            Self::Clear { columns } => {
                let row = model.row.as_mut();
                let cleared =
                    row.map(|row| [0, 1].map(|at| row[at].take_if(|_| columns[at]).is_some()));
                Answer::Count(count(cleared.unwrap_or_default()))
            }
            Self::Delete => Answer::Count(u64::from(model.row.take().is_some())),
        })
    }

    fn set_on_model(
        model: &mut Model,
        made_with: Option<[bool; 2]>,
        columns: [bool; 2],
        number: u32,
    ) -> Expected {
        let is_new = model.row.is_none();
        let row = model.row.get_or_insert_default();
        (0..2).filter(|at| columns[*at]).for_each(|at| row[at] = Some(number));
        let Some(before) = made_with.or(is_new.then_some([false; 2])) else {
            return Expected::This(Answer::Count(0));
        };
        model.made_with = Some([0, 1].map(|at| before[at] || columns[at]));
        let added = count([0, 1].map(|at| columns[at] && !before[at]));
        Expected::Count(if is_new { added } else { 0 }, added)
    }

    async fn on_table(self, table: &Table, key: &[u8]) -> Result<Answer, Error> {
        let named = |columns: [bool; 2]| {
            (0..2).filter(move |column| columns[*column]).map(|column| NAMES[column])
        };
        match self {
            Self::Get => table.get(key).await.map(|row| Answer::Row(row.as_ref().map(model_row))),
            Self::Set { columns, number } => table
                .set_fields(key, named(columns).map(|name| (name, number.to_string())))
                .await
                .map(Answer::Count),
            Self::Clear { columns } => {
                table.clear_fields(key, named(columns)).await.map(Answer::Count)
            }
            Self::Delete => {
                table.delete(key).await.map(|existed| Answer::Count(u64::from(existed)))
            }
        }
    }
}

fn count(columns: [bool; 2]) -> u64 {
    columns.into_iter().map(u64::from).sum()
}

fn model_row(row: &Row) -> ModelRow {
    [0, 1].map(|column| {
        row.get(column).map(|value| std::str::from_utf8(value).unwrap().parse().unwrap())
    })
}

/// Returns small numbers that follow from a seed (Lehmer's generator).
fn random(seed: u32) -> impl FnMut(u32) -> u32 {
    let mut state = u64::from(seed) * 2 + 1;
    move |below| {
        state = state * 48_271 % 0x7fff_ffff;
        u32::try_from(state >> 8).unwrap() % below
    }
}

/// Polls all futures in order before it waits for any.
async fn in_one_go<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_asked_without_waiting_are_told_what_they_would_be_one_after_the_other() {
    let database = Database::new("pipelined");
    database.sql("CREATE TABLE two (k text PRIMARY KEY, a text, b text)");
    let two = table_of(&database.url(), "relation=two&key=k&columns=a,b&timeout=20s").await;
    let mut clients = JoinSet::new();
    for client in 0..24 {
        let two = two.clone();
        clients.spawn(async move { client_in_turns(&two, client).await });
    }
    clients.join_all().await;
    assert_eq!(two.stats().outcomes_unknown, 0);
}

/// A client with three keys of its own, and one request in flight after the other.
async fn client_in_turns(table: &Table, client: u32) {
    let mut random = random(client);
    let mut models: BTreeMap<u32, Model> = BTreeMap::new();
    for turn in 0..12 {
        let steps: Vec<(u32, Step)> = (0..30)
            .map(|number| (random(3), Step::random(&mut random, 100 * turn + number)))
            .collect();
        let expected: Vec<Expected> = steps
            .iter()
            .map(|(key, step)| step.on_model(models.entry(*key).or_default()))
            .collect();
        let asked = steps.iter().map(|(key, step)| async move {
            step.on_table(table, format!("{client} {key}").as_bytes()).await.unwrap()
        });
        let answers = in_one_go(asked.collect()).await;
        for (index, (expected, answer)) in expected.iter().zip(&answers).enumerate() {
            let met = expected.is_met_by(answer);
            assert!(
                met,
                "client {client}, turn {turn}, step {index} of {steps:?}: {expected:?}, {answer:?}"
            );
        }
    }
}

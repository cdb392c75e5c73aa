//! Postgres down, slow, or stopped while requests are in flight: only those requests notice.

use busload_cluster::{Cluster, StopMode};
use rustix::process::Signal;

use super::{Relation, Served, session::Session};
use crate::support::{
    client::{command, text},
    eventually,
};

const LOCK: &str = "BEGIN; LOCK TABLE @ IN ACCESS EXCLUSIVE MODE";
const ERROR: &str = "-ERR table objects: ";
const IN_FLIGHT: &str = "busload_queue_batches_in_flight{table=\"objects\"}";

/// Returns whether a reply says that the request timed out and that nothing was written. The second
/// text is the pipeline's, which it sends if the table's own thread was held up.
fn is_late(reply: &str) -> bool {
    matches!(
        reply.strip_prefix(ERROR),
        Some("no answer from postgres in time" | "no answer in time")
    )
}

/// Returns whether a reply says that a write timed out and may have been sent. The pipeline cannot
/// know and says so of every write.
fn is_late_write(reply: &str) -> bool {
    let texts =
        ["outcome unknown: no answer from postgres in time", "outcome unknown, no answer in time"];
    reply.strip_prefix(ERROR).is_some_and(|text| texts.contains(&text))
}

/// Asks for the key `a` until there is a value; returns it, and how many requests timed out before.
/// With a short timeout some do on a slow machine.
fn value_of_a(served: &mut Served) -> (String, u32) {
    let mut late = 0;
    loop {
        let reply = served.run("GET objects:a");
        if !reply.starts_with(ERROR) {
            return (reply, late);
        }
        late += u32::from(is_late(&reply));
    }
}

#[test]
fn postgres_that_is_down_at_the_start_is_served_when_it_comes() {
    let cluster = Cluster::builder().start().unwrap();
    cluster
        .execute("CREATE TABLE t (k text PRIMARY KEY, v text); INSERT INTO t VALUES ('a', '1')")
        .unwrap();
    cluster.stop(StopMode::Immediate).unwrap();
    let table = format!("objects={}?relation=t&key=k&writable=true&timeout=60s", cluster.url());
    let mut served = Served::start(&[&table], &[]);
    let warned = served.server.said().join("\n");
    assert!(warned.contains("table objects: cannot connect to postgres"), "{warned}");
    let reply = served.run("GET objects:a");
    assert!(
        reply.starts_with("-ERR table objects: cannot connect to postgres at 127.0.0.1:"),
        "{reply}"
    );
    assert!(served.run("SET objects:a 2").starts_with("-ERR table objects: cannot connect"));
    served.check("SET m 1 -> OK\nGET m -> 1");
    assert!(served.server.http("/readyz").0.ends_with("200 OK"), "other tables are served");
    let tables = served.run("INFO tables");
    assert!(tables.contains("table_objects:kind=postgres,state=down,connections=0/4"), "{tables}");
    assert!(tables.contains("last_error=cannot connect to postgres"), "{tables}");
    assert!(
        served
            .server
            .http("/metrics")
            .1
            .contains("busload_postgres_info{table=\"objects\",state=\"down\"")
    );

    cluster.start().unwrap();
    while served.run("GET objects:a") != "1" {}
    served.check("SET objects:a 2 -> OK\nGET objects:a -> 2");
    // Once more, while the server runs.
    cluster.kill().unwrap();
    let mut reply = served.run("GET objects:a");
    assert!(reply.starts_with("-ERR table objects: "), "{reply}");
    served.check("GET m -> 1");
    cluster.start().unwrap();
    while reply != "2" {
        reply = served.run("GET objects:a");
    }
    assert!(served.server.stop().success());
}

#[test]
fn a_slow_postgres_holds_up_nothing_but_later_replies_of_its_own_clients() {
    for net_threads in ["0", "1"] {
        let relation = Relation::of_rows(&[("a", "1")]);
        let table = relation.table("key=pk&timeout=60s");
        let mut served = Served::start(&[&table], &["--net-threads", net_threads]);
        served.check("GET objects:a -> 1");
        let mut lock = Session::open(relation.cluster);
        lock.run(&LOCK.replace('@', &relation.name));
        let mut waiting = served.server.client();
        waiting.send(
            &[command(&["GET", "objects:a"]), command(&["SET", "m", "1"]), command(&["GET", "m"])]
                .concat(),
        );
        // Other clients go on; the waiting client's commands are executed, and their replies wait.
        while served.run("GET m") != "1" {}
        served.check("SET m 2 -> OK\nGET m -> 2");
        while served.server.metric(IN_FLIGHT) < 1.0 {}
        assert_eq!(served.server.metric(IN_FLIGHT), 1.0);
        lock.run("COMMIT");
        assert_eq!([(); 3].map(|()| text(&waiting.receive().unwrap())), ["1", "OK", "1"]);
    }
}

#[test]
fn a_request_ends_at_its_deadline_and_a_write_says_what_is_known() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let mut served =
        Served::start(&[&relation.table("key=pk&writable=true&timeout=300ms&connections=1")], &[]);
    let (value, late_at_first) = value_of_a(&mut served);
    assert_eq!(value, "1");
    let mut lock = Session::open(relation.cluster);
    lock.run(&LOCK.replace('@', &relation.name));
    // Sent together: Postgres cancels the statement of the read half a second after the read's
    // timeout, and a write sent later could then start.
    served
        .client
        .send(&[command(&["GET", "objects:a"]), command(&["SET", "objects:a", "2"])].concat());
    let [read, not_sent] = [(); 2].map(|()| text(&served.client.receive().unwrap()));
    assert!(is_late(&read), "{read}");
    let is_from_pipeline = not_sent.ends_with("outcome unknown, no answer in time");
    assert!(is_late(&not_sent) || is_from_pipeline, "{not_sent}");
    served.check("GET m -> nil");
    lock.run("COMMIT");
    let (value, late_before) = value_of_a(&mut served);
    assert_eq!(value, "1", "what was not sent is not written");
    lock.run(&LOCK.replace('@', &relation.name));
    let sent = served.run("SET objects:a 3");
    lock.run("COMMIT");
    let (value, late_behind) = value_of_a(&mut served);
    // If the table's thread was held up for half a second, the write finds its statement cancelled,
    // or was not even sent; it then says that nothing was written.
    assert!(
        is_late_write(&sent) || (is_late(&sent) && value == "1"),
        "{sent}, and there is {value}"
    );
    let total = |name: &str| {
        served.server.metric(&format!("busload_queue_{name}_total{{table=\"objects\"}}"))
    };
    // Requests that the pipeline timed out are cancelled. A read whose statement Postgres cancels
    // at the same moment counts as neither.
    let counted = total("expired") + total("cancelled");
    let late = late_at_first + late_before + late_behind + 3;
    assert!(1.0 <= counted && counted <= f64::from(late), "{counted} of {late}");
}

#[test]
fn a_postgres_that_stops_answering_is_noticed_by_its_requests_only() {
    let cluster = Cluster::builder().start().unwrap();
    cluster
        .execute("CREATE TABLE t (k text PRIMARY KEY, v text); INSERT INTO t VALUES ('a', '1')")
        .unwrap();
    let table = format!("objects={}?relation=t&key=k&timeout=200ms", cluster.url());
    let mut served = Served::start(&[&table], &["--net-threads", "1"]);
    assert_eq!(value_of_a(&mut served).0, "1");
    cluster.pause().unwrap();
    let reply = served.run("GET objects:a");
    assert!(is_late(&reply), "{reply}");
    served.check("SET m 1 -> OK\nGET m -> 1");
    cluster.resume().unwrap();
    assert_eq!(value_of_a(&mut served).0, "1");
}

#[test]
fn a_full_line_refuses_at_once() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let query = "key=pk&timeout=60s&connections=1&queue_requests=10&batch=1";
    let mut served = Served::start(&[&relation.table(query)], &[]);
    served.check("GET objects:a -> 1");
    let mut lock = Session::open(relation.cluster);
    lock.run(&LOCK.replace('@', &relation.name));
    let mut waiting = served.server.client();
    // The first request is sent before the others fill the queue; later it would make space in it.
    waiting.send(&command(&["GET", "objects:0"]));
    while served.server.metric(IN_FLIGHT) < 1.0 {}
    let mut asked = 1;
    while served.server.metric("busload_queue_waiting{table=\"objects\"}") < 10.0 {
        waiting.send(&command(&["GET", &format!("objects:{asked}")]));
        asked += 1;
    }
    let refused = "-ERR table objects: too many requests are waiting, try again later";
    served.check(&format!(
        "EXISTS objects:b -> {refused}\nMGET objects:b m -> {refused}\nGET m -> nil"
    ));
    lock.run("COMMIT");
    let replies: Vec<String> = (0..asked).map(|_| text(&waiting.receive().unwrap())).collect();
    assert!(replies.iter().all(|reply| reply == "nil" || reply == refused), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| *reply == "nil").count(), 11, "{replies:?}");
    served.check("GET objects:a -> 1");
}

#[test]
fn a_read_survives_the_end_of_its_connection() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let query = "key=pk&application_name=survivor&connections=2&timeout=60s";
    let mut served = Served::start(&[&relation.table(query)], &[]);
    let mut ended = String::new();
    for round in 0..10 {
        // The connection that was ended before is noticed and replaced, so only one ends at once.
        eventually("two other connections", || {
            let open = relation
                .execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'survivor'");
            let open: Vec<_> = open.split_whitespace().collect();
            let connections = "busload_postgres_connections{table=\"objects\"}";
            open.len() == 2
                && !open.contains(&ended.as_str())
                && served.server.metric(connections) == 2.0
        });
        // The connection that was used last is most likely the one that is used next.
        let process = relation.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'survivor'
             ORDER BY state_change DESC LIMIT 1",
        );
        ended = process.trim().to_owned();
        relation.execute(&format!("SELECT pg_terminate_backend({ended})"));
        assert_eq!(served.run("GET objects:a"), "1", "round {round}");
    }
}

#[test]
fn at_a_shutdown_what_is_under_way_is_answered() {
    for net_threads in ["0", "1"] {
        let relation = Relation::of_rows(&[("a", "1")]);
        let table = relation.table("key=pk&writable=true&connections=4&timeout=60s");
        let mut served = Served::start(&[&table], &["--net-threads", net_threads]);
        served.check("GET objects:a -> 1");
        // A connection that opens later would wait for the lock, too, and take no batch.
        while served.server.metric("busload_postgres_connections{table=\"objects\"}") < 4.0 {}
        let mut lock = Session::open(relation.cluster);
        lock.run(&LOCK.replace('@', &relation.name));
        served
            .client
            .send(&[command(&["GET", "objects:a"]), command(&["SET", "objects:b", "2"])].concat());
        while served.server.metric(IN_FLIGHT) < 2.0 {}
        served.server.signal(Signal::TERM);
        served.server.wait_for_text("stopping");
        lock.run("COMMIT");
        let replies: Vec<String> = served.client.receive_all().iter().map(text).collect();
        assert_eq!(replies, ["1", "OK"]);
        assert!(served.server.wait().success());
        assert_eq!(relation.execute("SELECT payload FROM @ WHERE pk = 'b'"), "2");
    }
}

#[test]
fn a_shutdown_does_not_wait_for_a_postgres_that_does_not_answer() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let mut served = Served::start(&[&relation.table("key=pk&timeout=2s")], &[]);
    assert_eq!(value_of_a(&mut served).0, "1");
    let mut lock = Session::open(relation.cluster);
    lock.run(&LOCK.replace('@', &relation.name));
    let mut asked = 0;
    while asked == 0 || served.server.metric(IN_FLIGHT) < 1.0 {
        // Sent again if it timed out before the metric showed it in flight.
        if served.server.metric("busload_source_requests") == 0.0 {
            served.client.send(&command(&["GET", "objects:a"]));
            asked += 1;
        }
    }
    served.server.signal(Signal::TERM);
    let replies: Vec<String> = served.client.receive_all().iter().map(text).collect();
    assert_eq!(replies.len(), asked, "{replies:?}");
    assert!(replies.iter().all(|reply| is_late(reply)), "{replies:?}");
    assert!(served.server.wait().success());
}

#[test]
fn clients_that_leave_take_their_requests_with_them() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let query = "key=pk&timeout=60s&connections=1&batch=1";
    let mut served = Served::start(&[&relation.table(query)], &[]);
    served.check("GET objects:a -> 1");
    let mut lock = Session::open(relation.cluster);
    lock.run(&LOCK.replace('@', &relation.name));
    let mut leaving = served.server.client();
    (0..50).for_each(|key| leaving.send(&command(&["GET", &format!("objects:{key}")])));
    while served.server.metric("busload_source_requests") < 50.0 {}
    // Resets the connection: a client that only closes its sending half may still wait for replies.
    rustix::net::sockopt::set_socket_linger(&leaving.stream, Some(std::time::Duration::ZERO))
        .unwrap();
    drop(leaving);
    while served.server.metric("busload_queue_cancelled_total{table=\"objects\"}") < 50.0 {}
    assert_eq!(served.server.metric("busload_queue_waiting{table=\"objects\"}"), 0.0);
    lock.run("COMMIT");
    served.check("GET objects:a -> 1");
}

#[test]
fn a_table_that_changes_is_served_on_or_refused_by_name() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let table = relation.table("key=pk&columns=payload&writable=true");
    let mut served = Served::start(&[&table], &[]);
    served.check("GET objects:a -> 1\nSET objects:a 2 -> OK");
    for change in [
        "ALTER TABLE @ ALTER COLUMN payload TYPE bigint USING payload::bigint",
        "ALTER TABLE @ ALTER COLUMN payload TYPE varchar(10)",
        "ALTER TABLE @ ALTER COLUMN pk TYPE varchar(10)",
        "ALTER TABLE @ ADD COLUMN other int",
        "ALTER TABLE @ DROP COLUMN other",
    ] {
        relation.execute(change);
        served.check("GET objects:a -> 2\nSET objects:a 3 -> OK\nGET objects:a -> 3");
        served.check("SET objects:a 2 -> OK");
    }
    relation.execute("ALTER TABLE @ RENAME COLUMN payload TO body");
    let gone = format!(
        "-ERR table objects: column \"payload\" of public.{} is gone; it is \"body\" now",
        relation.name
    );
    served.check(&format!("GET objects:a -> {gone}\nSET objects:a 4 -> {gone}"));
    let tables = served.run("INFO tables");
    assert!(tables.contains("table_objects:kind=postgres,state=refused,connections="), "{tables}");
    assert!(tables.contains("last_error=column \"payload\" of"), "{tables}");
    relation.execute("ALTER TABLE @ RENAME COLUMN body TO payload");
    while served.run("GET objects:a") != "2" {}
    served.check("SET objects:a 4 -> OK\nGET objects:a -> 4");
}

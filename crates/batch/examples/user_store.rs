//! A service in front of a slow store: 1,000 tasks load and store single users, without batching
//! and with it.
//!
//! Any pair of async functions over many keys can be the store. Here it is a map that takes 0.1 ms
//! per call and 0.2 us per user, and serves four calls at a time, like a database with four
//! connections.
//!
//! ```text
//! cargo run --release -p busload-batch --features tokio --example user_store
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use busload_batch::{Batcher, BatcherSettings, Functions};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const TASKS: u32 = 1000;
const REQUESTS_PER_TASK: u32 = 50;
const BATCH_PRICE: Duration = Duration::from_micros(100);
const USER_PRICE: Duration = Duration::from_nanos(200);

type Users = Batcher<Functions<u32, String>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    // Batching needs only an async function that loads many, and one that stores many.
    let (loads, stores) = (store.clone(), store.clone());
    let users: Users = Batcher::from_functions(
        move |ids| loads.clone().load(ids),
        move |entries| stores.clone().store(entries),
        BatcherSettings::default(),
    )?;

    let alone = lone_request(Access::Direct(store.clone())).await;
    let alone_batched = lone_request(Access::Batched(users.clone())).await;
    let direct = everybody(Access::Direct(store)).await;
    let before = users.stats();
    let batched = everybody(Access::Batched(users.clone())).await;
    let stats = users.stats();
    users.close().await;

    let requests = TASKS * REQUESTS_PER_TASK;
    let batches =
        stats.reads.batches + stats.writes.batches - before.reads.batches - before.writes.batches;
    println!("{TASKS} tasks, {requests} requests     without batching   with batching");
    println!("calls of the store           {requests:>17} {batches:>15}");
    println!(
        "requests per call            {:>17.1} {:>15.1}",
        1.0,
        f64::from(requests) / batches as f64
    );
    println!(
        "requests per second          {:>17.0} {:>15.0}",
        direct.per_second, batched.per_second
    );
    println!("median of a lone request, ms {:>17.3} {:>15.3}", alone, alone_batched);
    println!(
        "tasks that read their write  {:>17} {:>15}",
        direct.read_their_write, batched.read_their_write
    );
    Ok(())
}

/// The slow store. One call costs the same, whether for one user or for many.
#[derive(Clone)]
struct Store {
    users: Arc<Mutex<HashMap<u32, String>>>,
    connections: Arc<Semaphore>,
}

impl Store {
    fn new() -> Self {
        Self { users: Arc::default(), connections: Arc::new(Semaphore::new(4)) }
    }

    async fn load(self, ids: Vec<u32>) -> Vec<Option<String>> {
        self.batch(ids.len()).await;
        let users = self.users.lock().expect("nobody panics with it");
        ids.iter().map(|id| users.get(id).cloned()).collect()
    }

    async fn store(self, entries: Vec<(u32, String)>) {
        self.batch(entries.len()).await;
        self.users.lock().expect("nobody panics with it").extend(entries);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the store's price is time, finer than tokio's timer"
    )]
    async fn batch(&self, users: usize) {
        let _connection = self.connections.acquire().await.expect("it is never closed");
        let price = BATCH_PRICE + USER_PRICE * u32::try_from(users).expect("few users");
        let batch = tokio::task::spawn_blocking(move || std::thread::sleep(price));
        batch.await.expect("sleeping does not panic");
    }
}

/// Access to single users, with and without batching.
#[derive(Clone)]
enum Access {
    Direct(Store),
    Batched(Users),
}

impl Access {
    async fn load(&self, id: u32) -> Option<String> {
        match self {
            Self::Direct(store) => store.clone().load(vec![id]).await.remove(0),
            Self::Batched(users) => users.load(id).await.expect("it works"),
        }
    }

    async fn store(&self, id: u32, name: String) {
        match self {
            Self::Direct(store) => store.clone().store(vec![(id, name)]).await,
            Self::Batched(users) => users.store(id, name).await.expect("it works"),
        }
    }
}

struct Outcome {
    per_second: f64,
    read_their_write: usize,
}

async fn everybody(access: Access) -> Outcome {
    let start = now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(one_task(access.clone(), task));
    }
    let read_their_write = tasks.join_all().await.into_iter().filter(|it| *it).count();
    let per_second = f64::from(TASKS * REQUESTS_PER_TASK) / start.elapsed().as_secs_f64();
    Outcome { per_second, read_their_write }
}

/// Loads random users, then stores one and loads it again. Returns whether it read what it wrote.
async fn one_task(access: Access, task: u32) -> bool {
    for request in 2..REQUESTS_PER_TASK {
        access.load(task.wrapping_mul(2_654_435_761).wrapping_add(request) % 100_000).await;
    }
    let name = format!("user {task}");
    access.store(task, name.clone()).await;
    access.load(task).await == Some(name)
}

/// Returns the median time of requests that one task makes one after the other, in milliseconds.
async fn lone_request(access: Access) -> f64 {
    let task = async move {
        let mut times = Vec::new();
        for id in 0..500 {
            let start = now();
            access.load(id).await;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    tokio::spawn(task).await.expect("it does not panic")
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

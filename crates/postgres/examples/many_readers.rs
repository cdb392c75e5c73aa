//! Many tasks read single keys of one Postgres table; few statements reach it.
//!
//! ```text
//! cargo run --release -p busload-postgres --example many_readers -- \
//!     'postgres://user@localhost/db?relation=objects&key=path' a/b c/d e/f
//! ```
//!
//! Reads the given keys; with `--write` sets them first (the URL then needs `writable=true` and one
//! value column).

use std::process::ExitCode;

use busload_postgres::{Environment, Options, Table, check};

/// Number of tasks that read each key at the same time.
const READERS_PER_KEY: usize = 100;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(mut arguments: Vec<String>) -> Outcome<()> {
    let write =
        arguments.iter().position(|one| one == "--write").map(|index| arguments.remove(index));
    let [url, keys @ ..] = &arguments[..] else {
        return Err("usage: many_readers [--write] URL KEY..".into());
    };
    let options = Options { url: Some(url.clone()), ..Options::default() };
    let settings = options.resolve("example", &Environment::of_process())?;
    println!("{}\n", check(&settings).await?);

    let table: Table = Table::start(settings);
    table.connected().await?;
    if write.is_some() {
        for key in keys {
            table.set(key.as_bytes(), format!("value of {key}")).await?;
        }
    }
    read_together(&table, keys).await?;

    let stats = table.stats();
    let reads = stats.queue.reads.requests;
    println!("\n{reads} reads, {} statements, {} rows", stats.statements, stats.rows_read);
    table.close().await;
    Ok(())
}

/// Reads all keys by many tasks at once, and shows one answer of each key.
async fn read_together(table: &Table, keys: &[String]) -> Outcome<()> {
    let mut readers = Vec::new();
    for key in keys {
        for _ in 0..READERS_PER_KEY {
            let (table, key) = (table.clone(), key.clone());
            readers.push(tokio::spawn(async move { table.get(key.as_bytes()).await }));
        }
    }
    for (index, reader) in readers.into_iter().enumerate() {
        let row = reader.await??;
        if index % READERS_PER_KEY == 0 {
            println!("{}: {row:?}", keys[index / READERS_PER_KEY]);
        }
    }
    Ok(())
}

//! Every kind of table in one program: `cargo run -- ADDRESS_OF_A_CHUNK`
//!
//! The server and its tables are those of `../README.md`. An unexpected answer ends the program
//! with a panic.

use std::{collections::HashMap, env, error::Error};

use redis::{Client, Commands, Connection};
use sha2::{Digest, Sha512};

fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).ok_or("usage: busload-tour ADDRESS_OF_A_CHUNK")?;
    let server = env::var("BUSLOAD_RESP").unwrap_or_else(|_| "127.0.0.1:6380".into());
    let mut connection = Client::open(format!("redis://{server}"))?.get_connection()?;
    memory(&mut connection)?;
    postgres(&mut connection)?;
    chunks(&mut connection, &address)?;
    println!("redis-rs: every kind of table");
    Ok(())
}

/// Tables in memory: strings, expiry, hashes, transactions.
fn memory(connection: &mut Connection) -> redis::RedisResult<()> {
    let () = connection.set_ex("sessions:42", "alice", 60)?;
    let name: String = connection.get("sessions:42")?;
    assert_eq!(name, "alice");
    let left: i64 = connection.ttl("sessions:42")?;
    assert!((1..=60).contains(&left));

    let () = connection.del("basket")?;
    let () = connection.hset_multiple("basket", &[("apples", 3), ("pears", 1)])?;
    let pears: i64 = connection.hincr("basket", "pears", 4)?;
    assert_eq!(pears, 5);
    let basket: HashMap<String, i64> = connection.hgetall("basket")?;
    assert_eq!(basket, HashMap::from([("apples".into(), 3), ("pears".into(), 5)]));

    let () = connection.mset(&[("account-a", 100), ("account-b", 0)])?;
    let mut transaction = redis::pipe();
    transaction.atomic().decr("account-a", 30).incr("account-b", 30);
    let balances: (i64, i64) = transaction.query(connection)?;
    assert_eq!(balances, (70, 30));
    Ok(())
}

/// A table in Postgres: a row is a key. Requests that wait together share a statement.
fn postgres(connection: &mut Connection) -> redis::RedisResult<()> {
    let () = connection.set("users:1", "Ada")?;
    let name: Option<String> = connection.get("users:1")?;
    assert_eq!(name.as_deref(), Some("Ada"));
    let nobody: Option<String> = connection.get("users:0")?;
    assert_eq!(nobody, None);

    // Without `atomic()` a pipeline sends no MULTI: only tables in memory have transactions.
    let keys: Vec<String> = (1..=100).map(|number| format!("users:{number}")).collect();
    let mut pipeline = redis::pipe();
    for key in &keys {
        pipeline.set(key, format!("name of {key}")).ignore();
    }
    for key in &keys {
        pipeline.get(key);
    }
    let names: Vec<String> = pipeline.query(connection)?;
    assert_eq!(names, keys.iter().map(|key| format!("name of {key}")).collect::<Vec<_>>());
    let deleted: u64 = connection.del(&keys)?;
    assert_eq!(deleted, 100);
    Ok(())
}

/// A chunk of a Dolt store. Its address is a hash of its contents.
fn chunks(connection: &mut Connection, address: &str) -> redis::RedisResult<()> {
    let nowhere = "0".repeat(32);
    let count: u64 = connection.exists(&[format!("db:{address}"), format!("db:{nowhere}")])?;
    assert_eq!(count, 1);
    let contents: Vec<u8> = connection.get(format!("db:{address}"))?;
    assert_eq!(address_of(&contents), address);
    Ok(())
}

/// Returns the first 20 bytes of the SHA-512 as 32 digits of 5 bits: 0-9 and a-v.
fn address_of(contents: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let digest = Sha512::digest(contents);
    let five_bytes = digest[..20].chunks(5);
    let numbers = five_bytes.map(|five| five.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)));
    let digits = numbers.flat_map(|n| (0..8).rev().map(move |at| (n >> (5 * at)) as usize % 32));
    digits.map(|digit| char::from(DIGITS[digit])).collect()
}

//! A server that does nothing but answer: what it reaches is the limit of the load side.
//!
//! It counts `*` bytes to know how many requests came (keys and values of the bench hold none) and
//! sends that many copies of one reply.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
};

use crate::limits::RECEIVE_BYTES;

/// Answers on `address` until killed, with bulk strings of `reply_bytes`, or with `+OK` when that
/// is 0.
pub fn run(address: SocketAddr, reply_bytes: usize) -> Result<()> {
    let reply = match reply_bytes {
        0 => "+OK\r\n".to_owned(),
        count => format!("${count}\r\n{}\r\n", "x".repeat(count)),
    };
    let replies: &'static str = reply.repeat((64 * 1024 / reply.len()).max(1)).leak();
    let runtime = Builder::new_current_thread().enable_io().build().context("a runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        eprintln!("ready resp={address}");
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            // A connection that ends is no matter of the others.
            tokio::spawn(answer(socket, reply.len(), replies.as_bytes()));
        }
    })
}

async fn answer(mut socket: TcpStream, reply_bytes: usize, replies: &[u8]) -> std::io::Result<()> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let count = socket.read(&mut buffer).await?;
        let received = &buffer[..count];
        if received.ends_with(b"PING\r\n") {
            socket.write_all(b"+PONG\r\n").await?;
            continue;
        }
        let mut owed = received.iter().filter(|byte| **byte == b'*').count() * reply_bytes;
        if count == 0 {
            return Ok(());
        }
        while 0 < owed {
            let part = owed.min(replies.len());
            socket.write_all(&replies[..part]).await?;
            owed -= part;
        }
    }
}

//! A server that does nothing but answer: what it reaches is the limit of the load side.
//!
//! It counts `*` bytes to know how many requests came (keys and values of the bench hold none) and
//! sends that many copies of one reply.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, epoll, poll};

use crate::limits::{EVENTS_PER_TURN, PIPELINE_MAX, RECEIVE_BYTES};

/// Answers on `address` until killed, with bulk strings of `reply_bytes`, or with `+OK` when that
/// is 0.
pub fn run(address: SocketAddr, reply_bytes: usize) -> Result<()> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let reply = reply(reply_bytes);
    let replies = reply.repeat((64 * 1024 / reply.len()).clamp(1, PIPELINE_MAX));
    let mut sockets: Vec<Option<TcpStream>> = vec![None];
    let mut events = Vec::with_capacity(EVENTS_PER_TURN);
    let mut received = vec![0; RECEIVE_BYTES];
    eprintln!("ready resp={address}");
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("epoll_pwait2"),
        }
        for event in &events {
            let index = usize::try_from(event.data.u64()).expect("registered from an index");
            if index == 0 {
                accept(&listener, &epoll, &mut sockets)?;
            } else if let Some(socket) = &sockets[index]
                && !answer(socket, &mut received, &reply, &replies)
            {
                sockets[index] = None;
            }
        }
    }
}

fn reply(reply_bytes: usize) -> Vec<u8> {
    match reply_bytes {
        0 => b"+OK\r\n".to_vec(),
        count => format!("${count}\r\n{}\r\n", "x".repeat(count)).into_bytes(),
    }
}

fn accept(
    listener: &TcpListener,
    epoll: &rustix::fd::OwnedFd,
    sockets: &mut Vec<Option<TcpStream>>,
) -> Result<()> {
    while let Ok((socket, _)) = listener.accept() {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let index = u64::try_from(sockets.len()).expect("a count fits in 64 bits");
        epoll::add(epoll, &socket, epoll::EventData::new_u64(index), epoll::EventFlags::IN)?;
        sockets.push(Some(socket));
    }
    Ok(())
}

/// False when the connection is over.
fn answer(mut socket: &TcpStream, received: &mut [u8], reply: &[u8], replies: &[u8]) -> bool {
    let bytes = match socket.read(received) {
        Ok(0) => return false,
        Ok(count) => &received[..count],
        Err(error) => return error.kind() == ErrorKind::WouldBlock,
    };
    if bytes.ends_with(b"PING\r\n") {
        return send(socket, b"+PONG\r\n");
    }
    let mut owed = bytes.iter().filter(|byte| **byte == b'*').count() * reply.len();
    while 0 < owed {
        let part = owed.min(replies.len());
        if !send(socket, &replies[..part]) {
            return false;
        }
        owed -= part;
    }
    true
}

/// Waits for room where there is none: the load side always reads.
fn send(mut socket: &TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(0) => return false,
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None);
            }
            Err(_) => return false,
        }
    }
    true
}

//! Chunk tables: the real binary over real sockets, with stores that Dolt wrote.

mod cache;
mod cache_stores;
mod check;
mod commands;
mod many;
mod outages;
mod shown;
mod tool;

use std::net::{Ipv4Addr, SocketAddr};

use crate::support::{fixtures, served::Served};
use tokio::net::TcpSocket;

/// Returns an address that refuses connections as long as its socket is kept: the socket does not
/// listen, and nobody else gets its port.
fn away() -> (TcpSocket, SocketAddr) {
    let held = TcpSocket::new_v4().unwrap();
    held.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = held.local_addr().unwrap();
    (held, address)
}

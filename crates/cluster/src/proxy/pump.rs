//! Threads that forward one connection.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};

use super::{
    Direction,
    controls::{Connection, Piece, SharedControls, Verdict},
};
use crate::{
    limits::{PIECE_BYTES, PIECE_COUNT_MAX},
    wait::now,
};

type Arrived = (Instant, Vec<u8>);

/// Starts forwarding both ways.
pub fn start(
    client: &TcpStream,
    server: &TcpStream,
    shared: &Arc<SharedControls>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ends = Connection { client: client.try_clone()?, server: server.try_clone()? };
    let connection = shared.change(|controls| controls.add(ends));
    let started = one_way(client, server, shared, connection, Direction::ToServer)
        .and_then(|()| one_way(server, client, shared, connection, Direction::ToClient));
    if started.is_err() {
        shared.change(|controls| controls.cut_one(connection));
    }
    started
}

fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    shared: &Arc<SharedControls>,
    connection: u64,
    direction: Direction,
) -> io::Result<()> {
    let (sender, receiver) = sync_channel(PIECE_COUNT_MAX);
    let from = from.try_clone()?;
    spawn(move || read(from, &sender))?;
    let writer = Writer { to: to.try_clone()?, shared: Arc::clone(shared), connection, direction };
    spawn(move || writer.run(&receiver))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("proxy".to_owned()).spawn(body).map(drop)
}

/// Reads until the connection or the writer ends.
fn read(mut from: TcpStream, pieces: &SyncSender<Arrived>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if pieces.send((now(), buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

struct Writer {
    to: TcpStream,
    shared: Arc<SharedControls>,
    connection: u64,
    direction: Direction,
}

impl Writer {
    fn run(mut self, pieces: &Receiver<Arrived>) {
        for (arrived, bytes) in pieces {
            if !self.forward(arrived, &bytes) {
                self.shared.change(|controls| controls.cut_one(self.connection));
                return;
            }
        }
        // The sender has closed cleanly: pass that on to the receiver. A server that closes ends
        // the connection.
        let _ = self.to.shutdown(Shutdown::Write);
        if self.direction == Direction::ToClient {
            self.shared.change(|controls| controls.cut_one(self.connection));
        }
    }

    /// Forwards a piece; returns whether the connection goes on.
    fn forward(&mut self, arrived: Instant, bytes: &[u8]) -> bool {
        let (connection, direction) = (self.connection, self.direction);
        match self.shared.admit(Piece { connection, direction, bytes: bytes.len(), arrived }) {
            Verdict::Forward => self.to.write_all(bytes).is_ok(),
            Verdict::CutAfter(count) => {
                let _ = self.to.write_all(&bytes[..count]);
                false
            }
            Verdict::Drop => false,
        }
    }
}

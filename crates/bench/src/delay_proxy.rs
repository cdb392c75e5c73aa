//! A TCP proxy that puts a distance between clients and a server: every byte is forwarded half a
//! round trip time after it was read, in both directions.
//!
//! ```text
//!            read: all there is, due later          written: all that is due
//!  client ===> bytes of the pipe, and its entry in the queue of dues ===> server
//!         <===                       (the other pipe)                <===
//! ```
//!
//! One thread with one epoll moves everything. All bytes are delayed by the same time, so that one
//! queue holds the dues of all connections in order. The thread sleeps until the first is due
//! (timers of the kernel with no slack, and the last microseconds without sleep). Bandwidth is not
//! limited, and any number of packets may be under way: one that is late delays no other. A pipe
//! that holds [`DELAY_BUFFER_BYTES`](crate::limits::DELAY_BUFFER_BYTES) is not read until half of
//! them are written. The end of a stream is delayed as its bytes are; a connection that fails is
//! closed for its peer, too. Nothing is delayed while a connection is opened, except what client
//! and server then say.

mod pump;

use std::{
    io::{PipeWriter, pipe},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::mpsc::sync_channel,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    process::{Pid, Resource, Rlimit, getrlimit, setrlimit},
    thread::gettid,
};

use self::pump::Pump;

/// A proxy in front of one server. Dropping it closes all connections.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    thread_id: Pid,
    /// Its end wakes the thread and ends it.
    running: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl DelayProxy {
    /// Forwards connections to `server`, which is `round_trip` away from then on.
    pub fn start(server: SocketAddr, round_trip: Duration) -> Result<Self> {
        // Every connection has two more sockets in this process. If it may have no more, accepting
        // fails and says so.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
        let address = listener.local_addr()?;
        let (stopped, running) = pipe().context("a pipe")?;
        let mut pump = Pump::new(listener, stopped, server, round_trip / 2)?;
        let (sender, started) = sync_channel(1);
        let run = move || {
            // Nobody receives if the start was given up.
            let _ = sender.send(gettid());
            if let Err(error) = pump.run() {
                eprintln!("the proxy that adds distance has ended: {error:#}");
            }
        };
        let thread = thread::Builder::new().name("distance".to_owned()).spawn(run)?;
        let thread_id = started.recv().context("the proxy's thread")?;
        Ok(Self { address, thread_id, running: Some(running), thread: Some(thread) })
    }

    /// Returns where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its thread, whose processor time is not that of the load.
    pub fn thread_id(&self) -> Pid {
        self.thread_id
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        net::{Shutdown, TcpStream},
    };

    use super::*;
    use crate::{clock::now_ns, limits::DELAY_BUFFER_BYTES, random::Random};

    const ROUND_TRIP: Duration = Duration::from_millis(4);

    /// Connects through a proxy; returns both ends.
    fn connected(round_trip: Duration) -> (DelayProxy, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = DelayProxy::start(listener.local_addr().unwrap(), round_trip).unwrap();
        let client = TcpStream::connect(proxy.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (proxy, client, server)
    }

    fn ns(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos()).unwrap()
    }

    #[test]
    fn nothing_arrives_before_its_time_in_either_direction() {
        let (_proxy, client, server) = connected(ROUND_TRIP);
        for (from, to) in [(&client, &server), (&server, &client)] {
            for byte in 0..20 {
                let sent_ns = now_ns();
                (&*from).write_all(&[byte]).unwrap();
                let mut received = [0];
                (&*to).read_exact(&mut received).unwrap();
                assert_eq!(received, [byte]);
                assert!(ns(ROUND_TRIP / 2) <= now_ns() - sent_ns);
            }
        }
    }

    #[test]
    fn big_transfers_keep_their_order_both_ways_at_once() {
        let (_proxy, client, server) = connected(Duration::from_micros(300));
        let bytes = 4 * DELAY_BUFFER_BYTES + 12_345;
        let content = |seed| {
            let mut random = Random::new(seed);
            (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect::<Vec<u8>>()
        };
        thread::scope(|scope| {
            for (seed, from, to) in [(1, &client, &server), (2, &server, &client)] {
                scope.spawn(move || {
                    (&*from).write_all(&content(seed)).unwrap();
                    from.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let mut received = Vec::with_capacity(bytes);
                    (&*to).read_to_end(&mut received).unwrap();
                    assert!(received == content(seed), "{} of {bytes} bytes", received.len());
                });
            }
        });
    }

    #[test]
    fn a_pipe_that_is_not_read_holds_no_more_than_its_limit() {
        let (_proxy, client, mut server) = connected(Duration::from_micros(10));
        client.set_nonblocking(true).unwrap();
        let (mut sent, mut idle) = (0, 0);
        // The kernel's own buffers on both sides are bounded; so writing ends for good.
        while idle < 200 {
            match (&client).write(&[0; 65_536]) {
                Ok(count) => (sent, idle) = (sent + count, 0),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    idle += 1;
                    crate::clock::pause(Duration::from_millis(1));
                }
            }
            assert!(sent < 32 * DELAY_BUFFER_BYTES, "{sent}");
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), sent);
    }

    #[test]
    fn one_direction_can_end_before_the_other() {
        let (_proxy, mut client, mut server) = connected(ROUND_TRIP);
        client.write_all(b"question").unwrap();
        let sent_ns = now_ns();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).unwrap();
        assert!(ns(ROUND_TRIP / 2) <= now_ns() - sent_ns);
        server.write_all(b"answer").unwrap();
        drop(server);
        client.read_to_string(&mut received).unwrap();
        assert_eq!(received, "questionanswer");
    }

    /// Tells an end that is seen: no more bytes, or an error.
    fn ends(mut stream: &TcpStream) -> bool {
        matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_))
    }

    #[test]
    fn a_close_passes_on_also_with_unread_bytes_and_of_a_server_that_refuses() {
        let (_proxy, client, server) = connected(ROUND_TRIP);
        drop(server);
        assert!(ends(&client));
        // Unread bytes make the close a reset.
        let (_proxy, mut client, server) = connected(ROUND_TRIP);
        client.write_all(b"unread").unwrap();
        server.peek(&mut [0; 6]).unwrap();
        drop(server);
        assert!(ends(&client));
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let proxy = DelayProxy::start(gone, ROUND_TRIP).unwrap();
        assert!(ends(&TcpStream::connect(proxy.address()).unwrap()));
        // A dropped proxy closes what it still forwards.
        let (proxy, client, server) = connected(ROUND_TRIP);
        drop(proxy);
        assert!(ends(&client) && ends(&server));
    }
}

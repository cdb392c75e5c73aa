//! busload as a target: its library in this process, and its server over RESP.
//!
//! Over RESP, clients leave their requests with the task of a connection, which sends all it has
//! with one write and hands out all replies that one read brought: what the driver of Postgres
//! does, too.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use busload_batch::DispatchPolicy;
use busload_postgres::{Environment, Error, Options, Table};
use busload_resp::reply::Reply;
use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
};

use super::{
    database::{check, key, upserted},
    load::{Request, Target},
};
use crate::failures::Failure;

/// Connects the library to the table at `url`, to send batches by busload's own policy or with so
/// many keys or after so long. Must be called on the runtime of the load.
pub async fn open_library(url: String, window: Option<(usize, Duration)>) -> Result<Table> {
    let options = Options { url: Some(url), ..Options::default() };
    let settings = options.resolve("bench", &Environment::of_process());
    let mut settings = settings.context("busload's library")?;
    if let Some((keys, wait)) = window {
        settings.queue.batch_entries_max = keys;
        settings.queue.dispatch = DispatchPolicy::Window { entries: keys, wait };
    }
    let table = Table::start(settings);
    table.connected().await.context("busload's library")?;
    Ok(table)
}

impl Target for Table {
    async fn ask(&self, Request { row, stamp, .. }: Request) -> Result<u64, Failure> {
        let key = key(row);
        let refused = |error: Error| Failure::Refused(error.to_string());
        let Some(stamp) = stamp else {
            let found = self.get(key.as_bytes()).await.map_err(refused)?;
            return check(row, found.as_ref().and_then(|found| found.get(0)));
        };
        self.set(key.as_bytes(), upserted(row, stamp)).await.map(|()| 1).map_err(refused)
    }
}

/// Bytes that one read may bring.
const READ_BYTES: usize = 64 << 10;

/// Requests that a connection takes at once.
const REQUESTS: usize = 1_024;

/// A request as bytes, and the client that waits for its reply.
type Waiting = (String, oneshot::Sender<Reply>);

/// Connections to the busload server, whose table has the name `bench`.
pub struct Resp {
    connections: Vec<UnboundedSender<Waiting>>,
}

impl Resp {
    pub async fn open(address: SocketAddr, count: usize) -> Result<Self> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = TcpStream::connect(address).await;
            let stream = stream.with_context(|| format!("no connection to {address}"))?;
            stream.set_nodelay(true)?;
            let (sender, requests) = unbounded_channel();
            tokio::spawn(async {
                if let Err(error) = serve(stream, requests).await {
                    eprintln!("over RESP: {error:#}");
                }
            });
            connections.push(sender);
        }
        Ok(Self { connections })
    }
}

impl Target for Resp {
    async fn ask(&self, Request { client, row, stamp }: Request) -> Result<u64, Failure> {
        let request = match stamp.map(|stamp| upserted(row, stamp)) {
            None => format!("*2\r\n$3\r\nGET\r\n$26\r\nbench:{row:020}\r\n"),
            Some(payload) => {
                format!("*3\r\n$3\r\nSET\r\n$26\r\nbench:{row:020}\r\n$35\r\n{payload}\r\n")
            }
        };
        let (sender, reply) = oneshot::channel();
        // Of a connection that has failed nobody receives, and the reply's sender is dropped.
        let _ = self.connections[client % self.connections.len()].send((request, sender));
        let closed = |_| Failure::Refused("the connection is closed".to_owned());
        match (reply.await.map_err(closed)?, stamp) {
            (Reply::Error(text), _) => Err(Failure::Refused(String::from_utf8_lossy(&text).into())),
            (Reply::Bulk(payload), None) => check(row, Some(&payload)),
            (Reply::Null(_), None) => check(row, None),
            (Reply::Simple(text), Some(_)) if text == b"OK" => Ok(1),
            (other, _) => Err(Failure::Wrong(format!("{other:?}"))),
        }
    }
}

/// Carries requests and replies until no client is left.
async fn serve(mut stream: TcpStream, mut requests: UnboundedReceiver<Waiting>) -> Result<()> {
    let (mut reader, mut writer) = stream.split();
    let (mut unsent, mut received) = (BytesMut::new(), BytesMut::new());
    let (mut asked, mut pending) = (Vec::with_capacity(REQUESTS), VecDeque::new());
    loop {
        received.reserve(READ_BYTES);
        tokio::select! {
            biased;
            count = requests.recv_many(&mut asked, REQUESTS) => {
                if count == 0 {
                    return Ok(());
                }
                for (request, reply) in asked.drain(..) {
                    unsent.extend_from_slice(request.as_bytes());
                    pending.push_back(reply);
                }
            }
            sent = writer.write_buf(&mut unsent), if !unsent.is_empty() => {
                sent?;
            }
            count = reader.read_buf(&mut received) => {
                if count? == 0 {
                    bail!("the server closed a connection");
                }
                while let Some((reply, bytes)) =
                    Reply::parse(&received).context("the server sent what is no RESP")?
                {
                    received.advance(bytes);
                    let client = pending.pop_front().context("more replies than requests")?;
                    // A client that was ended does not wait any more.
                    let _ = oneshot::Sender::send(client, reply);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::experiment::postgres::database::LOADED;

    /// Asks a server that takes these bytes as a request and replies in two pieces.
    async fn ask(asked: &str, reply: &str, cut: usize, stamp: Option<u64>) -> Result<u64, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let resp = Resp::open(listener.local_addr().unwrap(), 1).await.unwrap();
        let (mut socket, _) = listener.accept().await.unwrap();
        let answer = async {
            let mut received = vec![0; asked.len()];
            socket.read_exact(&mut received).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&received), asked);
            socket.write_all(&reply.as_bytes()[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            socket.write_all(&reply.as_bytes()[cut..]).await.unwrap();
            drop(socket);
        };
        tokio::join!(resp.ask(Request { client: 3, row: 42, stamp }), answer).0
    }

    #[tokio::test]
    async fn replies_are_read_however_they_are_cut_and_checked() {
        let get = "*2\r\n$3\r\nGET\r\n$26\r\nbench:00000000000000000042\r\n";
        let reply = |row: u64| format!("$35\r\n{LOADED}{row:020}\r\n");
        for cut in 0..reply(42).len() {
            assert_eq!(ask(get, &reply(42), cut, None).await, Ok(1), "{cut}");
        }
        for wrong in [reply(43).as_str(), "$-1\r\n", "$3\r\nabc\r\n", ":1\r\n", "+OK\r\n"] {
            assert!(matches!(ask(get, wrong, 0, None).await, Err(Failure::Wrong(_))), "{wrong}");
        }
        // Refused, no RESP, and closed.
        for refused in ["-ERR table bench: deadline exceeded\r\n", "what\r\n", ""] {
            let outcome = ask(get, refused, 0, None).await;
            assert!(matches!(outcome, Err(Failure::Refused(_))), "{refused}: {outcome:?}");
        }
        let set = "*3\r\n$3\r\nSET\r\n$26\r\nbench:00000000000000000042\r\n\
                   $35\r\nupsert 0000007 00000000000000000042\r\n";
        assert_eq!(ask(set, "+OK\r\n", 2, Some(7)).await, Ok(1));
        assert!(matches!(ask(set, "$-1\r\n", 0, Some(7)).await, Err(Failure::Wrong(_))));
    }
}

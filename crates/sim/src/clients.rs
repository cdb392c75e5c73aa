//! Simulated clients: what they sent, what they got, and what they have seen by that.

use std::collections::VecDeque;

use busload_io::sim::{ClientId, SimClients, SimRng};
use busload_resp::{reply::Reply, write_array, write_bulk};

use crate::{
    model::{Request, show_reply},
    server::{Server, show},
    workload::{Sending, Workload},
};

/// Most requests of a client that wait for their replies.
const PENDING_MAX: usize = 24;

/// Most requests that a client sends at once.
const BURST_MAX: u64 = 8;

/// A client with one connection.
pub struct Client {
    id: ClientId,
    sending: Sending,
    received: Vec<u8>,
    /// Requests whose replies are still to come.
    sent: VecDeque<Request>,
    /// Number of replies so far.
    replied: usize,
    is_reading: bool,
}

impl Client {
    /// Connects a client, which reads.
    pub fn connect(clients: &SimClients) -> Self {
        Self {
            id: clients.connect(),
            sending: Sending::default(),
            received: Vec::new(),
            sent: VecDeque::new(),
            replied: 0,
            is_reading: true,
        }
    }

    /// Returns whether all requests were answered.
    pub fn is_answered(&self) -> bool {
        self.sent.is_empty()
    }

    /// Says which request waits for its reply, if one does, and whether it was executed.
    pub fn waiting(&self, server: &Server) -> Option<String> {
        let first = self.sent.front()?;
        let executed = server.executed.get(&self.port()).map_or(0, Vec::len);
        let done = if self.replied < executed { "executed" } else { "not executed" };
        Some(format!(
            "client {}: {} ({done}) and {} more",
            self.id.0,
            show(first),
            self.sent.len() - 1
        ))
    }

    fn port(&self) -> u16 {
        u16::try_from(self.id.0).expect("few clients")
    }

    /// Sends some requests, unless too many wait already.
    pub fn send_some(&mut self, clients: &SimClients, rng: &mut SimRng, workload: &mut Workload) {
        for _ in 0..=rng.below(BURST_MAX) {
            if PENDING_MAX <= self.sent.len() {
                return;
            }
            let request = workload.request(rng, &mut self.sending);
            self.send(clients, request);
        }
    }

    /// Sends a request of any kind.
    pub fn send(&mut self, clients: &SimClients, request: Request) {
        let mut bytes = Vec::new();
        write_array(&mut bytes, request.len());
        request.iter().for_each(|argument| write_bulk(&mut bytes, argument));
        clients.write(self.id, &bytes);
        self.sent.push_back(request);
    }

    /// Stops reading, reads again, closes or breaks the connection. Returns whether it is over.
    pub fn misbehave(&mut self, clients: &SimClients, rng: &mut SimRng) -> bool {
        match rng.below(6) {
            0..3 if self.is_reading => clients.stop_reading(self.id),
            0..3 => clients.start_reading(self.id),
            3 => {
                clients.close(self.id);
                return true;
            }
            4 => {
                clients.reset(self.id);
                return true;
            }
            _ => return false,
        }
        self.is_reading = !self.is_reading;
        false
    }

    /// Reads again, if the client had stopped.
    pub fn read_again(&mut self, clients: &SimClients) {
        clients.start_reading(self.id);
        self.is_reading = true;
    }

    /// Closes the connection of the client.
    pub fn close(self, clients: &SimClients) {
        clients.close(self.id);
    }

    /// Takes the replies that have arrived, in order.
    ///
    /// # Errors
    /// If they are not well formed.
    pub fn replies(&mut self, clients: &SimClients) -> Result<Vec<Reply>, String> {
        self.received.extend(clients.read(self.id));
        let mut replies = Vec::new();
        while let Some((reply, length)) =
            Reply::parse(&self.received).map_err(|error| error.to_string())?
        {
            self.received.drain(..length);
            self.sent.pop_front();
            replies.push(reply);
        }
        Ok(replies)
    }

    /// Takes the replies that have arrived, compares them with what was executed, and notes what
    /// the client has seen by them. Returns a number that depends on all of them.
    ///
    /// # Errors
    /// If a reply is not the one to its request.
    pub fn receive(&mut self, server: &mut Server) -> Result<u64, String> {
        let requests: Vec<Request> = self.sent.iter().cloned().collect();
        let mut hash = 0_u64;
        for (reply, request) in self.replies(&server.clients.clone())?.iter().zip(requests) {
            let port = self.port();
            let executed =
                server.executed.get(&port).and_then(|executed| executed.get(self.replied));
            let Some(executed) = executed else {
                return Err(format!("client {port}: {} was not executed", show(&request)));
            };
            if executed.request != request {
                return Err(format!(
                    "client {port} sent {}, the server executed {}",
                    show(&request),
                    show(&executed.request)
                ));
            }
            if executed.reply.as_ref().is_some_and(|of_tx| of_tx != reply) {
                return Err(format!(
                    "client {port}, {}: tx replied {:?}, what arrived is {}",
                    show(&request),
                    executed.reply.as_ref().map(show_reply),
                    show_reply(reply)
                ));
            }
            let needs = executed.needs;
            if let Some(model) = &mut server.model {
                model.history.observe(needs);
            }
            self.replied += 1;
            hash = mix(hash, reply);
        }
        Ok(hash)
    }
}

/// Mixes a reply into a hash (FNV-1a).
fn mix(hash: u64, reply: &Reply) -> u64 {
    let text = format!("{reply:?}");
    text.bytes().fold(hash ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

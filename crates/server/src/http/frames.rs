//! Frames of HTTP/2 (RFC 9113, 4.1) as they pass by on a socket, and how much of what a client
//! sends is work for nothing.
//!
//! hyper answers every PING and SETTINGS and takes every other frame for as long as they come. So
//! each frame that asks for no answer costs something, and a client has so much to spend: a little
//! at once and by time, more by answers that it takes. Clients that measure the line send a PING
//! for each DATA that they get, and those with small buffers many a WINDOW_UPDATE.
//!
//! | a client sends | it costs |
//! |---|---|
//! | HEADERS | nothing: it is a request, and earns 1 for the first DATA, which may be short |
//! | DATA that holds a message, or the last of a request's stream | nothing |
//! | RST_STREAM | 2: it was a request for nothing |
//! | WINDOW_UPDATE | 2: who takes an answer byte by byte spends more than it earns |
//! | any other DATA; PING, SETTINGS, PRIORITY, CONTINUATION, ... | 1, and more if it is long |
//!
//! | it is sent | it earns |
//! |---|---|
//! | HEADERS | [`HEADERS_CREDIT`] |
//! | DATA | 1, and more by its length ([`BYTES_PER_CREDIT`]) |

use tokio::time::Instant;

use super::limits::{
    CONTROL_FRAMES_EARNED_MAX, CONTROL_FRAMES_PER_SECOND, CONTROL_FRAMES_START, DATA_BYTES_MIN,
};

/// What a connection of HTTP/2 begins with (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Before a frame's payload.
const HEAD_BYTES: usize = 9;
/// An answer's beginning or end.
const HEADERS_CREDIT: u64 = 4;
/// Each so many bytes of an answer are worth a frame: a client may tell of each 256 bytes, of
/// stream and connection, that they were read.
const BYTES_PER_CREDIT: u64 = 64;
/// Each so many bytes of a frame that asks for nothing are as much work as another one.
const BYTES_PER_COST: u64 = 256;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ENHANCE_YOUR_CALM: u32 = 0xb;
/// Debug data of the GOAWAY frame that a flooding client is sent.
const WHY: &[u8] = b"too many frames that ask for nothing";

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    bytes: u64,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn of(head: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = head;
        let bytes = u64::from(u32::from_be_bytes([0, a, b, c]));
        Self { bytes, kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff }
    }

    fn cost(self) -> u64 {
        match self.kind {
            HEADERS => 0,
            DATA if DATA_BYTES_MIN <= self.bytes => 0,
            RST_STREAM | WINDOW_UPDATE => 2,
            _ => 1 + self.bytes / BYTES_PER_COST,
        }
    }

    fn ends_stream(self) -> bool {
        self.flags & END_STREAM != 0
    }

    fn credit(self) -> u64 {
        match self.kind {
            HEADERS => HEADERS_CREDIT,
            DATA => 1 + self.bytes / BYTES_PER_CREDIT,
            _ => 0,
        }
    }
}

/// Where frames begin in one direction.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD_BYTES],
    /// Of these.
    head_bytes: usize,
    /// Of the payload, what has not passed.
    left_bytes: u64,
}

impl Frames {
    /// Whether the last frame has passed whole.
    fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.left_bytes == 0
    }

    /// The next frame that begins in these bytes, which are taken away up to there.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Head> {
        let passed = usize::try_from(self.left_bytes).unwrap_or(usize::MAX).min(bytes.len());
        self.left_bytes -= passed as u64;
        let rest = &bytes[passed..];
        let (part, rest) = rest.split_at(rest.len().min(HEAD_BYTES - self.head_bytes));
        *bytes = rest;
        self.head[self.head_bytes..][..part.len()].copy_from_slice(part);
        self.head_bytes += part.len();
        if self.head_bytes < HEAD_BYTES {
            return None;
        }
        self.head_bytes = 0;
        let head = Head::of(self.head);
        self.left_bytes = head.bytes;
        Some(head)
    }
}

/// What was seen of the connection's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// So many bytes of the preface.
    Unknown(usize),
    Http1,
    Http2,
}

/// What a connection has to spend.
#[derive(Debug)]
pub struct FrameBudget {
    version: Version,
    received: Frames,
    sent: Frames,
    frames: u64,
    /// When it was last given some by time.
    refilled_at: Instant,
    /// The last request's.
    stream: u32,
    /// Requests whose stream the client has not ended. Each may end once, with little or nothing.
    open: u64,
}

impl FrameBudget {
    /// Of a new connection.
    pub fn new() -> Self {
        Self {
            version: Version::Unknown(0),
            received: Frames::default(),
            sent: Frames::default(),
            frames: CONTROL_FRAMES_START,
            refilled_at: Instant::now(),
            stream: 0,
            open: 0,
        }
    }

    /// These bytes were received. Whether the client has sent too much that asks for nothing.
    #[must_use]
    pub fn receive(&mut self, mut bytes: &[u8]) -> bool {
        if let Version::Unknown(seen) = self.version {
            let (part, rest) = bytes.split_at(bytes.len().min(PREFACE.len() - seen));
            self.version = match part == &PREFACE[seen..][..part.len()] {
                true if seen + part.len() == PREFACE.len() => Version::Http2,
                true => Version::Unknown(seen + part.len()),
                false => Version::Http1,
            };
            bytes = rest;
        }
        if self.version != Version::Http2 {
            return false;
        }
        let mut is_too_much = false;
        while let Some(head) = self.received.next(&mut bytes) {
            let cost = self.cost(head);
            is_too_much |= !self.spend(cost);
        }
        is_too_much
    }

    /// What the next frame that was received costs.
    fn cost(&mut self, head: Head) -> u64 {
        match head.kind {
            HEADERS => {
                self.earn(1);
                if self.stream < head.stream {
                    self.stream = head.stream;
                    self.open += u64::from(!head.ends_stream());
                }
                0
            }
            DATA if head.ends_stream() && self.open != 0 => {
                self.open -= 1;
                0
            }
            RST_STREAM => {
                self.open = self.open.saturating_sub(1);
                head.cost()
            }
            _ => head.cost(),
        }
    }

    /// These bytes were sent.
    pub fn send(&mut self, mut bytes: &[u8]) {
        if self.version != Version::Http2 {
            return;
        }
        while let Some(head) = self.sent.next(&mut bytes) {
            self.earn(head.credit());
        }
    }

    fn earn(&mut self, frames: u64) {
        self.frames = (self.frames + frames).min(CONTROL_FRAMES_EARNED_MAX);
    }

    /// The frame that sends the client away; none in the middle of another one.
    pub fn goaway(&self) -> Option<Vec<u8>> {
        if self.version != Version::Http2 || !self.sent.is_between() {
            return None;
        }
        let length = u8::try_from(8 + WHY.len()).expect("it is short");
        let head = [0, 0, length, GOAWAY, 0, 0, 0, 0, 0];
        Some(
            [&head[..], &self.stream.to_be_bytes(), &ENHANCE_YOUR_CALM.to_be_bytes(), WHY].concat(),
        )
    }

    fn spend(&mut self, cost: u64) -> bool {
        if self.frames < cost {
            let now = Instant::now();
            let passed = now.saturating_duration_since(self.refilled_at);
            let more = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
                / (1000 / CONTROL_FRAMES_PER_SECOND);
            if more != 0 {
                self.refilled_at = now;
                self.frames = self.frames.saturating_add(more).min(CONTROL_FRAMES_START);
            }
        }
        let left = self.frames.checked_sub(cost);
        self.frames = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests;

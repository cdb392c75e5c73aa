//! Watches the frames of HTTP/2 (RFC 9113, 4.1) on a socket, and limits those that cost work but
//! ask for nothing.
//!
//! hyper answers every PING and SETTINGS and takes every other frame for as long as they come. So
//! each frame that asks for no answer is charged to a budget. A client has a small budget at first,
//! gains some each second, and earns more by the answers that the server sends it: a client that
//! measures the bandwidth sends a PING for each DATA frame, and one with small buffers sends many
//! WINDOW_UPDATE frames.
//!
//! | a client sends | it costs |
//! |---|---|
//! | HEADERS | nothing: it is a request, and earns 1 for the first DATA, which may be short |
//! | DATA that holds a message, or the last of a request's stream | nothing |
//! | RST_STREAM | 2: its request was wasted work |
//! | WINDOW_UPDATE | 2: a client that takes an answer byte by byte spends more than it earns |
//! | any other DATA; PING, SETTINGS, PRIORITY, CONTINUATION, ... | 1, and more if it is long |
//!
//! | a client is sent | it earns |
//! |---|---|
//! | HEADERS | [`HEADERS_CREDIT`] |
//! | DATA | 1, and more by its length ([`BYTES_PER_CREDIT`]) |

use tokio::time::Instant;

use super::limits::{
    CONTROL_FRAMES_EARNED_MAX, CONTROL_FRAMES_PER_SECOND, CONTROL_FRAMES_START, DATA_BYTES_MIN,
};

/// First bytes of a connection of HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame's header.
const HEAD_BYTES: usize = 9;
/// Budget earned by each HEADERS frame sent: an answer's beginning or end.
const HEADERS_CREDIT: u64 = 4;
/// Bytes of an answer that earn 1: a client may acknowledge every 256 bytes with two
/// WINDOW_UPDATEs, of stream and connection.
const BYTES_PER_CREDIT: u64 = 64;
/// Number of bytes for which a frame that asks for nothing costs 1 more.
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

/// Header of a frame.
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

/// Parser that finds the frame headers in one direction.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD_BYTES],
    /// Bytes of `head` that have been seen.
    head_bytes: usize,
    /// Bytes of the current frame's payload that have not been seen.
    left_bytes: u64,
}

impl Frames {
    /// Returns whether the last frame has ended and the next one not begun.
    fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.left_bytes == 0
    }

    /// Returns the next frame whose header ends in these bytes, and advances them past that header.
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

/// Version of HTTP, as far as the connection's first bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Not known yet; this many bytes of the preface of HTTP/2 have come.
    Unknown(usize),
    Http1,
    Http2,
}

/// Budget of one connection for frames that ask for nothing.
#[derive(Debug)]
pub struct FrameBudget {
    version: Version,
    received: Frames,
    sent: Frames,
    frames: u64,
    /// Time of the last gain by time.
    refilled_at: Instant,
    /// Stream of the last request.
    stream: u32,
    /// Count of requests whose stream the client has not ended. Each may end once with a short or
    /// empty DATA frame, free of charge.
    open: u64,
}

impl FrameBudget {
    /// Budget of a new connection.
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

    /// Notes received bytes. Returns whether the client has exceeded its budget.
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

    /// Returns the cost of a received frame.
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

    /// Notes sent bytes, which earn budget.
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

    /// Returns the GOAWAY frame for a client that floods the server; none in the middle of another
    /// frame.
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

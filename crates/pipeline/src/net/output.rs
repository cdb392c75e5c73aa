//! Pending replies of one connection, in request order, each released when its gate opens.
//!
//! Replies lie in chunks of at most [`REPLY_CHUNK_BYTES_MAX`], so that no buffer of megabytes ever
//! grows by copying, and the counted size is the allocated one. Replies to a client that does not
//! read lie in mapped memory ([`super::maps`]): the system provides it page by page and gets it
//! back soon after the client is closed, while an allocator would keep gigabytes, or return them in
//! one go while all clients wait.

use std::collections::{BTreeMap, VecDeque};

use busload_io::SendChunk;
use bytes::Bytes;

use super::maps::{MapPool, Mapped};
use crate::{
    batch::{ReplyRun, RequestBatch},
    gate::{Gate, Watermarks},
    limits::{MAPPED_FROM_BYTES, REPLY_CHUNK_BYTES_MAX},
};

/// Memory for chunks that all connections reuse.
#[derive(Debug, Default)]
pub(super) struct Spare {
    pub buffers: Vec<Vec<u8>>,
    pub maps: MapPool,
}

/// Bytes that wait for one gate.
#[derive(Debug)]
struct Chunk {
    gate: Gate,
    body: Body,
    /// Says whether to close the connection when this has been sent.
    close: bool,
}

#[derive(Debug)]
enum Body {
    /// Buffer of copied replies.
    Owned(Vec<u8>),
    /// Large value shared with a table.
    Shared(Bytes),
    /// Mapped memory, for replies to a client that does not read.
    Mapped(Mapped),
}

impl Body {
    /// Returns the memory it takes: the whole of a buffer, the length of a shared value, the
    /// written part of mapped memory.
    fn memory_bytes(&self) -> usize {
        match self {
            Body::Owned(bytes) => bytes.capacity(),
            Body::Shared(bytes) => bytes.len(),
            Body::Mapped(mapped) => mapped.len(),
        }
    }

    fn into_send(self) -> SendChunk {
        match self {
            Body::Owned(bytes) => SendChunk::Owned(bytes),
            Body::Shared(bytes) => SendChunk::Shared(bytes),
            Body::Mapped(mapped) => SendChunk::Shared(Bytes::from_owner(mapped)),
        }
    }
}

/// Pending replies of a connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: VecDeque<Chunk>,
    /// Replies to later requests that came before those of earlier ones, by sequence number of the
    /// first request.
    early: BTreeMap<u64, (u64, Vec<Chunk>)>,
    /// Sequence number of the request whose reply goes to the end of the queue next.
    next_seq: u64,
    /// Memory of all chunks, including the one being sent.
    bytes: usize,
    sending: bool,
    closing: bool,
}

/// Next action for a connection.
#[derive(Debug)]
pub(super) enum Release {
    /// Send these bytes to the client.
    Send(SendChunk),
    /// Nothing can be sent now: the first gate is closed.
    Gated,
    /// There is nothing to do.
    Idle,
    /// Everything was sent and the connection shall be closed.
    Close,
}

impl Output {
    /// Returns the memory that unsent replies take.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many chunks of replies wait, the one being sent included.
    pub fn chunk_count(&self) -> usize {
        self.queue.len() + self.early.len() + usize::from(self.sending)
    }

    /// Returns whether a chunk is being sent.
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.sending
    }

    /// Returns the sequence number of the request whose reply is missing next.
    #[inline]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns the gate of the first pending reply, if there is one and nothing is being sent.
    pub fn gate(&self) -> Option<Gate> {
        if self.sending { None } else { self.queue.front().map(|chunk| chunk.gate) }
    }

    /// Returns whether nothing is pending and nothing is being sent.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.early.is_empty() && !self.sending
    }

    /// Inserts a reply run of a batch by its position in the order.
    pub fn push(&mut self, run: &ReplyRun, batch: &RequestBatch, spare: &mut Spare) {
        let in_order = run.first_seq == self.next_seq || run.seq_count == 0;
        if in_order && run.shared_count == 0 {
            self.push_bytes(&batch.out[run.start..run.end], run.gate, run.close, spare);
            self.next_seq += u64::from(run.seq_count);
        } else {
            let chunks = self.cut(run, batch, spare);
            if !in_order {
                self.early.insert(run.first_seq, (u64::from(run.seq_count), chunks));
                return;
            }
            self.queue.extend(chunks);
            self.next_seq += u64::from(run.seq_count);
        }
        while let Some((count, chunks)) = self.early.remove(&self.next_seq) {
            self.queue.extend(chunks);
            self.next_seq += count;
        }
    }

    /// Appends to the last chunk when that waits for the same gate, the common case.
    fn push_bytes(&mut self, bytes: &[u8], gate: Gate, close: bool, spare: &mut Spare) {
        if MAPPED_FROM_BYTES <= self.bytes {
            return self.push_mapped(bytes, gate, close, &spare.maps);
        }
        if let Some(Chunk { gate: last, body: Body::Owned(body), close: last_close }) =
            self.queue.back_mut()
            && last.join(gate) == *last
            && body.len() + bytes.len() <= REPLY_CHUNK_BYTES_MAX
        {
            let before = body.capacity();
            append(body, bytes);
            self.bytes += body.capacity() - before;
            *last_close |= close;
            return;
        }
        if bytes.is_empty() && !close {
            return;
        }
        let queue = &mut self.queue;
        self.bytes += owned_chunks(bytes, gate, close, spare, |chunk| queue.push_back(chunk));
    }

    /// Appends to mapped memory, for a client that does not read.
    fn push_mapped(&mut self, bytes: &[u8], gate: Gate, close: bool, maps: &MapPool) {
        let mut rest = bytes;
        if let Some(Chunk { gate: last, body: Body::Mapped(mapped), .. }) = self.queue.back_mut()
            && last.join(gate) == *last
        {
            rest = mapped.append(rest);
        }
        while !rest.is_empty() {
            let Some(mut mapped) = maps.take() else { break };
            rest = mapped.append(rest);
            self.queue.push_back(Chunk { gate, body: Body::Mapped(mapped), close: false });
        }
        self.bytes += bytes.len() - rest.len();
        match self.queue.back_mut() {
            Some(last) if rest.is_empty() => last.close |= close,
            // The system has no memory to map, or the reply has no bytes and only closes the
            // connection.
            _ => {
                let queue = &mut self.queue;
                let push = |chunk| queue.push_back(chunk);
                self.bytes += owned_chunks(rest, gate, close, &mut Spare::default(), push);
            }
        }
    }

    /// Splits a reply run at its large values.
    fn cut(&mut self, run: &ReplyRun, batch: &RequestBatch, spare: &mut Spare) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let gate = run.gate;
        let first = run.first_shared as usize;
        let parts = &batch.shared[first..first + run.shared_count as usize];
        let mut from = run.start;
        for part in parts {
            let before = &batch.out[from..part.at];
            if !before.is_empty() {
                self.bytes += owned_chunks(before, gate, false, spare, |chunk| chunks.push(chunk));
            }
            self.bytes += part.bytes.len();
            chunks.push(Chunk { gate, body: Body::Shared(part.bytes.clone()), close: false });
            from = part.at;
        }
        let rest = &batch.out[from..run.end];
        self.bytes += owned_chunks(rest, gate, run.close, spare, |chunk| chunks.push(chunk));
        chunks
    }

    /// Returns what to do now. At most one send is under way; replies that are released meanwhile
    /// go out with the next.
    pub fn release(&mut self, progress: Watermarks, spare: &mut Spare) -> Release {
        if self.sending {
            return Release::Idle;
        }
        let Some(mut body) = self.pop_open(progress).map(Body::into_send) else {
            return match self.queue.front() {
                Some(_) => Release::Gated,
                None if self.closing => Release::Close,
                None => Release::Idle,
            };
        };
        if let SendChunk::Owned(bytes) = &mut body {
            self.gather(bytes, progress, spare);
        }
        if body.as_slice().is_empty() {
            self.bytes -= memory_bytes(&body);
            self.recycle(body, spare);
            return self.release(progress, spare);
        }
        self.sending = true;
        Release::Send(body)
    }

    /// Appends further released replies, up to the size of a chunk, so that one send takes them
    /// all.
    fn gather(&mut self, bytes: &mut Vec<u8>, progress: Watermarks, spare: &mut Spare) {
        while let Some(Chunk { gate, body: Body::Owned(next), .. }) = self.queue.front()
            && gate.is_open(progress)
            && !self.closing
            && bytes.len() + next.len() <= REPLY_CHUNK_BYTES_MAX
        {
            let before = bytes.capacity();
            append(bytes, next);
            self.bytes += bytes.capacity() - before;
            if let Some(body) = self.pop_open(progress) {
                self.bytes -= body.memory_bytes();
                self.recycle(body.into_send(), spare);
            }
        }
    }

    fn pop_open(&mut self, progress: Watermarks) -> Option<Body> {
        if self.closing || !self.queue.front()?.gate.is_open(progress) {
            return None;
        }
        let chunk = self.queue.pop_front()?;
        if chunk.close {
            self.closing = true;
            self.bytes -=
                self.queue.drain(..).map(|chunk| chunk.body.memory_bytes()).sum::<usize>();
        }
        Some(chunk.body)
    }

    /// Takes back the chunk of a send that is done.
    pub fn sent(&mut self, chunk: SendChunk, spare: &mut Spare) {
        self.sending = false;
        self.bytes -= memory_bytes(&chunk);
        self.recycle(chunk, spare);
    }

    fn recycle(&mut self, chunk: SendChunk, spare: &mut Spare) {
        match chunk {
            SendChunk::Owned(bytes) => super::keep_spare(&mut spare.buffers, bytes),
            SendChunk::Shared(bytes) => super::drop_shared(bytes),
        }
    }
}

/// Splits bytes into chunks of bounded size; returns the memory they take.
fn owned_chunks(
    bytes: &[u8],
    gate: Gate,
    close: bool,
    spare: &mut Spare,
    mut push: impl FnMut(Chunk),
) -> usize {
    let mut memory = 0;
    let mut rest = bytes;
    loop {
        let (piece, left) = rest.split_at(rest.len().min(REPLY_CHUNK_BYTES_MAX));
        rest = left;
        let mut body = spare.buffers.pop().unwrap_or_default();
        body.extend_from_slice(piece);
        memory += body.capacity();
        let last = rest.is_empty();
        push(Chunk { gate, body: Body::Owned(body), close: close && last });
        if last {
            return memory;
        }
    }
}

/// Appends to a chunk, which grows by doubling up to the size of a full one.
fn append(chunk: &mut Vec<u8>, bytes: &[u8]) {
    let wanted = chunk.len() + bytes.len();
    if chunk.capacity() < wanted {
        let capacity = wanted.max(2 * chunk.capacity()).min(REPLY_CHUNK_BYTES_MAX.max(wanted));
        chunk.reserve_exact(capacity - chunk.len());
    }
    chunk.extend_from_slice(bytes);
}

/// Returns what [`Body::memory_bytes`] returned for it.
fn memory_bytes(chunk: &SendChunk) -> usize {
    match chunk {
        SendChunk::Owned(bytes) => bytes.capacity(),
        SendChunk::Shared(bytes) => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use busload_io::ConnId;
    use busload_log::Lsn;
    use bytes::Bytes;

    use super::*;
    use crate::{batch::SharedPart, gate::Level};

    struct Harness {
        output: Output,
        spare: Spare,
    }

    impl Harness {
        fn new() -> Self {
            Self { output: Output::default(), spare: Spare::default() }
        }

        fn reply(&mut self, first_seq: u64, seq_count: u32, text: &str, gate: Gate) {
            let batch = RequestBatch { out: text.into(), ..RequestBatch::default() };
            self.push(first_seq, seq_count, &batch, gate, false);
        }

        fn push(
            &mut self,
            first_seq: u64,
            seq_count: u32,
            batch: &RequestBatch,
            gate: Gate,
            close: bool,
        ) {
            let run = ReplyRun {
                conn: ConnId { index: 0, generation: 0 },
                first_seq,
                seq_count,
                start: 0,
                end: batch.out.len(),
                first_shared: 0,
                shared_count: batch.shared.len() as u32,
                gate,
                close,
            };
            self.output.push(&run, batch, &mut self.spare);
        }

        /// Sends until every remaining reply waits.
        fn sends(&mut self, durable: u64) -> Vec<String> {
            let progress = Gate { written: Lsn(durable), durable: Lsn(durable) };
            let mut sends = Vec::new();
            loop {
                match self.output.release(progress, &mut self.spare) {
                    Release::Send(chunk) => {
                        sends.push(String::from_utf8(chunk.as_slice().to_vec()).unwrap());
                        self.output.sent(chunk, &mut self.spare);
                    }
                    Release::Close => {
                        sends.push("(close)".into());
                        return sends;
                    }
                    Release::Gated | Release::Idle => return sends,
                }
            }
        }
    }

    fn durable(lsn: u64) -> Gate {
        Gate::at(Lsn(lsn), Level::Durable)
    }

    #[test]
    fn replies_leave_in_request_order_whoever_answers_first() {
        let mut conn = Harness::new();
        conn.reply(1, 1, "b", Gate::OPEN);
        conn.reply(3, 2, "de", Gate::OPEN);
        assert!(conn.sends(0).is_empty());
        conn.reply(0, 1, "a", Gate::OPEN);
        assert_eq!(conn.sends(0), ["ab"]);
        conn.reply(2, 1, "c", Gate::OPEN);
        assert_eq!(conn.sends(0), ["cde"]);
        assert!(conn.output.is_idle());
        assert_eq!(conn.output.bytes(), 0);
    }

    #[test]
    fn a_gated_reply_holds_up_only_what_is_behind_it() {
        let mut conn = Harness::new();
        conn.reply(0, 1, "a", Gate::OPEN);
        conn.reply(1, 1, "b", durable(5));
        conn.reply(2, 1, "c", Gate::OPEN);
        conn.reply(3, 1, "d", durable(6));
        assert_eq!(conn.sends(4), ["a"]);
        assert_eq!(conn.sends(5), ["bc"]);
        assert_eq!(conn.sends(6), ["d"]);
    }

    #[test]
    fn a_large_value_is_sent_from_where_it_is() {
        let mut conn = Harness::new();
        let shared = vec![SharedPart { at: 4, bytes: Bytes::from_static(b"VALUE") }];
        let batch = RequestBatch { out: b"$5\r\n\r\n".to_vec(), shared, ..RequestBatch::default() };
        conn.push(0, 1, &batch, Gate::OPEN, false);
        conn.reply(1, 1, "+OK", Gate::OPEN);
        assert!(14 <= conn.output.bytes(), "the value and what stands around it");
        assert_eq!(conn.sends(0), ["$5\r\n", "VALUE", "\r\n+OK"]);
        assert_eq!(conn.output.bytes(), 0);
    }

    #[test]
    fn what_a_client_does_not_read_is_mapped_and_comes_in_order() {
        let mut conn = Harness::new();
        let mut expected = String::new();
        for seq in 0..300 {
            let text = format!("{seq:05}").repeat(3_000);
            expected.push_str(&text);
            conn.reply(seq, 1, &text, if seq % 7 == 0 { durable(seq) } else { Gate::OPEN });
            assert!(expected.len() <= conn.output.bytes(), "what is there is counted");
            let slack = 2 * REPLY_CHUNK_BYTES_MAX + MAPPED_FROM_BYTES;
            assert!(conn.output.bytes() <= expected.len() + slack, "no more than what is there");
        }
        assert!(conn.output.queue.iter().any(|chunk| matches!(chunk.body, Body::Mapped(_))));
        let closing = RequestBatch { out: b"end".to_vec(), ..RequestBatch::default() };
        conn.push(300, 1, &closing, Gate::OPEN, true);
        assert_eq!(conn.sends(1_000).concat(), expected + "end(close)");
        assert_eq!(conn.output.bytes(), 0);
    }

    #[test]
    fn nothing_is_sent_behind_a_closing_reply() {
        let mut conn = Harness::new();
        let batch = RequestBatch { out: b"+OK".to_vec(), ..RequestBatch::default() };
        conn.push(0, 1, &batch, Gate::OPEN, true);
        conn.reply(1, 1, "late", durable(9));
        assert_eq!(conn.sends(0), ["+OK", "(close)"]);
        assert_eq!(conn.output.bytes(), 0);
    }
}

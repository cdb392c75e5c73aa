//! The writing end of the log, owned by the one thread that executes transactions. It never blocks
//! and does no IO.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;

use crate::{
    Lsn, Options, SyncPolicy,
    batch::{Charge, Part, RecordBatch},
    format::{VARINT_BYTES_MAX, put_varint, varint_bytes},
    limits::{BATCH_OVERHEAD_BYTES, BATCH_PART_COUNT_MAX, RECORD_OVERHEAD_BYTES, SHARED_BYTES_MIN},
    progress::{NO_ANSWER, SharedProgress},
    queue::Flags,
};

/// Answer to a reservation: whether the transaction may execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The log will write its record.
    Granted,
    /// The log or its helper is behind: try again when [`crate::Progress`] moves.
    Behind,
    /// The disk is full. The condition clears by itself once there is space.
    NoSpace {
        /// Directory and error, for the client.
        message: Arc<str>,
    },
    /// The log has stopped for good.
    Failed {
        /// Operation that failed, and its error, for the client.
        message: Arc<str>,
    },
}

/// Appends records to the open batch and hands it over at the end of a turn.
///
/// One record: [`LogWriter::reserve`] before the transaction executes, [`LogWriter::begin`], bytes
/// by [`LogWriter::record`] and [`LogWriter::append_shared`], then [`LogWriter::commit`] (or
/// [`LogWriter::cancel`]).
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<SharedProgress>,
    batch: RecordBatch,
    next_lsn: Lsn,
    /// Position of the length prefix of the record being written; `None` between records.
    start: Option<RecordStart>,
    /// Charge of everything committed.
    charged: Charge,
    /// Charge up to which small records are granted without reading shared state.
    limit: Charge,
    /// Charge of the end of the last large record. Until this much is consumed, reservations are
    /// counted in the stricter way.
    large_until: Charge,
    /// True once the log was asked how much space the disk has.
    space_asked: bool,
    /// Most that the end of each segment may leave unused.
    unused_bytes_max: u64,
    segment_bytes: u64,
    queue_bytes_limit: u64,
    small_bytes_max: u64,
    batch_bytes: u64,
    wall_ms: i64,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct RecordStart {
    at: usize,
    part_index: usize,
    part_bytes: u64,
}

impl LogWriter {
    pub(crate) fn new(
        shared: Arc<SharedProgress>,
        options: &Options,
        next_lsn: Lsn,
        wall_ms: i64,
    ) -> Self {
        Self {
            shared,
            batch: RecordBatch::default(),
            next_lsn,
            start: None,
            charged: 0,
            limit: 0,
            large_until: 0,
            space_asked: false,
            unused_bytes_max: options.unit_bytes_max(),
            segment_bytes: options.segment_bytes,
            queue_bytes_limit: options.queue_bytes_limit,
            small_bytes_max: options.batch_bytes(),
            batch_bytes: options.batch_bytes(),
            wall_ms,
            closed: false,
        }
    }

    /// Reserves the log's space for one record of at most `record_bytes`. Each `Granted` is good
    /// for one record, committed before the next call.
    #[inline]
    pub fn reserve(&mut self, record_bytes: u64) -> Reservation {
        let charge = charge_max(record_bytes);
        let small = record_bytes <= self.small_bytes_max;
        if small && self.charged + charge <= self.limit {
            return Reservation::Granted;
        }
        self.reserve_slow(charge, small)
    }

    #[cold]
    fn reserve_slow(&mut self, charge: Charge, small: bool) -> Reservation {
        if let Some(message) = self.shared.failure() {
            return Reservation::Failed { message };
        }
        // Loaded first: the grants loaded after it are at least as new.
        let consumed = self.shared.consumed.load(Ordering::Acquire);
        let any = self.shared.granted_any.load(Ordering::Acquire);
        let mixed = consumed < self.large_until;
        let granted = if small && !mixed {
            self.shared.granted_small.load(Ordering::Acquire).max(any)
        } else {
            any
        };
        if self.queue_bytes_limit <= self.charged - consumed {
            self.poke();
            return Reservation::Behind;
        }
        if self.charged.saturating_add(charge) <= granted {
            self.note_granted(
                charge,
                small,
                mixed,
                granted.min(consumed.saturating_add(self.queue_bytes_limit)),
            );
            return Reservation::Granted;
        }
        self.refuse(charge, small)
    }

    /// Asks whether the disk has space for records that take this many bytes in all. Nothing is
    /// prepared for them or kept from others: each still needs its own [`LogWriter::reserve`]
    /// before it is committed.
    pub fn space_for(&mut self, bytes: u64) -> Reservation {
        let reservation = self.find_space(bytes);
        self.space_asked = reservation == Reservation::Behind;
        reservation
    }

    fn find_space(&mut self, bytes: u64) -> Reservation {
        if let Some(message) = self.shared.failure() {
            return Reservation::Failed { message };
        }
        if let Some(message) = self.shared.no_space() {
            return Reservation::NoSpace { message };
        }
        if !self.space_asked {
            self.shared.space_until.store(NO_ANSWER, Ordering::Release);
            self.shared.space_asked.store(true, Ordering::Release);
            self.poke();
            return Reservation::Behind;
        }
        // Loaded first: the answer loaded after it is then at least as final as this says.
        let is_final = !self.shared.space_asked.load(Ordering::Acquire);
        let until = self.shared.space_until.load(Ordering::Acquire);
        if until == NO_ANSWER {
            return Reservation::Behind;
        }
        let unused = (bytes / self.segment_bytes).saturating_mul(self.unused_bytes_max);
        let needed = bytes.saturating_add(unused);
        let left = until.saturating_sub(self.charged);
        if needed <= left {
            return Reservation::Granted;
        }
        if !is_final {
            self.shared.stalled.store(true, Ordering::Release);
            self.poke();
            return Reservation::Behind;
        }
        Reservation::NoSpace {
            message: format!(
                "the log needs {} MiB, the disk has space for {} MiB beside others",
                needed >> 20,
                left >> 20
            )
            .into(),
        }
    }

    fn note_granted(&mut self, charge: Charge, small: bool, mixed: bool, limit: Charge) {
        if !small {
            self.large_until = self.charged + charge;
        }
        self.limit = if small && !mixed { limit } else { 0 };
    }

    /// Answers a reservation that does not fit into the prepared segments: tells the log what is
    /// missing, and checks whether the disk is full.
    fn refuse(&mut self, charge: Charge, small: bool) -> Reservation {
        if let Some(message) = self.shared.no_space() {
            return Reservation::NoSpace { message };
        }
        if !small {
            self.shared.wanted.store(charge, Ordering::Release);
        }
        self.shared.stalled.store(true, Ordering::Release);
        self.poke();
        match self.shared.no_space_large(charge) {
            Some(message) => Reservation::NoSpace { message },
            None => Reservation::Behind,
        }
    }

    /// Hands over the open batch and notifies the log, which may wait for that batch before it can
    /// move on.
    fn poke(&mut self) {
        if self.start.is_none() {
            self.hand_over();
        }
        self.shared.queue.request(Flags { poke: true, ..Flags::default() });
    }

    /// Starts a record.
    ///
    /// # Panics
    /// If a record is already open.
    #[inline]
    pub fn begin(&mut self) {
        assert!(self.start.is_none(), "records do not nest");
        self.start = Some(RecordStart {
            at: self.batch.bytes.len(),
            part_index: self.batch.parts.len(),
            part_bytes: self.batch.part_bytes,
        });
        // Most records have a length of one byte; commit makes space for longer ones.
        self.batch.bytes.push(0);
    }

    /// Returns the buffer to append the record's bytes to. Only append to it.
    #[inline]
    pub fn record(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.start.is_some(), "begin comes first");
        &mut self.batch.bytes
    }

    /// Appends a large part without copying it (a short one is copied).
    pub fn append_shared(&mut self, bytes: Bytes) {
        debug_assert!(self.start.is_some(), "begin comes first");
        if bytes.len() < SHARED_BYTES_MIN {
            self.batch.bytes.extend_from_slice(&bytes);
            return;
        }
        self.batch.part_bytes += bytes.len() as u64;
        self.batch.parts.push(Part { at: self.batch.bytes.len(), bytes });
    }

    /// Returns the length up to which records share frames with others and are granted together.
    pub fn record_bytes_small(&self) -> usize {
        usize::try_from(self.small_bytes_max).unwrap_or(usize::MAX)
    }

    /// Returns the length of the open record so far; 0 when none is open.
    pub fn record_bytes(&self) -> u64 {
        self.start.map_or(0, |start| self.bytes_since(start))
    }

    fn bytes_since(&self, start: RecordStart) -> u64 {
        let own = self.batch.bytes.len() - start.at - 1;
        own as u64 + self.batch.part_bytes - start.part_bytes
    }

    /// Discards the open record: the transaction changed nothing.
    pub fn cancel(&mut self) {
        if let Some(start) = self.start.take() {
            self.batch.bytes.truncate(start.at);
            self.batch.parts.truncate(start.part_index);
            self.batch.part_bytes = start.part_bytes;
        }
    }

    /// Ends the record and returns its LSN.
    ///
    /// # Panics
    /// If no record is open, or it is empty.
    #[inline]
    pub fn commit(&mut self, policy: SyncPolicy) -> Lsn {
        let start = self.start.take().expect("begin comes first");
        let length = self.bytes_since(start);
        assert!(0 < length, "a record without bytes");
        self.put_length(start, length);
        let batch = &mut self.batch;
        let charge = if batch.record_count == 0 {
            charge_max(length)
        } else {
            length + RECORD_OVERHEAD_BYTES
        };
        batch.charge += charge;
        batch.record_count += 1;
        batch.sync.add(policy);
        self.charged += charge;
        self.large_until = self.large_until.min(self.charged);
        let lsn = self.next_lsn;
        self.next_lsn = Lsn(lsn.0 + 1);
        if self.batch_bytes <= self.batch.body_bytes()
            || BATCH_PART_COUNT_MAX <= self.batch.parts.len()
        {
            self.hand_over();
        }
        lsn
    }

    #[inline]
    fn put_length(&mut self, start: RecordStart, length: u64) {
        if length < 0x80 {
            self.batch.bytes[start.at] = length as u8;
            return;
        }
        let mut prefix = [0; VARINT_BYTES_MAX];
        let count = put_varint(length, &mut prefix);
        debug_assert_eq!(count, varint_bytes(length));
        let bytes = &mut self.batch.bytes;
        let (from, end) = (start.at + 1, bytes.len());
        bytes.resize(end + count - 1, 0);
        bytes.copy_within(from..end, start.at + count);
        bytes[start.at..start.at + count].copy_from_slice(&prefix[..count]);
        for part in &mut self.batch.parts[start.part_index..] {
            part.at += count - 1;
        }
    }

    /// Returns the LSN of the first record in the open batch; that of the next record when it is
    /// empty.
    pub fn first_open_lsn(&self) -> Lsn {
        Lsn(self.next_lsn.0 - u64::from(self.batch.record_count))
    }

    /// Returns the LSN that the next record will get.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Ends a turn: hands over the open batch, if there is one, and wakes the log if it sleeps.
    /// `wall_ms` is the time of day that the turn used.
    ///
    /// # Panics
    /// If a record is open.
    pub fn flush(&mut self, wall_ms: i64) {
        assert!(self.start.is_none(), "commit or cancel comes first");
        self.wall_ms = wall_ms;
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.batch.wall_ms = self.wall_ms;
        self.shared.queue.push(&mut self.batch, self.batch_bytes);
    }

    /// Hands over the open batch. The log writes and syncs everything and marks the clean shutdown;
    /// then its stage ends. Nothing can be committed afterwards. Dropping the writer does the same.
    pub fn close(&mut self) {
        self.cancel();
        self.hand_over();
        if !std::mem::replace(&mut self.closed, true) {
            self.shared.queue.request(Flags { close: true, ..Flags::default() });
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the most that a record of this length is charged: its batch may become a frame of its
/// own.
#[inline]
fn charge_max(record_bytes: u64) -> Charge {
    record_bytes.saturating_add(RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES)
}

//! Open tickets: found by ticket, by the connection that waits, and by source in order of deadline.
//! All operations are O(1) and allocate nothing once there is memory for the largest number of
//! tickets that were ever open.
//!
//! ```text
//!  ticket: slot index, and how often the slot was used
//!
//!  slots:  [ ticket | ticket | free | ticket | ... ]
//!             ^ one doubly linked list per connection, one per source, through the slots
//! ```
//!
//! The use count has 44 bits: a late answer could meet another request with the same ticket only
//! after 2^44 uses of its slot.

use std::time::Duration;

use busload_io::ConnId;

use crate::{limits::SOURCE_TICKETS_MAX, source::Ticket};

/// Index that means no slot.
const NONE: u32 = u32::MAX;

/// Connection that waits, source that must answer, and deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Connection that waits for the answer.
    pub conn: ConnId,
    /// Ordinal of the source that must answer.
    pub source: usize,
    /// Time at which the request times out.
    pub deadline: Duration,
}

/// Open tickets, each with what its answer is for.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Index of the first free slot; free slots are linked through `by_conn.next`.
    free: u32,
    len: usize,
    /// Lists by index of the connection: the tickets of an index's previous connection are closed
    /// before its next one submits any.
    conns: Vec<List>,
    /// Lists by ordinal of the source, in order of deadline.
    sources: Vec<List>,
}

#[derive(Debug)]
struct Slot<T> {
    uses: u64,
    waiting: Waiting,
    content: Option<T>,
    by_conn: Link,
    by_source: Link,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

impl Link {
    const NONE: Link = Link { previous: NONE, next: NONE };
}

impl List {
    const EMPTY: List = List { first: NONE, last: NONE };
}

/// Selects one of a slot's two lists.
#[derive(Clone, Copy)]
enum Of {
    Conn,
    Source,
}

impl<T> Slots<T> {
    pub fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0, conns: Vec::new(), sources: Vec::new() }
    }

    /// Returns how many tickets are open.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Opens a ticket; the caller has made sure that there are fewer than [`SOURCE_TICKETS_MAX`].
    pub fn open(&mut self, waiting: Waiting, content: T) -> Ticket {
        let index = self.take_free();
        let slot = &mut self.slots[index as usize];
        slot.waiting = waiting;
        slot.content = Some(content);
        let ticket = ticket_of(index, slot.uses);
        self.len += 1;
        let conn = waiting.conn.index as usize;
        grow(&mut self.conns, conn);
        grow(&mut self.sources, waiting.source);
        self.insert_behind(Of::Conn, self.conns[conn].last, index);
        let before = self.last_due_before(waiting);
        self.insert_behind(Of::Source, before, index);
        ticket
    }

    /// Closes a ticket, if it is open.
    pub fn close(&mut self, ticket: Ticket) -> Option<(Waiting, T)> {
        let index = self.index_of(ticket)?;
        let slot = &mut self.slots[index as usize];
        let content = slot.content.take()?;
        slot.uses += 1;
        let waiting = slot.waiting;
        self.unlink(Of::Conn, index);
        self.unlink(Of::Source, index);
        self.slots[index as usize].by_conn.next = self.free;
        self.free = index;
        self.len -= 1;
        Some((waiting, content))
    }

    /// Returns whether the ticket is open.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.content(ticket).is_some()
    }

    /// Returns the request of a ticket, if the ticket is open.
    pub fn content(&self, ticket: Ticket) -> Option<&T> {
        self.slots[self.index_of(ticket)? as usize].content.as_ref()
    }

    /// Returns the oldest ticket of a connection.
    pub fn first_of_conn(&self, conn: ConnId) -> Option<Ticket> {
        let list = self.conns.get(conn.index as usize)?;
        let slot = self.slots.get(list.first as usize)?;
        debug_assert_eq!(slot.waiting.conn, conn, "the last user of the index has nothing open");
        Some(ticket_of(list.first, slot.uses))
    }

    /// Returns the deadline of a source that comes first, and its ticket.
    pub fn first_of_source(&self, source: usize) -> Option<(Duration, Ticket)> {
        let list = self.sources.get(source)?;
        let slot = self.slots.get(list.first as usize)?;
        Some((slot.waiting.deadline, ticket_of(list.first, slot.uses)))
    }

    /// Returns the first deadline of all tickets.
    pub fn next_deadline(&self) -> Option<Duration> {
        let firsts = self.sources.iter().filter_map(|list| self.slots.get(list.first as usize));
        firsts.map(|slot| slot.waiting.deadline).min()
    }

    fn index_of(&self, ticket: Ticket) -> Option<u32> {
        let index = u32::try_from(ticket.index()).ok()?;
        let slot = self.slots.get(index as usize)?;
        (ticket_of(index, slot.uses) == ticket).then_some(index)
    }

    fn take_free(&mut self) -> u32 {
        if let Some(slot) = self.slots.get(self.free as usize) {
            let index = self.free;
            self.free = slot.by_conn.next;
            return index;
        }
        assert!(self.slots.len() < SOURCE_TICKETS_MAX, "the caller keeps to the limit");
        let index = u32::try_from(self.slots.len()).expect("the limit has fewer bits");
        let waiting = Waiting {
            conn: ConnId { index: 0, generation: 0 },
            source: 0,
            deadline: Duration::ZERO,
        };
        let (by_conn, by_source) = (Link::NONE, Link::NONE);
        self.slots.push(Slot { uses: 0, waiting, content: None, by_conn, by_source });
        index
    }

    /// Returns the last ticket of the source whose deadline is not later. All tickets of one source
    /// have the same timeout, so it is normally the last of the list.
    fn last_due_before(&self, waiting: Waiting) -> u32 {
        let mut last = self.sources[waiting.source].last;
        while let Some(slot) = self.slots.get(last as usize)
            && waiting.deadline < slot.waiting.deadline
        {
            last = slot.by_source.previous;
        }
        last
    }

    fn insert_behind(&mut self, of: Of, previous: u32, index: u32) {
        let next = match previous {
            NONE => self.list(of, index).first,
            previous => self.link(of, previous).next,
        };
        *self.link(of, index) = Link { previous, next };
        match previous {
            NONE => self.list(of, index).first = index,
            previous => self.link(of, previous).next = index,
        }
        match next {
            NONE => self.list(of, index).last = index,
            next => self.link(of, next).previous = index,
        }
    }

    fn unlink(&mut self, of: Of, index: u32) {
        let Link { previous, next } = *self.link(of, index);
        match previous {
            NONE => self.list(of, index).first = next,
            previous => self.link(of, previous).next = next,
        }
        match next {
            NONE => self.list(of, index).last = previous,
            next => self.link(of, next).previous = previous,
        }
    }

    /// Returns the list that the slot is in.
    fn list(&mut self, of: Of, index: u32) -> &mut List {
        let waiting = self.slots[index as usize].waiting;
        match of {
            Of::Conn => &mut self.conns[waiting.conn.index as usize],
            Of::Source => &mut self.sources[waiting.source],
        }
    }

    fn link(&mut self, of: Of, index: u32) -> &mut Link {
        let slot = &mut self.slots[index as usize];
        match of {
            Of::Conn => &mut slot.by_conn,
            Of::Source => &mut slot.by_source,
        }
    }
}

fn ticket_of(index: u32, uses: u64) -> Ticket {
    Ticket(uses << Ticket::INDEX_BITS | u64::from(index))
}

fn grow(lists: &mut Vec<List>, index: usize) {
    if lists.len() <= index {
        lists.resize(index + 1, List::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use busload_io::sim::SimRng;

    use super::*;

    fn conn(index: u64) -> ConnId {
        ConnId { index: index as u32, generation: 7 }
    }

    /// Open tickets, in order of opening.
    type Model = Vec<(Ticket, Waiting, u64)>;

    fn check(slots: &Slots<u64>, model: &Model) {
        assert_eq!(slots.len(), model.len());
        for index in 0..4 {
            let first = model.iter().find(|(_, waiting, _)| waiting.conn == conn(index));
            assert_eq!(slots.first_of_conn(conn(index)), first.map(|(ticket, ..)| *ticket));
        }
        for source in 0..3 {
            let of_source = model.iter().filter(|(_, waiting, _)| waiting.source == source);
            let first = of_source.min_by_key(|(_, waiting, _)| waiting.deadline);
            let expected = first.map(|(ticket, waiting, _)| (waiting.deadline, *ticket));
            assert_eq!(slots.first_of_source(source), expected);
        }
        assert_eq!(
            slots.next_deadline(),
            model.iter().map(|(_, waiting, _)| waiting.deadline).min(),
            "{model:?}"
        );
    }

    #[test]
    fn whatever_is_opened_and_closed_it_is_found_by_ticket_connection_and_deadline() {
        for seed in 0..50 {
            let mut rng = SimRng::new(seed);
            let (mut slots, mut model, mut closed) = (Slots::new(), Model::new(), Vec::new());
            for step in 0..400 {
                if model.is_empty() || rng.chance(11, 20) {
                    let waiting = Waiting {
                        conn: conn(rng.below(4)),
                        source: rng.below(3) as usize,
                        // Not always in order, as if clocks or timeouts differed.
                        deadline: Duration::from_micros(step * 10 + rng.below(40)),
                    };
                    let ticket = slots.open(waiting, step);
                    assert!(!closed.contains(&ticket), "a ticket was used twice");
                    model.push((ticket, waiting, step));
                } else {
                    let (ticket, waiting, content) =
                        model.remove(rng.below(model.len() as u64) as usize);
                    assert!(slots.is_open(ticket));
                    let (found, found_content) = slots.close(ticket).expect("it is open");
                    assert_eq!(
                        (found.conn, found.deadline, found_content),
                        (waiting.conn, waiting.deadline, content)
                    );
                    closed.push(ticket);
                }
                check(&slots, &model);
            }
            for ticket in closed {
                assert!(!slots.is_open(ticket) && slots.close(ticket).is_none(), "closed for ever");
            }
        }
    }

    #[test]
    fn slots_are_used_again_before_new_ones_are_made() {
        let mut slots = Slots::new();
        let waiting = Waiting { conn: conn(0), source: 0, deadline: Duration::ZERO };
        for _ in 0..1000 {
            let (a, b) = (slots.open(waiting, ()), slots.open(waiting, ()));
            slots.close(a).expect("open");
            slots.close(b).expect("open");
        }
        assert_eq!(slots.slots.len(), 2);
    }
}

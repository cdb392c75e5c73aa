//! Who has how much of the disk: one lock for all that changes what is there. No file is touched
//! under it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::Ordering::{AcqRel, Acquire},
    },
};

use super::{
    body::{Body, Key},
    file::DiskFile,
    journal::Presence,
    queues::{Entrance, Extent, Place, Queues},
};
use crate::limits::FILE_OVERHEAD_BYTES;

/// A change that the journal does not know yet.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A file was made.
    File(Arc<Body>),
    /// An extent came or went.
    Extent(Place, Presence),
    /// A file was removed.
    Gone(u32),
}

/// Whether an extent may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// Its space is set aside, and nobody else writes it.
    Granted,
    /// It is there already.
    Present,
    /// Somebody writes it or gives its space back just now.
    Refused,
    /// Its file was given up.
    Gone,
    /// Something has to go first.
    Full,
}

/// What became of an extent that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is there.
    Kept,
    /// It is not wanted any more: its space is to be given back, then [`Accounting::release`].
    Unwanted,
}

/// Everything that changes together.
#[derive(Debug)]
pub(crate) struct Accounting {
    /// Files on disk by number, also those nobody asked for since the start.
    pub(crate) bodies: BTreeMap<u32, Arc<Body>>,
    by_key: HashMap<Arc<Key>, u32>,
    files: HashMap<Arc<Key>, Weak<DiskFile>>,
    /// Forget files without users when so many are known.
    sweep_at: usize,
    pub(crate) queues: Queues,
    /// Bytes taken or set aside.
    pub(crate) bytes: u64,
    /// So many may be taken now: the limit, or less when the file system was full before that.
    pub(crate) ceiling: u64,
    /// Extents on disk.
    pub(crate) extents: u64,
    /// Extents being written or given back, and whether they are wanted.
    busy: HashMap<Place, bool>,
    /// What the journal does not know yet.
    pub(crate) changes: Vec<Change>,
    next_id: u32,
    /// Bytes of what is kept by name.
    pub(crate) kept: BTreeMap<String, u64>,
    /// Files that could not be removed, with what they take.
    pub(crate) undead: Vec<(u32, u64)>,
    /// Extents whose space could not be given back. They stay busy: nobody is shown them, nobody
    /// writes them.
    pub(crate) unpunched: Vec<(Arc<Body>, u32)>,
}

/// The bodies as the queues see them.
struct Bodies<'a>(&'a BTreeMap<u32, Arc<Body>>);

impl Extent for Bodies<'_> {
    fn is_present(&self, place: Place) -> bool {
        self.0.get(&place.file).is_some_and(|body| body.extents.is_present(place.extent))
    }

    fn unqueue(&self, place: Place) {
        if let Some(body) = self.0.get(&place.file) {
            body.extents.unqueue(place.extent);
        }
    }

    fn take_reads(&self, place: Place, leave: fn(u8) -> u8) -> u8 {
        self.0.get(&place.file).map_or(0, |body| body.extents.take_reads(place.extent, leave))
    }

    fn name(&self, place: Place) -> u64 {
        self.0.get(&place.file).map_or(0, |body| body.ghost_name(place.extent))
    }
}

impl Accounting {
    /// Nothing is there, and there is room for so many bytes and extents.
    pub(crate) fn new(bytes_max: u64, room: usize) -> Self {
        Self {
            bodies: BTreeMap::new(),
            by_key: HashMap::new(),
            files: HashMap::new(),
            sweep_at: 0,
            queues: Queues::new(room),
            bytes: 0,
            ceiling: bytes_max,
            extents: 0,
            busy: HashMap::new(),
            changes: Vec::new(),
            next_id: 1,
            kept: BTreeMap::new(),
            undead: Vec::new(),
            unpunched: Vec::new(),
        }
    }

    /// The handle of a key that somebody has, or a new one.
    pub(crate) fn file(
        &mut self,
        key: Key,
        make: impl FnOnce(Arc<Key>) -> Arc<DiskFile>,
    ) -> Arc<DiskFile> {
        if let Some(file) = self.files.get(&key).and_then(Weak::upgrade) {
            return file;
        }
        if self.sweep_at <= self.files.len() {
            self.files.retain(|_, file| 0 < file.strong_count());
            self.sweep_at = 2 * self.files.len() + 16;
        }
        let body = self.body_of(&key);
        let key = body.as_ref().map_or_else(|| Arc::new(key), |body| Arc::clone(&body.key));
        let file = make(Arc::clone(&key));
        file.attach(body);
        self.files.insert(key, Arc::downgrade(&file));
        file
    }

    /// The data file of a key.
    pub(crate) fn body_of(&self, key: &Key) -> Option<Arc<Body>> {
        self.by_key.get(key).and_then(|id| self.bodies.get(id)).cloned()
    }

    /// A number that was never used, or none: four billion files have been made here.
    pub(crate) fn take_id(&mut self) -> Option<u32> {
        let id = self.next_id;
        self.next_id = id.checked_add(1)?;
        Some(id)
    }

    /// Numbers up to this one were used.
    pub(crate) fn skip_ids(&mut self, id: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
    }

    /// Sets bytes aside. False: something has to go first.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.ceiling;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Whether more is taken than may be: the limit was larger before the start.
    pub(crate) fn is_over(&self) -> bool {
        self.ceiling < self.bytes
    }

    /// Gives bytes back.
    pub(crate) fn release_bytes(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A file was made; its overhead is reserved.
    pub(crate) fn add_body(&mut self, body: &Arc<Body>) {
        self.bodies.insert(body.id, Arc::clone(body));
        self.by_key.insert(Arc::clone(&body.key), body.id);
        self.changes.push(Change::File(Arc::clone(body)));
    }

    /// A file was there at the start, with extents that are marked in it. What it takes is counted
    /// here.
    pub(crate) fn restore_body(&mut self, body: Body) {
        let body = Arc::new(body);
        for extent in body.extents.present() {
            self.queues.push(body.place(extent), body.ghost_name(extent), Entrance::Restored);
            self.extents += 1;
        }
        self.bytes += body.present_cost() + FILE_OVERHEAD_BYTES;
        self.by_key.insert(Arc::clone(&body.key), body.id);
        if let Some(file) = self.files.get(&body.key).and_then(Weak::upgrade) {
            file.attach(Some(Arc::clone(&body)));
        }
        self.bodies.insert(body.id, body);
    }

    /// Sets an extent's space aside.
    pub(crate) fn reserve_extent(&mut self, body: &Body, extent: u32) -> Reservation {
        let place = body.place(extent);
        if body.is_gone.load(Acquire) {
            return Reservation::Gone;
        }
        if self.busy.contains_key(&place) {
            return Reservation::Refused;
        }
        if body.extents.is_present(extent) {
            return Reservation::Present;
        }
        if !self.reserve(body.key.extent_cost(extent)) {
            return Reservation::Full;
        }
        self.busy.insert(place, true);
        Reservation::Granted
    }

    /// An extent was written, or not.
    pub(crate) fn finish_write(
        &mut self,
        body: &Body,
        extent: u32,
        entrance: Entrance,
        is_whole: bool,
    ) -> Written {
        let place = body.place(extent);
        let is_wanted = self.busy.get(&place).copied().unwrap_or(false);
        if !is_whole || !is_wanted || body.is_gone.load(Acquire) {
            return Written::Unwanted;
        }
        self.busy.remove(&place);
        self.queues.count_insertion();
        if body.extents.insert(extent, self.queues.tick()) {
            self.queues.push(place, body.ghost_name(extent), entrance);
        }
        self.extents += 1;
        self.changes.push(Change::Extent(place, Presence::Present));
        Written::Kept
    }

    /// Takes an extent away from the readers; its space is to be given back, then
    /// [`Accounting::release`]. False: it is not there. One that is being written is not wanted any
    /// more.
    pub(crate) fn take(&mut self, body: &Body, extent: u32) -> bool {
        let place = body.place(extent);
        if let Some(is_wanted) = self.busy.get_mut(&place) {
            *is_wanted = false;
            return false;
        }
        if !body.extents.remove(extent) {
            return false;
        }
        body.evictions.fetch_add(1, AcqRel);
        self.extents -= 1;
        self.busy.insert(place, false);
        self.changes.push(Change::Extent(place, Presence::Absent));
        true
    }

    /// Takes away the extent that has to go by the queues.
    pub(crate) fn take_victim(&mut self) -> Option<(Arc<Body>, u32)> {
        let place = self.queues.pop(&Bodies(&self.bodies))?;
        let body = Arc::clone(self.bodies.get(&place.file)?);
        self.take(&body, place.extent).then_some((body, place.extent))
    }

    /// An extent's space was given back.
    pub(crate) fn release(&mut self, body: &Body, extent: u32) {
        self.busy.remove(&body.place(extent));
        self.release_bytes(body.key.extent_cost(extent));
    }

    /// Whether a file holds nothing but an extent that is being given back.
    pub(crate) fn is_last(&self, body: &Body, extent: u32) -> bool {
        body.extents.is_empty() && self.busy_of(body).all(|place| place.extent == extent)
    }

    /// Whether a file holds nothing, and nobody is about to change that.
    pub(crate) fn is_unused(&self, body: &Body) -> bool {
        body.extents.is_empty() && self.busy_of(body).next().is_none()
    }

    /// Few are busy at a time.
    fn busy_of<'a>(&'a self, body: &'a Body) -> impl Iterator<Item = &'a Place> {
        self.busy.keys().filter(|place| place.file == body.id)
    }

    /// Gives a file up. Returns the bytes that are free when it is removed, without those of
    /// extents that are busy: who is busy with them releases them. None: it was given up already.
    pub(crate) fn give_up(&mut self, body: &Body) -> Option<u64> {
        if body.is_gone.swap(true, AcqRel) {
            return None;
        }
        let bytes = body.present_cost() + FILE_OVERHEAD_BYTES;
        body.evictions.fetch_add(1, AcqRel);
        let taken = body.extents.present().filter(|&extent| body.extents.remove(extent)).count();
        self.extents -= u64::try_from(taken).expect("a count");
        self.bodies.remove(&body.id);
        if self.by_key.get(&body.key) == Some(&body.id) {
            self.by_key.remove(&body.key);
        }
        self.changes.push(Change::Gone(body.id));
        Some(bytes)
    }

    /// The directory is lost: nothing is there any more. Who is busy goes on and finds its file
    /// gone.
    pub(crate) fn forget_all(&mut self) {
        let bodies: Vec<Arc<Body>> = self.bodies.values().cloned().collect();
        for body in bodies {
            let bytes = self.give_up(&body).unwrap_or(0);
            self.release_bytes(bytes);
            body.handle.store(None);
        }
        self.queues.clear();
        self.changes.clear();
        for (body, extent) in std::mem::take(&mut self.unpunched) {
            self.release(&body, extent);
        }
        let kept = std::mem::take(&mut self.kept).into_values().sum();
        let undead = std::mem::take(&mut self.undead).into_iter().map(|(_, bytes)| bytes).sum();
        self.release_bytes(kept);
        self.release_bytes(undead);
    }

    /// Numbers of files known here.
    pub(crate) fn ids(&self) -> HashSet<u32> {
        self.bodies.keys().copied().collect()
    }
}

/// Marks an extent that the journal says is there, before the file is known to anybody.
pub(crate) fn mark(body: &Body, extents: std::ops::RangeInclusive<u32>, presence: Presence) {
    let last = (*extents.end()).min(body.extents.count().saturating_sub(1));
    for extent in *extents.start()..=last {
        match presence {
            Presence::Present => {
                body.extents.insert(extent, 0);
            }
            Presence::Absent => {
                body.extents.remove(extent);
                body.extents.unqueue(extent);
            }
        }
    }
}

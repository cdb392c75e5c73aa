//! An arena of reusable slots, found by a small number.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Values of one type. `M` marks the arena, so that its ids do not fit another one.
pub(super) struct Arena<T, M> {
    slots: Vec<Option<T>>,
    free: Vec<Id<M>>,
}

/// Index of an arena's slot. The slot may meanwhile hold another value than the one that was put
/// in.
pub(super) struct Id<M> {
    slot: u32,
    sort: PhantomData<M>,
}

impl<M> Id<M> {
    pub fn at(slot: u32) -> Self {
        Self { slot, sort: PhantomData }
    }

    pub fn slot(self) -> u32 {
        self.slot
    }

    fn index(self) -> usize {
        self.slot as usize
    }
}

impl<T, M> Arena<T, M> {
    pub fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub fn insert(&mut self, value: T) -> Id<M> {
        if let Some(id) = self.free.pop() {
            self.slots[id.index()] = Some(value);
            return id;
        }
        let slot =
            u32::try_from(self.slots.len()).expect("limits.rs keeps all that lives below 2^32");
        self.slots.push(Some(value));
        Id::at(slot)
    }

    #[inline]
    pub fn remove(&mut self, id: Id<M>) -> T {
        let value = self.slots[id.index()].take().expect("an id in use names a value");
        self.free.push(id);
        value
    }

    pub fn get(&self, id: Id<M>) -> Option<&T> {
        self.slots.get(id.index())?.as_ref()
    }

    /// Returns all values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Id<M>, &T)> {
        (0..).zip(&self.slots).filter_map(|(slot, value)| Some((Id::at(slot), value.as_ref()?)))
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<T, M> Index<Id<M>> for Arena<T, M> {
    type Output = T;

    #[inline]
    fn index(&self, id: Id<M>) -> &T {
        self.slots[id.index()].as_ref().expect("an id in use names a value")
    }
}

impl<T, M> IndexMut<Id<M>> for Arena<T, M> {
    #[inline]
    fn index_mut(&mut self, id: Id<M>) -> &mut T {
        self.slots[id.index()].as_mut().expect("an id in use names a value")
    }
}

// Derived implementations would require the same traits of `M`.
impl<M> Clone for Id<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Id<M> {}

impl<M> PartialEq for Id<M> {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<M> Eq for Id<M> {}

impl<M> fmt::Debug for Id<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.slot)
    }
}

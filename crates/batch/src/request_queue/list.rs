//! A doubly linked list through the values of an arena: any of them can be removed at any time, in
//! O(1).

use super::arena::{Arena, Id};

/// Head and tail of a list. Each value holds a [`Link`]; callers pass the function that finds it.
pub(super) struct List<M> {
    ends: Option<Ends<M>>,
    len: usize,
}

/// Neighbours of a value in a list.
pub(super) struct Link<M> {
    previous: Option<Id<M>>,
    next: Option<Id<M>>,
}

struct Ends<M> {
    first: Id<M>,
    last: Id<M>,
}

impl<M> List<M> {
    pub fn new() -> Self {
        Self { ends: None, len: 0 }
    }

    pub fn first(&self) -> Option<Id<M>> {
        self.ends.as_ref().map(|ends| ends.first)
    }

    pub fn last(&self) -> Option<Id<M>> {
        self.ends.as_ref().map(|ends| ends.last)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `id` behind all others.
    #[inline]
    pub fn push<T>(
        &mut self,
        arena: &mut Arena<T, M>,
        id: Id<M>,
        link: impl Fn(&mut T) -> &mut Link<M>,
    ) {
        self.len += 1;
        *link(&mut arena[id]) = Link { previous: self.last(), next: None };
        match &mut self.ends {
            None => self.ends = Some(Ends { first: id, last: id }),
            Some(ends) => {
                link(&mut arena[ends.last]).next = Some(id);
                ends.last = id;
            }
        }
    }

    /// Removes `id`, which is in this list.
    #[inline]
    pub fn unlink<T>(
        &mut self,
        arena: &mut Arena<T, M>,
        id: Id<M>,
        link: impl Fn(&mut T) -> &mut Link<M>,
    ) {
        let Link { previous, next } = std::mem::replace(link(&mut arena[id]), Link::NONE);
        self.len -= 1;
        if let Some(previous) = previous {
            link(&mut arena[previous]).next = next;
        }
        if let Some(next) = next {
            link(&mut arena[next]).previous = previous;
        }
        let Some(ends) = &mut self.ends else { return };
        match (previous, next) {
            (None, None) => self.ends = None,
            (None, Some(next)) => ends.first = next,
            (Some(previous), None) => ends.last = previous,
            (Some(_), Some(_)) => {}
        }
    }
}

impl<M> Link<M> {
    pub const NONE: Self = Self { previous: None, next: None };

    pub fn next(&self) -> Option<Id<M>> {
        self.next
    }
}

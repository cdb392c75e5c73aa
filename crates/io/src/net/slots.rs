//! Table of connections, by slot.

use super::ConnId;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    connection: Option<T>,
}

/// Slots, as many as there were connections at once. Free slots are reused last in, first out.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the id that the next insert will give.
    pub(crate) fn next_id(&self) -> ConnId {
        match self.free.last() {
            Some(&index) => ConnId { index, generation: self.slots[index as usize].generation },
            None => {
                let index =
                    u32::try_from(self.slots.len()).expect("file descriptors are 31-bit numbers");
                ConnId { index, generation: 0 }
            }
        }
    }

    pub(crate) fn insert(&mut self, connection: T) -> ConnId {
        let id = self.next_id();
        match self.free.pop() {
            Some(index) => self.slots[index as usize].connection = Some(connection),
            None => self.slots.push(Slot { generation: 0, connection: Some(connection) }),
        }
        id
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&T> {
        let slot = self.slots.get(conn.index as usize)?;
        if slot.generation == conn.generation { slot.connection.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        if slot.generation == conn.generation { slot.connection.as_mut() } else { None }
    }

    /// Returns the id of the connection that has the slot now.
    #[inline]
    pub(crate) fn id_at(&self, index: usize) -> Option<ConnId> {
        let slot = self.slots.get(index)?;
        slot.connection.as_ref()?;
        Some(ConnId { index: u32::try_from(index).ok()?, generation: slot.generation })
    }

    /// Iterates over the ids of all connections, by slot.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnId> {
        (0..self.slots.len()).filter_map(|index| self.id_at(index))
    }

    /// Frees the slot. Its id is not given again for 2^32 uses of the slot.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<T> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        if slot.generation != conn.generation {
            return None;
        }
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(conn.index);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_former_use_leads_nowhere() {
        let mut slots = Slots::new();
        let [first, second] = ["first", "second"].map(|name| slots.insert(name));
        assert_eq!((first.index, second.index), (0, 1));
        assert_eq!(slots.remove(first), Some("first"));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!((slots.len(), slots.id_at(0), slots.id_at(9)), (1, None, None));
        let third = slots.insert("third");
        assert_eq!((third.index, third.generation), (0, 1));
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.get_mut(third), Some(&mut "third"));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.ids().collect::<Vec<_>>(), [third, second]);
    }
}

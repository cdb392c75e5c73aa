//! Names of the files, visible and durable.

use std::collections::BTreeMap;

use super::CrashKind;
use crate::{FileName, sim::SimRng};

/// Id of a file, whatever its name is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(u64);

impl FileId {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[derive(Clone, Debug)]
pub(super) enum EntryChange {
    Link(FileName, FileId),
    Unlink(FileName),
    Rename(FileName, FileName),
}

type Entries = BTreeMap<FileName, FileId>;

fn apply(change: &EntryChange, entries: &mut Entries) {
    match change {
        EntryChange::Link(name, id) => {
            entries.insert(name.clone(), *id);
        }
        EntryChange::Unlink(name) => {
            entries.remove(name);
        }
        EntryChange::Rename(from, to) => {
            if let Some(id) = entries.remove(from) {
                entries.insert(to.clone(), id);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    visible: Entries,
    durable: Entries,
    /// Changes that lead from `durable` to `visible`.
    unsynced: Vec<EntryChange>,
}

impl Directory {
    pub(super) fn find(&self, name: &str) -> Option<FileId> {
        self.visible.get(name).copied()
    }

    pub(super) fn find_durable(&self, name: &str) -> Option<FileId> {
        self.durable.get(name).copied()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&FileName, FileId)> {
        self.visible.iter().map(|(name, id)| (name, *id))
    }

    /// Returns whether a name refers to this file, or could after some crash.
    pub(super) fn names(&self, id: FileId) -> bool {
        let linked =
            |change: &EntryChange| matches!(change, EntryChange::Link(_, linked) if *linked == id);
        self.visible.values().chain(self.durable.values()).any(|named| *named == id)
            || self.unsynced.iter().any(linked)
    }

    pub(super) fn change(&mut self, change: EntryChange) {
        apply(&change, &mut self.visible);
        self.unsynced.push(change);
    }

    /// Adds an entry that is durable at once, without an unsynced state in between.
    pub(super) fn put(&mut self, name: &str, id: FileId) {
        self.visible.insert(name.to_owned(), id);
        self.durable.insert(name.to_owned(), id);
        let of_name = |change: &EntryChange| match change {
            EntryChange::Link(other, _) | EntryChange::Unlink(other) => other == name,
            EntryChange::Rename(from, to) => from == name || to == name,
        };
        self.unsynced.retain(|change| !of_name(change));
    }

    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.visible);
        self.unsynced.clear();
    }

    pub(super) fn after_crash(&self, rng: &mut SimRng, kind: CrashKind) -> Self {
        let survivor_count = match kind {
            CrashKind::DropUnsynced => 0,
            CrashKind::AnySubset => rng.index(self.unsynced.len() + 1),
            CrashKind::KeepAll => return self.clone(),
        };
        let mut durable = self.durable.clone();
        for change in &self.unsynced[..survivor_count] {
            apply(change, &mut durable);
        }
        Self { visible: durable.clone(), durable, unsynced: Vec::new() }
    }
}

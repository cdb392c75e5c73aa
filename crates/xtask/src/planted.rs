//! Bugs that the simulation must find, as edits of the source.

/// Bug, with a name for people.
#[derive(Debug)]
pub struct Bug {
    /// Name that says how things go wrong.
    pub name: &'static str,
    /// Edits that bring it about.
    pub edits: &'static [Edit],
}

/// Replacement of a text that a file holds exactly once.
#[derive(Debug)]
pub struct Edit {
    /// Path of the file from the workspace's root.
    pub file: &'static str,
    /// Text that is there.
    pub find: &'static str,
    /// Text that takes its place.
    pub replace: &'static str,
}

const fn edit(file: &'static str, find: &'static str, replace: &'static str) -> Edit {
    Edit { file, find, replace }
}

/// All bugs, in the order of the stages.
pub const BUGS: &[Bug] = &[
    Bug {
        name: "a sync of the log is skipped",
        edits: &[edit(
            "crates/log/src/stage.rs",
            "self.disk.sync(&current.file)?;\n        current.unsynced = false;",
            "current.unsynced = false;",
        )],
    },
    Bug {
        name: "a reply goes out before its write is durable",
        edits: &[edit(
            "crates/pipeline/src/gate.rs",
            "Level::Durable => Gate { written: Lsn(0), durable: lsn },",
            "Level::Durable => Gate { written: lsn, durable: Lsn(0) },",
        )],
    },
    Bug {
        name: "a read does not wait for the write that it shows",
        edits: &[edit(
            "crates/pipeline/src/tx/data.rs",
            "fn join_gate(&self, gate: Gate) {",
            "fn join_gate(&self, _: Gate) {\n        let gate = Gate::OPEN;",
        )],
    },
    Bug {
        name: "the directory is not synced after a new segment",
        edits: &[
            edit(
                "crates/log/src/helper.rs",
                "match self.disk.sync_directory() {\n            Ok(()) => {\n                \
                 self.work = Work::Name(segment);",
                "match Ok::<(), DiskError>(()) {\n            Ok(()) => {\n                \
                 self.work = Work::Name(segment);",
            ),
            edit(
                "crates/log/src/helper.rs",
                "match self.disk.sync_directory() {\n            Ok(()) => {\n                if \
                 segment.bytes",
                "match Ok::<(), DiskError>(()) {\n            Ok(()) => {\n                if \
                 segment.bytes",
            ),
        ],
    },
    Bug {
        name: "the log is cut where a snapshot still needs it",
        edits: &[edit(
            "crates/snapshot/src/maintenance.rs",
            "remove_covered(&self.disk, &self.progress, oldest, self.due_bytes())?;",
            "remove_covered(&self.disk, &self.progress, self.progress.durable(), 0)?;",
        )],
    },
    Bug {
        name: "a snapshot gets its name before it is synced",
        edits: &[edit(
            "crates/snapshot/src/writer.rs",
            "self.disk.sync(&self.file)?;\n        let name",
            "let name",
        )],
    },
    Bug {
        name: "a start does not write again what a failed sync left in memory",
        edits: &[edit(
            "crates/log/src/recovery.rs",
            "rewrite::unsynced(&disk, &found, &walked, base)?;",
            "let _ = || rewrite::unsynced(&disk, &found, &walked, base);",
        )],
    },
    Bug {
        name: "a snapshot goes beyond what is durable",
        edits: &[edit(
            "crates/snapshot/src/maintenance.rs",
            "let durable = self.progress.durable();",
            "let durable = self.progress.written();",
        )],
    },
    Bug {
        name: "the last record of a frame is dropped",
        edits: &[edit(
            "crates/log/src/recovery/walk.rs",
            "if lsn <= self.covered || self.until < lsn {",
            "if lsn <= self.covered\n                || self.until < lsn\n                \
             || (1 < count && count == header.record_count)\n            {",
        )],
    },
    Bug {
        name: "a deletion is lost when a snapshot is merged with the log",
        edits: &[edit(
            "crates/snapshot/src/partition.rs",
            "let Some(effect) = effects.next().transpose()? else { break };",
            "let Some(effect) = effects.next().transpose()? else { break };\n            \
             if matches!(effect, effect::Effect::Delete { .. }) { continue; }",
        )],
    },
    Bug {
        name: "a key expires twice",
        edits: &[edit(
            "crates/pipeline/src/tx/expire.rs",
            "state.keys.clear();\n        state.found.clear();",
            "",
        )],
    },
];

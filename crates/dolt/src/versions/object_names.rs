//! Names of a store's objects.
//!
//! | layout | manifest | table files |
//! |---|---|---|
//! | plain (buckets, `file://`) | `manifest` | `ID`, `ID.darc` |
//! | local blob store | `manifest.bs` | `ID.bs`, `ID.darc.bs` |
//! | old generation, beside a plain store | `oldgen/manifest` | `oldgen/ID`, `oldgen/ID.darc` |
//!
//! The store ignores other objects (`.records`, `.tail`, locks, temporary files).

use busload_chunks::{FileId, FileKind};

/// Scheme by which a store names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Plain,
    /// Names of a local blob store, which all end in `.bs`.
    BlobStore,
}

/// Folder of the old generation.
pub(crate) const OLD_GENERATION: &str = "oldgen";
/// Name of the old generation's manifest.
pub(crate) const OLD_GENERATION_MANIFEST: &str = "oldgen/manifest";

impl Naming {
    pub const fn manifest(self) -> &'static str {
        match self {
            Self::Plain => "manifest",
            Self::BlobStore => "manifest.bs",
        }
    }

    /// Names a table file in a folder of the store; an empty folder is the top.
    pub fn table_file(self, folder: &str, id: &FileId, kind: FileKind) -> String {
        let slash = if folder.is_empty() { "" } else { "/" };
        let archive = match kind {
            FileKind::Classic => "",
            FileKind::Archive => ".darc",
        };
        let blob = match self {
            Self::Plain => "",
            Self::BlobStore => ".bs",
        };
        format!("{folder}{slash}{id}{archive}{blob}")
    }
}

/// Parses the id from the name of a table file at the top of a store, in any naming.
fn table_file_id(name: &str) -> Option<FileId> {
    let name = name.strip_suffix(".bs").unwrap_or(name);
    name.strip_suffix(".darc").unwrap_or(name).parse().ok()
}

/// Returns whether an object at the top of a store is a journal.
pub(crate) fn is_journal(name: &str) -> bool {
    table_file_id(name) == Some(FileId::JOURNAL)
}

/// Returns whether an object of this name at the top of a store exists only where a manifest does,
/// or is about to.
pub(crate) fn is_sign_of_a_store(name: &str) -> bool {
    let is_manifest = |naming: Naming| naming.manifest() == name;
    [Naming::Plain, Naming::BlobStore].into_iter().any(is_manifest) || table_file_id(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_files_have_the_names_that_dolt_gives_them() {
        let id = FileId::JOURNAL;
        let v = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";
        let name = |naming: Naming, folder, kind| naming.table_file(folder, &id, kind);
        assert_eq!(name(Naming::Plain, "", FileKind::Classic), v);
        assert_eq!(name(Naming::Plain, "", FileKind::Archive), format!("{v}.darc"));
        assert_eq!(name(Naming::BlobStore, "", FileKind::Classic), format!("{v}.bs"));
        assert_eq!(name(Naming::BlobStore, "", FileKind::Archive), format!("{v}.darc.bs"));
        assert_eq!(
            name(Naming::Plain, OLD_GENERATION, FileKind::Archive),
            format!("oldgen/{v}.darc")
        );
    }

    #[test]
    fn names_tell_whether_there_is_a_store() {
        let id = "0123456789abcdefghijklmnopqrstuv";
        let signs = ["manifest", "manifest.bs"].map(str::to_owned);
        let files = ["", ".darc", ".bs", ".darc.bs"].map(|suffix| format!("{id}{suffix}"));
        for name in signs.iter().chain(&files) {
            assert!(is_sign_of_a_store(name) && !is_journal(name), "{name}");
        }
        for other in [
            "",
            "LOCK",
            "manifest.old",
            "readme.md",
            "0123.darc",
            &format!("{id}.records"),
            &format!("{id}0"),
        ] {
            assert!(!is_sign_of_a_store(other), "{other}");
        }
        assert!(is_journal(&"v".repeat(32)) && is_journal(&format!("{}.bs", "v".repeat(32))));
    }
}

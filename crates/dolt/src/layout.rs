//! Names of a store's objects.
//!
//! | layout | manifest | table files |
//! |---|---|---|
//! | plain (buckets, `file://`) | `manifest` | `ID`, `ID.darc` |
//! | local blob store | `manifest.bs` | `ID.bs`, `ID.darc.bs` |
//! | old generation of a local store, beside a plain one | `oldgen/manifest` | `oldgen/ID`, `oldgen/ID.darc` |
//!
//! Other objects (`.records`, `.tail`, locks, temporary files) are not looked at.

use busload_chunks::{FileId, FileKind};

/// How a store names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Plain,
    /// Every name ends in `.bs`.
    BlobStore,
}

/// The folder of the old generation.
pub(crate) const OLD_GENERATION: &str = "oldgen";
/// Its manifest.
pub(crate) const OLD_GENERATION_MANIFEST: &str = "oldgen/manifest";

impl Naming {
    pub const fn manifest(self) -> &'static str {
        match self {
            Self::Plain => "manifest",
            Self::BlobStore => "manifest.bs",
        }
    }

    /// Name of a table file below a folder of the store (empty: its top).
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
        assert_eq!(name(Naming::Plain, OLD_GENERATION, FileKind::Archive), format!("oldgen/{v}.darc"));
    }
}

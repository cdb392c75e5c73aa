//! Listing of a store: size and ETag of each object, by name.

use std::{collections::HashMap, fmt::Write};

use busload_objects::ObjectMeta;

/// Metadata of a store's objects, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    objects: HashMap<String, ObjectMeta>,
}

impl Listing {
    pub fn add(&mut self, meta: ObjectMeta) {
        self.objects.insert(meta.name.clone(), meta);
    }

    pub fn get(&self, name: &str) -> Option<&ObjectMeta> {
        self.objects.get(name)
    }

    /// Formats the listing as text for its sidecar: the version that it belongs to, then a line for
    /// each object. None if a name cannot be written so.
    pub fn to_text(&self, version: &str) -> Option<String> {
        let mut text = format!("{version}\n");
        let mut objects: Vec<&ObjectMeta> = self.objects.values().collect();
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        for meta in objects {
            writeln!(text, "{}\t{}\t{}", meta.name, meta.size, meta.etag)
                .expect("a string takes everything");
        }
        let is_readable = Self::from_text(&text, version).is_some_and(|read| read == *self);
        is_readable.then_some(text)
    }

    /// Parses a sidecar, if it belongs to this version.
    pub fn from_text(text: &str, version: &str) -> Option<Self> {
        Self::from_lines(text.strip_prefix(version)?.strip_prefix('\n')?)
    }

    /// Parses the sidecar of any version: files never change, so it knows those that are left.
    pub fn of_any_version(text: &str) -> Option<Self> {
        Self::from_lines(text.split_once('\n')?.1)
    }

    fn from_lines(rest: &str) -> Option<Self> {
        let mut listing = Self::default();
        for line in rest.lines() {
            let mut fields = line.split('\t');
            let (name, size, etag) = (fields.next()?, fields.next()?, fields.next()?);
            if fields.next().is_some() {
                return None;
            }
            listing.add(ObjectMeta {
                name: name.to_owned(),
                size: size.parse().ok()?,
                etag: etag.to_owned(),
            });
        }
        Some(listing)
    }
}

impl FromIterator<ObjectMeta> for Listing {
    fn from_iter<I: IntoIterator<Item = ObjectMeta>>(objects: I) -> Self {
        let mut listing = Self::default();
        objects.into_iter().for_each(|meta| listing.add(meta));
        listing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, etag: &str) -> ObjectMeta {
        ObjectMeta { name: name.to_owned(), size: 17, etag: etag.to_owned() }
    }

    #[test]
    fn a_sidecar_is_read_for_its_own_version_only() {
        let listing: Listing =
            [meta("a.darc", "\"x\""), meta("oldgen/b", "y z")].into_iter().collect();
        let text = listing.to_text("v1").unwrap();
        assert_eq!(Listing::from_text(&text, "v1"), Some(listing));
        assert_eq!(Listing::from_text(&text, "v"), None);
        assert_eq!(Listing::from_text(&text, "v12"), None);
        assert_eq!(
            Listing::from_text(&text[..text.len() - 3], "v1")
                .unwrap()
                .get("oldgen/b")
                .unwrap()
                .etag,
            "y"
        );
    }

    #[test]
    fn names_that_would_be_read_as_others_are_not_written() {
        for bad in [meta("a\tb", "x"), meta("a", "x\ty"), meta("a", "x\n"), meta("a\nb", "x")] {
            assert_eq!([bad].into_iter().collect::<Listing>().to_text("v"), None);
        }
        assert_eq!(Listing::default().to_text("v\nw"), Some("v\nw\n".to_owned()));
    }

    #[test]
    fn a_text_with_a_line_that_is_none_is_not_believed() {
        for bad in ["v\na\tb\n", "v\na\tx\tc\n", "v\na\t1\tc\td\n", ""] {
            assert_eq!(Listing::from_text(bad, "v"), None, "{bad:?}");
        }
    }
}

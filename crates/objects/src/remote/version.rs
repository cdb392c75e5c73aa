//! ETags and conditions that pin reads to one version of an object.

use object_store::{GetOptions, ObjectMeta as Found};

/// Prefix of ETags that this crate made itself.
const MADE_PREFIX: &str = "made-";

/// Returns the ETag, or one made of time and size where the store has none. It uses whole seconds,
/// because listings and headers differ in the rest.
pub(super) fn etag_of(found: &Found) -> String {
    found.e_tag.clone().unwrap_or_else(|| made(found))
}

/// Returns whether an answer is about this version.
pub(super) fn is_same(etag: &str, found: &Found) -> bool {
    if etag.starts_with(MADE_PREFIX) {
        return made(found) == etag;
    }
    found.e_tag.as_deref().is_some_and(|other| bare(other) == bare(etag))
}

/// Adds the condition `If-Match`, which the store checks itself, where it can.
pub(super) fn pinned(etag: &str, options: GetOptions) -> GetOptions {
    options.with_if_match(condition(etag))
}

/// Adds the condition `If-None-Match`: the caller wants only another version.
pub(super) fn unless(etag: Option<&str>, options: GetOptions) -> GetOptions {
    options.with_if_none_match(etag.and_then(condition))
}

/// Quotes an ETag for a header: some listings leave the quotes away.
fn condition(etag: &str) -> Option<String> {
    let is_made = etag.starts_with(MADE_PREFIX);
    // Memory stores number their versions and compare without quotes.
    let is_number = etag.bytes().all(|byte| byte.is_ascii_digit());
    let is_quoted = etag.ends_with('"');
    match (is_made, is_quoted || is_number) {
        (true, _) => None,
        (false, true) => Some(etag.to_owned()),
        (false, false) => Some(format!("\"{etag}\"")),
    }
}

fn made(found: &Found) -> String {
    format!("{MADE_PREFIX}{:x}-{:x}", found.last_modified.timestamp(), found.size)
}

fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::*;

    fn found(e_tag: Option<&str>, size: u64) -> Found {
        Found {
            location: Path::from("a"),
            last_modified: Default::default(),
            size,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        }
    }

    #[test]
    fn quotes_of_listings_and_headers_may_differ() {
        assert!(is_same("0x8D", &found(Some("\"0x8D\""), 1)));
        assert!(is_same("\"a\"", &found(Some("\"a\""), 1)));
        assert!(!is_same("\"a\"", &found(Some("\"b\""), 1)));
        assert!(!is_same("\"a\"", &found(None, 1)), "an answer without an ETag says nothing");
        assert_eq!(condition("0x8D").as_deref(), Some("\"0x8D\""));
        assert_eq!(condition("\"a\"").as_deref(), Some("\"a\""));
    }

    #[test]
    fn a_store_without_etags_gets_some_of_time_and_size() {
        let etag = etag_of(&found(None, 17));
        assert!(is_same(&etag, &found(None, 17)) && is_same(&etag, &found(Some("\"a\""), 17)));
        assert!(!is_same(&etag, &found(None, 18)));
        assert_eq!(condition(&etag), None, "the store does not know it");
    }
}

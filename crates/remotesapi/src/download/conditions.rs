//! Conditional requests of RFC 9110, section 13. Resources have no modification dates, so
//! conditions on dates are ignored.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Result of evaluating a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All conditions are met.
    Go,
    /// The client's copy is current: 304.
    NotModified,
    /// The client wants other bytes: 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD for a resource with this strong entity tag.
pub fn verdict(headers: &HeaderMap, etag: &HeaderValue) -> Verdict {
    if headers.contains_key(header::IF_MATCH)
        && !lists(headers, header::IF_MATCH, etag, Comparison::Strong)
    {
        return Verdict::Failed;
    }
    match lists(headers, header::IF_NONE_MATCH, etag, Comparison::Weak) {
        true => Verdict::NotModified,
        false => Verdict::Go,
    }
}

/// Returns whether the range applies. It does not if `If-Range` names another entity tag, or a
/// date, which never matches.
pub fn wants_range(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers
        .get(header::IF_RANGE)
        .is_none_or(|value| value.as_bytes().trim_ascii() == etag.as_bytes())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    /// Ignores the prefix `W/` of weak tags.
    Weak,
}

/// Returns whether a list of tags contains this one, or is `*`. Tags of busload never contain a
/// comma, so the list is simply split at commas.
fn lists(
    headers: &HeaderMap,
    name: HeaderName,
    etag: &HeaderValue,
    comparison: Comparison,
) -> bool {
    let values = headers.get_all(name).into_iter();
    let mut tags = values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    tags.any(|tag| {
        let strong = match comparison {
            Comparison::Strong => tag,
            Comparison::Weak => tag.strip_prefix(b"W/").unwrap_or(tag),
        };
        tag == b"*" || strong == etag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        pairs.iter().for_each(|(name, value)| _ = headers.append(name, value.parse().unwrap()));
        headers
    }

    #[test]
    fn conditions_are_judged_in_the_order_of_the_standard() {
        let etag = HeaderValue::from_static("\"a-1\"");
        for (pairs, expected) in [
            (vec![], Verdict::Go),
            (vec![(header::IF_MATCH, "\"a-1\"")], Verdict::Go),
            (vec![(header::IF_MATCH, "*")], Verdict::Go),
            (vec![(header::IF_MATCH, "\"x\", \"a-1\"")], Verdict::Go),
            (vec![(header::IF_MATCH, "\"x\""), (header::IF_MATCH, "\"a-1\"")], Verdict::Go),
            (vec![(header::IF_MATCH, "W/\"a-1\"")], Verdict::Failed),
            (vec![(header::IF_MATCH, "\"x\"")], Verdict::Failed),
            (vec![(header::IF_MATCH, "")], Verdict::Failed),
            (vec![(header::IF_NONE_MATCH, "\"a-1\"")], Verdict::NotModified),
            (vec![(header::IF_NONE_MATCH, "W/\"a-1\"")], Verdict::NotModified),
            (vec![(header::IF_NONE_MATCH, "*")], Verdict::NotModified),
            (vec![(header::IF_NONE_MATCH, "\"x\" ,\"a-1\"")], Verdict::NotModified),
            (vec![(header::IF_NONE_MATCH, "\"x\"")], Verdict::Go),
            (vec![(header::IF_NONE_MATCH, "a-1")], Verdict::Go),
            (
                vec![(header::IF_MATCH, "\"x\""), (header::IF_NONE_MATCH, "\"a-1\"")],
                Verdict::Failed,
            ),
            (
                vec![(header::IF_MATCH, "\"a-1\""), (header::IF_NONE_MATCH, "\"a-1\"")],
                Verdict::NotModified,
            ),
            (vec![(header::IF_MODIFIED_SINCE, "Sat, 29 Oct 2050 19:43:31 GMT")], Verdict::Go),
            (vec![(header::IF_UNMODIFIED_SINCE, "Sat, 29 Oct 1994 19:43:31 GMT")], Verdict::Go),
        ] {
            assert_eq!(verdict(&headers(&pairs), &etag), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_range_of_other_bytes_is_not_wanted() {
        let etag = HeaderValue::from_static("\"a-1\"");
        for (value, expected) in [
            ("\"a-1\"", true),
            ("W/\"a-1\"", false),
            ("\"x\"", false),
            ("Sat, 29 Oct 1994 19:43:31 GMT", false),
        ] {
            assert_eq!(
                wants_range(&headers(&[(header::IF_RANGE, value)]), &etag),
                expected,
                "{value}"
            );
        }
        assert!(wants_range(&HeaderMap::new(), &etag));
    }
}

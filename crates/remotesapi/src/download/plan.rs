//! Decides how to answer a request once the size of the resource is known.

use std::ops::Range;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use busload_objects::AccessHint;

use super::{
    conditions::{Verdict, verdict, wants_range},
    range::Wanted,
    refusal::Refusal,
};

/// Kind of answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The client already has the bytes.
    NotModified,
    /// Headers of the whole resource without a body.
    Head,
    /// All bytes of the resource.
    Whole(Part),
    /// A range of the resource.
    Part(Part),
}

/// Bytes to send, and whether they are likely to be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Byte range within the resource.
    pub range: Range<u64>,
    /// Access hint for the cache.
    pub purpose: AccessHint,
}

/// Plans the answer for a resource of this entity tag and size.
pub fn plan(
    method: &Method,
    headers: &HeaderMap,
    etag: &HeaderValue,
    size: u64,
) -> Result<Plan, Refusal> {
    match verdict(headers, etag) {
        Verdict::NotModified => return Ok(Plan::NotModified),
        Verdict::Failed => {
            let text =
                "If-Match: this URL has other bytes: they never change, so they are of another URL";
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
        }
        Verdict::Go => {}
    }
    // The standard defines ranges for GET only.
    if method == Method::HEAD {
        return Ok(Plan::Head);
    }
    let wanted = match wants_range(headers, etag) {
        true => Wanted::of(headers).map_err(|text| Refusal::new(StatusCode::BAD_REQUEST, text))?,
        false => Wanted::All,
    };
    let range = wanted.within(size).ok_or_else(|| unsatisfiable(size))?;
    Ok(match wanted {
        Wanted::All => Plan::Whole(Part { range, purpose: AccessHint::Sequential }),
        // The client resumes an interrupted download.
        Wanted::From(_) => Plan::Part(Part { range, purpose: AccessHint::Sequential }),
        Wanted::Closed { .. } | Wanted::Last(_) => {
            Plan::Part(Part { range, purpose: AccessHint::Random })
        }
    })
}

fn unsatisfiable(size: u64) -> Refusal {
    let text = format!("Range: expected bytes of the {size} that there are");
    let value = HeaderValue::try_from(format!("bytes */{size}")).expect("ASCII");
    Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, text).with(header::CONTENT_RANGE, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(method: Method, pairs: &[(header::HeaderName, &str)]) -> Result<Plan, Refusal> {
        let headers =
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        plan(&method, &headers, &HeaderValue::from_static("\"tag\""), 1000)
    }

    fn part(range: Range<u64>, purpose: AccessHint) -> Part {
        Part { range, purpose }
    }

    #[test]
    fn whole_reads_do_not_count_as_hot() {
        let get = |range: &str| planned(Method::GET, &[(header::RANGE, range)]).unwrap();
        assert_eq!(
            planned(Method::GET, &[]),
            Ok(Plan::Whole(part(0..1000, AccessHint::Sequential)))
        );
        assert_eq!(get("bytes=500-"), Plan::Part(part(500..1000, AccessHint::Sequential)));
        assert_eq!(get("bytes=0-99"), Plan::Part(part(0..100, AccessHint::Random)));
        assert_eq!(get("bytes=-10"), Plan::Part(part(990..1000, AccessHint::Random)));
        assert_eq!(
            get("bytes=0-999"),
            Plan::Part(part(0..1000, AccessHint::Random)),
            "all of it, but as a range"
        );
    }

    #[test]
    fn conditions_come_before_ranges_and_methods() {
        let range = (header::RANGE, "bytes=2000-3000");
        let has_it = (header::IF_NONE_MATCH, "\"tag\"");
        assert_eq!(planned(Method::GET, &[has_it.clone(), range.clone()]), Ok(Plan::NotModified));
        assert_eq!(planned(Method::HEAD, &[has_it]), Ok(Plan::NotModified));
        assert_eq!(planned(Method::HEAD, std::slice::from_ref(&range)), Ok(Plan::Head));
        let other = (header::IF_RANGE, "\"other\"");
        assert_eq!(
            planned(Method::GET, &[range.clone(), other]),
            Ok(Plan::Whole(part(0..1000, AccessHint::Sequential)))
        );
        let other = (header::IF_MATCH, "\"other\"");
        assert_eq!(planned(Method::GET, &[range.clone(), other]).unwrap_err().status, 412);
        let refusal = planned(Method::GET, &[range, (header::IF_RANGE, "\"tag\"")]).unwrap_err();
        assert_eq!(
            (refusal.status.as_u16(), &*refusal.text),
            (416, "Range: expected bytes of the 1000 that there are")
        );
        assert_eq!(refusal.header.unwrap().1, "bytes */1000");
        let refusal = planned(Method::GET, &[(header::RANGE, "bytes=1-2,5-6")]).unwrap_err();
        assert_eq!(refusal.status, 400);
        assert!(refusal.text.contains("bytes=FIRST-LAST"), "{}", refusal.text);
    }
}

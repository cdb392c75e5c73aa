//! The proxy's answers: the server's response, changed by the fault.

use bytes::{Bytes, BytesMut};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderValue},
};

use super::request::RequestedRange;
use crate::fault::{Fault, mix};

/// Range to ask the server for instead of the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamRange {
    /// Ask for the whole object, without a range.
    Whole,
    /// Ask for more than was requested; only a part is used.
    More(RequestedRange),
}

/// Returns the request to the server that the fault needs, if it differs.
pub fn instead(fault: &Fault, requested: RequestedRange, draw: u64) -> Option<UpstreamRange> {
    let shift = 1 + draw % 4096;
    match fault {
        Fault::WholeForRange => Some(UpstreamRange::Whole),
        Fault::WrongRange | Fault::LyingRange => Some(UpstreamRange::More(match requested {
            RequestedRange::Closed(0, last) => {
                RequestedRange::Closed(0, last.saturating_add(shift))
            }
            RequestedRange::Closed(first, last) => {
                RequestedRange::Closed(first - shift.min(first), last)
            }
            RequestedRange::From(first) => RequestedRange::From(first - shift.min(first)),
            RequestedRange::Suffix(bytes) => RequestedRange::Suffix(bytes.saturating_add(shift)),
        })),
        _ => None,
    }
}

/// Cuts a part out of a longer answer that is as long as the requested range, but at another
/// offset. With `lies`, Content-Range claims the requested range.
pub fn shift(response: Response<Bytes>, requested: RequestedRange, lies: bool) -> Response<Bytes> {
    let (mut head, body) = response.into_parts();
    let Some((start, size)) = content_range(&head.headers) else {
        return Response::from_parts(head, body);
    };
    let got = body.len() as u64;
    let last = start + got.saturating_sub(1);
    let (first, wanted) = match requested {
        RequestedRange::Closed(first, end) => {
            (first, end.min(size.saturating_sub(1)).saturating_sub(first) + 1)
        }
        RequestedRange::From(first) => (first, size.saturating_sub(first)),
        RequestedRange::Suffix(bytes) => (size - bytes.min(size), bytes.min(size)),
    };
    // Takes bytes before the requested range, or after it; if there are none, reverses the bytes.
    let from = if start < first { 0 } else { got.saturating_sub(wanted) };
    let mut part = body.slice(to_usize(from)..to_usize((from + wanted).min(got)));
    if got <= wanted {
        part = rotated(&part);
    }
    let shown = if lies {
        first
    } else if got <= wanted {
        (first + 1).min(last)
    } else {
        start + from
    };
    let end = shown + (part.len() as u64).saturating_sub(1);
    let range =
        HeaderValue::from_str(&format!("bytes {shown}-{end}/{size}")).expect("digits are a header");
    head.headers.insert(header::CONTENT_RANGE, range);
    Response::from_parts(head, part)
}

fn rotated(bytes: &[u8]) -> Bytes {
    let mut bytes = BytesMut::from(bytes);
    if !bytes.is_empty() {
        bytes.rotate_left(1);
    }
    bytes.freeze()
}

/// Returns the first byte and the object's size from a response's Content-Range.
pub fn content_range(headers: &HeaderMap) -> Option<(u64, u64)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, size) = text.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
}

/// Returns an S3 error document.
pub fn error(status: u16, path: &str) -> Response<Bytes> {
    let code = match status {
        400 => "RequestTimeout",
        401 | 403 => "AccessDenied",
        404 => "NoSuchKey",
        412 => "PreconditionFailed",
        416 => "InvalidRange",
        429 => "TooManyRequests",
        503 => "SlowDown",
        _ => "InternalError",
    };
    let path =
        path.split('?').next().unwrap_or_default().replace('&', "&amp;").replace('<', "&lt;");
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Error><Code>{code}</Code><Message>Injected.</Message>\
         <Resource>{path}</Resource><RequestId>0</RequestId></Error>"
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Leaves out every second object of a listing.
pub fn half_listing(body: &Bytes) -> Bytes {
    const BEGIN: &str = "<Contents>";
    const END: &str = "</Contents>";
    let Ok(mut rest) = std::str::from_utf8(body) else { return body.clone() };
    let mut kept = String::with_capacity(rest.len());
    let mut is_kept = true;
    while let Some((before, object)) = rest.split_once(BEGIN) {
        let Some((object, after)) = object.split_once(END) else { break };
        kept.push_str(before);
        if is_kept {
            kept.extend([BEGIN, object, END]);
        }
        is_kept = !is_kept;
        rest = after;
    }
    kept.push_str(rest);
    kept.into()
}

/// Sets an ETag that no object has.
pub fn other_etag(headers: &mut HeaderMap, draw: u64) {
    let etag = HeaderValue::from_str(&format!("\"{:016x}{:016x}\"", draw, mix(draw)))
        .expect("digits are a header");
    headers.insert(header::ETAG, etag);
}

/// Flips one bit of the body's byte `at`, if it is in this piece, which begins at `start`.
pub fn flip(piece: Bytes, start: u64, at: u64, draw: u64) -> Bytes {
    let Some(index) = at.checked_sub(start).map(to_usize).filter(|index| *index < piece.len())
    else {
        return piece;
    };
    let mut piece = BytesMut::from(piece);
    piece[index] ^= 1 << (draw % 8);
    piece.freeze()
}

/// Converts a size; bodies are in memory, so it fits.
pub fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

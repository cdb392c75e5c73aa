//! Error answers: a status and one line of text, which clients of Dolt print.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use busload_dolt::Error;

use crate::limits::RETRY_AFTER;

/// Status and text of a refused download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub text: String,
    /// A header beside the usual ones.
    pub header: Option<(header::HeaderName, HeaderValue)>,
}

impl Refusal {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), header: None }
    }

    /// Builds an answer 503 that asks the client to try again.
    pub fn later(text: impl Into<String>) -> Self {
        let header = (header::RETRY_AFTER, RETRY_AFTER.as_secs().into());
        Self { header: Some(header), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    pub fn with(self, name: header::HeaderName, value: HeaderValue) -> Self {
        Self { header: Some((name, value)), ..self }
    }
}

/// A retry helps if the object store is out of reach (503). It does not help if the store cannot be
/// served or holds corrupt data, which somebody has to repair first (502).
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreachable(_)
            | Error::DeadlineExceeded(_)
            | Error::NotLocal
            | Error::Overloaded(_)
            | Error::Closed => Self::later(error.to_string()),
            Error::NoStore(_) => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            Error::Refused(_) | Error::Corrupt(_) => {
                Self::new(StatusCode::BAD_GATEWAY, error.to_string())
            }
        }
    }
}

/// No cache may store the answer: the same URL may work a moment later.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, format!("{}\n", self.text)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.header.map(|(name, value)| (Some(name), value)));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_may_pass_ask_for_a_retry() {
        let text = || "why".to_owned();
        for (error, status, retry_after) in [
            (Error::Unreachable(text()), 503, Some("1")),
            (Error::DeadlineExceeded(text()), 503, Some("1")),
            (Error::NotLocal, 503, Some("1")),
            (Error::Closed, 503, Some("1")),
            (Error::Refused(text()), 502, None),
            (Error::Corrupt(text()), 502, None),
        ] {
            let refusal = Refusal::from(error.clone());
            assert_eq!(refusal.text, error.to_string());
            let response = refusal.into_response();
            assert_eq!(response.status().as_u16(), status, "{error:?}");
            let header =
                response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, retry_after, "{error:?}");
            assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        }
    }
}

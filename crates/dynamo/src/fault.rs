//! Meaning of a failed request: whether to retry, and which error to return at the end.

use busload_objects::{ApiAnswer, ApiError};

use crate::{Error, limits::QUOTED_CHARACTERS_MAX, wire::parse_failure};

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) text: String,
}

/// Class of a fault, which decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// There are more requests, or larger ones, than the table or the account may have.
    Throttled,
    /// A connection failed, the service had an internal error, an answer makes no sense.
    Transient,
    /// The service refuses the request, and would refuse it for any key.
    Refused,
    /// The service refuses the request, and might grant it for each of its keys.
    KeysRefused,
}

impl Fault {
    pub(crate) fn of_call(error: &ApiError) -> Self {
        // Credentials that cannot be fetched now may be there later, as over S3.
        Self { kind: FaultKind::Transient, text: error.to_string() }
    }

    /// Makes the fault of an answer that cannot be understood.
    pub(crate) fn of_nonsense(why: &str) -> Self {
        Self { kind: FaultKind::Transient, text: format!("malformed answer: {why}") }
    }

    /// Makes the fault of an answer with a status that is no success.
    pub(crate) fn of_answer(answer: &ApiAnswer) -> Self {
        let failure = parse_failure(&answer.body);
        let status = answer.status;
        let message = shortened(&failure.message);
        let text = match failure.kind.as_str() {
            "" => format!("status {status}"),
            kind if message.is_empty() => format!("{}, status {status}", shortened(kind)),
            kind => format!("{}: {message}", shortened(kind)),
        };
        Self { kind: kind_of(&failure.kind, status), text }
    }

    /// Returns whether the same request would fail again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.kind, FaultKind::Refused | FaultKind::KeysRefused)
    }

    pub(crate) fn into_error(self, what: &str, attempts: u32) -> Error {
        let text = self.text;
        match self.kind {
            FaultKind::Refused | FaultKind::KeysRefused => Error::Denied(format!("{what}: {text}")),
            FaultKind::Throttled | FaultKind::Transient => {
                Error::Unreachable(format!("{what}: {text}, {attempts} attempts"))
            }
        }
    }
}

fn kind_of(name: &str, status: u16) -> FaultKind {
    match name {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "RequestThrottledException" => FaultKind::Throttled,
        "InternalServerError" | "InternalServerErrorException" | "ServiceUnavailable" => {
            FaultKind::Transient
        }
        "AccessDeniedException" | "ValidationException" => FaultKind::KeysRefused,
        _ => match status {
            429 | 503 => FaultKind::Throttled,
            // What is no error of the service's own comes from something between.
            200..=399 | 408 | 425 | 500..=599 => FaultKind::Transient,
            _ => FaultKind::Refused,
        },
    }
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(status: u16, body: &str) -> Fault {
        let body = body.to_owned().into();
        Fault::of_answer(&ApiAnswer { status, body, is_verified: false })
    }

    #[test]
    fn names_and_statuses_say_what_to_do() {
        let named = |name: &str, status| {
            fault(status, &format!(r#"{{"__type":"com.x#{name}","message":"m"}}"#)).kind
        };
        for (name, status, kind) in [
            ("ProvisionedThroughputExceededException", 400, FaultKind::Throttled),
            ("ThrottlingException", 400, FaultKind::Throttled),
            ("RequestLimitExceeded", 400, FaultKind::Throttled),
            ("InternalServerError", 500, FaultKind::Transient),
            ("ResourceNotFoundException", 400, FaultKind::Refused),
            ("AccessDeniedException", 400, FaultKind::KeysRefused),
            ("ExpiredTokenException", 400, FaultKind::Refused),
            ("", 503, FaultKind::Throttled),
            ("", 502, FaultKind::Transient),
            ("", 302, FaultKind::Transient),
            ("", 404, FaultKind::Refused),
        ] {
            assert_eq!(named(name, status), kind, "{name} {status}");
        }
    }

    #[test]
    fn texts_are_one_short_line() {
        let words = "a\\n b ".repeat(999);
        let long = fault(400, &format!(r#"{{"__type":"A","message":"{words}"}}"#));
        assert!(!long.text.contains('\n') && long.text.len() < 2 * QUOTED_CHARACTERS_MAX);
        assert_eq!(fault(502, "<html>").text, "status 502");
        assert_eq!(fault(400, r#"{"__type":"A"}"#).text, "A, status 400");
        assert_eq!(
            fault(400, r#"{"__type":"A","message":"b"}"#).into_error("cannot read x", 1),
            Error::Denied("cannot read x: A: b".to_owned())
        );
    }
}

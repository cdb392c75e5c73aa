//! Meaning of a failed attempt: whether to retry, and which error to return at the end.
//!
//! The invariant: a store that could not be asked never counts as a store that has no such object.

use std::{error::Error as StdError, io};

use super::{aws_credentials::CredentialError, http::Seen, limits::CAUSE_CHARACTERS_MAX};
use crate::Error;

/// Reason why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) text: String,
}

/// Class of a fault, which decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// The object still has the ETag that the caller knows; an answer, in fact.
    NotModified,
    /// The object does not exist.
    Missing,
    /// The object has another ETag by now.
    Replaced,
    /// The store denies access.
    Denied,
    /// The store asks to slow down.
    SlowDown,
    /// The answer does not match the request.
    Wrong,
    /// The answer is about another version, although `If-Match` should have made the store refuse
    /// it.
    WrongVersion,
    /// A connection failed, a timeout passed, the store had an internal error.
    Transient,
}

impl Fault {
    pub(super) fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Makes a fault from an error of `object_store` and the HTTP status.
    pub(super) fn of(error: &object_store::Error, seen: Seen) -> Self {
        Self::new(kind_of(error, seen), error_text(error))
    }

    pub(super) fn is_worth_another_try(&self) -> bool {
        use FaultKind::{SlowDown, Transient, Wrong, WrongVersion};
        matches!(self.kind, SlowDown | Transient | Wrong | WrongVersion)
    }

    pub(super) fn is_wrong_response(&self) -> bool {
        matches!(self.kind, FaultKind::Wrong | FaultKind::WrongVersion)
    }

    /// Makes the error for the caller; `what` is `cannot read NAME of URL`.
    pub(super) fn into_error(self, what: &str, attempts: u32) -> Error {
        let text = self.text;
        match self.kind {
            FaultKind::Missing => Error::Gone(format!("{what}: there is no such object")),
            FaultKind::Replaced | FaultKind::WrongVersion => {
                Error::Gone(format!("{what}: the object was replaced by another version ({text})"))
            }
            FaultKind::Denied => Error::Denied(format!("{what}: {text}")),
            FaultKind::NotModified => {
                Error::Unreachable(format!("{what}: answered 304 to a plain read"))
            }
            FaultKind::SlowDown => Error::Unreachable(format!(
                "{what}: the store asks to slow down ({text}), {attempts} attempts"
            )),
            FaultKind::Wrong | FaultKind::Transient => {
                Error::Unreachable(format!("{what}: {text}, {attempts} attempts"))
            }
        }
    }
}

fn kind_of(error: &object_store::Error, seen: Seen) -> FaultKind {
    use object_store::Error as E;
    let of_credentials = chain(error).find_map(|cause| cause.downcast_ref::<CredentialError>());
    match error {
        // Another attempt would find the same files.
        _ if matches!(of_credentials, Some(CredentialError::Settings(_))) => FaultKind::Denied,
        E::NotModified { .. } => FaultKind::NotModified,
        E::Precondition { .. } => FaultKind::Replaced,
        // A bucket that does not exist answers 404 to every name: that is a matter of settings, not
        // of objects.
        E::NotFound { .. } if names_missing_bucket(&error.to_string()) => FaultKind::Denied,
        E::NotFound { .. } => FaultKind::Missing,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => FaultKind::Denied,
        E::NotSupported { .. } | E::NotImplemented { .. } | E::UnknownConfigurationKey { .. } => {
            FaultKind::Denied
        }
        _ => seen.status.map_or_else(|| kind_without_status(error), kind_of_status),
    }
}

fn kind_of_status(status: u16) -> FaultKind {
    match status {
        429 | 503 => FaultKind::SlowDown,
        // The store took it for a success, `object_store` did not: another range than asked for, no
        // ETag.
        200..=299 => FaultKind::Wrong,
        // The range is beyond the end: not the object that was listed.
        416 => FaultKind::WrongVersion,
        408 | 409 | 425 | 500..=599 => FaultKind::Transient,
        // 400: a token that has expired, a signature for another region; 301: another region.
        _ => FaultKind::Denied,
    }
}

fn kind_without_status(error: &object_store::Error) -> FaultKind {
    match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) => FaultKind::Denied,
        _ if is_bad_range(error) => FaultKind::WrongVersion,
        _ => FaultKind::Transient,
    }
}

/// Returns whether an error says in words that a range is beyond the end, as those of files and
/// memory do.
fn is_bad_range(error: &object_store::Error) -> bool {
    chain(error).any(|cause| cause.to_string().contains("Wanted range starting at"))
}

fn names_missing_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "AccountNotFound"].iter().any(|code| text.contains(code))
}

fn io_kind(error: &object_store::Error) -> Option<io::ErrorKind> {
    chain(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// Puts the error and its causes on one line, without causes that only repeat others.
pub(super) fn error_text(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    // Texts of the causes so far, of which `text` may have a part only.
    let mut all = String::new();
    for cause in chain(error) {
        let line = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let part = shortened(&line);
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) && !all.contains(&line) {
            text = format!("{text}: {part}");
        }
        all.push_str(&line);
    }
    if text.contains("no credentials for AWS: ") {
        text.push_str(" (anonymous=true reads a public bucket)");
    } else if text.contains("169.254.169.254") {
        text.push_str(
            " (credentials were looked for at the instance's address because the environment has \
             no AWS_ACCESS_KEY_ID; anonymous=true reads a public bucket)",
        );
    }
    text
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(CAUSE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    fn at(status: u16) -> Seen {
        Seen { status: Some(status), requests: 1 }
    }

    #[test]
    fn statuses_say_what_to_do() {
        for (status, kind) in [
            (503, FaultKind::SlowDown),
            (429, FaultKind::SlowDown),
            (500, FaultKind::Transient),
            (502, FaultKind::Transient),
            (408, FaultKind::Transient),
            (200, FaultKind::Wrong),
            (206, FaultKind::Wrong),
            (416, FaultKind::WrongVersion),
            (400, FaultKind::Denied),
            (301, FaultKind::Denied),
        ] {
            assert_eq!(Fault::of(&generic("x"), at(status)).kind, kind, "{status}");
        }
        assert_eq!(
            Fault::of(&generic("connection refused"), Seen::default()).kind,
            FaultKind::Transient
        );
    }

    #[test]
    fn only_a_store_that_answered_says_that_an_object_is_missing() {
        let missing = |text: &str| object_store::Error::NotFound {
            path: "a".to_owned(),
            source: text.to_owned().into(),
        };
        let kind = |text| Fault::of(&missing(text), at(404)).kind;
        assert_eq!(kind("<Code>NoSuchKey</Code>"), FaultKind::Missing);
        assert_eq!(kind("<Code>NoSuchBucket</Code>"), FaultKind::Denied);
        let final_error = Fault::of(&missing("<Code>NoSuchKey</Code>"), at(404))
            .into_error("cannot read a of s3://b", 1);
        assert_eq!(
            final_error,
            Error::Gone("cannot read a of s3://b: there is no such object".to_owned())
        );
        let refused =
            Fault::of(&generic("refused"), Seen::default()).into_error("cannot read a", 3);
        assert!(
            matches!(refused, Error::Unreachable(text) if text.ends_with("refused, 3 attempts"))
        );
    }

    #[test]
    fn a_file_that_may_not_be_read_is_denied() {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, "no");
        let error =
            object_store::Error::Generic { store: "LocalFileSystem", source: source.into() };
        assert_eq!(Fault::of(&error, Seen::default()).kind, FaultKind::Denied);
    }

    #[test]
    fn what_is_missing_in_files_is_denied_and_said_once() {
        let error = |source: CredentialError| object_store::Error::Generic {
            store: "AWS",
            source: Box::new(source),
        };
        let long = "run aws sso login ".repeat(30);
        let fault = Fault::of(&error(CredentialError::Settings(long)), Seen::default());
        assert_eq!(fault.kind, FaultKind::Denied);
        assert!(fault.text.len() < CAUSE_CHARACTERS_MAX + 10, "{}", fault.text);
        let away = CredentialError::Unavailable("STS is away".to_owned());
        assert_eq!(Fault::of(&error(away), Seen::default()).kind, FaultKind::Transient);
    }

    #[test]
    fn texts_are_one_short_line() {
        let fault = Fault::of(&generic(&"<a>\n  <b>".repeat(1000)), at(500));
        assert!(
            !fault.text.contains('\n') && fault.text.len() < 2 * CAUSE_CHARACTERS_MAX + 20,
            "{}",
            fault.text
        );
    }
}

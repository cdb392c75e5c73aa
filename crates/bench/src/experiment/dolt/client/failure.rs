//! Failures, and whether trying again may help.

use std::{fmt::Display, time::Duration};

use tonic::{Code, Status};

use super::limits::{BACKOFF, BACKOFF_MAX};
use crate::failures::Failure;

/// Makes a failure of something refused, or that did not come.
pub fn refused(what: impl Display, why: impl Display) -> Failure {
    Failure::Refused(format!("{what}: {why}"))
}

/// Makes a failure of something that came and is not what it should be.
pub fn wrong(what: impl Display, why: impl Display) -> Failure {
    Failure::Wrong(format!("{what}: {why}"))
}

pub fn of_status(method: &str, status: &Status) -> Failure {
    refused(method, format_args!("{:?}: {}", status.code(), status.message()))
}

/// Whether the client gives up at once.
pub fn is_permanent(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::OutOfRange
            | Code::Unauthenticated
    )
}

/// Returns how long to wait before trying again for the n-th time, counted from 0.
pub fn backoff(retries: u32) -> Duration {
    BACKOFF
        .saturating_mul(3_u32.saturating_pow(retries))
        .div_f64(2_f64.powi(retries.min(30).cast_signed()))
        .min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_half_up_to_five_seconds() {
        let waits: Vec<_> =
            [0, 1, 2, 6].map(backoff).into_iter().map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [500, 750, 1_125, 5_000]);
    }

    #[test]
    fn what_the_server_calls_unavailable_is_tried_again() {
        assert!(!is_permanent(&Status::unavailable("")));
        assert!(!is_permanent(&Status::internal("")));
        assert!(is_permanent(&Status::failed_precondition("")));
    }
}

//! Status codes for errors of a store.

use busload_dolt::Error;
use tonic::Status;

use crate::Deadline;

/// Returns the status for an error: one code for each kind. A client that set no deadline gets
/// `UNAVAILABLE` for the table's timeout, because it may well retry.
pub fn status(error: &Error, deadline: &Deadline) -> Status {
    match error {
        Error::Unreachable(message) => Status::unavailable(message),
        Error::Refused(message) => Status::failed_precondition(message),
        Error::NoStore(message) => Status::not_found(message),
        Error::Overloaded(message) => Status::resource_exhausted(message),
        Error::Corrupt(message) => Status::data_loss(message),
        Error::DeadlineExceeded(message) if deadline.of_client().is_none() => {
            Status::unavailable(message)
        }
        Error::DeadlineExceeded(message) => Status::deadline_exceeded(message),
        Error::NotLocal => Status::unavailable("the chunk is not on local disk"),
        Error::Closed => Status::unavailable("busload is shutting down"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::{Code, metadata::MetadataMap};

    use super::*;

    fn deadline(header: Option<&'static str>) -> Deadline {
        let mut headers = MetadataMap::new();
        if let Some(header) = header {
            headers.insert("grpc-timeout", header.parse().unwrap());
        }
        Deadline::of(&headers, Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn each_error_has_its_code_and_keeps_its_text() {
        let text = || "the reason".to_owned();
        for (error, code) in [
            (Error::Unreachable(text()), Code::Unavailable),
            (Error::Refused(text()), Code::FailedPrecondition),
            (Error::NoStore(text()), Code::NotFound),
            (Error::Overloaded(text()), Code::ResourceExhausted),
            (Error::Corrupt(text()), Code::DataLoss),
            (Error::DeadlineExceeded(text()), Code::Unavailable),
            (Error::NotLocal, Code::Unavailable),
            (Error::Closed, Code::Unavailable),
        ] {
            let status = status(&error, &deadline(None));
            assert_eq!(status.code(), code, "{error:?}");
            assert_eq!(status.message(), error.to_string());
        }
    }

    #[test]
    fn only_the_clients_own_deadline_is_deadline_exceeded() {
        let late = Error::DeadlineExceeded("the reason".into());
        assert_eq!(status(&late, &deadline(Some("1S"))).code(), Code::DeadlineExceeded);
        assert_eq!(status(&late, &deadline(None)).code(), Code::Unavailable);
    }
}

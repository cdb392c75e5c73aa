//! Deadlines of gRPC calls.

use std::time::{Duration, Instant};

use tonic::{Status, metadata::MetadataMap};

use crate::limits::TIMEOUT_MAX;

/// Deadline of a call: the client's, or if it set none, the table's timeout for each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    client: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// Reads the deadline from a call's headers; `timeout` is the table's.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` for a header that is no timeout of gRPC.
    pub fn of(headers: &MetadataMap, timeout: Duration) -> Result<Self, Status> {
        let Some(header) = headers.get("grpc-timeout") else {
            return Ok(Self { client: None, timeout });
        };
        let parsed = parse(header.as_bytes()).ok_or_else(|| {
            Status::invalid_argument(
                "grpc-timeout: expected up to 8 digits and one of H, M, S, m, u, n",
            )
        })?;
        Ok(Self { client: Some(now() + parsed.min(TIMEOUT_MAX)), timeout })
    }

    /// Returns the same deadline with the timeout of another table.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the deadline of a batch that starts now.
    pub fn of_batch(&self) -> Instant {
        self.client.unwrap_or_else(|| now() + self.timeout)
    }

    /// Returns the deadline of a batch whose results are taken at the client's pace. If the client
    /// set none, whoever takes the results has to apply the table's timeout.
    pub fn of_paced_batch(&self) -> Instant {
        self.client.unwrap_or_else(|| now() + TIMEOUT_MAX)
    }

    /// Returns the table's timeout.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the client's deadline, if it set one.
    pub fn of_client(&self) -> Option<Instant> {
        self.client
    }

    /// Returns the status of a call whose deadline has passed. A client whose call ran into the
    /// table's timeout may well retry, so that is `UNAVAILABLE`.
    pub fn passed(&self) -> Status {
        match self.client {
            Some(_) => Status::deadline_exceeded("the deadline that came with the call has passed"),
            None => Status::unavailable(format!(
                "no answer from the object store in {:?}, the table's timeout",
                self.timeout
            )),
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Parses a timeout of gRPC over HTTP/2: at most 8 digits and a unit.
fn parse(header: &[u8]) -> Option<Duration> {
    let (unit, digits) = header.split_last()?;
    if digits.is_empty() || 8 < digits.len() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(value * 3600)),
        b'M' => Some(Duration::from_secs(value * 60)),
        b'S' => Some(Duration::from_secs(value)),
        b'm' => Some(Duration::from_millis(value)),
        b'u' => Some(Duration::from_micros(value)),
        b'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_parsed_as_the_protocol_has_them() {
        for (header, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("010S", Some(Duration::from_secs(10))),
            ("250m", Some(Duration::from_millis(250))),
            ("0u", Some(Duration::ZERO)),
            ("12345678n", Some(Duration::from_nanos(12_345_678))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("123456789n", None),
            ("-1S", None),
            ("+1S", None),
            ("1.5S", None),
        ] {
            assert_eq!(parse(header.as_bytes()), expected, "{header}");
        }
    }

    #[test]
    fn the_longest_timeout_is_no_overflow() {
        let mut headers = MetadataMap::new();
        headers.insert("grpc-timeout", "99999999H".parse().unwrap());
        let deadline = Deadline::of(&headers, Duration::from_secs(10)).unwrap();
        assert!(deadline.of_client().unwrap() <= now() + TIMEOUT_MAX);
        assert_eq!(deadline.passed().code(), tonic::Code::DeadlineExceeded);
        headers.insert("grpc-timeout", "soon".parse().unwrap());
        let refused = Deadline::of(&headers, Duration::from_secs(10)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}

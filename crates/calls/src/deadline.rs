//! Deadlines of gRPC calls.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep_until};
use tonic::{Status, metadata::MetadataMap};

use crate::limits::TIMEOUT_MAX;

/// Deadline of a call: the client's, or if it set none, the table's timeout for each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    client: Option<Instant>,
    timeout: Duration,
}

/// Timer of a client's deadline, for streams that poll it beside their work.
pub struct DeadlineTimer {
    deadline: Deadline,
    /// None if the client set no deadline.
    sleep: Option<Pin<Box<Sleep>>>,
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
    /// set none, the caller that takes the results has to apply the table's timeout.
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

    /// Starts a timer of the client's deadline, on the current tokio runtime.
    pub fn timer(self) -> DeadlineTimer {
        let sleep = self.client.map(|at| Box::pin(sleep_until(at.into())));
        DeadlineTimer { deadline: self, sleep }
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

impl DeadlineTimer {
    /// Completes when the client's deadline has passed, with the status of the call; never if the
    /// client set none.
    pub fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        sleep.as_mut().poll(context).map(|()| self.deadline.passed())
    }
}

impl fmt::Debug for DeadlineTimer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("DeadlineTimer").field(&self.deadline).finish()
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
    use std::{future::poll_fn, task::Waker};

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
    fn the_timer_ends_at_the_clients_deadline_and_never_at_the_tables_timeout() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let poll_once = |deadline: Deadline| {
            let mut timer = deadline.timer();
            timer.poll_passed(&mut Context::from_waker(Waker::noop()))
        };
        runtime.block_on(async {
            let in_an_hour = now() + Duration::from_secs(3600);
            let timeout = Duration::ZERO;
            assert!(poll_once(Deadline { client: None, timeout }).is_pending());
            assert!(poll_once(Deadline { client: Some(in_an_hour), timeout }).is_pending());
            let mut timer = Deadline { client: Some(now()), timeout }.timer();
            let passed = poll_fn(|context| timer.poll_passed(context)).await;
            assert_eq!(passed.code(), tonic::Code::DeadlineExceeded);
        });
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

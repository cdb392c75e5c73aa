//! The body of an answer. It has exactly as many bytes as were announced, or ends with an error,
//! which cuts the connection.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{BoxError, body::HttpBody};
use busload_dolt::{Error, StoreUsage};
use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use http_body::{Frame, SizeHint};

use crate::{Remotesapi, memory::QuotaReservation, stats::Download};

/// Stream of a resource's pieces, in order.
pub type Pieces = BoxStream<'static, Result<Bytes, Error>>;

/// Context of an answer that is being sent.
#[derive(Debug)]
pub struct Sending {
    /// Gives access to the counters and the log.
    pub remotesapi: Arc<Remotesapi>,
    /// Kind under which the download is counted.
    pub kind: Download,
    /// Counters of the store.
    pub usage: Arc<StoreUsage>,
    /// Table name for log messages.
    pub table: String,
    /// Memory reservation, released at the end.
    pub _reservation: Option<QuotaReservation>,
}

/// Body of one answer, which counts the bytes that it sends.
pub struct AnswerBody {
    first: Option<Bytes>,
    pieces: Pieces,
    /// Bytes still to be sent.
    left: u64,
    has_failed: bool,
    sending: Sending,
}

impl AnswerBody {
    /// Creates a body of `length` bytes whose first piece is there already.
    pub fn new(first: Bytes, pieces: Pieces, length: u64, sending: Sending) -> Self {
        Self { first: Some(first), pieces, left: length, has_failed: false, sending }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, String>> {
        let piece = match self.first.take() {
            Some(first) => first,
            None => match ready!(self.pieces.poll_next_unpin(context)) {
                Some(piece) => piece.map_err(|error| error.to_string())?,
                // Fewer or more bytes than announced mean a bug of this program, or an object whose
                // size changed.
                None => return Poll::Ready(Err("there are no more bytes".to_owned())),
            },
        };
        let bytes = u64::try_from(piece.len()).expect("lengths have at most 64 bits");
        self.left = match self.left.checked_sub(bytes) {
            Some(left) => left,
            None => return Poll::Ready(Err(format!("a piece of {bytes} bytes came for them"))),
        };
        self.sending.remotesapi.stats.count_sent(self.sending.kind, bytes);
        self.sending.usage.count_sent(bytes);
        Poll::Ready(Ok(piece))
    }

    fn fail(&mut self, fault: String) -> BoxError {
        self.has_failed = true;
        let Sending { remotesapi, kind, table, .. } = &self.sending;
        remotesapi.stats.count_cut_off(*kind);
        let text = format!("a download was cut off {} bytes before its end: {fault}", self.left);
        remotesapi.rate_limited_log.warn(&format!("table {table}"), &text);
        fault.into()
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_end_stream() || self.has_failed {
            return Poll::Ready(None);
        }
        match ready!(self.poll_piece(context)) {
            Ok(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            Err(fault) => Poll::Ready(Some(Err(self.fail(fault)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody")
            .field("left", &self.left)
            .field("sending", &self.sending)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};

    use super::*;
    use crate::{stats::RemotesapiStats, testing::TestHost};

    fn sending(kind: Download) -> (Sending, Arc<RemotesapiStats>) {
        let stats = Arc::<RemotesapiStats>::default();
        let remotesapi = Remotesapi::new(Arc::<TestHost>::default(), Arc::clone(&stats));
        let usage = Arc::default();
        (Sending { remotesapi, kind, usage, table: "t".to_owned(), _reservation: None }, stats)
    }

    /// Returns the text sent, whether it ended without an error, and two metrics: bytes sent and
    /// answers cut off.
    fn sent(length: u64, pieces: Vec<Result<&'static str, Error>>) -> (String, bool, (u64, u64)) {
        let (sending, stats) = sending(Download::File);
        let pieces =
            pieces.into_iter().map(|piece| piece.map(|text| Bytes::from_static(text.as_bytes())));
        let mut pieces = stream::iter(pieces).boxed();
        let first = pieces.next().now_or_never().unwrap().unwrap().unwrap();
        let mut body = axum::body::Body::new(AnswerBody::new(first, pieces, length, sending))
            .into_data_stream();
        let mut text = String::new();
        let in_order = loop {
            match body.next().now_or_never().unwrap() {
                Some(Ok(piece)) => text.push_str(std::str::from_utf8(&piece).unwrap()),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        (text, in_order, (stats.sent_bytes(Download::File), stats.cut_off(Download::File)))
    }

    #[test]
    fn all_that_was_announced_is_sent_or_the_answer_is_cut_off() {
        let fault = || Err(Error::Unreachable("gone".to_owned()));
        assert_eq!(
            sent(9, vec![Ok("one"), Ok("two"), Ok("six")]),
            ("onetwosix".to_owned(), true, (9, 0))
        );
        assert_eq!(
            sent(9, vec![Ok("one"), fault(), Ok("twosix")]),
            ("one".to_owned(), false, (3, 1))
        );
        assert_eq!(sent(9, vec![Ok("one"), Ok("two")]), ("onetwo".to_owned(), false, (6, 1)));
        assert_eq!(sent(5, vec![Ok("one"), Ok("two")]), ("one".to_owned(), false, (3, 1)));
        assert_eq!(
            sent(3, vec![Ok("one"), fault()]),
            ("one".to_owned(), true, (3, 0)),
            "nobody needs it"
        );
    }

    #[test]
    fn the_length_is_known_from_the_beginning() {
        let (sending, _) = sending(Download::Range);
        let mut body = AnswerBody::new(
            Bytes::from_static(b"one"),
            stream::iter([Ok(Bytes::from_static(b"two"))]).boxed(),
            6,
            sending,
        );
        let mut context = Context::from_waker(std::task::Waker::noop());
        for (left, is_end) in [(6, false), (3, false), (0, true)] {
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), is_end));
            let frame = Pin::new(&mut body).poll_frame(&mut context);
            assert!(matches!(frame, Poll::Ready(frame) if frame.is_none() == is_end));
        }
    }
}

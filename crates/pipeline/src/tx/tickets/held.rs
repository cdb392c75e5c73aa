//! Requests that are held back while the source of their table is replaced.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use busload_io::ConnId;

use crate::{
    limits::{HELD_REQUEST_BYTES_MAX, HELD_REQUESTS_MAX},
    source::{
        Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, Ticket, Unsupported,
    },
};

/// Source in the place of one that is being replaced. It accepts requests and answers none: they
/// keep their order and are submitted to the new source.
pub(in crate::tx) struct HeldRequests {
    kind: &'static str,
    timeout: Duration,
    requests: VecDeque<HeldRequest>,
    bytes: usize,
    /// Tickets of held requests for which nobody waits any more.
    cancelled: HashSet<Ticket>,
}

/// Request with bytes of its own.
pub(super) struct HeldRequest {
    pub ticket: Ticket,
    pub operation: Operation,
    conn: ConnId,
    key: Box<[u8]>,
    arguments: Vec<Box<[u8]>>,
    deadline: Duration,
}

impl HeldRequest {
    fn of(request: &SourceRequest<'_>) -> Self {
        let &SourceRequest { ticket, conn, operation, key, arguments, deadline } = request;
        let arguments = arguments.iter().map(|&argument| argument.into()).collect();
        Self { ticket, operation, conn, key: key.into(), arguments, deadline }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.arguments.iter().map(|argument| argument.len()).sum::<usize>()
    }

    /// Submits the request to a source.
    pub fn submit_to(&self, source: &mut dyn Source) -> Result<(), Full> {
        let Self { ticket, operation, conn, key, arguments, deadline } = self;
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| &**argument).collect();
        source.submit(SourceRequest {
            ticket: *ticket,
            conn: *conn,
            operation: *operation,
            key,
            arguments: &arguments,
            deadline: *deadline,
        })
    }
}

impl HeldRequests {
    /// Holds back requests for a source of this kind, which takes this long to time out.
    pub fn new(kind: &'static str, timeout: Duration) -> Self {
        let (requests, cancelled) = Default::default();
        Self { kind, timeout, requests, bytes: 0, cancelled }
    }

    /// Returns the requests for which somebody still waits, in order.
    pub(super) fn into_requests(self) -> impl Iterator<Item = HeldRequest> {
        let Self { requests, cancelled, .. } = self;
        requests.into_iter().filter(move |request| !cancelled.contains(&request.ticket))
    }

    /// Drops cancelled requests at the front. Timeouts cancel in that order.
    fn drop_cancelled(&mut self) {
        while let Some(first) = self.requests.front()
            && self.cancelled.remove(&first.ticket)
        {
            self.bytes -= first.bytes();
            self.requests.pop_front();
        }
    }
}

impl Source for HeldRequests {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        let request = HeldRequest::of(&request);
        let bytes = self.bytes + request.bytes();
        if HELD_REQUESTS_MAX <= self.requests.len() || HELD_REQUEST_BYTES_MAX < bytes {
            return Err(Full);
        }
        self.bytes = bytes;
        self.requests.push_back(request);
        Ok(())
    }

    fn flush(&mut self) {}

    fn cancel(&mut self, ticket: Ticket) {
        self.cancelled.insert(ticket);
        self.drop_cancelled();
    }

    fn poll(&mut self, _: &mut Vec<SourceEvent>) {}

    fn kind(&self) -> &'static str {
        self.kind
    }

    /// Says yes to everything: the new source decides.
    fn supports(&self, _: Operation) -> Result<(), Unsupported> {
        Ok(())
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn info(&self) -> SourceInfo {
        let waiting = ("waiting", self.requests.len().to_string());
        SourceInfo { fields: vec![("state", "changing".to_owned()), waiting], ..Default::default() }
    }
}

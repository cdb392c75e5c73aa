//! One connection of a client, and its connection to the server.

use std::{
    io::{self, Write},
    sync::Arc,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Body,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::AbortHandle,
    time::{Duration, Instant, sleep_until},
};

use super::{
    ProxyState, Seen,
    answer::{self, UpstreamRange},
    request::{Reader, RequestedRange},
};
use crate::{
    fault::{self, Decision, Fault},
    limits::{HELD_BODY_BYTES_MAX, PIECE_BYTES, UPSTREAM_ATTEMPTS},
};

/// Response whose body fails only when a connection ends.
type Answer = Response<BoxBody<Bytes, io::Error>>;

/// State of the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The connection serves further requests.
    Whole,
    /// The connection is closed cleanly.
    Close,
    /// The connection is reset, as by a crash.
    Reset,
}

pub(super) async fn serve(socket: TcpStream, shared: Arc<ProxyState>) {
    let mut connection = Connection { socket, shared, upstream: None };
    // A client that goes away, or sends no valid request, ends its connection.
    let ended = connection.run().await.unwrap_or(Ended::Close);
    if ended == Ended::Reset {
        // With SO_LINGER of zero, closing is a reset.
        let _ = connection.socket.set_zero_linger();
    }
}

struct Connection {
    socket: TcpStream,
    shared: Arc<ProxyState>,
    upstream: Option<Upstream>,
}

/// A connection to the server; its driver ends with it.
struct Upstream {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    async fn run(&mut self) -> io::Result<Ended> {
        self.socket.set_nodelay(true)?;
        let mut reader = Reader::default();
        while let Some(request) = reader.next(&mut self.socket).await? {
            let is_last =
                request.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
            match self.answer(request).await? {
                Ended::Whole if !is_last => {}
                ended => return Ok(ended),
            }
        }
        Ok(Ended::Close)
    }

    async fn answer(&mut self, request: Request<Bytes>) -> io::Result<Ended> {
        let came = now();
        let path = request.uri().to_string();
        let range = RequestedRange::of(request.headers());
        let fate = self.shared.decider().decide(fault::RequestTraits {
            path: &path,
            has_range: range.is_some(),
            is_listing: is_listing(&request),
            is_read: request.method() == Method::GET,
        });
        let seen =
            Seen { method: request.method().to_string(), path, range: None, bytes: 0, status: 0 };
        let answer = match &fate.fault {
            Some(Fault::NoAnswer) => None,
            Some(Fault::Status(status)) => Some(held(answer::error(*status, &seen.path))),
            _ => Some(self.ask(request, range, &fate).await),
        };
        sleep_until((came + fate.first_byte).into()).await;
        let Some(answer) = answer else {
            self.shared.note(Seen { range: closed(range), ..seen });
            return Ok(if fate.draw.is_multiple_of(2) { Ended::Close } else { Ended::Reset });
        };
        let range = resolved(range, &answer);
        self.send(answer, Seen { range, ..seen }, &fate).await
    }

    /// Gets the server's answer, with the changes that come before the first byte.
    async fn ask(
        &mut self,
        mut request: Request<Bytes>,
        range: Option<RequestedRange>,
        fate: &Decision,
    ) -> Answer {
        let instead = fate
            .fault
            .as_ref()
            .zip(range)
            .and_then(|(fault, range)| answer::instead(fault, range, fate.draw));
        match instead {
            Some(UpstreamRange::Whole) => drop(request.headers_mut().remove(header::RANGE)),
            Some(UpstreamRange::More(range)) => {
                drop(request.headers_mut().insert(header::RANGE, range.header()))
            }
            None => {}
        }
        let mut response = match self.forward(request).await {
            Ok(response) => response,
            Err(error) => return held(answer::error(502, &error)),
        };
        match (&fate.fault, range) {
            (Some(fault @ (Fault::WrongRange | Fault::LyingRange)), Some(range)) => {
                let lies = *fault == Fault::LyingRange;
                self.changed(response, |response| answer::shift(response, range, lies)).await
            }
            (Some(Fault::HalfListing), _) => {
                self.changed(response, |response| response.map(|body| answer::half_listing(&body)))
                    .await
            }
            (Some(Fault::OtherEtag), _) => {
                answer::other_etag(response.headers_mut(), fate.draw);
                response
            }
            // A body without a length cannot be sent piece by piece: errors and listings, which are
            // small.
            _ if response.body().size_hint().exact().is_none() => {
                self.changed(response, |response| response).await
            }
            _ => response,
        }
    }

    /// Changes a response that must be buffered whole for it.
    async fn changed(
        &mut self,
        response: Answer,
        change: impl FnOnce(Response<Bytes>) -> Response<Bytes>,
    ) -> Answer {
        let (mut head, body) = response.into_parts();
        match Limited::new(body, HELD_BODY_BYTES_MAX).collect().await {
            Ok(body) => {
                head.headers.remove(header::CONTENT_LENGTH);
                held(change(Response::from_parts(head, body.to_bytes())))
            }
            Err(error) => held(answer::error(502, &error.to_string())),
        }
    }

    async fn forward(&mut self, request: Request<Bytes>) -> Result<Answer, String> {
        let mut failure = String::new();
        for _ in 0..UPSTREAM_ATTEMPTS {
            let sent = match self.upstream().await {
                Ok(upstream) => upstream.sender.send_request(request.clone().map(Full::new)).await,
                Err(error) => return Err(error.to_string()),
            };
            match sent {
                Ok(response) => {
                    return Ok(response.map(|body| body.map_err(io::Error::other).boxed()));
                }
                Err(error) => {
                    failure = error.to_string();
                    self.upstream = None;
                }
            }
        }
        Err(failure)
    }

    async fn upstream(&mut self) -> io::Result<&mut Upstream> {
        let is_usable = match &mut self.upstream {
            Some(upstream) => upstream.sender.ready().await.is_ok(),
            None => false,
        };
        if !is_usable {
            let socket = TcpStream::connect(self.shared.upstream).await?;
            socket.set_nodelay(true)?;
            let (sender, driver) =
                http1::handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
            let driver = tokio::spawn(async move {
                // The task that sends requests sees how it ends.
                let _ = driver.await;
            });
            self.upstream = Some(Upstream { sender, driver: driver.abort_handle() });
        }
        self.upstream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    async fn send(&mut self, answer: Answer, mut seen: Seen, fate: &Decision) -> io::Result<Ended> {
        let (mut head, body) = answer.into_parts();
        seen.status = head.status.as_u16();
        let is_empty = matches!(head.status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT);
        if is_empty || seen.method == "HEAD" {
            self.shared.note(seen);
            self.socket.write_all(&head_bytes(head.status, &head.headers)?).await?;
            return Ok(Ended::Whole);
        }
        let whole = body.size_hint().exact().unwrap_or(0);
        let plan = Plan::new(fate, whole);
        head.headers.insert(header::CONTENT_LENGTH, plan.announced.into());
        let head = head_bytes(head.status, &head.headers)?;
        if self.send_body(head, body, seen, plan, fate).await? == Ended::Reset {
            return Ok(Ended::Reset);
        }
        if plan.sent < whole {
            // The rest of the server's answer would have to be read before the next request.
            self.upstream = None;
        }
        self.end(plan.end).await
    }

    /// Sends the head together with the first piece. If the server breaks off, the client gets a
    /// reset.
    async fn send_body(
        &mut self,
        mut head: Vec<u8>,
        mut body: BoxBody<Bytes, io::Error>,
        seen: Seen,
        plan: Plan,
        fate: &Decision,
    ) -> io::Result<Ended> {
        let (started, note, mut sent) = (now(), self.shared.note(seen), 0);
        while sent < plan.sent {
            let Some(Ok(frame)) = body.frame().await else { return Ok(Ended::Reset) };
            let Ok(data) = frame.into_data() else { continue };
            let data = answer::flip(data, sent, plan.flipped.unwrap_or(u64::MAX), fate.draw);
            let data = data.slice(..answer::to_usize(plan.sent - sent).min(data.len()));
            let bandwidth =
                [fate.bandwidth, self.shared.link.bandwidth()].into_iter().filter(|rate| 0 < *rate);
            for piece in data.chunks(piece_bytes(bandwidth.min().unwrap_or(0))) {
                self.shared.link.carry(piece.len()).await;
                if fate.bandwidth > 0 {
                    let due = Duration::from_secs_f64(sent as f64 / fate.bandwidth as f64);
                    sleep_until((started + due).into()).await;
                }
                sent += piece.len() as u64;
                self.shared.note_bytes(note, sent);
                write_both(&mut self.socket, &mut head, piece).await?;
            }
        }
        self.socket.write_all(&head).await?;
        Ok(Ended::Whole)
    }

    async fn end(&mut self, end: End) -> io::Result<Ended> {
        match end {
            End::Serve => Ok(Ended::Whole),
            End::Reset => Ok(Ended::Reset),
            End::Silence => {
                // Waits until the client gives up.
                let mut ignored = [0; 1024];
                while self.socket.read(&mut ignored).await? > 0 {}
                Ok(Ended::Close)
            }
        }
    }
}

/// Action after the last byte that is sent.
#[derive(Clone, Copy, Debug)]
enum End {
    Serve,
    Silence,
    Reset,
}

/// Part of a body that is sent, and its end.
#[derive(Clone, Copy, Debug)]
struct Plan {
    announced: u64,
    sent: u64,
    flipped: Option<u64>,
    end: End,
}

impl Plan {
    fn new(fate: &Decision, whole: u64) -> Self {
        let all = Self { announced: whole, sent: whole, flipped: None, end: End::Serve };
        match fate.fault {
            Some(Fault::Stall(bytes)) => Self { sent: bytes.min(whole), end: End::Silence, ..all },
            Some(Fault::Reset(bytes)) => Self { sent: bytes.min(whole), end: End::Reset, ..all },
            Some(Fault::Truncate(bytes)) => {
                Self { announced: bytes.min(whole), sent: bytes.min(whole), ..all }
            }
            Some(Fault::Flip(at)) => Self { flipped: at.checked_rem(whole), ..all },
            _ => all,
        }
    }
}

/// Returns a size of pieces that is spread evenly, a hundred a second.
fn piece_bytes(bandwidth: u64) -> usize {
    if bandwidth == 0 {
        PIECE_BYTES
    } else {
        answer::to_usize(bandwidth / 100).clamp(1 << 10, PIECE_BYTES)
    }
}

/// Writes the head, unless it has been written, and a piece of the body.
async fn write_both(socket: &mut TcpStream, head: &mut Vec<u8>, piece: &[u8]) -> io::Result<()> {
    if head.is_empty() {
        return socket.write_all(piece).await;
    }
    head.extend_from_slice(piece);
    socket.write_all(head).await?;
    head.clear();
    Ok(())
}

fn head_bytes(status: StatusCode, headers: &HeaderMap) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    write!(
        head,
        "HTTP/1.1 {} {}\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or("Status")
    )?;
    for (name, value) in headers {
        let is_of_connection = *name == header::CONNECTION || *name == header::TRANSFER_ENCODING;
        if !is_of_connection {
            write!(head, "{name}: ")?;
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

fn held(response: Response<Bytes>) -> Answer {
    response.map(|body| Full::new(body).map_err(|never| match never {}).boxed())
}

fn is_listing(request: &Request<Bytes>) -> bool {
    request.method() == Method::GET
        && request.uri().query().is_some_and(|query| query.contains("list-type="))
}

fn closed(range: Option<RequestedRange>) -> Option<std::ops::Range<u64>> {
    match range {
        Some(RequestedRange::Closed(first, last)) => Some(first..last.saturating_add(1)),
        _ => None,
    }
}

/// Returns the bytes that a range means for this object.
fn resolved(range: Option<RequestedRange>, answer: &Answer) -> Option<std::ops::Range<u64>> {
    let size = answer::content_range(answer.headers()).map(|(_, size)| size);
    match range? {
        RequestedRange::Closed(first, last) => Some(first..last.saturating_add(1)),
        RequestedRange::From(first) => size.map(|size| first..size),
        RequestedRange::Suffix(bytes) => size.map(|size| size.saturating_sub(bytes)..size),
    }
}

#[allow(clippy::disallowed_methods, reason = "a proxy that delays is an edge where time is real")]
pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}

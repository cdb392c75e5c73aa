//! Accepts connections up to a limit, serves each in HTTP/1.1 or HTTP/2, depending on its first
//! bytes, and closes idle ones.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    http::{StatusCode, header},
    response::IntoResponse,
};
use busload_remotesapi::ConnectionQuota;
use busload_tls::{Identity, limits::HANDSHAKE_MAX};
use hyper::{Request, Response, body::Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::HandshakeKind, server::TlsStream};

use super::{
    account::{Account, Accounts, AnswerBody, Deliveries, RequestBody},
    connection::Connection,
    front::RequestedHost,
    front_metrics::FrontMetrics,
    limits,
};
use crate::access::Visitor;

/// Accepts connections for ever, at most `connections_max` at once; further ones wait in the
/// backlog. With an identity all of them use TLS.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Identity>>,
    router: Router,
    connections_max: u32,
    metrics: Arc<FrontMetrics>,
) {
    let permits = Arc::new(Semaphore::new(connections_max as usize));
    let accounts = Accounts::new(metrics);
    let builder = Arc::new(builder());
    loop {
        let permit = permit(&permits, connections_max).await;
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(limits::ACCEPT_BACKOFF).await;
            continue;
        };
        // Answers are sent as they are written. A failure costs only latency.
        let _ = stream.set_nodelay(true);
        let open = accounts.metrics().accept();
        let service = Service::new(router.clone(), &accounts, peer.ip().to_canonical());
        let builder = Arc::clone(&builder);
        let tls = tls.clone();
        tokio::spawn(async move {
            match tls {
                None => connection(stream, &builder, service).await,
                Some(identity) => {
                    if let Some(stream) = handshake(stream, &identity).await {
                        connection(stream, &builder, service).await;
                    }
                }
            }
            drop((open, permit));
        });
    }
}

/// Does the handshake of TLS within [`HANDSHAKE_MAX`]. How it failed concerns only its client.
async fn handshake(stream: TcpStream, identity: &Identity) -> Option<TlsStream<TcpStream>> {
    let accepted = timeout(HANDSHAKE_MAX, TlsAcceptor::from(identity.http()).accept(stream)).await;
    match accepted {
        Ok(Ok(stream)) => {
            let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            identity.counters().count_handshake(resumed);
            Some(stream)
        }
        failed => {
            identity.counters().failures.fetch_add(1, Ordering::Relaxed);
            match failed {
                Ok(Err(error)) => log::debug!("HTTP: a handshake of TLS failed: {error}"),
                _ => log::debug!("HTTP: a handshake of TLS lasted too long"),
            }
            None
        }
    }
}

/// Waits for a permit. Warns if there is none, because from outside the server then seems to hang.
async fn permit(permits: &Arc<Semaphore>, connections_max: u32) -> OwnedSemaphorePermit {
    if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
        return permit;
    }
    log::warn!("HTTP: {connections_max} connections are in use; more wait until one is closed");
    Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed")
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::IDLE_MAX)
        .max_buf_size(limits::HTTP1_BUFFER_BYTES_MAX)
        .max_headers(limits::HEADER_COUNT_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAM_COUNT_LIMIT)
        .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
        .max_header_list_size(limits::HEADER_BYTES_MAX)
        .max_send_buf_size(limits::STREAM_SEND_BYTES_MAX)
        .keep_alive_interval(limits::PING_INTERVAL)
        .keep_alive_timeout(limits::PING_TIMEOUT);
    builder
}

/// Serves one connection to its end. How it ended concerns only its client.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    builder: &Builder<TokioExecutor>,
    service: Service,
) {
    let (deliveries, metrics) = (Arc::clone(&service.deliveries), Arc::clone(&service.metrics));
    let account = Arc::clone(&service.account);
    tokio::select! {
        () = until_idle(stream, builder, service) => {}
        () = deliveries.stuck() => {
            metrics.stuck.fetch_add(1, Ordering::Relaxed);
            log::debug!("HTTP: a connection was closed: its client did not take an answer");
        }
        () = account.evicted() => {}
    }
}

async fn until_idle(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    builder: &Builder<TokioExecutor>,
    service: Service,
) {
    let activity = Arc::clone(&service.activity);
    let io = TokioIo::new(Connection::new(stream, Arc::clone(&service.metrics)));
    let mut serving = pin!(builder.serve_connection(io, service));
    tokio::select! {
        _ = serving.as_mut() => return,
        () = activity.idle() => serving.as_mut().graceful_shutdown(),
    }
    while timeout(limits::LEAVE_GRACE, serving.as_mut()).await.is_err() {
        if !activity.is_busy() {
            return;
        }
    }
}

/// Activity of one connection, to tell whether it is idle.
#[derive(Debug, Default)]
struct Activity {
    /// Count of requests begun and answers ended so far.
    changes: AtomicUsize,
    /// Count of requests whose answers have not ended.
    busy: AtomicUsize,
}

impl Activity {
    fn begin(self: &Arc<Self>) -> Busy {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    /// Waits until the connection was idle for [`limits::IDLE_MAX`].
    async fn idle(&self) {
        loop {
            let changes = self.changes.load(Ordering::Relaxed);
            sleep(limits::IDLE_MAX).await;
            if !self.is_busy() && changes == self.changes.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Guard of a request whose answer has not ended.
#[derive(Debug)]
struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The router, with the state of one connection.
#[derive(Clone, Debug)]
struct Service {
    router: TowerToHyperService<Router>,
    account: Arc<Account>,
    activity: Arc<Activity>,
    deliveries: Arc<Deliveries>,
    quota: Arc<ConnectionQuota>,
    visitor: Arc<Visitor>,
    metrics: Arc<FrontMetrics>,
}

impl Service {
    fn new(router: Router, accounts: &Arc<Accounts>, peer: IpAddr) -> Self {
        Self {
            router: TowerToHyperService::new(router),
            account: accounts.open(peer),
            activity: Arc::default(),
            deliveries: Arc::default(),
            quota: Arc::default(),
            visitor: Visitor::new(peer),
            metrics: Arc::clone(accounts.metrics()),
        }
    }
}

type Answer = Result<Response<AnswerBody<Busy>>, Infallible>;

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<AnswerBody<Busy>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (account, busy) = (Arc::clone(&self.account), self.activity.begin());
        let delivery = self.deliveries.begin();
        let (head, body) = request.into_parts();
        let body = RequestBody::new(body, &head, &account);
        let mut request = Request::from_parts(head, body);
        let memory = request.body().received().memory();
        request.extensions_mut().insert(memory);
        request.extensions_mut().insert(Arc::clone(&self.quota));
        request.extensions_mut().insert(Arc::clone(&self.visitor));
        let asked = asked(&request);
        request.extensions_mut().insert(asked);
        let head_bytes = head_bytes(&request);
        let answer =
            (head_bytes <= limits::HEADER_BYTES_MAX as usize).then(|| self.router.call(request));
        Box::pin(async move {
            let response: Response<Body> = match answer {
                Some(answer) => answer.await?,
                None => too_long(head_bytes),
            };
            Ok(response.map(|body| AnswerBody::new(body, account, delivery, busy)))
        })
    }
}

/// Returns the length of the request's head as HTTP/1.1 encodes it. HTTP/2 counts more, so hyper
/// has already refused a head that is too long there.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let target = authority + uri.path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    request.method().as_str().len() + target + "  HTTP/1.1\r\n\r\n".len() + headers.sum::<usize>()
}

fn too_long(head_bytes: usize) -> Response<Body> {
    let max = limits::HEADER_BYTES_MAX;
    let text = format!("the head of this request has {head_bytes} bytes, expected at most {max}\n");
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text).into_response()
}

/// Returns the authority of a request: HTTP/2 has it in a pseudo-header, HTTP/1.1 in `Host`.
fn asked<B>(request: &Request<B>) -> RequestedHost {
    let host =
        || request.headers().get(header::HOST).and_then(|host| host.as_bytes().try_into().ok());
    RequestedHost(request.uri().authority().cloned().or_else(host))
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::{Duration, Instant},
    };

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_connection_is_idle_when_nothing_was_asked_for_long() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (started, activity) = (Instant::now(), Arc::new(Activity::default()));
            let watch = tokio::spawn({
                let activity = Arc::clone(&activity);
                async move { activity.idle().await }
            });
            // One long request, then a short one.
            let long = activity.begin();
            sleep(limits::IDLE_MAX * 5 / 2).await;
            drop(long);
            sleep(limits::IDLE_MAX).await;
            drop(activity.begin());
            assert!(!watch.is_finished());
            let asked = started.elapsed();
            watch.await.unwrap();
            let idle = started.elapsed() - asked;
            assert!(limits::IDLE_MAX <= idle && idle <= 2 * limits::IDLE_MAX, "{idle:?}");
        });
    }

    #[test]
    fn a_connection_of_http1_is_kept_between_two_scrapes_and_not_for_half_a_head() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(64 << 10);
            let service =
                Service::new(Router::new().route("/", get(async || "ok")), &Arc::default(), PEER);
            let serving = tokio::spawn(async move { connection(near, &builder(), service).await });
            for _ in 0..3 {
                far.write_all(b"GET / HTTP/1.1\r\nhost: busload\r\n\r\n").await.unwrap();
                let mut answer = Vec::new();
                while !answer.ends_with(b"\r\n\r\nok") {
                    assert_ne!(far.read_buf(&mut answer).await.unwrap(), 0, "closed");
                }
                sleep(Duration::from_secs(60)).await;
            }
            let started = Instant::now();
            far.write_all(b"GET / HT").await.unwrap();
            serving.await.unwrap();
            assert!(started.elapsed() < limits::IDLE_MAX);
        });
    }

    /// Starts a connection whose client grants `window` bytes for an answer and then reads nothing.
    /// `/endless` answers with bytes without end, `/waiting` with one piece and then nothing. The
    /// endless answer holds `held` as long as it lives.
    async fn over_http2(path: &str, window: u32, held: Arc<()>) -> tokio::task::JoinHandle<()> {
        let piece = |bytes: usize| Ok::<_, Infallible>(Bytes::from(vec![7; bytes]));
        let waiting =
            async move || Body::from_stream(stream::iter([piece(10)]).chain(stream::pending()));
        let endless = async move || {
            Body::from_stream(stream::repeat_with(move || {
                let _held = &held;
                piece(1000)
            }))
        };
        let router = Router::new().route("/endless", get(endless)).route("/waiting", get(waiting));
        let (near, far) = tokio::io::duplex(64 << 10);
        let service = Service::new(router, &Arc::default(), PEER);
        let serving = tokio::spawn(async move { connection(near, &builder(), service).await });
        let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(window);
        let (mut requests, client) = client.handshake(TokioIo::new(far)).await.unwrap();
        tokio::spawn(client);
        let request = Request::get(format!("http://busload{path}")).body(Body::empty()).unwrap();
        let answer = requests.send_request(request).await.unwrap();
        // The answer stays open, and the client does not read it.
        tokio::spawn(async move {
            let _kept = (requests, answer);
            std::future::pending::<()>().await;
        });
        serving
    }

    #[test]
    fn a_client_without_window_is_gone_after_a_while_and_one_that_waits_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let held = Arc::new(());
            let waits = over_http2("/waiting", 1000, Arc::clone(&held)).await;
            for window in [0, 2500] {
                let started = Instant::now();
                over_http2("/endless", window, Arc::clone(&held)).await.await.unwrap();
                let elapsed = started.elapsed();
                assert!(
                    limits::WRITE_STALL_MAX <= elapsed && elapsed < 2 * limits::WRITE_STALL_MAX,
                    "{elapsed:?}"
                );
            }
            sleep(10 * limits::WRITE_STALL_MAX).await;
            assert!(!waits.is_finished());
            waits.abort();
            assert!(waits.await.unwrap_err().is_cancelled());
            // Time passes only once all other tasks have nothing left to do.
            sleep(limits::ACCEPT_BACKOFF).await;
            assert_eq!(Arc::strong_count(&held), 1, "all answers were let go");
        });
    }
}

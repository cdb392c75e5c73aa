//! GETs over HTTP/1.1 on connections that are kept.

use std::{cell::RefCell, collections::HashMap, ops::Range, rc::Rc};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Method, Request,
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    header::{CONTENT_LENGTH, HOST, RANGE},
    http::Uri,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::{
    counts::Meter,
    failure::refused,
    limits::{CONNECT, HEADERS, IDLE_CONNECTIONS, STALL},
};
use crate::failures::Failure;

type Connection = SendRequest<Empty<Bytes>>;

/// Connections that nobody uses at the moment, by host and port. As long as one is free no other is
/// opened.
#[derive(Clone, Debug, Default)]
pub struct Http {
    idle: Rc<RefCell<HashMap<String, Vec<Connection>>>>,
    meter: Meter,
}

impl Http {
    pub fn new(meter: &Meter) -> Self {
        Self { idle: Rc::default(), meter: meter.clone() }
    }

    /// Asks for a resource or a range of it; its status and headers.
    pub async fn get(&self, url: &str, range: Option<Range<u64>>) -> Result<Answer, Failure> {
        let uri: Uri = url.parse().map_err(|error| refused(url, error))?;
        let host =
            uri.authority().ok_or_else(|| refused(url, "expected a URL with a host"))?.to_string();
        loop {
            let (mut connection, is_new) = match self.take(&host).await {
                Some(connection) => (connection, false),
                None => (self.connect(&host).await?, true),
            };
            let request = request(&uri, &host, range.clone())?;
            self.meter.add(|counts| counts.gets += 1);
            match timeout(HEADERS, connection.send_request(request)).await {
                Ok(Ok(response)) => return Ok(Answer::new(self, host, connection, response)),
                // The server closed it while it was idle.
                Ok(Err(error)) if !is_new && error.is_canceled() => {
                    self.meter.add(|counts| counts.gets -= 1);
                }
                Ok(Err(error)) => return Err(refused(url, error)),
                Err(_) => return Err(refused(url, format_args!("no answer within {HEADERS:?}"))),
            }
        }
    }

    async fn take(&self, host: &str) -> Option<Connection> {
        loop {
            let mut connection = self.idle.borrow_mut().get_mut(host)?.pop()?;
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    fn give_back(&self, host: &str, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(host.to_owned()).or_default();
        if idle.len() < IDLE_CONNECTIONS && !connection.is_closed() {
            idle.push(connection);
        }
    }

    async fn connect(&self, host: &str) -> Result<Connection, Failure> {
        let connecting = async {
            let socket = TcpStream::connect(host).await.map_err(|error| refused(host, error))?;
            socket.set_nodelay(true).map_err(|error| refused(host, error))?;
            handshake(TokioIo::new(socket)).await.map_err(|error| refused(host, error))
        };
        let connected = timeout(CONNECT, connecting).await;
        let (sender, connection) =
            connected.map_err(|_| refused(host, "no connection in time"))??;
        self.meter.add(|counts| counts.connections += 1);
        // Its errors are those of the request that is under way.
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn request(
    uri: &Uri,
    host: &str,
    range: Option<Range<u64>>,
) -> Result<Request<Empty<Bytes>>, Failure> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(Method::GET).uri(path).header(HOST, host);
    if let Some(range) = range {
        request =
            request.header(RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
    }
    request.body(Empty::new()).map_err(|error| refused(uri, error))
}

/// A response whose body is still to come.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Bytes of its body, if it says so.
    pub length: Option<u64>,
    http: Http,
    host: String,
    connection: Option<Connection>,
    body: Incoming,
}

impl Answer {
    fn new(
        http: &Http,
        host: String,
        connection: Connection,
        response: hyper::Response<Incoming>,
    ) -> Self {
        let length = response.headers().get(CONTENT_LENGTH);
        Self {
            status: response.status().as_u16(),
            length: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            http: http.clone(),
            host,
            connection: Some(connection),
            body: response.into_body(),
        }
    }

    /// Receives the next part of its body; `None` at its end, when the connection is free again.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = timeout(STALL, self.body.frame()).await;
            let frame =
                frame.map_err(|_| refused("a body", format_args!("nothing came for {STALL:?}")))?;
            let Some(frame) = frame else {
                if let Some(connection) = self.connection.take() {
                    self.http.give_back(&self.host, connection);
                }
                return Ok(None);
            };
            let frame = frame.map_err(|error| refused("a body", error))?;
            // What is no data are trailers, which nobody sends.
            if let Ok(data) = frame.into_data() {
                let bytes = u64::try_from(data.len()).expect("a length fits in 64 bits");
                self.http.meter.add(|counts| counts.body_bytes += bytes);
                return Ok(Some(data));
            }
        }
    }
}

//! HTTP statuses of the store's answers. The errors of `object_store` do not tell 503, which asks
//! to slow down, from 500.

use std::cell::Cell;

use async_trait::async_trait;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
};

tokio::task_local! {
    static SEEN: Cell<Seen>;
}

/// Requests and last status of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Status of the last answer; none if the last request got none.
    pub(super) status: Option<u16>,
    /// Number of requests; 0 for stores without HTTP.
    pub(super) requests: u64,
}

/// Runs a call to the store and returns what went over the wire meanwhile.
pub(super) async fn observed<F: Future>(call: F) -> (F::Output, Seen) {
    SEEN.scope(Cell::default(), async {
        let output = call.await;
        (output, SEEN.with(Cell::get))
    })
    .await
}

/// Connector whose clients note the statuses.
#[derive(Debug, Default)]
pub(super) struct Connector(ReqwestConnector);

#[derive(Debug)]
struct Service(HttpClient);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.connect(options)?)))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        note(|seen| Seen { status: None, requests: seen.requests + 1 });
        let answer = self.0.execute(request).await?;
        note(|seen| Seen { status: Some(answer.status().as_u16()), ..seen });
        Ok(answer)
    }
}

/// Notes a status, as if an answer with it had come.
#[cfg(test)]
pub(super) fn pretend(status: u16) {
    note(|_| Seen { status: Some(status), requests: 1 });
}

/// Changes the notes of the current call; outside of [`observed`] there is none.
fn note(change: impl FnOnce(Seen) -> Seen) {
    let _ = SEEN.try_with(|seen| seen.set(change(seen.get())));
}

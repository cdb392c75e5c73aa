//! `grpc.health.v1.Health` for the server as a whole (the empty name) and for the service of
//! chunks. A store that cannot be reached does not make the service unhealthy: the others are
//! served, and calls to that one say what is wrong.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, StreamExt, stream::unfold};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tonic::{Request, Response, Status as Refusal};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
};

use super::{
    chunks_name,
    limits::{HEALTH_PERIOD, HEALTH_WATCHERS_MAX},
};
use crate::{
    shown::Shown,
    status::{ServerState, Status},
};

/// Implementation of the health service.
#[derive(Debug)]
pub struct Health {
    status: Arc<Status>,
    permits: Arc<Semaphore>,
}

/// Service whose health a client asks for.
#[derive(Clone, Copy, Debug)]
enum HealthTarget {
    Server,
    Chunks,
}

impl Health {
    /// Makes a service that reports this status.
    pub fn new(status: Arc<Status>) -> Self {
        Self { status, permits: Arc::new(Semaphore::new(HEALTH_WATCHERS_MAX)) }
    }
}

impl HealthTarget {
    fn of(service: &str) -> Option<Self> {
        match service {
            "" => Some(Self::Server),
            name if name == chunks_name() => Some(Self::Chunks),
            _ => None,
        }
    }

    fn health(self, status: &Status) -> ServingStatus {
        // On a full disk, reads are still served.
        let serving = matches!(status.state(), ServerState::Ready | ServerState::NoSpace(_));
        let started = match self {
            Self::Server => true,
            Self::Chunks => status.chunk_stores().is_some(),
        };
        if serving && started { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

/// State of one `Watch` call.
struct Watch {
    status: Arc<Status>,
    target: Option<HealthTarget>,
    reported: Option<ServingStatus>,
    _permit: OwnedSemaphorePermit,
}

impl Watch {
    fn health(&self) -> ServingStatus {
        self.target.map_or(ServingStatus::ServiceUnknown, |target| target.health(&self.status))
    }

    /// Waits for a change of the health.
    async fn next(&mut self) -> HealthCheckResponse {
        while self.reported == Some(self.health()) {
            sleep(HEALTH_PERIOD).await;
        }
        let health = self.health();
        self.reported = Some(health);
        response(health)
    }
}

fn response(health: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: health.into() }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Refusal>> + Send>>;

    async fn check(
        &self,
        call: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Refusal> {
        let service = &call.get_ref().service;
        let target = HealthTarget::of(service)
            .ok_or_else(|| Refusal::not_found(format!("unknown service \"{}\"", Shown(service))))?;
        Ok(Response::new(response(target.health(&self.status))))
    }

    async fn watch(
        &self,
        call: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Refusal> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            Refusal::resource_exhausted(format!(
                "{HEALTH_WATCHERS_MAX} calls of Watch are under way"
            ))
        })?;
        // The protocol allows a watch of an unknown service, which may become known later.
        let target = HealthTarget::of(&call.get_ref().service);
        let watch =
            Watch { status: Arc::clone(&self.status), target, reported: None, _permit: permit };
        let reports = unfold(watch, async |mut watch| Some((Ok(watch.next().await), watch)));
        Ok(Response::new(reports.boxed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    async fn check(health: &Health, service: &str) -> Result<i32, tonic::Code> {
        let call = Request::new(HealthCheckRequest { service: service.into() });
        let answer = health_server::Health::check(health, call).await;
        answer.map(|answer| answer.into_inner().status).map_err(|refusal| refusal.code())
    }

    #[test]
    fn the_server_is_healthy_while_it_serves() {
        paused().block_on(async {
            let status = Arc::new(Status::default());
            let health = Health::new(Arc::clone(&status));
            assert_eq!(check(&health, "").await, Ok(ServingStatus::NotServing.into()));
            status.serve();
            assert_eq!(check(&health, "").await, Ok(ServingStatus::Serving.into()));
            let chunks = check(&health, "busload.v1.Chunks").await;
            assert_eq!(chunks, Ok(ServingStatus::NotServing.into()), "its stores have not started");
            assert_eq!(check(&health, "other").await, Err(tonic::Code::NotFound));
            status.signals.stop();
            assert_eq!(check(&health, "").await, Ok(ServingStatus::NotServing.into()));
        });
    }

    #[test]
    fn watchers_are_told_once_of_each_change() {
        paused().block_on(async {
            let status = Arc::new(Status::default());
            let health = Health::new(Arc::clone(&status));
            let call = |service: &str| Request::new(HealthCheckRequest { service: service.into() });
            let watched = health_server::Health::watch(&health, call("")).await.unwrap();
            let mut watched = watched.into_inner();
            let mut next = async || watched.next().await.unwrap().unwrap().status;
            assert_eq!(next().await, i32::from(ServingStatus::NotServing));
            status.serve();
            assert_eq!(next().await, i32::from(ServingStatus::Serving));
            status.signals.stop();
            assert_eq!(next().await, i32::from(ServingStatus::NotServing));
            let unknown = health_server::Health::watch(&health, call("other")).await.unwrap();
            let reported = unknown.into_inner().next().await.unwrap().unwrap();
            assert_eq!(reported.status, i32::from(ServingStatus::ServiceUnknown));
        });
    }

    #[test]
    fn so_many_may_watch() {
        paused().block_on(async {
            let health = Health::new(Arc::default());
            let watch = async || {
                let call = Request::new(HealthCheckRequest::default());
                health_server::Health::watch(&health, call).await
            };
            let mut watchers = Vec::new();
            for _ in 0..HEALTH_WATCHERS_MAX {
                watchers.push(watch().await.unwrap());
            }
            assert_eq!(watch().await.err().unwrap().code(), tonic::Code::ResourceExhausted);
            watchers.pop();
            watch().await.unwrap();
        });
    }
}

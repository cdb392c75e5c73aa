//! The paths of the HTTP front: each with its handler, its access rule and its limits.
//!
//! [`ROUTES`] is the whole list. The router, the check of access and the bounds of request bodies
//! take what they need from it. A path that is not listed needs a user and is then not found.
//!
//! **Limits of all routes** are in [`limits`](super::limits): connections, streams, heads, memory,
//! stalls. Handlers add their own: work on caches (`cache_api`), [`grpc::limits`],
//! [`busload_remotesapi::limits`].

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{MethodRouter, get, post},
};
use busload_remotesapi::{self as remotesapi, Remotesapi};

use super::{
    cache_api, costs, dashboard, dolt_host::DoltHost, front::Front, guard,
    limits::MESSAGE_BYTES_MAX, pages, stats_api, stores_api,
};
use crate::{grpc, status::Status};

use Caller::{AnyUser, Anybody, May, Reader, ReaderOrPeer, UrlKey};
use Mount::{Below, Page};
use WhenFull::{Answered, Refused};

/// A path, or all paths below one, and how requests for it are treated.
#[derive(Debug)]
struct Route {
    path: &'static str,
    caller: Caller,
    /// Longest message of a call. Bodies of other requests have the limits of their handlers.
    message_bytes_max: usize,
    when_full: WhenFull,
    mount: Mount,
}

/// Handler of a path.
#[derive(Clone, Copy, Debug)]
enum Mount {
    /// Answers for this path alone.
    Page(fn(&Served) -> MethodRouter),
    /// Answers for all paths below this one: a service of gRPC, or downloads.
    Below(fn(&Served) -> Router),
}

/// Clients that a route answers where the server asks for passwords. Where it asks for none, all
/// routes answer everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Everybody: supervisors are no users.
    Anybody,
    /// Users. What they may read, the handler checks.
    AnyUser,
    /// Users, and clients with tokens. What they may read, the handler checks.
    Reader,
    /// Users, clients with tokens, and peers. What users and tokens may read, the handler checks.
    ReaderOrPeer,
    /// Users who may run this command, which shows or does as much.
    May(&'static str),
    /// Clients with the key of the table in the URL, which the handler checks.
    UrlKey,
}

/// Treatment of calls while requests and answers of a connection take all memory that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Calls fail with `RESOURCE_EXHAUSTED`.
    Refused,
    /// Calls are answered: they tell whether the server lives, and their messages are short.
    Answered,
}

/// Everything that handlers serve.
#[derive(Debug)]
struct Served {
    status: Arc<Status>,
    front: Arc<Front>,
    remotesapi: Arc<Remotesapi>,
}

/// Command that shows what the dashboard shows: commands of all clients, with their arguments.
const OPERATOR: &str = "slowlog|get";

/// All routes: path, who may call it, limits, handler.
#[rustfmt::skip]
static ROUTES: &[Route] = &[
    // Pages for people and monitoring.
    route("/", May(OPERATOR), Page(|_| get(dashboard::page))),
    route("/costs", AnyUser, Page(|_| get(costs::page))),
    route("/api/stats", May(OPERATOR), Page(|served| {
        get(stats_api::stats).with_state((served.status(), Arc::clone(&served.front)))
    })),
    route("/healthz", Anybody, Page(|_| get(pages::alive))),
    route("/readyz", Anybody, Page(|served| get(pages::ready).with_state(served.status()))),
    route("/metrics", May("info"), Page(|served| {
        get(pages::metrics).with_state((served.status(), Arc::clone(&served.front)))
    })),
    // Caches, for `busload cache`: their list, and work on one.
    route("/api/cache", May("info"), Page(|served| {
        get(cache_api::list).with_state(served.status())
    })),
    route("/api/cache/stores", May("info"), Page(|served| {
        get(cache_api::list_stores).with_state(served.status())
    })),
    route("/api/cache/{name}/{action}", May("config|set"), Page(|served| {
        post(cache_api::act).with_state(served.status())
    })),
    // Hints that a store has changed, from who may read it.
    route("/api/stores/{name}/refresh", Reader, Page(|served| {
        post(stores_api::refresh).with_state(served.status())
    })),
    route("/api/events/s3", AnyUser, Page(|served| {
        post(stores_api::s3_events).with_state(served.status())
    })),
    // Downloads of Dolt's clients, which send no credentials.
    route(remotesapi::DOWNLOADS, UrlKey, Below(|served| {
        remotesapi::routes(&served.remotesapi)
    })),
    // Services of gRPC.
    Route {
        caller: ReaderOrPeer,
        ..readers("/busload.v1.Chunks",
            grpc::limits::REQUEST_BYTES_MAX, Refused, Below(|served| grpc::chunks(&served.status)))
    },
    readers("/dolt.services.remotesapi.v1alpha1.ChunkStoreService",
        remotesapi::limits::REQUEST_BYTES_MAX, Refused, Below(|served| {
            grpc::router(grpc::services().add_service(remotesapi::service(&served.remotesapi)))
        })),
    service("/grpc.health.v1.Health",
        grpc::limits::HEALTH_REQUEST_BYTES_MAX, Answered,
        Below(|served| grpc::health(&served.status))),
    service("/grpc.reflection.v1.ServerReflection",
        grpc::limits::REFLECTION_REQUEST_BYTES_MAX, Refused, Below(|_| grpc::reflection_v1())),
    service("/grpc.reflection.v1alpha.ServerReflection",
        grpc::limits::REFLECTION_REQUEST_BYTES_MAX, Refused, Below(|_| grpc::reflection_v1alpha())),
];

/// Creates a route that is no service of gRPC.
const fn route(path: &'static str, caller: Caller, mount: Mount) -> Route {
    Route { path, caller, message_bytes_max: MESSAGE_BYTES_MAX, when_full: Refused, mount }
}

/// Creates the route of a service, whose path is its full name.
const fn service(
    path: &'static str,
    message_bytes_max: usize,
    when_full: WhenFull,
    mount: Mount,
) -> Route {
    Route { path, caller: AnyUser, message_bytes_max, when_full, mount }
}

/// Creates the route of a service that clients with tokens may call, too.
const fn readers(
    path: &'static str,
    message_bytes_max: usize,
    when_full: WhenFull,
    mount: Mount,
) -> Route {
    Route { path, caller: Reader, message_bytes_max, when_full, mount }
}

/// Mounts all routes behind the check of access.
pub fn router(status: Arc<Status>, front: Front) -> Router {
    let front = Arc::new(front);
    let host = DoltHost::new(Arc::clone(&status), Arc::clone(&front));
    let remotesapi = Remotesapi::new(host, Arc::clone(&status.remotesapi));
    let served = Served { status, front: Arc::clone(&front), remotesapi };
    let mount = |router: Router, route: &Route| match route.mount {
        Page(handler) => router.route(route.path, handler(&served)),
        Below(below) => router.merge(below(&served)),
    };
    ROUTES
        .iter()
        .fold(Router::new(), mount)
        .fallback(grpc::nothing_here)
        // Added last, so that it wraps every route.
        .layer(middleware::from_fn_with_state(front, guard::guard))
}

/// Returns the clients that may ask for this path.
pub fn caller(path: &str) -> Caller {
    find(path).map_or(AnyUser, |route| route.caller)
}

/// Returns the longest message of a call with this path.
pub fn message_bytes_max(path: &str) -> usize {
    find(path).map_or(MESSAGE_BYTES_MAX, |route| route.message_bytes_max)
}

/// Returns what becomes of a call with this path while memory is full.
pub fn when_full(path: &str) -> WhenFull {
    find(path).map_or(Refused, |route| route.when_full)
}

fn find(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.fits(path))
}

impl Route {
    fn fits(&self, path: &str) -> bool {
        match self.mount {
            Below(_) => path.strip_prefix(self.path).is_some_and(|rest| rest.starts_with('/')),
            Page(_) if self.path.contains('{') => {
                let (own, asked) = (self.path.split('/'), path.split('/'));
                own.clone().count() == asked.clone().count()
                    && own.zip(asked).all(|(own, asked)| own == asked || own.starts_with('{'))
            }
            Page(_) => path == self.path,
        }
    }
}

impl Served {
    fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }
}

#[cfg(test)]
mod tests;

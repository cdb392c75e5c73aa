use std::net::{IpAddr, Ipv4Addr};

use axum::{
    body::Body,
    http::{Request, Response, header},
};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::*;
use crate::access::Visitor;

/// Asks with a method that no page answers.
async fn ask(router: &Router, path: &str) -> Response<Body> {
    let request = Request::delete(path)
        .header(header::CONTENT_TYPE, "application/grpc")
        .extension(Visitor::new(IpAddr::V4(Ipv4Addr::LOCALHOST)))
        .body(Body::empty())
        .unwrap();
    TowerToHyperService::new(router.clone()).call(request).await.unwrap()
}

/// Returns whether the answer says that there is nothing at this path.
fn is_nowhere(answer: &Response<Body>) -> bool {
    let message = answer.headers().get("grpc-message");
    message.is_some_and(|message| message.as_bytes().starts_with(b"there"))
}

#[test]
fn every_route_is_mounted_where_it_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let router = router(Arc::default(), Front::default());
        for Route { path, mount, .. } in ROUTES {
            let path = match mount {
                Page(_) => path.replace(['{', '}'], ""),
                Below(_) => format!("{path}/x"),
            };
            let answer = ask(&router, &path).await;
            assert!(!is_nowhere(&answer), "{path}: {answer:?}");
        }
        for path in ["/nothing", "/api/cache/db", "/busload.v1.Chunk/GetChunk", "/healthz/"] {
            assert!(is_nowhere(&ask(&router, path).await), "{path}");
        }
    });
}

#[test]
fn only_routes_that_say_so_ask_for_no_password() {
    for (path, expected) in [
        ("/healthz", Anybody),
        ("/readyz", Anybody),
        ("/dolt/v1/db/files/0/x", UrlKey),
        ("/dolt/v1/", UrlKey),
        ("/dolt/v1", AnyUser),
        ("/dolt/v10/db", AnyUser),
        ("/dolt.services.remotesapi.v1alpha1.ChunkStoreService/Root", Reader),
        ("/healthz/", AnyUser),
        ("/", May(OPERATOR)),
        ("", AnyUser),
        ("/metrics", May("info")),
        ("/api/cache", May("info")),
        ("/api/cache/stores", May("info")),
        ("/api/stats", May(OPERATOR)),
        ("/costs", AnyUser),
        ("/api/cache/db/drop", May("config|set")),
        ("/grpc.health.v1.Health/Check", AnyUser),
        ("/nothing", AnyUser),
        ("//dolt/v1/db", AnyUser),
    ] {
        assert_eq!(caller(path), expected, "{path}");
    }
}

#[test]
fn calls_have_the_limits_of_their_service() {
    assert_eq!(message_bytes_max("/grpc.health.v1.Health/Check"), 4096);
    assert_eq!(message_bytes_max("/busload.v1.Chunks/GetChunks"), 512 << 10);
    assert_eq!(message_bytes_max("/other/Method"), MESSAGE_BYTES_MAX);
    assert_eq!(when_full("/grpc.health.v1.Health/Watch"), Answered);
    assert_eq!(when_full("/grpc.health.v1.Healthy/Watch"), Refused);
    assert_eq!(when_full("/busload.v1.Chunks/GetChunk"), Refused);
}

#[test]
fn a_route_with_parts_that_vary_fits_paths_of_its_length_only() {
    let route = ROUTES.iter().find(|route| route.path.contains('{')).unwrap();
    assert!(route.fits("/api/cache/db/warm"));
    for path in ["/api/cache/db", "/api/cache/db/warm/x", "/api/other/db/warm"] {
        assert!(!route.fits(path), "{path}");
    }
}

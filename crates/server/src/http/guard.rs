//! The check of every request before the router gets it.
//!
//! ```text
//!  request --> guard --+-- foreign host or site (`names`) --> 403 (gRPC: PERMISSION_DENIED)
//!                      +-- /healthz, /readyz --------------> answered
//!                      +-- downloads ----------------------> check ?key=KEY of their table
//!                      |                                     themselves
//!                      +-- else: authorization ------------> 401 (UNAUTHENTICATED), or after too
//!                      |     | (`crate::access`)             many wrong passwords 429
//!                      |     v                               (RESOURCE_EXHAUSTED)
//!                      |   user --> right to the path -----> answered, or 403 (PERMISSION_DENIED)
//!                      |            (`routes`); calls for
//!                      |            chunks check the table
//! ```
//!
//! The guard wraps the router, so that no path can be forgotten. A sender of a token may call what
//! reads stores ([`Caller::Reader`]), a peer what reads chunks ([`Caller::ReaderOrPeer`]).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Extension,
    extract::{Request, State as Extract},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use busload_acl::User;
use busload_io::{Clock, RealClock};
use tonic::{Status as Refusal, body::Body};

use super::{
    front::{Front, RequestedHost},
    routes::{self, Caller},
};
use crate::{
    access::{Denied, Visitor},
    grpc,
    rights::may_run,
};

/// Value of `WWW-Authenticate` in a refusal (RFC 7617).
const CHALLENGE: &str = "Basic realm=\"busload\"";

/// Checks every request before the router gets it.
pub async fn guard(
    Extract(front): Extract<Arc<Front>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Front { access, names, metrics, .. } = &*front;
    if let Err(foreign) = names.check(access.asks(), request.uri(), request.headers()) {
        metrics.foreign_refused.fetch_add(1, Ordering::Relaxed);
        return foreign.into_response(request.headers());
    }
    let caller = routes::caller(request.uri().path());
    let host = request.extensions().get::<RequestedHost>().and_then(|host| host.0.as_ref());
    let host = host.map(ToString::to_string);
    let by_token = match caller {
        Caller::Anybody | Caller::UrlKey => None,
        _ => access.check_token(request.headers(), host.as_deref(), &visitor, since_1970()),
    };
    let by_token = by_token.map(|checked| match caller {
        Caller::Reader | Caller::ReaderOrPeer => checked,
        _ => checked.and(Err(Denied::NotForTokens)),
    });
    let by_peer = match caller {
        Caller::ReaderOrPeer => access.check_peer(request.headers(), RealClock::new().wall_ms()),
        _ => None,
    };
    let checked = match caller {
        _ if let Some(checked) = by_peer => checked.map(|peer| {
            request.extensions_mut().insert(peer);
            None
        }),
        _ if by_token.is_some() => by_token.transpose().map(|sender| {
            sender.map(|sender| request.extensions_mut().insert(sender));
            None
        }),
        Caller::Anybody | Caller::UrlKey => Ok(None),
        Caller::AnyUser | Caller::Reader | Caller::ReaderOrPeer => {
            access.check(request.headers(), &visitor).await
        }
        Caller::May(command) => access.check(request.headers(), &visitor).await.and_then(|user| {
            user.as_ref().map_or(Ok(()), |user| check_right(user, command)).map(|()| user)
        }),
    };
    let has_tokens =
        matches!(caller, Caller::Reader | Caller::ReaderOrPeer) && access.tokens().is_some();
    let checked = checked.map_err(|denied| match denied {
        Denied::Missing if has_tokens => Denied::MissingToken,
        denied => denied,
    });
    match checked {
        Ok(user) => {
            if let Some(user) = user {
                request.extensions_mut().insert(user);
            }
            next.run(request).await
        }
        Err(denied) => {
            match denied {
                Denied::Missing | Denied::MissingToken => {}
                Denied::Unknown
                | Denied::Wrong
                | Denied::Token(_)
                | Denied::PeerKey
                | Denied::NotForTokens
                | Denied::Forbidden(..) => _ = metrics.auth_denied.fetch_add(1, Ordering::Relaxed),
                Denied::TooMany(_) | Denied::Busy => {
                    _ = metrics.auth_refused.fetch_add(1, Ordering::Relaxed)
                }
            }
            refusal(&denied, request.headers())
        }
    }
}

/// Checks that a user may run a command, or what shows or does as much.
fn check_right(user: &User, command: &'static str) -> Result<(), Denied> {
    // It shows keys of every table.
    let shows_all = command == "slowlog|get";
    if may_run(user, command) && (!shows_all || user.keys().is_all()) {
        return Ok(());
    }
    Err(Denied::Forbidden(user.name().into(), command))
}

fn since_1970() -> Duration {
    let ms = RealClock::new().wall_ms();
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

/// Returns the answer to a client that may not ask.
fn refusal(denied: &Denied, headers: &HeaderMap) -> Response {
    if grpc::is_call(headers) {
        let refusal = match denied {
            Denied::TooMany(_) | Denied::Busy => Refusal::resource_exhausted(denied.to_string()),
            Denied::Forbidden(..) | Denied::NotForTokens => {
                Refusal::permission_denied(denied.to_string())
            }
            _ => Refusal::unauthenticated(denied.to_string()),
        };
        return refusal.into_http::<Body>().into_response();
    }
    if let Denied::TooMany(seconds) = denied {
        let retry_after = [(header::RETRY_AFTER, seconds.to_string())];
        return (StatusCode::TOO_MANY_REQUESTS, retry_after, format!("{denied}\n")).into_response();
    }
    let refused = match denied {
        Denied::Forbidden(..) | Denied::NotForTokens => Some(StatusCode::FORBIDDEN),
        Denied::Busy => Some(StatusCode::SERVICE_UNAVAILABLE),
        _ => None,
    };
    if let Some(status) = refused {
        return (status, format!("{denied}\n")).into_response();
    }
    let challenge = [(header::WWW_AUTHENTICATE, CHALLENGE)];
    (StatusCode::UNAUTHORIZED, challenge, format!("{denied}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;

    #[test]
    fn refusals_say_what_is_expected_in_the_words_of_the_protocol() {
        let page = refusal(&Denied::Missing, &HeaderMap::new());
        assert_eq!(page.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(page.headers()[header::WWW_AUTHENTICATE], "Basic realm=\"busload\"");
        let grpc = [(header::CONTENT_TYPE, "application/grpc+proto".parse().unwrap())]
            .into_iter()
            .collect();
        let call = refusal(&Denied::Wrong, &grpc);
        assert_eq!(call.status(), StatusCode::OK);
        assert_eq!(call.headers()["grpc-status"], "16");
        let late = refusal(&Denied::TooMany(3), &HeaderMap::new());
        assert_eq!(
            (late.status(), &late.headers()["retry-after"]),
            (StatusCode::TOO_MANY_REQUESTS, &"3".parse().unwrap())
        );
        let late = refusal(&Denied::TooMany(3), &grpc);
        assert!(
            late.headers()["grpc-status"] == "8"
                && late.headers()["grpc-message"].to_str().unwrap().contains("3")
        );
        for denied in [Denied::Missing, Denied::Unknown, Denied::Wrong] {
            let text = denied.to_string();
            assert!(text.contains("Basic") && text.contains("DOLT_REMOTE_PASSWORD"), "{text}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let access = Access::asking(b"sesame");
        let front = Front { access: access.clone(), ..Front::default() };
        for text in [format!("{access:?}"), format!("{front:?}"), format!("{front:#?}")] {
            assert!(
                !text.contains("sesame") && !text.contains(&access.key("db", 0).unwrap()),
                "{text}"
            );
            assert!(!text.contains("115, 101"), "as bytes: {text}");
        }
    }
}

//! Settings of the HTTP front: the URL that clients use, and which clients it serves.

use std::sync::Arc;

use axum::http::{HeaderMap, uri::Authority};

use busload_tls::Identity;

use super::{
    front_metrics::FrontMetrics,
    limits::AUTHORITY_BYTES_MAX,
    names::Names,
    stats_api::{History, SlowArguments},
};
use crate::access::Access;

/// Configuration and counters of the front, shared by its threads.
#[derive(Clone, Debug, Default)]
pub struct Front {
    /// URL under which clients reach this front, without a slash at its end; none: the host that
    /// they ask for.
    pub url: Option<String>,
    /// Check of the password.
    pub access: Access,
    /// Certificate and key; without them the front uses no TLS.
    pub tls: Option<Arc<Identity>>,
    /// Treatment of the arguments of slow commands in the statistics.
    pub slow_arguments: SlowArguments,
    /// Host names under which clients may ask.
    pub names: Names,
    /// Counters of the front.
    pub metrics: Arc<FrontMetrics>,
    /// Samples of all counters, of the last minutes.
    pub history: Arc<History>,
}

/// Authority (host and port) that a request names, if any. It is in the extensions of every
/// request.
#[derive(Clone, Debug)]
pub struct RequestedHost(pub Option<Authority>);

impl Front {
    /// Returns the beginning, scheme and authority, of URLs that are given to a client; none if the
    /// request does not name a usable one.
    pub fn base(&self, asked: &RequestedHost, headers: &HeaderMap) -> Option<String> {
        if let Some(url) = &self.url {
            return Some(url.clone());
        }
        let scheme = if self.tls.is_some() || is_https(headers) { "https" } else { "http" };
        let authority = asked.0.as_ref()?;
        // Credentials in it would go to every client that gets the URL.
        if authority.as_str().contains('@') || AUTHORITY_BYTES_MAX < authority.as_str().len() {
            return None;
        }
        Some(format!("{scheme}://{authority}"))
    }
}

/// Returns whether the client spoke HTTPS to the proxy. Of several proxies, the first value is that
/// of the one nearest to the client.
fn is_https(headers: &HeaderMap) -> bool {
    let forwarded = headers
        .get("x-forwarded-proto")
        .and_then(|value| value.as_bytes().split(|&byte| byte == b',').next());
    forwarded.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(url: Option<&str>, authority: Option<&str>, forwarded: Option<&str>) -> Option<String> {
        let front = Front { url: url.map(str::to_owned), ..Front::default() };
        let mut headers = HeaderMap::new();
        if let Some(forwarded) = forwarded {
            headers.insert("x-forwarded-proto", forwarded.parse().unwrap());
        }
        front.base(&RequestedHost(authority.map(|authority| authority.parse().unwrap())), &headers)
    }

    #[test]
    fn urls_begin_as_the_client_reached_the_server() {
        let expect =
            |base: Option<String>, expected: &str| assert_eq!(base.as_deref(), Some(expected));
        expect(base(None, Some("host:6381"), None), "http://host:6381");
        expect(base(None, Some("[::1]:6381"), None), "http://[::1]:6381");
        expect(base(None, Some("cache.example.com"), Some("https")), "https://cache.example.com");
        expect(
            base(None, Some("cache.example.com"), Some("https, http")),
            "https://cache.example.com",
        );
        expect(base(None, Some("cache.example.com"), Some(" HTTPS")), "https://cache.example.com");
        for other in ["http", "http, https", "httpsx", ""] {
            expect(base(None, Some("cache.example.com"), Some(other)), "http://cache.example.com");
        }
        expect(base(Some("https://other"), Some("host:6381"), None), "https://other");
        assert_eq!(base(None, None, None), None);
        assert_eq!(base(None, Some("user:password@host:6381"), None), None);
        assert_eq!(base(None, Some(&"h".repeat(AUTHORITY_BYTES_MAX + 1)), None), None);
    }
}

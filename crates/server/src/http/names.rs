//! Host names under which clients may ask the HTTP front. Where it asks for no password, its only
//! protection is that only this machine can reach it. But a web page in a browser on this machine
//! can reach it, too, if the page's owner points a name of theirs at 127.0.0.1 (DNS rebinding).
//! Such a request has that name in `Host` or `:authority`.
//!
//! | a request names | it is answered |
//! |---|---|
//! | no host | yes: browsers always name one |
//! | `localhost`, or an IP address | yes: nobody else decides what those mean |
//! | the host of `http_url`, a name in `http_hosts` | yes |
//! | another host | where a password is asked for: a browser has none for that name |
//! | an `Origin` | if that is the host asked for, or one of `http_url` and `http_hosts` |

use std::{fmt, net::IpAddr, str::FromStr};

use axum::{
    http::{HeaderMap, StatusCode, Uri, header, uri::Authority},
    response::{IntoResponse, Response},
};
use tonic::{Status as Refusal, body::Body};

use super::limits::AUTHORITY_BYTES_MAX;
use crate::{grpc, shown::Shown};

const EXPECTED: &str = "expected a host without scheme and port, like cache.example.com";
/// Name that means this machine everywhere (RFC 6761, 6.3).
const LOCALHOST: &str = "localhost";

/// Host name that clients may ask for, in lower case, without a dot at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Returns the name as text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Host names from the configuration.
#[derive(Clone, Debug, Default)]
pub struct Names {
    hosts: Vec<HostName>,
    /// Says whether the front uses TLS.
    https: bool,
}

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The request asks for this host.
    Host(String),
    /// The request comes from a page of this site.
    Origin(String),
}

impl HostName {
    fn of(host: &str) -> Self {
        let host = host.to_ascii_lowercase();
        Self(host.strip_suffix('.').map(str::to_owned).unwrap_or(host))
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        match text.parse::<Authority>() {
            Ok(authority) if authority.host() == text && text.bytes().all(is_plain) => {
                Ok(Self::of(text))
            }
            _ => Err(format!("`{}` is no name of a host; {EXPECTED}", Shown(text))),
        }
    }
}

impl Names {
    /// Allows these hosts, and that of the URL that clients use. `https` says whether the front
    /// uses TLS.
    pub fn new(mut hosts: Vec<HostName>, url: Option<&str>, https: bool) -> Self {
        let authority = url.and_then(|url| url.parse::<Uri>().ok()?.into_parts().authority);
        hosts.extend(authority.map(|authority| HostName::of(authority.host())));
        Self { hosts, https }
    }

    /// Checks whether a request may be answered; `asks` says whether it needs the password.
    pub fn check(&self, asks: bool, uri: &Uri, headers: &HeaderMap) -> Result<(), Foreign> {
        let given =
            || headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
        if !asks {
            let mut hosts = uri.authority().map(Authority::as_str).into_iter().chain(given());
            if let Some(host) = hosts.find(|host| !self.is_ours(host)) {
                return Err(Foreign::Host(Shown(host).to_string()));
            }
        }
        let asked = uri.authority().map(Authority::as_str).or_else(|| given().next());
        let mut origins = headers.get_all(header::ORIGIN).iter();
        match origins.find(|origin| !self.is_own(origin.to_str().unwrap_or_default(), asked)) {
            Some(origin) => {
                Err(Foreign::Origin(Shown(&String::from_utf8_lossy(origin.as_bytes())).to_string()))
            }
            None => Ok(()),
        }
    }

    /// Returns whether a host, perhaps with a port, is a name of this server that nobody else
    /// controls.
    fn is_ours(&self, host: &str) -> bool {
        let Some(name) = host_of(host) else { return false };
        let bare =
            name.0.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name.0);
        bare == LOCALHOST || bare.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }

    /// Returns whether the origin of a page is this server.
    fn is_own(&self, origin: &str, asked: Option<&str>) -> bool {
        let Some((scheme, site)) = origin.split_once("://") else { return false };
        let own = if self.https { "https" } else { "http" };
        let is_asked = scheme == own && asked.is_some_and(|asked| asked.eq_ignore_ascii_case(site));
        is_asked || host_of(site).is_some_and(|name| self.hosts.contains(&name))
    }
}

/// Returns the host without its port; none if the text is no host.
fn host_of(text: &str) -> Option<HostName> {
    let authority: Authority = text.parse().ok()?;
    let is_host =
        !authority.host().is_empty() && !text.contains('@') && text.len() <= AUTHORITY_BYTES_MAX;
    is_host.then(|| HostName::of(authority.host()))
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "this server asks for no password, so it answers only to localhost, addresses, and \
                 the names in its settings, not to `{host}`; the setting http_hosts allows further \
                 names (--http-hosts NAME)"
            ),
            Self::Origin(origin) => write!(
                f,
                "a page of another site may not ask for this: `{origin}` is not the host that was \
                 asked, nor one of the setting http_hosts (--http-hosts NAME)"
            ),
        }
    }
}

impl Foreign {
    /// Makes the answer: a status of gRPC for a call, else 403.
    pub fn into_response(self, headers: &HeaderMap) -> Response {
        if grpc::is_call(headers) {
            return Refusal::permission_denied(self.to_string())
                .into_http::<Body>()
                .into_response();
        }
        (StatusCode::FORBIDDEN, format!("{self}\n")).into_response()
    }
}

#[cfg(test)]
mod tests;

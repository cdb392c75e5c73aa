//! Peers: other processes that serve the same stores, and the URL of this one among them.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use busload_peers::limits::PEER_COUNT_MAX;

use super::http_url::HttpUrl;
use crate::failure::Failure;

/// Prefix of a name whose addresses are the peers.
const DNS_PREFIX: &str = "dns:";
/// Prefix of the URL of a peer behind TLS.
const TLS_PREFIX: &str = "https://";
const EXPECTED: &str =
    "expected URLs like http://a:6381, or one name with a port like dns:busload.internal:6381";

/// Entry of the setting `peers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEntry {
    /// URL of one peer.
    Url(HttpUrl),
    /// Name and port, whose addresses are those of the peers.
    Dns(String),
}

impl FromStr for PeerEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(name) = text.strip_prefix(DNS_PREFIX) else {
            return text.parse().map(Self::Url).map_err(|error: String| format!("peers: {error}"));
        };
        let is_named = name.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && !host.contains(['/', '@', ' '])
                && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
        if is_named { Ok(Self::Dns(name.to_owned())) } else { Err(format!("{text}: {EXPECTED}")) }
    }
}

impl fmt::Display for PeerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url.as_text()),
            Self::Dns(name) => write!(f, "{DNS_PREFIX}{name}"),
        }
    }
}

/// Peers of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// URL of this process, as its peers write it.
    pub me: String,
    /// Source of the list of all peers.
    pub list: PeerList,
    /// File with the authorities of peers' certificates; without one, those of the system.
    pub authorities: Option<PathBuf>,
}

impl PeerSettings {
    /// Returns whether any peer is reached by `https`.
    pub fn is_tls(&self) -> bool {
        match &self.list {
            PeerList::Urls(urls) => urls.iter().any(|url| url.starts_with(TLS_PREFIX)),
            PeerList::Dns { .. } => self.me.starts_with(TLS_PREFIX),
        }
    }
}

/// Origin of the list of peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerList {
    /// URLs of all peers, this process included.
    Urls(Vec<String>),
    /// Name and port to resolve again and again, and the scheme of the URLs of its addresses.
    Dns {
        /// Host name and port of the peers.
        name: String,
        /// `http` or `https`, as in the URL of this process.
        scheme: String,
    },
}

/// Checks the settings together. Without `peers` there are none.
pub fn settings(
    entries: &[PeerEntry],
    me: Option<HttpUrl>,
    authorities: Option<PathBuf>,
) -> Result<Option<PeerSettings>, Failure> {
    if entries.is_empty() {
        let alone = me.map(|_| "peer_self").or(authorities.map(|_| "peer_ca"));
        return match alone {
            None => Ok(None),
            Some(key) => Err(Failure::usage(format!("{key} without peers; {EXPECTED} as peers"))),
        };
    }
    let me = me.map(HttpUrl::into_text).ok_or_else(|| {
        Failure::usage("peers without peer_self; expected the URL of this server among its peers")
    })?;
    let list = match entries {
        [PeerEntry::Dns(name)] => PeerList::Dns { name: name.clone(), scheme: scheme_of(&me)? },
        entries => urls(entries, &me)?,
    };
    let settings = PeerSettings { me, list, authorities };
    if settings.authorities.is_some() && !settings.is_tls() {
        return Err(Failure::usage("peer_ca without a peer at https://; expected one in peers"));
    }
    Ok(Some(settings))
}

/// Returns the scheme of this process's URL, whose host must be an address, as those of the peers.
fn scheme_of(me: &str) -> Result<String, Failure> {
    let parts = me.split_once("://").filter(|(_, host)| host.parse::<SocketAddr>().is_ok());
    parts.map(|(scheme, _)| scheme.to_owned()).ok_or_else(|| {
        Failure::usage(format!(
            "peer_self: expected an address and a port, like http://10.0.0.1:6381, because the \
             peers are addresses that DNS gives; got {me}"
        ))
    })
}

fn urls(entries: &[PeerEntry], me: &str) -> Result<PeerList, Failure> {
    let mut urls = Vec::with_capacity(entries.len());
    for entry in entries {
        match entry {
            PeerEntry::Url(url) => urls.push(url.as_text().to_owned()),
            PeerEntry::Dns(_) => {
                return Err(Failure::usage(format!("peers: {entry} beside others; {EXPECTED}")));
            }
        }
    }
    if PEER_COUNT_MAX < urls.len() {
        return Err(Failure::usage(format!(
            "peers: expected at most {PEER_COUNT_MAX}, got {}",
            urls.len()
        )));
    }
    if !urls.iter().any(|url| url == me) {
        return Err(Failure::usage(format!(
            "peer_self: expected one of the peers, {}; got {me}",
            urls.join(", ")
        )));
    }
    Ok(PeerList::Urls(urls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(entries: &[&str], me: Option<&str>) -> Result<Option<PeerSettings>, String> {
        let entries = entries.iter().map(|entry| entry.parse()).collect::<Result<Vec<_>, _>>()?;
        settings(&entries, me.map(|me| me.parse().unwrap()), None)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn peers_are_urls_or_the_addresses_of_a_name() {
        assert_eq!(resolved(&[], None), Ok(None));
        let urls = ["http://a:6381", "http://b:6381"].map(str::to_owned);
        assert_eq!(
            resolved(&["http://a:6381/", "http://b:6381"], Some("http://b:6381/")),
            Ok(Some(PeerSettings {
                me: "http://b:6381".to_owned(),
                list: PeerList::Urls(urls.into()),
                authorities: None,
            }))
        );
        let list = PeerList::Dns { name: "cache:6381".to_owned(), scheme: "https".to_owned() };
        for me in ["https://10.0.0.1:6381", "https://[2001:db8::1]:6381"] {
            assert_eq!(
                resolved(&["dns:cache:6381"], Some(me)),
                Ok(Some(PeerSettings { me: me.to_owned(), list: list.clone(), authorities: None }))
            );
        }
    }

    #[test]
    fn peers_that_make_no_sense_are_refused() {
        for (entries, me, expected) in [
            (&["http://a:1"][..], None, "peers without peer_self"),
            (&[], Some("http://a:1"), "peer_self without peers"),
            (&["http://a:1"], Some("http://b:1"), "expected one of the peers, http://a:1"),
            (&["a:1"], Some("http://a:1"), "no URL of HTTP"),
            (&["dns:cache"], Some("http://10.0.0.1:1"), "dns:busload.internal:6381"),
            (&["dns:cache:0"], Some("http://10.0.0.1:1"), "dns:busload.internal:6381"),
            (&["dns:cache:1"], Some("http://a:1"), "expected an address and a port"),
            (&["dns:cache:1", "http://a:1"], Some("http://a:1"), "beside others"),
        ] {
            let refused = resolved(entries, me).unwrap_err();
            assert!(refused.contains(expected), "{entries:?} {me:?}: {refused}");
        }
    }
}

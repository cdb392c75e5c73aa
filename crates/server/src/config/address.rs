//! Addresses to listen on.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
};

/// Value that switches a front off.
const NONE: &str = "none";

/// TCP address to listen on, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Listen on this address; port 0 lets the system choose a port.
    At(SocketAddr),
    /// No socket: the protocol is off.
    Nowhere,
}

impl Listen {
    /// Returns the address, if there is one.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Nowhere => None,
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self::Nowhere);
        }
        let expected =
            || "expected HOST:PORT like 127.0.0.1:6380 or [::1]:6380, or none".to_owned();
        if let Ok(address) = text.parse() {
            return Ok(Self::At(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let port: u16 = port.parse().map_err(|_| expected())?;
        if host.is_empty() || host.contains(':') {
            return Err(expected());
        }
        let found: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
            Ok(found) => found.collect(),
            Err(error) => return Err(format!("the host `{host}` cannot be resolved: {error}")),
        };
        // Names like localhost have addresses of both families; every client tries IPv4.
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first
            .map(|address| Self::At(*address))
            .ok_or_else(|| format!("the host `{host}` has no address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let at = |text: &str| Ok(Listen::At(text.parse().unwrap()));
        assert_eq!("127.0.0.1:6380".parse(), at("127.0.0.1:6380"));
        assert_eq!("[::1]:0".parse(), at("[::1]:0"));
        assert_eq!("localhost:1".parse(), at("127.0.0.1:1"));
        assert_eq!("none".parse(), Ok(Listen::Nowhere));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "6380",
            "127.0.0.1",
            ":6380",
            "127.0.0.1:x",
            "127.0.0.1:65536",
            "::1",
            "::1:6380",
            "None",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}

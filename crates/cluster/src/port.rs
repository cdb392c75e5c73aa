//! A port that no other cluster takes while this one lives, even while its server is down.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
};

#[cfg(target_os = "linux")]
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

use crate::limits::PORTS;

/// A port, reserved until it is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// An abstract socket: only one process can bind it, it is gone with the process, and it leaves
    /// no file.
    #[cfg(target_os = "linux")]
    _claim: UnixListener,
}

impl Port {
    /// Tries a random port; `None` if it is in use.
    pub fn try_any() -> Option<Self> {
        let span = u64::from(PORTS.end - PORTS.start);
        let offset = RandomState::new().hash_one(std::process::id()) % span;
        Self::try_claim(
            PORTS.start + u16::try_from(offset).expect("less than the span, which fits"),
        )
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    fn try_claim(number: u16) -> Option<Self> {
        #[cfg(target_os = "linux")]
        let claim = {
            let name =
                SocketAddr::from_abstract_name(format!("busload-cluster-port-{number}")).ok()?;
            UnixListener::bind_addr(&name).ok()?
        };
        // Another program may listen on it.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self {
            number,
            #[cfg(target_os = "linux")]
            _claim: claim,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> Port {
        std::iter::repeat_with(Port::try_any).flatten().next().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_claimed_port_is_not_given_again_until_dropped() {
        let port = any();
        let number = port.number();
        assert!(Port::try_claim(number).is_none());
        drop(port);
        assert!(Port::try_claim(number).is_some());
    }

    #[test]
    fn a_port_in_use_is_not_taken() {
        let number = any().number();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert!(Port::try_claim(number).is_none());
        drop(listener);
    }
}

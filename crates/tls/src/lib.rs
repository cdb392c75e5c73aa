//! TLS 1.2 and 1.3 of the server, by rustls.
//!
//! ```text
//!  files --load--> Identity --resp()--> TlsNet: a Net over a Net, for Redis clients
//!           ^         |
//!        reload()     +-----http()----> acceptor of the HTTP front (ALPN: h2, http/1.1)
//!                     +---------------> trusting_config(): a client of peers shows the certificate
//! ```
//!
//! [`Identity`] holds the certificate, its key and the certificate authority of clients, as read
//! from files. [`Identity::reload`] reads the files again: connections that exist keep what they
//! have, new ones get the new certificate, and if a file is wrong everybody keeps the old one.
//!
//! [`TlsNet`] encrypts the TCP connections of another driver. The stages above it see plaintext and
//! do not know about TLS.

mod identity;
pub mod limits;
mod net;
mod pinned;
mod trusting;

pub use identity::{Files, Identity, IdentityError};
pub use net::{Counters, TlsNet};
pub use pinned::client_config;
pub use rustls::{
    ClientConfig, ClientConnection, ServerConfig, StreamOwned, pki_types::ServerName,
};
pub use trusting::trusting_config;

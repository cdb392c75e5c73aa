//! TLS connections to peers.

use std::{io, sync::Arc};

use axum::http::Uri;
use busload_tls::{ClientConfig, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Port of a URL without one.
const PORT_DEFAULT: u16 = 443;

/// Address of a peer behind TLS, and how its certificate is checked.
#[derive(Clone)]
pub struct PeerConnector {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: TlsConnector,
}

impl PeerConnector {
    /// Makes a connector to the host of a URL, for connections that speak this protocol.
    ///
    /// # Errors
    /// The URL has no host that a certificate can name; the text says so.
    pub fn new(origin: &Uri, config: &ClientConfig, protocol: &[u8]) -> Result<Self, String> {
        let host = origin.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|error| format!("the host {host:?}: {error}"))?;
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let port = origin.port_u16().unwrap_or(PORT_DEFAULT);
        Ok(Self { host, port, name, tls: Arc::new(config).into() })
    }

    /// Connects, and checks the peer's certificate.
    pub async fn connect(self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        self.tls.connect(self.name, stream).await
    }
}

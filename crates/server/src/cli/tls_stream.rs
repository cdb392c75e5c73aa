//! TLS of the commands that ask a running server.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use busload_tls::{ClientConnection, Files, ServerName, StreamOwned, client_config};

/// Connection whose bytes are sent and received in order.
pub trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// Encrypts a connection to the server with these files, if there are any. The server must have
/// exactly the certificate in them, whatever its address is.
pub fn encrypt(stream: TcpStream, files: Option<&Files>) -> io::Result<Box<dyn Stream>> {
    let Some(files) = files else { return Ok(Box::new(stream)) };
    let config = client_config(files).map_err(io::Error::other)?;
    let name = ServerName::from(stream.peer_addr()?.ip());
    let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(tls, stream)))
}

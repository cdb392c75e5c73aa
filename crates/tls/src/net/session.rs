//! TLS of one connection: bytes in, bytes out, no socket.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use busload_io::SendChunk;
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use super::SEND_BYTES_MAX;

/// TLS of one connection, and the reply that is being sent.
#[derive(Debug)]
pub struct Session {
    tls: ServerConnection,
    /// Reply to send, and how much of it is encrypted.
    chunk: Option<(SendChunk, usize)>,
    /// Says whether the driver below has records of it to send.
    pub sending: bool,
    /// Says whether the sending half ends when everything is sent.
    pub finishing: bool,
    /// Says whether the end of the client's stream was reported.
    pub end_reported: bool,
}

/// Result of a receive.
#[derive(Debug)]
pub struct Received {
    /// Number of bytes of plaintext.
    pub plaintext_bytes: usize,
    /// Says whether the client has said that it sends nothing more.
    pub ended: bool,
}

impl Session {
    /// Starts the server's side of a connection.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut tls = ServerConnection::new(config)?;
        // What is written here is bounded by the caller: one part of a reply.
        tls.set_buffer_limit(None);
        Ok(Self { tls, chunk: None, sending: false, finishing: false, end_reported: false })
    }

    /// Returns whether the handshake has not ended.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Decrypts received bytes into `plaintext`, which has room for all that can come of them.
    pub fn receive(&mut self, mut bytes: &[u8], plaintext: &mut [u8]) -> io::Result<Received> {
        let mut filled = 0;
        loop {
            let count = self.tls.read_tls(&mut bytes)?;
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let ready = state.plaintext_bytes_to_read();
            self.tls.reader().read_exact(&mut plaintext[filled..filled + ready])?;
            filled += ready;
            let ended = state.peer_has_closed();
            if ended || count == 0 || bytes.is_empty() {
                return Ok(Received { plaintext_bytes: filled, ended });
            }
        }
    }

    /// Takes a reply to send.
    pub fn take_chunk(&mut self, chunk: SendChunk) {
        assert!(
            self.chunk.is_none(),
            "a second send on a connection before the first was reported"
        );
        self.chunk = Some((chunk, 0));
    }

    /// Returns the reply once all of it is sent.
    pub fn take_sent_chunk(&mut self) -> Option<SendChunk> {
        let (chunk, encrypted) = self.chunk.as_ref()?;
        let sent = *encrypted == chunk.as_slice().len() && !self.sending;
        if sent { self.chunk.take().map(|(chunk, _)| chunk) } else { None }
    }

    /// Appends the records to send next: what TLS has to say, and the next part of the reply.
    pub fn write_records(&mut self, records: &mut Vec<u8>) {
        if let Some((chunk, encrypted)) = &mut self.chunk
            && !self.tls.is_handshaking()
        {
            let rest = &chunk.as_slice()[*encrypted..];
            let part = &rest[..rest.len().min(SEND_BYTES_MAX)];
            self.tls.writer().write_all(part).expect("its buffer has no limit");
            *encrypted += part.len();
        }
        while self.tls.wants_write() {
            self.tls.write_tls(records).expect("memory takes every byte");
        }
    }

    /// Ends the sending half: the client sees the end after what was sent.
    pub fn end(&mut self) {
        self.tls.send_close_notify();
    }
}

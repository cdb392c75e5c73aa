//! Listening sockets.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::UnixListener as StdUnixListener,
    },
    path::{Path, PathBuf},
};

use mio::{
    Interest, Registry, Token,
    event::Source,
    net::{TcpListener, UnixListener, UnixStream},
};
use rustix::net::sockopt;

use super::{Address, Peer, stream::Stream};
use crate::limits::{KEEPALIVE_COUNT, KEEPALIVE_IDLE, LISTEN_BACKLOG_COUNT};

/// Listening socket. Dropping that of a Unix socket removes the socket's file.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    address: Address,
    /// True if clients may be waiting whose edge was already seen.
    pub(super) more: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _file: SocketFile },
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        let bound = match address {
            Address::Tcp(address) => bind_tcp(*address),
            Address::Unix(path) => bind_unix(path),
        };
        bound.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
        })
    }

    /// Returns the address it listens on.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(listener) => listener.register(registry, token, Interest::READABLE),
            Socket::Unix { listener, .. } => listener.register(registry, token, Interest::READABLE),
        }
    }

    pub(super) fn accept(&self) -> io::Result<(Stream, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, remote) = listener.accept()?;
                // This fails only if the client has disconnected already, which the first receive
                // will report.
                let _ = stream.set_nodelay(true);
                let local = self.local_of(&stream);
                Ok((Stream::Tcp(stream), Peer { remote: Address::Tcp(remote), local }))
            }
            Socket::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                let peer = Peer { remote: self.address.clone(), local: self.address.clone() };
                Ok((Stream::Unix(stream), peer))
            }
        }
    }

    /// Returns the local address of a connection. A listener on all addresses of the machine must
    /// ask which one the client reached.
    fn local_of(&self, stream: &mio::net::TcpStream) -> Address {
        match &self.address {
            Address::Tcp(address) if address.ip().is_unspecified() => {
                Address::Tcp(stream.local_addr().unwrap_or(*address))
            }
            address => address.clone(),
        }
    }
}

/// Listens on a TCP address. The standard library sets SO_REUSEADDR and close-on-exec on every
/// system, but asks for a short backlog; a second listen call on the same socket only makes it
/// longer.
fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let listener = StdTcpListener::bind(address)?;
    // Accepted sockets inherit these options.
    sockopt::set_socket_keepalive(&listener, true)?;
    sockopt::set_tcp_keepidle(&listener, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&listener, KEEPALIVE_IDLE / KEEPALIVE_COUNT)?;
    sockopt::set_tcp_keepcnt(&listener, KEEPALIVE_COUNT)?;
    rustix::net::listen(&listener, LISTEN_BACKLOG_COUNT)?;
    listener.set_nonblocking(true)?;
    let address = Address::Tcp(listener.local_addr()?);
    Ok(Listener { socket: Socket::Tcp(TcpListener::from_std(listener)), address, more: false })
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let listener = match StdUnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            StdUnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = SocketFile::of(path)?;
    rustix::net::listen(&listener, LISTEN_BACKLOG_COUNT)?;
    listener.set_nonblocking(true)?;
    let socket = Socket::Unix { listener: UnixListener::from_std(listener), _file: file };
    Ok(Listener { socket, address: Address::Unix(path.to_owned()), more: false })
}

/// Removes a socket file on which nobody answers. Connects without blocking: a server with a full
/// backlog is alive.
fn remove_stale(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file that is not a socket",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

/// File of a Unix socket. It is removed when dropped, unless another process has replaced it
/// meanwhile.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), device_and_inode: device_and_inode(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if device_and_inode(&self.path).is_ok_and(|now| now == self.device_and_inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

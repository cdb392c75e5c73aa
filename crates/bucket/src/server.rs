//! The server: threads, connections, and the directory whose files are the objects.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::{
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::{Builder, Runtime},
};

use crate::{
    etag::Etags,
    limits::{BACKLOG, THREADS},
    s3::Directory,
};

/// Reason why a server or a proxy could not start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

impl Error {
    pub(crate) fn because(what: &str, error: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

/// An S3 server on loopback over a directory, on threads of its own; ends when dropped. It checks
/// signatures if credentials are given.
#[derive(Debug)]
pub struct Bucket {
    address: SocketAddr,
    directory: PathBuf,
    etags: Arc<Etags>,
    puts: AtomicU64,
    runtime: Threads,
}

impl Bucket {
    /// Name of its only bucket.
    pub const NAME: &'static str = "bucket";

    /// Serves `root`, whose directory `bucket` is the bucket; it is created if it does not exist.
    /// Everybody may read and write.
    pub fn start(root: &Path) -> Result<Self, Error> {
        Self::serve(root, None)
    }

    /// Starts like [`Bucket::start`], for clients that sign with this key only.
    pub fn with_credentials(
        root: &Path,
        access_key: &str,
        secret_key: &str,
    ) -> Result<Self, Error> {
        Self::serve(root, Some(SimpleAuth::from_single(access_key, secret_key)))
    }

    fn serve(root: &Path, auth: Option<SimpleAuth>) -> Result<Self, Error> {
        let directory = root.join(Self::NAME);
        fs::create_dir_all(&directory)
            .map_err(|error| Error::because("cannot make the bucket", error))?;
        let etags = Arc::new(Etags::default());
        let objects = Directory::new(root, Arc::clone(&etags))?;
        let mut service = S3ServiceBuilder::new(objects);
        if let Some(auth) = auth {
            service.set_auth(auth);
        }
        let runtime = Threads::start("bucket")?;
        let (listener, address) = runtime.listen()?;
        runtime.spawn(accept(listener, service.build()));
        Ok(Self { address, directory, etags, puts: AtomicU64::new(0), runtime })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the directory whose files are the objects. Files may be written there directly;
    /// [`Bucket::put`] replaces one atomically, as S3 does.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes or replaces an object: current readers of the old one go on with it, and later
    /// requests see the new one.
    pub fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.directory.join(key);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // Written beside the bucket, so that no listing shows half an object.
        let number = self.puts.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.directory.with_file_name(format!(".put-{number}"));
        fs::write(&unfinished, bytes)?;
        fs::rename(&unfinished, &path)?;
        self.etags.forget(&path);
        Ok(())
    }

    /// Removes an object from the directory.
    pub fn delete(&self, key: &str) -> io::Result<()> {
        let path = self.directory.join(key);
        fs::remove_file(&path)?;
        self.etags.forget(&path);
        Ok(())
    }

    /// Stops the server; dropping it does the same.
    pub fn stop(self) {
        drop(self.runtime);
    }
}

/// Returns a URL like
/// `s3://bucket/PREFIX?endpoint=http://ADDRESS&region=us-east-1&path-style=true&anonymous=true`.
pub fn url(address: SocketAddr, prefix: &str) -> String {
    let bucket = Bucket::NAME;
    format!(
        "s3://{bucket}/{prefix}?endpoint=http://{address}\
         &region=us-east-1&path-style=true&anonymous=true"
    )
}

async fn accept(listener: TcpListener, service: S3Service) {
    loop {
        // The only errors are those of a connection that is gone again, or of too many open files,
        // which other connections close.
        let Ok((socket, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).max_buf_size(1 << 20);
        let connection = server.serve_connection(TokioIo::new(socket), service.clone());
        tokio::spawn(async move {
            // A client that goes away during a request is no error.
            let _ = connection.await;
        });
    }
}

/// A runtime that can be dropped anywhere, also inside another one.
#[derive(Debug)]
pub struct Threads(Option<Runtime>);

impl Threads {
    pub fn start(name: &str) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(name)
            .enable_all()
            .build();
        Ok(Self(Some(runtime.map_err(|error| Error::because("cannot start threads", error))?)))
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(future);
        }
    }

    pub fn listen(&self) -> Result<(TcpListener, SocketAddr), Error> {
        self.inside(|| {
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            let listener = socket.listen(BACKLOG)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        })
    }

    /// Runs code that registers sockets with the runtime.
    pub fn inside<T>(&self, make: impl FnOnce() -> io::Result<T>) -> Result<T, Error> {
        let _guard = self.0.as_ref().map(Runtime::enter);
        make().map_err(|error| Error::because("cannot listen on loopback", error))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

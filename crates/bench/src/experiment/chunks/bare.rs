//! Cost of the bytes alone: reads of a local copy, and the same sent over loopback.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    sync::mpsc,
    thread::JoinHandle,
};

use anyhow::{Context, Result};
use rustix::{process::Pid, thread::gettid};

use crate::{
    limits::RECEIVE_BYTES,
    machine::CpuList,
    store::{Store, index},
};

/// A request of the bare protocol: file, length, offset.
const REQUEST_BYTES: usize = 16;

/// Opens the store's files.
fn open(store: &Store) -> Result<Vec<File>> {
    let open = |name: &str| File::open(store.directory.join(name)).context("a file of the store");
    store.files.iter().map(|file| open(&file.name)).collect()
}

/// Returns a function that reads the record of a chunk from the local copy into a buffer.
pub fn pread(store: &Store) -> Result<impl FnMut(u32) -> Result<()>> {
    let files = open(store)?;
    let mut buffer = Vec::new();
    Ok(move |number| {
        let chunk = store.chunk(number);
        let span = chunk.location.span;
        buffer.resize(index(span.length), 0);
        files[index(chunk.file)].read_exact_at(&mut buffer, span.offset).context("pread")
    })
}

/// A thread that answers requests with what it preads, and a connection to it.
#[derive(Debug)]
pub struct PreadSend {
    socket: TcpStream,
    thread: Option<JoinHandle<Result<()>>>,
    /// Id of the thread, for its processor time.
    pub thread_id: Pid,
    out: Vec<u8>,
    received: Vec<u8>,
}

impl PreadSend {
    /// Starts it, bound to these processors.
    pub fn start(store: &Store, cpus: Option<CpuList>) -> Result<Self> {
        let files = open(store)?;
        let listener = TcpListener::bind("127.0.0.1:0").context("a port on loopback")?;
        let address = listener.local_addr().context("a port on loopback")?;
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new().name("pread-send".to_owned()).spawn(move || {
            if let Some(cpus) = cpus {
                cpus.bind_thread()?;
            }
            // Nobody listens any more only when the experiment has failed elsewhere.
            let _ = tell.send(gettid());
            serve(listener.accept().context("accept")?.0, &files).context("pread-and-send")
        });
        let thread = thread.context("a thread")?;
        let socket = TcpStream::connect(address).context("a connection on loopback")?;
        socket.set_nodelay(true).context("a socket's option")?;
        let thread_id = told.recv().context("the pread-and-send thread did not start")?;
        let received = vec![0; RECEIVE_BYTES];
        Ok(Self { socket, thread: Some(thread), thread_id, out: Vec::new(), received })
    }

    /// Asks for these chunks at once and takes all their bytes.
    pub fn ask(&mut self, store: &Store, numbers: &[u32]) -> Result<()> {
        self.out.clear();
        let mut owed = 0;
        for number in numbers {
            let chunk = store.chunk(*number);
            let span = chunk.location.span;
            self.out.extend_from_slice(&chunk.file.to_le_bytes());
            self.out.extend_from_slice(&span.length.to_le_bytes());
            self.out.extend_from_slice(&span.offset.to_le_bytes());
            owed += index(span.length);
        }
        self.socket.write_all(&self.out).context("pread-and-send")?;
        while 0 < owed {
            let most = owed.min(self.received.len());
            self.socket.read_exact(&mut self.received[..most]).context("pread-and-send")?;
            owed -= most;
        }
        Ok(())
    }
}

impl Drop for PreadSend {
    fn drop(&mut self) {
        // The thread ends when the connection does; what it says then does not matter any more.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Takes all requests there are, reads what they ask for, sends it, until the connection ends.
fn serve(mut socket: TcpStream, files: &[File]) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut requests = BufReader::with_capacity(RECEIVE_BYTES, socket.try_clone()?);
    let mut out = Vec::with_capacity(RECEIVE_BYTES);
    while !requests.fill_buf()?.is_empty() {
        let mut request = [0; REQUEST_BYTES];
        requests.read_exact(&mut request)?;
        let [f0, f1, f2, f3, l0, l1, l2, l3, offset @ ..] = request;
        let file = &files[index(u32::from_le_bytes([f0, f1, f2, f3]))];
        let from = out.len();
        out.resize(from + index(u32::from_le_bytes([l0, l1, l2, l3])), 0);
        file.read_exact_at(&mut out[from..], u64::from_le_bytes(offset))?;
        if requests.buffer().len() < REQUEST_BYTES || RECEIVE_BYTES <= out.len() {
            socket.write_all(&out)?;
            out.clear();
        }
    }
    Ok(())
}

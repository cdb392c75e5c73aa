//! Cost of the bytes alone: reads of a local copy, and the same sent over loopback.

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    sync::mpsc,
    thread::JoinHandle,
};

use anyhow::{Context, Result, bail};
use rustix::thread::gettid;

use crate::{
    experiment::chunks::store::{Store, index},
    limits::RECEIVE_BYTES,
    machine::CpuList,
};

/// A request of the bare protocol: file, length, offset.
const REQUEST_BYTES: usize = 16;

/// Bytes the bare server gathers before it sends.
const SEND_BYTES: usize = 256 * 1_024;

/// The store's files, open.
fn open(store: &Store) -> Result<Vec<File>> {
    let open = |name: &str| File::open(store.directory.join(name)).context("a file of the store");
    store.files.iter().map(|file| open(&file.name)).collect()
}

/// A function that reads the record of a chunk from the local copy into a buffer.
pub fn pread(store: &Store) -> Result<impl FnMut(u32) -> Result<()>> {
    let files = open(store)?;
    let mut buffer = Vec::new();
    Ok(move |number| {
        let entry = store.entry(number);
        let span = entry.location.span;
        buffer.resize(index(span.length), 0);
        files[index(entry.file)].read_exact_at(&mut buffer, span.offset).context("pread")
    })
}

/// A thread that answers requests with what it preads, and a connection to it.
#[derive(Debug)]
pub struct PreadSend {
    socket: TcpStream,
    thread: Option<JoinHandle<Result<()>>>,
    /// Id of the thread, for its processor time.
    pub thread_id: rustix::process::Pid,
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
        let thread = std::thread::Builder::new()
            .name("pread-send".to_owned())
            .spawn(move || {
                if let Some(cpus) = cpus {
                    cpus.bind_thread()?;
                }
                // Nobody listens any more only when the experiment has failed elsewhere.
                let _ = tell.send(gettid());
                serve(listener.accept().context("accept")?.0, &files)
            })
            .context("a thread")?;
        let socket = TcpStream::connect(address).context("a connection on loopback")?;
        socket.set_nodelay(true).context("a socket's option")?;
        let Ok(thread_id) = told.recv() else { bail!("the pread-and-send thread did not start") };
        let received = vec![0; RECEIVE_BYTES];
        Ok(Self { socket, thread: Some(thread), thread_id, out: Vec::new(), received })
    }

    /// Asks for these chunks at once and takes all their bytes.
    pub fn ask(&mut self, store: &Store, numbers: &[u32]) -> Result<()> {
        self.out.clear();
        let mut owed = 0;
        for number in numbers {
            let entry = store.entry(*number);
            self.out.extend_from_slice(&entry.file.to_le_bytes());
            self.out.extend_from_slice(&entry.location.span.length.to_le_bytes());
            self.out.extend_from_slice(&entry.location.span.offset.to_le_bytes());
            owed += index(entry.location.span.length);
        }
        self.socket.write_all(&self.out).context("pread-and-send")?;
        while 0 < owed {
            let most = owed.min(self.received.len());
            match self.socket.read(&mut self.received[..most]) {
                Ok(0) => bail!("the pread-and-send thread went away"),
                Ok(count) => owed -= count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("pread-and-send"),
            }
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
fn serve(mut socket: TcpStream, files: &[File]) -> Result<()> {
    socket.set_nodelay(true).context("a socket's option")?;
    let mut requests = vec![0; RECEIVE_BYTES];
    let mut have = 0;
    let mut out = Vec::with_capacity(SEND_BYTES);
    loop {
        match socket.read(&mut requests[have..]) {
            Ok(0) => return Ok(()),
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("pread-and-send"),
        }
        let whole = have / REQUEST_BYTES * REQUEST_BYTES;
        for request in requests[..whole].chunks_exact(REQUEST_BYTES) {
            append(files, request, &mut out)?;
            if SEND_BYTES <= out.len() {
                socket.write_all(&out).context("pread-and-send")?;
                out.clear();
            }
        }
        socket.write_all(&out).context("pread-and-send")?;
        out.clear();
        requests.copy_within(whole..have, 0);
        have -= whole;
    }
}

fn append(files: &[File], request: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let word = |from: usize| request[from..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let offset = request[8..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (Some(file), Some(length), Some(offset)) = (word(0), word(4), offset) else {
        bail!("half a request")
    };
    let from = out.len();
    out.resize(from + index(length), 0);
    let file = files.get(index(file)).context("a file there is not")?;
    file.read_exact_at(&mut out[from..], offset).context("pread")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::chunks::store::tests::small;

    #[test]
    fn all_bytes_asked_for_arrive() {
        let (_directory, store) = small();
        let mut bare = PreadSend::start(&store, None).unwrap();
        let numbers: Vec<u32> = (0..store.count()).collect();
        bare.ask(&store, &numbers).unwrap();
        bare.ask(&store, &numbers[..1]).unwrap();
        let mut pread = pread(&store).unwrap();
        numbers.into_iter().try_for_each(&mut pread).unwrap();
    }
}

//! Messages to the service manager that started this process: systemd, by the protocol of
//! `sd_notify(3)`.
//!
//! ```text
//!  serve ----> STATUS (how far the recovery is), READY --+
//!  reload ---> RELOADING, READY -------------------------+--> datagrams to $NOTIFY_SOCKET
//!  signals --> STOPPING ---------------------------------+
//!  watchdog -> WATCHDOG while the pipeline turns; STATUS-+
//! ```
//!
//! Without `NOTIFY_SOCKET` nothing is sent. A manager that does not read delays a message by at
//! most [`SEND_TIMEOUT`]; a message that is lost is not repeated, but for WATCHDOG and STATUS.

mod watchdog;

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Display,
    io,
    os::unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

pub use watchdog::{Heartbeat, Pulse};

/// Variable with the address of the manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// Variable with the time, in microseconds, within which the manager wants to hear of the process.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Variable with the process that is to report, if the manager means one.
const WATCHDOG_PROCESS_VARIABLE: &str = "WATCHDOG_PID";
/// Longest time that a message waits for a manager that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest text of a status; the rest is cut off.
const STATUS_BYTES_MAX: usize = 1024;

/// The manager of this process, if there is one. Copies send to the same socket.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager {
    socket: Option<Arc<ManagerSocket>>,
    /// Time within which the manager wants to hear of the process.
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct ManagerSocket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// Finds the manager in the environment. An address that makes no sense is a warning: nothing
    /// but the manager's view depends on it.
    pub fn of_process() -> Self {
        let Some(address) = env::var_os(SOCKET_VARIABLE).filter(|address| !address.is_empty())
        else {
            return Self::default();
        };
        let socket = match ManagerSocket::new(&address) {
            Ok(socket) => socket,
            Err(error) => {
                log::warn!("{SOCKET_VARIABLE} = {}: {error}", address.display());
                return Self::default();
            }
        };
        let watchdog = watchdog_time(
            env::var_os(WATCHDOG_VARIABLE),
            env::var_os(WATCHDOG_PROCESS_VARIABLE),
            std::process::id(),
        );
        Self { socket: Some(Arc::new(socket)), watchdog }
    }

    /// Tells that requests are served, at the end of a start or of a reload.
    pub fn ready(&self, status: &dyn Display) {
        self.send(&format!("READY=1\n{}", status_line(status)));
    }

    /// Tells that the configuration is being read again, until [`ready`](Self::ready).
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}\n{}", status_line(&"reloading")));
    }

    /// Tells that a shutdown has begun.
    pub fn stopping(&self) {
        self.send(&format!("STOPPING=1\n{}", status_line(&"stopping")));
    }

    /// Shows a text as the status of the service.
    pub fn status(&self, status: &dyn Display) {
        self.send(&status_line(status));
    }

    fn send(&self, message: &str) {
        let Some(manager) = &self.socket else { return };
        if let Err(error) = manager.socket.send_to_addr(message.as_bytes(), &manager.address) {
            log::debug!("the service manager takes no message: {error}");
        }
    }
}

impl ManagerSocket {
    fn new(address: &OsStr) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket, address: parse_address(address)? })
    }
}

/// Parses the path of a socket, or `@` and a name in the abstract namespace of Linux.
fn parse_address(address: &OsStr) -> io::Result<SocketAddr> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    match address.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(address),
        [b'@', name @ ..] if !name.is_empty() => abstract_address(name),
        _ => invalid("expected the absolute path of a socket, or @NAME"),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has abstract sockets"))
}

/// Returns the time of the watchdog, if it is this process that is to report.
fn watchdog_time(
    microseconds: Option<OsString>,
    process: Option<OsString>,
    this: u32,
) -> Option<Duration> {
    let number = |text: OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let is_meant = process.is_none_or(|process| number(process) == Some(u64::from(this)));
    let microseconds = microseconds.and_then(number).filter(|time| is_meant && *time != 0)?;
    Some(Duration::from_micros(microseconds))
}

/// Makes the field of a status: one line of bounded length.
fn status_line(status: &dyn Display) -> String {
    let mut text = status.to_string().replace(['\n', '\r'], " ");
    text.truncate(text.floor_char_boundary(STATUS_BYTES_MAX));
    format!("STATUS={text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(microseconds: &str, process: Option<&str>) -> Option<Duration> {
        watchdog_time(Some(microseconds.into()), process.map(Into::into), 7)
    }

    #[test]
    fn the_watchdog_is_that_of_this_process() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(time("1000000", None), second);
        assert_eq!(time("1000000", Some("7")), second);
        for (microseconds, process) in
            [("1000000", Some("8")), ("1000000", Some("x")), ("0", None), ("soon", None)]
        {
            assert_eq!(time(microseconds, process), None, "{microseconds} {process:?}");
        }
        assert_eq!(watchdog_time(None, None, 7), None);
    }

    #[test]
    fn addresses_are_paths_and_abstract_names() {
        let path = parse_address("/run/systemd/notify".as_ref()).unwrap();
        assert_eq!(path.as_pathname(), Some("/run/systemd/notify".as_ref()));
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt;
            let name = parse_address("@a/b".as_ref()).unwrap();
            assert_eq!(name.as_abstract_name(), Some(&b"a/b"[..]));
        }
        for address in ["", "@", "run/notify", "vsock:2:1"] {
            assert!(parse_address(address.as_ref()).is_err(), "{address}");
        }
    }

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        assert_eq!(status_line(&"the disk\nis full"), "STATUS=the disk is full\n");
        let long = status_line(&"\u{e9}".repeat(STATUS_BYTES_MAX));
        assert_eq!(long.len(), "STATUS=\n".len() + STATUS_BYTES_MAX);
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        let manager = ServiceManager::default();
        manager.ready(&"ready");
        manager.stopping();
    }
}

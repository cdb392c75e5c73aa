//! Pseudo-terminals: what a process shows a person.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::eventually;

/// Terminal of 100 columns and 40 rows, and everything that was shown on it.
pub struct Pty {
    /// The end of the person.
    pub controller: OwnedFd,
    /// The end of processes.
    pub user: OwnedFd,
    shown: Arc<Mutex<String>>,
}

impl Pty {
    pub fn open() -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let user: OwnedFd =
            File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        let shown: Arc<Mutex<String>> = Arc::default();
        let mut output = File::from(controller.try_clone().unwrap());
        let kept = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let pty = Self { controller, user, shown };
        pty.resize(100, 40);
        pty
    }

    /// Returns an end for a stream of a process.
    pub fn stream(&self) -> Stdio {
        Stdio::from(self.user.try_clone().unwrap())
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.user, size).unwrap();
    }

    /// Returns everything that was shown so far.
    pub fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    pub fn wait_for(&self, text: &str) {
        eventually(text, || self.shown.lock().unwrap().contains(text));
    }
}

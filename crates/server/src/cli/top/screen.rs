//! The terminal: raw mode, the alternate screen, keys and size. What was on the terminal before is
//! there again when the screen is closed.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use super::report::{Line, Tone};

/// Alternate screen, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Cursor, and the screen from before.
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Size of a terminal that does not know it.
const SIZE_DEFAULT: (usize, usize) = (80, 24);
/// Keys read at once.
const KEYS_BYTES: usize = 64;

/// Something that the user did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Pressed `q`, Ctrl-C or Ctrl-D, closed the terminal, or ended the process.
    Quit,
    /// Changed the size of the terminal.
    Resized,
}

/// The screen, until it is dropped.
pub struct Screen {
    before: Termios,
    resized: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal over.
    pub fn open() -> io::Result<Self> {
        let (resized, ended) = (Arc::default(), Arc::default());
        signal_hook::flag::register(SIGWINCH, Arc::clone(&resized))?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended))?;
        }
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
        let screen = Self { before, resized, ended };
        write(ENTER)?;
        Ok(screen)
    }

    /// Waits for the user, for this long at most.
    pub fn key(&mut self, wait_max: Duration) -> io::Result<Option<Key>> {
        let stdin = io::stdin();
        let timeout = Timespec::try_from(wait_max).map_err(io::Error::other)?;
        let is_ready = {
            let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut waited, Some(&timeout)) {
                Ok(_) => !waited[0].revents().is_empty(),
                Err(Errno::INTR) => false,
                Err(error) => return Err(error.into()),
            }
        };
        if self.ended.load(Ordering::Relaxed) {
            return Ok(Some(Key::Quit));
        }
        if self.resized.swap(false, Ordering::Relaxed) {
            return Ok(Some(Key::Resized));
        }
        if !is_ready {
            return Ok(None);
        }
        let mut keys = [0; KEYS_BYTES];
        let count = match read(stdin.as_fd(), &mut keys) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The end of the input is the end of the terminal.
        let quits = count == 0 || keys[..count].iter().any(|key| b"qQ\x03\x04".contains(key));
        Ok(quits.then_some(Key::Quit))
    }

    /// Draws the lines that fit, each cut to the width.
    pub fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let (columns, rows) = size();
        write(&frame(lines, columns, rows))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col != 0 && size.ws_row != 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => SIZE_DEFAULT,
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Returns what to write to show the lines: each replaces what was in its row, so nothing flickers.
fn frame(lines: &[Line], columns: usize, rows: usize) -> Vec<u8> {
    let mut bytes = b"\x1b[H".to_vec();
    for (row, line) in lines.iter().take(rows).enumerate() {
        if row != 0 {
            bytes.extend_from_slice(b"\r\n");
        }
        let style: &[u8] = match line.tone {
            Tone::Plain => b"",
            Tone::Title => b"\x1b[1m",
            Tone::Good => b"\x1b[32m",
            Tone::Warning => b"\x1b[33m",
            Tone::Bad => b"\x1b[1;31m",
        };
        bytes.extend_from_slice(style);
        let shown: String = line.text.chars().take(columns).collect();
        bytes.extend_from_slice(shown.as_bytes());
        bytes.extend_from_slice(b"\x1b[0m\x1b[K");
    }
    bytes.extend_from_slice(b"\x1b[J");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let lines = [Line::title("wide title"), Line::plain("b"), Line::bad("c")];
        let frame = String::from_utf8(frame(&lines, 4, 2)).unwrap();
        assert_eq!(frame, "\x1b[H\x1b[1mwide\x1b[0m\x1b[K\r\nb\x1b[0m\x1b[K\x1b[J");
    }
}

//! `busload top`: what the dashboard shows, for a terminal.
//!
//! ```text
//!  thread: GET /api/stats --> Reading --+
//!                                       v
//!  terminal: keys, size ------> two readings --> report: lines --> screen
//!  no terminal: two readings --> report: lines --> stdout, once or every --interval
//! ```
//!
//! Rates are differences between two readings. A thread of its own asks the server, so that keys
//! work while a server hangs; the screen then says for how long there has been no answer.

mod reading;
mod report;
mod screen;

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
    time::Duration,
};

use busload_io::{Clock, RealClock};
use busload_tls::Files;

use super::{
    arguments::TopArgs,
    http_client::{self, Target},
    resp_client::reachable,
};
use crate::{config::Config, failure::Failure};
use reading::Reading;
use report::{Line, report};
use screen::{Key, Screen};

/// Longest answer of a server: it has a fixed part, and some kilobytes per table.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest time that an answer may stall.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Path that leaves out the samples of the past.
const PATH: &str = "/api/stats?since=18446744073709551615";
/// Longest time between two looks at the keyboard.
const KEYS_INTERVAL: Duration = Duration::from_millis(100);

/// Shows what a server does until the user quits, or prints it.
pub fn top(arguments: &TopArgs, config: &Config) -> Result<(), Failure> {
    let address = config.http.map(reachable).ok_or_else(|| {
        Failure::usage("no server could be asked; expected its HTTP address by --http")
    })?;
    let tls = config.tls.as_ref().map(|tls| tls.files().clone());
    let server = Server { address, password: config.settings.password.clone(), tls };
    let in_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if arguments.once || !in_terminal {
        print(&server, arguments)
    } else {
        watch(server, arguments.interval)
    }
}

/// Address, password and files of TLS of the server.
struct Server {
    address: SocketAddr,
    password: Option<Vec<u8>>,
    tls: Option<Files>,
}

impl Server {
    /// Asks for one reading, or says why there is none.
    fn read(&self) -> Result<Reading, String> {
        let answer = http_client::send_within(self.target(), "GET", PATH, Some(ANSWER_TIMEOUT))
            .map_err(|error| error.to_string())?;
        let text = answer.into_text(ANSWER_BYTES_MAX)?;
        Reading::parse(&text).ok_or_else(|| "its answer is malformed".to_owned())
    }

    fn target(&self) -> Target<'_> {
        let (password, tls) = (self.password.as_deref(), self.tls.as_ref());
        Target { address: self.address, password, tls }
    }

    fn failure(&self, why: &str) -> Failure {
        Failure::run(format!(
            "the server at {}: {why} (--http says where it is)",
            self.target().url()
        ))
    }
}

/// Prints a report of one interval, or of each until the process is ended. An answer that fails
/// ends it.
fn print(server: &Server, arguments: &TopArgs) -> Result<(), Failure> {
    let mut before = server.read().map_err(|why| server.failure(&why))?;
    loop {
        thread::park_timeout(arguments.interval);
        let now = server.read().map_err(|why| server.failure(&why))?;
        let lines = report(&before, &now);
        let text: String = lines.iter().map(|line| format!("{}\n", line.text)).collect();
        let mut stdout = io::stdout().lock();
        // A closed standard output is no failure: whoever read it has seen enough.
        if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return Ok(());
        }
        if arguments.once {
            return Ok(());
        }
        let _ = stdout.write_all(b"\n");
        before = now;
    }
}

/// Shows reports on the screen until the user quits.
fn watch(server: Server, interval: Duration) -> Result<(), Failure> {
    let address = server.address;
    let first = server.read().map_err(|why| server.failure(&why))?;
    let (asks, readings) = start_reader(server)?;
    let failed = |error: io::Error| Failure::run(format!("the terminal cannot be used: {error}"));
    let mut screen = Screen::open().map_err(failed)?;
    let clock = RealClock::new();
    let mut state = Watched { before: first, now: None, answered: clock.now(), trouble: None };
    let mut due = Duration::ZERO;
    let mut is_asked = false;
    loop {
        let now = clock.now();
        if due <= now && !is_asked {
            due = now + interval;
            is_asked = asks.try_send(()).is_ok();
        }
        match screen.key(KEYS_INTERVAL).map_err(failed)? {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Resized) => {
                screen.draw(&state.lines(address, clock.now())).map_err(failed)?
            }
            None => {}
        }
        match readings.try_recv() {
            Ok(answer) => {
                is_asked = false;
                state.take(answer, clock.now());
            }
            // Without an answer, only the time since the last one changes.
            Err(_) if state.trouble.is_none() && clock.now() < state.answered + 2 * interval => {
                continue;
            }
            Err(_) => {}
        }
        screen.draw(&state.lines(address, clock.now())).map_err(failed)?;
    }
}

type Answer = Result<Reading, String>;

/// Starts the thread that asks the server, once for each message.
fn start_reader(server: Server) -> Result<(SyncSender<()>, Receiver<Answer>), Failure> {
    let (asks, asked) = mpsc::sync_channel::<()>(1);
    let (answers, readings) = mpsc::sync_channel(1);
    let read = move || {
        while asked.recv().is_ok() {
            if answers.send(server.read()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("reader".into())
        .spawn(read)
        .map_err(|error| Failure::run(format!("cannot start a thread: {error}")))?;
    Ok((asks, readings))
}

/// Readings on the screen.
struct Watched {
    before: Reading,
    now: Option<Reading>,
    /// Time of the last answer.
    answered: Duration,
    /// Reason for which the last question was not answered.
    trouble: Option<String>,
}

impl Watched {
    fn take(&mut self, answer: Answer, at: Duration) {
        match answer {
            Ok(reading) => {
                if let Some(last) = self.now.replace(reading) {
                    self.before = last;
                }
                self.answered = at;
                self.trouble = None;
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    fn lines(&self, address: SocketAddr, at: Duration) -> Vec<Line> {
        let mut lines = Vec::new();
        let silent = at.saturating_sub(self.answered).as_secs();
        if let Some(why) = &self.trouble {
            lines.push(Line::bad(format!("no answer of {address} for {silent} s: {why}")));
        } else if 2 < silent {
            lines.push(Line::bad(format!("no answer of {address} for {silent} s")));
        }
        match &self.now {
            Some(now) => lines.extend(report(&self.before, now)),
            None => lines.push(Line::plain("measuring")),
        }
        lines
    }
}

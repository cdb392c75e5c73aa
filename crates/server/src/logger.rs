//! Logger: one line on stderr for each event, as text or JSON, through `tracing`.
//!
//! ```text
//!  log::warn!(..) in our crates --LogTracer--+
//!                                            v
//!  tracing events of libraries ------> Targets: levels by module --> RateLimiter --> Queue
//!                                                                                      |
//!                                                        stderr <-- thread `logger` <--+
//! ```
//!
//! Our crates log through the facade `log`. What they log names tables, files, addresses and
//! counts, never keys, values or passwords. Libraries are heard from the level `warn` on unless
//! [`LogLevels`] names them; those whose messages may contain values of clients are never heard.
//!
//! **Rate.** Of each place in the code that logs errors, warnings or infos, only some lines within
//! some seconds are shown ([`RateLimiter`]); a line says how many were left out.
//!
//! **Threads.** A server's thread that logs never waits for whoever reads stderr: another thread
//! writes ([`Queue`]). The commands that end by themselves write directly.

mod levels;
mod queue;
mod rate_limit;
mod time;

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
    str::FromStr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use busload_io::{Clock, RealClock};
use serde_json::json;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_log::{LogTracer, NormalizeEvent};
use tracing_subscriber::{
    filter::Targets,
    layer::{Context, Layer, SubscriberExt},
    registry::Registry,
    reload,
};

pub use levels::LogLevels;
use queue::Queue;
use rate_limit::{INTERVAL, RateLimiter, Site, Verdict};
pub use time::Utc;

/// Target of the lines that are shown at every level.
const ALWAYS: &str = "busload::always";

/// Filter of the process's events, for changes of the levels.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level and message.
    #[default]
    Text,
    /// An object with `time`, `level`, `module` and `message`.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("`{text}` is no format of the log; expected text or json")),
        }
    }
}

/// Longest time for which the end of the process waits for whoever reads stderr.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Lines that a server's thread `logger` writes.
static QUEUE: Queue = Queue::new();
/// Output of the server, whose lines that were left out are shown at the end.
static QUEUED_OUTPUT: OnceLock<Arc<Output>> = OnceLock::new();

/// Starts logging by the thread that logs, for commands that end by themselves. Further calls do
/// nothing.
pub fn init(levels: &LogLevels, format: LogFormat) {
    install(levels, Arc::new(Output::new(format, write_line as fn(String))));
}

/// Starts asynchronous logging, by a thread of its own: a slow reader of stderr blocks nobody.
pub fn init_queued(levels: &LogLevels, format: LogFormat) -> io::Result<()> {
    let output = Arc::new(Output::new(format, (|line| QUEUE.push(line)) as fn(String)));
    let of_thread = Arc::clone(&output);
    thread::Builder::new().name("logger".to_owned()).spawn(move || {
        loop {
            let text = QUEUE.take(INTERVAL);
            // A closed stderr is no reason to stop.
            let _ = io::stderr().lock().write_all(text.as_bytes());
            of_thread.show_left_out(of_thread.clock.now());
        }
    })?;
    let _ = QUEUED_OUTPUT.set(Arc::clone(&output));
    install(levels, output);
    Ok(())
}

fn install(levels: &LogLevels, output: Arc<Output>) {
    let (targets, changed) = reload::Layer::new(levels.targets(ALWAYS));
    let subscriber = Registry::default().with(targets).with(OutputLayer(output));
    // Both fail only when this process logs already.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = LogTracer::init();
        log::set_max_level(levels.most_detailed());
        // Once per process.
        let _ = LEVELS.set(changed);
    }
}

/// Changes the levels of a process that logs.
pub fn set_levels(levels: &LogLevels) {
    // Only a process that does not log has none.
    let Some(targets) = LEVELS.get() else { return };
    if targets.reload(levels.targets(ALWAYS)).is_ok() {
        log::set_max_level(levels.most_detailed());
    }
}

/// Shows what the rate limit still leaves out and waits until all lines are written, for a moment
/// where nobody reads stderr. The end of a process calls it.
pub fn flush() {
    if let Some(output) = QUEUED_OUTPUT.get() {
        output.show_left_out(Duration::MAX);
        QUEUE.flush(FLUSH_TIMEOUT);
    }
}

fn write_line(line: String) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes a line to stderr at every log level: as it is, or in JSON. A closed stderr is no reason
/// to stop.
pub fn say(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::info!(target: ALWAYS, "{line}");
    } else {
        write_line(line.to_owned());
    }
}

/// Writes a line about a failure as [`say`] does.
pub fn say_failure(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!(target: ALWAYS, "{line}");
    } else {
        write_line(line.to_owned());
    }
}

/// Formatted events, limited in rate, and where they go.
struct Output<W = fn(String)> {
    format: LogFormat,
    clock: RealClock,
    limiter: Mutex<RateLimiter>,
    write: W,
}

impl<W: Fn(String)> Output<W> {
    fn new(format: LogFormat, write: W) -> Self {
        Self { format, clock: RealClock::new(), limiter: Mutex::default(), write }
    }

    fn show(&self, level: Level, module: &str, message: &str) {
        let level = level.as_str().to_lowercase();
        let time = Utc(self.clock.wall_ms());
        (self.write)(match self.format {
            LogFormat::Text if module == ALWAYS => message.to_owned(),
            LogFormat::Text => format!("{time} {level} {message}"),
            LogFormat::Json => {
                let module = if module == ALWAYS { "busload" } else { module };
                let time = time.to_string();
                json!({ "time": time, "level": level, "module": module, "message": message })
                    .to_string()
            }
        });
    }

    /// Shows how many events were left out in the intervals that are over at `now`.
    fn show_left_out(&self, now: Duration) {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = limiter.take_left_out(now);
        drop(limiter);
        for hidden in left_out {
            let (count, last) = (hidden.count, hidden.message);
            let text = format!("{last} ({count} more like it were left out)");
            self.show(hidden.level, &hidden.module, &text);
        }
    }

    /// Returns whether to show an event, and shows how many others were left out.
    fn admit(&self, metadata: &Metadata<'_>, message: &str) -> Verdict {
        let (level, module) = (*metadata.level(), metadata.target());
        if Level::INFO < level || module == ALWAYS {
            return Verdict::Show;
        }
        let file = metadata.file().unwrap_or(module);
        let site = Site::new(file, metadata.line().unwrap_or(0));
        let now = self.clock.now();
        self.show_left_out(now);
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.admit(site, (level, module, message), now)
    }
}

/// Layer of `tracing` over an output that others show lines through, too.
struct OutputLayer<W>(Arc<Output<W>>);

impl<S: Subscriber, W: Fn(String) + 'static> Layer<S> for OutputLayer<W> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let of_log = event.normalized_metadata();
        let metadata = of_log.as_ref().unwrap_or_else(|| event.metadata());
        let mut message = Message::default();
        event.record(&mut message);
        if self.0.admit(metadata, &message.0) == Verdict::Show {
            self.0.show(*metadata.level(), metadata.target(), &message.0);
        }
    }
}

/// Text of an event: its message, and its other fields behind it.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            // The place in the code, of an event that came through the facade.
            name if name.starts_with("log.") => Ok(()),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `act` and returns the lines that it logs, those of text without their times.
    fn lines(levels: &str, format: LogFormat, act: impl FnOnce()) -> Vec<String> {
        log::set_max_level(log::LevelFilter::Trace);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        let output = Arc::new(Output::new(format, move |line| written.lock().unwrap().push(line)));
        let levels: LogLevels = levels.parse().unwrap();
        let layer = OutputLayer(Arc::clone(&output));
        let subscriber = Registry::default().with(levels.targets(ALWAYS)).with(layer);
        tracing::subscriber::with_default(subscriber, act);
        output.show_left_out(Duration::MAX);
        let lines = lines.lock().unwrap();
        let without_time = |line: &String| match line.split_once("Z ") {
            Some((_, rest)) if format == LogFormat::Text => rest.to_owned(),
            _ => line.clone(),
        };
        lines.iter().map(without_time).collect()
    }

    /// Logs as the facade's macros do, once the bridge is installed.
    fn log_from(target: &str, level: log::Level, message: &str) {
        let arguments = format_args!("{message}");
        let record = log::Record::builder()
            .target(target)
            .level(level)
            .args(arguments)
            .module_path(Some(target))
            .file(Some("file.rs"))
            .line(Some(7))
            .build();
        log::Log::log(&LogTracer::new(), &record);
    }

    #[test]
    fn levels_hold_by_module_and_libraries_are_heard_from_warn_on() {
        let heard = lines("info,busload_postgres=debug,rustls=info", LogFormat::Text, || {
            for (target, level) in [
                ("busload", log::Level::Info),
                ("busload::serve", log::Level::Debug),
                ("busload_postgres::pool", log::Level::Debug),
                ("mio::poll", log::Level::Info),
                ("mio::poll", log::Level::Warn),
                ("rustls::client", log::Level::Info),
                ("tokio_postgres::query", log::Level::Error),
            ] {
                log_from(target, level, target);
            }
            tracing::warn!(target: "h2", answer = 42, "a frame");
            tracing::debug!(target: "h2", "another");
        });
        let expected = [
            "info busload",
            "debug busload_postgres::pool",
            "warn mio::poll",
            "info rustls::client",
            "warn a frame answer=42",
        ];
        assert_eq!(heard, expected);
    }

    #[test]
    fn json_has_one_object_a_line_whatever_the_message() {
        let shown = lines("warn", LogFormat::Json, || {
            log_from("busload::http", log::Level::Warn, "a \"quoted\"\nline");
            tracing::info!(target: ALWAYS, "ready");
        });
        let objects: Vec<serde_json::Value> =
            shown.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (object, level, module, message) in [
            (&objects[0], "warn", "busload::http", "a \"quoted\"\nline"),
            (&objects[1], "info", "busload", "ready"),
        ] {
            assert_eq!(object["level"], level);
            assert_eq!(object["module"], module);
            assert_eq!(object["message"], message);
            let time = object["time"].as_str().unwrap();
            assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
        }
    }

    #[test]
    fn what_is_said_is_shown_at_every_level_and_as_it_is() {
        let act = || tracing::info!(target: ALWAYS, "ready");
        assert_eq!(lines("error", LogFormat::Text, act), ["ready"]);
    }

    #[test]
    fn a_place_that_repeats_itself_is_cut_short_and_others_are_not() {
        let shown = lines("debug", LogFormat::Text, || {
            for number in 0..100 {
                log_from("busload", log::Level::Warn, &format!("again {number}"));
                log_from("busload", log::Level::Debug, "a detail");
            }
            tracing::warn!(target: "busload", "another place");
        });
        let of = |text: &str| shown.iter().filter(|line| line.contains(text)).count();
        // The last one is about those that were left out, though nothing was logged after them.
        assert_eq!((of("again"), of("a detail")), (rate_limit::LINES_AT_ONCE + 1, 100));
        assert_eq!(of("again 99 (80 more like it were left out)"), 1);
        assert_eq!(of("another place"), 1);
    }
}

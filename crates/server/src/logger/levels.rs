//! Levels of the log by module.

use std::{fmt, str::FromStr};

use log::LevelFilter as LogLevelFilter;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Prefix of the modules of all our crates.
const OURS: &str = "busload";
/// Libraries whose messages may contain values of clients.
const SILENT: [&str; 2] = ["tokio_postgres", "postgres_protocol"];
/// Number of modules that can have a level of their own.
const MODULES_MAX: usize = 64;

const EXPECTED: &str = "expected error, warn, info, debug or trace, or levels by module like \
                        `info,busload_postgres=debug`";

/// Levels of the log: one for all our modules, and others for single modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    general: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl LogLevels {
    /// Levels of tools, which write their results elsewhere.
    pub const WARNINGS: LogLevels = LogLevels { general: LevelFilter::WARN, modules: Vec::new() };

    /// Returns the levels with nothing below warnings from modules that have none of their own.
    pub fn at_most_warnings(&self) -> Self {
        Self { general: self.general.min(LevelFilter::WARN), ..self.clone() }
    }

    /// Returns the filter of events. Those of the target `always` pass all levels.
    pub(super) fn targets(&self, always: &'static str) -> Targets {
        let libraries = self.general.min(LevelFilter::WARN);
        let mut targets = Targets::new().with_default(libraries).with_target(OURS, self.general);
        for (module, level) in &self.modules {
            targets = targets.with_target(module.clone(), *level);
        }
        // Targets are prefixes, and the longest that fits decides.
        for silent in SILENT {
            targets = targets.with_target(silent, LevelFilter::OFF);
        }
        targets.with_target(always, LevelFilter::INFO)
    }

    /// Returns the most detailed level of any module.
    pub(super) fn most_detailed(&self) -> LogLevelFilter {
        let all = self.modules.iter().map(|(_, level)| *level).chain([self.general]);
        match all.max() {
            Some(LevelFilter::TRACE) => LogLevelFilter::Trace,
            Some(LevelFilter::DEBUG) => LogLevelFilter::Debug,
            Some(LevelFilter::INFO) => LogLevelFilter::Info,
            Some(LevelFilter::WARN) => LogLevelFilter::Warn,
            _ => LogLevelFilter::Error,
        }
    }
}

impl Default for LogLevels {
    fn default() -> Self {
        Self { general: LevelFilter::INFO, modules: Vec::new() }
    }
}

impl FromStr for LogLevels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Self::default();
        let mut has_general = false;
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None if has_general => {
                    return Err(format!("`{text}` has two levels for all modules; {EXPECTED}"));
                }
                None => (levels.general, has_general) = (parse_level(part)?, true),
                Some((module, level)) => {
                    levels.modules.push((parse_module(module)?, parse_level(level)?));
                }
            }
        }
        if MODULES_MAX < levels.modules.len() {
            return Err(format!("levels for more than {MODULES_MAX} modules; {EXPECTED}"));
        }
        Ok(levels)
    }
}

fn parse_level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(format!("log level `{text}`; {EXPECTED}")),
    }
}

fn parse_module(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        return Err(format!("`{text}` is no module; {EXPECTED}"));
    }
    if SILENT.iter().any(|silent| text.starts_with(silent)) {
        return Err(format!("the messages of `{text}` may contain values and are never logged"));
    }
    Ok(text.to_owned())
}

impl fmt::Display for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.general)?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={level}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_nonsense_is_refused_with_what_was_expected() {
        for text in ["info", "warn,busload_postgres=debug", "error,a::b=trace,c=info"] {
            assert_eq!(text.parse::<LogLevels>().map(|levels| levels.to_string()), Ok(text.into()));
        }
        let only_module: LogLevels = "busload_log=trace".parse().unwrap();
        assert_eq!(only_module.to_string(), "info,busload_log=trace");
        assert_eq!(only_module.most_detailed(), LogLevelFilter::Trace);
        let many = ["a=info"; MODULES_MAX + 1].join(",");
        for text in ["", "loud", "info,warn", "a=", "=info", "a b=info", "info,", "INFO", &many] {
            let error = text.parse::<LogLevels>().unwrap_err();
            assert!(error.contains("expected error, warn, info"), "{text}: {error}");
        }
        for text in ["tokio_postgres=trace", "info,postgres_protocol::message=info"] {
            assert!(text.parse::<LogLevels>().unwrap_err().contains("may contain values"));
        }
    }

    #[test]
    fn what_prints_values_of_clients_is_silent_at_every_level() {
        let targets = "trace".parse::<LogLevels>().unwrap().targets("busload::always");
        for (target, heard) in [
            ("tokio_postgres::query", false),
            ("tokio_postgres", false),
            ("postgres_protocol::message", false),
            ("busload_postgres::pool", true),
            ("busload", true),
        ] {
            assert_eq!(targets.would_enable(target, &tracing::Level::ERROR), heard, "{target}");
        }
    }
}

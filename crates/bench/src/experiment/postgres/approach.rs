//! The ways to answer many readers, and the rows of the tables.

use std::str::FromStr;

use super::{ceiling, rows::Distribution, tasks::Operation};

/// A way to answer single-key requests from Postgres, or what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Approach {
    /// Statements with very many keys.
    Ceiling {
        connections: usize,
    },
    /// A statement for each request.
    Plain {
        connections: usize,
    },
    /// Batches of a fixed size, or of what came in a fixed time.
    Window {
        /// Keys with which a batch is sent.
        keys: usize,
    },
    Library,
    Resp {
        /// Connections from the load to busload.
        connections: usize,
    },
    /// The busload server without Postgres.
    Memory,
}

impl Approach {
    /// The name in `--case` and in the CSV.
    pub fn name(self) -> String {
        match self {
            Self::Ceiling { connections } => format!("ceiling:{connections}"),
            Self::Plain { connections } => format!("plain:{connections}"),
            Self::Window { keys } => format!("window:{keys}"),
            Self::Library => "in-process".to_owned(),
            Self::Resp { connections } => format!("resp:{connections}"),
            Self::Memory => "memory".to_owned(),
        }
    }

    /// The name in tables.
    pub fn title(self, clients: usize) -> String {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        match self {
            Self::Ceiling { connections: n } => {
                format!("{} keys a statement, {n} connection{}", ceiling::KEYS, s(n))
            }
            Self::Plain { connections: n } => format!("not batched, {n} connection{}", s(n)),
            Self::Window { keys } => format!("window, {keys} key{}", s(keys)),
            Self::Library => "busload in process".to_owned(),
            Self::Resp { connections } if connections < clients => {
                format!("busload RESP, {connections} x {} pipelined", clients.div_ceil(connections))
            }
            Self::Resp { connections: n } => format!("busload RESP, {n} connection{}", s(n)),
            Self::Memory => "busload RESP, memory table".to_owned(),
        }
    }
}

impl Approach {
    /// Whether every request is a statement of its own.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Plain { .. })
    }
}

impl FromStr for Approach {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is none of plain:N, window:K, in-process, resp:N, ceiling:N, memory")
        };
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        match (name, number) {
            ("ceiling", Some(connections @ 1..)) => Ok(Self::Ceiling { connections }),
            ("plain", Some(connections @ 1..)) => Ok(Self::Plain { connections }),
            ("window", Some(keys @ 1..)) => Ok(Self::Window { keys }),
            ("in-process", None) => Ok(Self::Library),
            ("resp", Some(connections @ 1..)) => Ok(Self::Resp { connections }),
            ("memory", None) => Ok(Self::Memory),
            _ => Err(wrong()),
        }
    }
}

/// Value of `--case`: one way, or all ways of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    One(Approach),
    /// All ways with this name before the number.
    Kind(String),
}

impl Choice {
    /// Whether it names this way.
    pub fn names(&self, approach: Approach) -> bool {
        match self {
            Self::One(one) => *one == approach,
            Self::Kind(kind) => approach.name().split(':').next() == Some(kind),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plain" | "window" | "resp" | "ceiling" => Ok(Self::Kind(text.to_owned())),
            _ => text.parse().map(Self::One),
        }
    }
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Section {
    /// Many readers: not batched, busload in process and over RESP
    Readers,
    /// Statements with 1,024 keys
    Ceiling,
    /// Many readers: fixed windows
    Windows,
    /// From one reader to many
    LowLoad,
    /// Open loop
    Rate,
    /// A table larger than `shared_buffers`
    SmallMemory,
    /// Many writers
    Upserts,
}

impl Section {
    /// The name in `--section` and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Readers => "readers",
            Self::Ceiling => "ceiling",
            Self::Windows => "windows",
            Self::LowLoad => "low-load",
            Self::Rate => "rate",
            Self::SmallMemory => "small-memory",
            Self::Upserts => "upserts",
        }
    }
}

/// Pace of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Every client asks again when it has its answer.
    Closed,
    /// Requests per second, whatever is still unanswered.
    Rate(u64),
}

/// One row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub approach: Approach,
    /// Readers or writers; in an open loop only what RESP connections are shared by.
    pub clients: usize,
    pub pace: Pace,
    pub operation: Operation,
    pub keys: Distribution,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_found_by_its_name() {
        for approach in [
            Approach::Ceiling { connections: 2 },
            Approach::Plain { connections: 50 },
            Approach::Window { keys: 16 },
            Approach::Library,
            Approach::Resp { connections: 300 },
            Approach::Memory,
        ] {
            assert_eq!(approach.name().parse(), Ok(approach));
        }
        for wrong in
            ["", "plain", "plain:", "plain:0", "window:x", "in-process:3", "resp:-1", "memory:"]
        {
            assert!(wrong.parse::<Approach>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_kind_names_all_of_its_ways() {
        let plain: Choice = "plain".parse().unwrap();
        assert!(plain.names(Approach::Plain { connections: 7 }) && !plain.names(Approach::Library));
        let one: Choice = "plain:7".parse().unwrap();
        assert!(
            one.names(Approach::Plain { connections: 7 })
                && !one.names(Approach::Plain { connections: 8 })
        );
        assert!("magic".parse::<Choice>().is_err());
    }
}

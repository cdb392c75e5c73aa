//! The sections: which rows each has, in the order they are shown.

use super::{
    approach::{Approach, Case, Pace, Section},
    arguments::Postgres,
    rows::Distribution,
    tasks::Operation,
};

/// Connections of the plain rows where their number is not what is looked at.
const PLAIN_CONNECTIONS: usize = 20;

/// The window of the sections that compare with one, when the fixed windows themselves were not
/// measured.
const WINDOW_KEYS: usize = 32;

/// Connections of the pipelined rows where their number is not what is looked at.
const RESP_CONNECTIONS: usize = 20;

/// Rows that are measured in turns and shown in one table.
#[derive(Clone, Debug)]
pub struct Group {
    pub title: String,
    pub cases: Vec<Case>,
}

/// Makes cases of one kind.
#[derive(Clone, Copy, Debug)]
struct Maker<'a> {
    arguments: &'a Postgres,
    section: Section,
    keys: Distribution,
    operation: Operation,
}

impl Maker<'_> {
    fn closed(&self, approach: Approach, clients: usize) -> Option<Case> {
        self.case(approach, clients, Pace::Closed)
    }

    fn case(&self, approach: Approach, clients: usize, pace: Pace) -> Option<Case> {
        let Self { section, keys, operation, .. } = *self;
        self.arguments.wants(approach).then_some(Case {
            section,
            approach,
            clients,
            pace,
            operation,
            keys,
        })
    }

    /// Makes a case of as many connections as there are clients to use them.
    fn plain(&self, connections: usize, clients: usize) -> Option<Case> {
        self.closed(Approach::Plain { connections }, clients)
    }
}

/// Many readers: ceiling, not batched, windows, busload.
pub fn many_readers(arguments: &Postgres, keys: Distribution) -> Group {
    let maker = |section| Maker { arguments, section, keys, operation: Operation::Read };
    let readers = arguments.readers;
    let wants = |section| arguments.section.contains(&section);
    let mut cases = Vec::new();
    if wants(Section::Ceiling) {
        let ceiling = |connections| {
            maker(Section::Ceiling).closed(Approach::Ceiling { connections }, connections)
        };
        cases.extend([1, 2].map(ceiling));
    }
    if wants(Section::Readers) {
        cases.extend(
            arguments
                .connections
                .iter()
                .map(|count| maker(Section::Readers).plain(*count, readers)),
        );
    }
    if wants(Section::Windows) {
        let window =
            |keys: &_| maker(Section::Windows).closed(Approach::Window { keys: *keys }, readers);
        cases.extend(arguments.windows.iter().map(window));
    }
    if wants(Section::Readers) {
        cases.push(maker(Section::Readers).closed(Approach::Library, readers));
        let resp = |count: &_| {
            maker(Section::Readers).closed(Approach::Resp { connections: *count }, readers)
        };
        cases.extend(arguments.resp_connections.iter().map(resp));
    }
    let title = format!("{readers} readers, {} keys", keys.name());
    Group { title, cases: cases.into_iter().flatten().collect() }
}

/// Compares one reader up to many with the window that was best for many.
pub fn low_load(arguments: &Postgres, keys: Distribution, best_window: Option<usize>) -> Group {
    let maker = Maker { arguments, section: Section::LowLoad, keys, operation: Operation::Read };
    let mut cases = vec![maker.closed(Approach::Memory, 1)];
    for &readers in &arguments.low_load {
        cases.push(maker.plain(readers.min(PLAIN_CONNECTIONS), readers));
        cases.push(maker.closed(window(best_window), readers));
        cases.push(maker.closed(Approach::Library, readers));
        cases.push(
            maker.closed(Approach::Resp { connections: readers.min(RESP_CONNECTIONS) }, readers),
        );
    }
    let title = format!("Response times from one reader on, {} keys", keys.name());
    Group { title, cases: cases.into_iter().flatten().collect() }
}

pub fn rate(arguments: &Postgres, keys: Distribution, best_window: Option<usize>) -> Group {
    let maker = Maker { arguments, section: Section::Rate, keys, operation: Operation::Read };
    let mut cases = Vec::new();
    for &rate in &arguments.rates {
        let approaches = [
            Approach::Plain { connections: PLAIN_CONNECTIONS },
            window(best_window),
            Approach::Library,
            Approach::Resp { connections: RESP_CONNECTIONS },
        ];
        // Pipelines are as deep as the rate makes them: as many clients as connections.
        cases.extend(
            approaches.map(|approach| maker.case(approach, RESP_CONNECTIONS, Pace::Rate(rate))),
        );
    }
    let title = format!(
        "Requests at a fixed rate, {} keys; response times from when each was due",
        keys.name()
    );
    Group { title, cases: cases.into_iter().flatten().collect() }
}

/// Many readers of a table that does not fit into `shared_buffers`.
pub fn small_memory(arguments: &Postgres, keys: Distribution, about_sizes: &str) -> Group {
    let maker =
        Maker { arguments, section: Section::SmallMemory, keys, operation: Operation::Read };
    let readers = arguments.readers;
    let mut cases = vec![maker.closed(Approach::Ceiling { connections: 2 }, 2)];
    cases.extend(arguments.connections.iter().map(|count| maker.plain(*count, readers)));
    cases.push(maker.closed(Approach::Library, readers));
    cases.push(maker.closed(Approach::Resp { connections: RESP_CONNECTIONS }, readers));
    let title = format!("{readers} readers, {} keys, {about_sizes}", keys.name());
    Group { title, cases: cases.into_iter().flatten().collect() }
}

pub fn upserts(arguments: &Postgres, keys: Distribution) -> Group {
    let maker = Maker { arguments, section: Section::Upserts, keys, operation: Operation::Upsert };
    let writers = arguments.readers;
    let plain = arguments.upsert_connections.iter().map(|count| maker.plain(*count, writers));
    let mut cases: Vec<_> = plain.collect();
    cases.push(maker.closed(Approach::Library, writers));
    let resp = |count: &_| maker.closed(Approach::Resp { connections: *count }, writers);
    cases.extend(arguments.resp_connections.iter().map(resp));
    let title = format!("{writers} writers, upserts of {} keys", keys.name());
    Group { title, cases: cases.into_iter().flatten().collect() }
}

/// Whether the busload server is needed.
pub fn need_server(arguments: &Postgres) -> bool {
    let keys = Distribution::Uniform;
    let groups = [
        many_readers(arguments, keys),
        wanted(arguments, Section::LowLoad, low_load(arguments, keys, None)),
        wanted(arguments, Section::Rate, rate(arguments, keys, None)),
        wanted(arguments, Section::SmallMemory, small_memory(arguments, keys, "")),
        wanted(arguments, Section::Upserts, upserts(arguments, keys)),
    ];
    let mut cases = groups.iter().flat_map(|group| &group.cases);
    cases.any(|case| matches!(case.approach, Approach::Resp { .. } | Approach::Memory))
}

fn wanted(arguments: &Postgres, section: Section, group: Group) -> Group {
    if arguments.section.contains(&section) { group } else { Group { cases: Vec::new(), ..group } }
}

fn window(best: Option<usize>) -> Approach {
    Approach::Window { keys: best.unwrap_or(WINDOW_KEYS) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    const KEYS: Distribution = Distribution::Uniform;

    fn arguments(arguments: &[&str]) -> Postgres {
        let cli =
            Cli::try_parse_from(["busload-bench", "postgres"].iter().chain(arguments)).unwrap();
        match cli.command {
            Command::Postgres(postgres) => *postgres,
            other => panic!("{other:?}"),
        }
    }

    fn names(group: &Group) -> String {
        let names: Vec<_> = group.cases.iter().map(|case| case.approach.name()).collect();
        names.join(" ")
    }

    #[test]
    fn many_readers_are_served_in_every_way() {
        assert_eq!(
            names(&many_readers(&arguments(&[]), KEYS)),
            "ceiling:1 ceiling:2 plain:10 plain:20 plain:50 plain:300 window:1 window:2 \
             window:4 window:8 window:16 window:24 window:32 window:64 in-process resp:20 resp:300"
        );
        let some =
            arguments(&["--section", "readers", "--case", "plain:20,resp:300", "--readers", "7"]);
        let group = many_readers(&some, KEYS);
        assert_eq!(names(&group), "plain:20 resp:300");
        assert!(group.cases.iter().all(|case| case.clients == 7));
    }

    #[test]
    fn a_lone_reader_has_one_connection() {
        let group = low_load(&arguments(&["--low-load", "1,300"]), KEYS, Some(16));
        assert_eq!(
            names(&group),
            "memory plain:1 window:16 in-process resp:1 plain:20 window:16 in-process resp:20"
        );
    }

    #[test]
    fn every_rate_is_offered_to_every_way() {
        let group = rate(&arguments(&["--rates", "1k,2k"]), KEYS, None);
        assert_eq!(group.cases.len(), 8);
        assert_eq!(group.cases[5].pace, Pace::Rate(2_000));
        assert_eq!(group.cases[5].approach, Approach::Window { keys: WINDOW_KEYS });
    }

    #[test]
    fn the_server_is_needed_for_resp_only() {
        assert!(need_server(&arguments(&[])));
        assert!(!need_server(&arguments(&["--section", "ceiling,windows"])));
        assert!(!need_server(&arguments(&["--case", "plain:20,in-process"])));
        assert!(need_server(&arguments(&["--section", "low-load", "--case", "memory"])));
    }
}

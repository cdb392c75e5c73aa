//! The ways to answer many readers, and the cases that each section measures.

use clap::ValueEnum;

use super::{arguments::Postgres, rows::Distribution};

/// Connections of the plain rows where their number is not what is looked at.
const PLAIN_CONNECTIONS: usize = 20;

/// Connections of the pipelined rows where their number is not what is looked at.
const RESP_CONNECTIONS: usize = 20;

/// Window of the sections that compare with one, when the fixed windows were not measured.
pub const WINDOW_KEYS: usize = 32;

/// A way to answer single-key requests from Postgres, or what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approach {
    /// Statements with very many keys, on so many connections.
    Ceiling(usize),
    /// A statement for each request, on so many connections.
    Plain(usize),
    /// Batches of so many keys, or of what came in a fixed time.
    Window(usize),
    Library,
    /// The busload server, asked over so many connections.
    Resp(usize),
    /// The busload server without Postgres.
    Memory,
}

impl Approach {
    /// Returns the name in `--case`, in tables and in the CSV.
    pub fn name(self) -> String {
        match self {
            Self::Ceiling(connections) => format!("ceiling:{connections}"),
            Self::Plain(connections) => format!("plain:{connections}"),
            Self::Window(keys) => format!("window:{keys}"),
            Self::Library => "in-process".to_owned(),
            Self::Resp(connections) => format!("resp:{connections}"),
            Self::Memory => "memory".to_owned(),
        }
    }

    /// Returns the name of all ways of its kind, and the number behind it.
    pub fn parts(self) -> (String, String) {
        let name = self.name();
        let (kind, number) = name.split_once(':').unwrap_or((&name, ""));
        (kind.to_owned(), number.to_owned())
    }
}

/// Parses a value of `--case`: one way, or all ways of a kind.
pub fn parse_way(text: &str) -> Result<String, String> {
    let (kind, number) = text.split_once(':').unwrap_or((text, "1"));
    let has_number = ["plain", "window", "resp", "ceiling"].contains(&kind);
    let is_number = has_number && number.parse().is_ok_and(|number: usize| 0 < number);
    let is_way = is_number || ["in-process", "memory"].contains(&text);
    is_way.then(|| text.to_owned()).ok_or_else(|| {
        format!("`{text}` is none of plain:N, window:K, in-process, resp:N, ceiling:N, memory")
    })
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Many readers: not batched, busload in process and over RESP; with ceiling and windows in
    /// one table, measured in turns
    Readers,
    /// Statements with 1,024 keys
    Ceiling,
    /// Many readers: fixed windows
    Windows,
    /// From one reader to many (--low-load): what a lone request pays. Plain: as many connections
    /// as readers, 20 at most; window: the one that was best for many readers
    LowLoad,
    /// Open loop (--rates): requests are due on a schedule, response times count from then
    Rate,
    /// The same table with --small-shared-buffers; own clusters only, which are restarted. The
    /// system's page cache still holds the table unless it is larger than memory
    SmallMemory,
    /// As many writers as readers, each with one INSERT .. ON CONFLICT DO UPDATE under way
    Upserts,
}

impl Section {
    /// Sections that are measured together and shown in one table.
    pub const MANY_READERS: [Self; 3] = [Self::Ceiling, Self::Windows, Self::Readers];

    /// Returns whether rows of both stand in one table.
    pub fn is_beside(self, other: Self) -> bool {
        self == other || [self, other].iter().all(|section| Self::MANY_READERS.contains(section))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    /// Write of a row whether it exists or not.
    Upsert,
}

/// Pace of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Every client asks again when it has its answer.
    Closed,
    /// Requests per second, whatever is still unanswered.
    Rate(u64),
}

/// Row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub approach: Approach,
    /// Readers or writers; an open loop has a client for every request.
    pub clients: usize,
    pub pace: Pace,
    pub operation: Operation,
    pub keys: Distribution,
}

/// Returns the cases of a section in the order they are shown. Sections that compare with one
/// window take that of `window` keys.
pub fn cases(
    arguments: &Postgres,
    section: Section,
    keys: Distribution,
    window: usize,
) -> Vec<Case> {
    let readers = arguments.readers;
    let each = |counts: &[usize], way: fn(usize) -> Approach| -> Vec<_> {
        counts.iter().map(|count| (way(*count), readers, Pace::Closed)).collect()
    };
    let plain = each(&arguments.connections, Approach::Plain);
    let library = vec![(Approach::Library, readers, Pace::Closed)];
    let resp = each(&arguments.resp_connections, Approach::Resp);
    // As many connections as there are clients to use them, up to a number.
    let all = |clients: usize, pace| {
        let ways = [
            Approach::Plain(clients.min(PLAIN_CONNECTIONS)),
            Approach::Window(window),
            Approach::Library,
            Approach::Resp(clients.min(RESP_CONNECTIONS)),
        ];
        ways.map(|approach| (approach, clients, pace))
    };
    let rows = match section {
        Section::Readers => [plain, library, resp].concat(),
        Section::Ceiling => {
            [1, 2].map(|count| (Approach::Ceiling(count), count, Pace::Closed)).to_vec()
        }
        Section::Windows => each(&arguments.windows, Approach::Window),
        Section::LowLoad => {
            let readers = arguments.low_load.iter();
            let rows = readers.flat_map(|readers| all(*readers, Pace::Closed));
            [(Approach::Memory, 1, Pace::Closed)].into_iter().chain(rows).collect()
        }
        Section::Rate => {
            let rates = arguments.rates.iter();
            rates.flat_map(|rate| all(RESP_CONNECTIONS, Pace::Rate(*rate))).collect()
        }
        Section::SmallMemory => {
            let resp = vec![(Approach::Resp(RESP_CONNECTIONS), readers, Pace::Closed)];
            [vec![(Approach::Ceiling(2), 2, Pace::Closed)], plain, library, resp].concat()
        }
        Section::Upserts => {
            [each(&arguments.upsert_connections, Approach::Plain), library, resp].concat()
        }
    };
    let is_wanted = |approach: Approach| {
        let named = [approach.name(), approach.parts().0];
        arguments.case.is_empty() || arguments.case.iter().any(|way| named.contains(way))
    };
    let operation = if section == Section::Upserts { Operation::Upsert } else { Operation::Read };
    let rows = rows.into_iter().filter(|(approach, ..)| is_wanted(*approach));
    rows.map(|(approach, clients, pace)| Case { section, approach, clients, pace, operation, keys })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::tests::parse, *};

    #[test]
    fn ways_are_chosen_by_name_and_number() {
        let names = |arguments: &[&str], section| {
            let cases = cases(&parse(arguments).unwrap(), section, Distribution::Uniform, 16);
            let name = |case: &Case| format!("{}x{}", case.approach.name(), case.clients);
            cases.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        let chosen = ["--case", "plain:20,resp,in-process", "--readers", "7"];
        let wanted = "plain:20x7 in-processx7 resp:20x7 resp:300x7";
        assert_eq!(names(&chosen, Section::Readers), wanted);
        assert_eq!(names(&["--case", "plain"], Section::Ceiling), "");
        // A lone reader has one connection.
        let wanted = "memoryx1 plain:1x1 window:16x1 in-processx1 resp:1x1 \
                      plain:20x300 window:16x300 in-processx300 resp:20x300";
        assert_eq!(names(&["--low-load", "1,300"], Section::LowLoad), wanted);
    }
}

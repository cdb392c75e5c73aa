//! What is measured: a row of a table is a case.

use super::client::Streams;

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Section {
    /// Whole files, by one client
    Clone,
    /// Whole files, by many clients at once
    Clones,
    /// All chunks of the current version, node by node
    Scan,
    /// Rows by key: each chunk names the next
    Point,
    /// What a client lacks of the current version
    Fetch,
}

impl Section {
    /// The name in `--section` and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Clones => "clones",
            Self::Scan => "scan",
            Self::Point => "point",
            Self::Fetch => "fetch",
        }
    }
}

/// Sources of the data, and their states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A plain download of as many bytes from the object store, one range after the other.
    Download,
    /// A plain download with many ranges at once.
    Downloads,
    /// The replay itself against the object store, indexes known.
    Direct,
    /// Through busload whose cache is empty.
    Cold,
    /// Through busload that has everything on local disk.
    Warm,
    /// Through a warm busload with the object store at 0 ms.
    Near,
}

impl Way {
    /// The name in tables and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Download => "plain download",
            Self::Downloads => "plain downloads",
            Self::Direct => "direct",
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Near => "warm, 0 ms",
        }
    }

    pub fn is_busload(self) -> bool {
        matches!(self, Self::Cold | Self::Warm | Self::Near)
    }
}

/// Busload's setting `dolt_layout`: where the advertised chunk locations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Layout {
    /// The table files
    Files,
    /// Records laid out anew
    Records,
}

impl Layout {
    /// The name in `dolt_layout`, in tables and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Records => "records",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub way: Way,
    /// Busload's layout, where it matters.
    pub layout: Option<Layout>,
    pub streams: Streams,
    pub clients: usize,
}

impl Case {
    fn new(section: Section, way: Way) -> Self {
        Self { section, way, layout: None, streams: Streams::New, clients: 1 }
    }

    /// The way, the layout and the streams.
    pub fn title(&self) -> String {
        let layout = self.layout.map(Layout::name);
        let legacy = (self.streams == Streams::Legacy).then_some("legacy");
        let clients = (1 < self.clients).then(|| format!("{} clients", self.clients));
        let parts = [Some(self.way.name()), layout, legacy, clients.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the cases of a clone by one client.
pub fn clone() -> Vec<Case> {
    [Way::Download, Way::Downloads, Way::Cold, Way::Warm]
        .map(|way| Case::new(Section::Clone, way))
        .to_vec()
}

/// Returns the cases of many clones at once.
pub fn clones(clients: usize) -> Vec<Case> {
    [Way::Cold, Way::Warm].map(|way| Case { clients, ..Case::new(Section::Clones, way) }).to_vec()
}

/// Every layout in every state, by old and new streams.
pub fn scan(layouts: &[Layout]) -> Vec<Case> {
    let mut cases =
        vec![Case::new(Section::Scan, Way::Download), Case::new(Section::Scan, Way::Direct)];
    cases.extend(through_busload(Section::Scan, &[Way::Cold, Way::Warm, Way::Near], layouts));
    let legacy = through_busload(Section::Scan, &[Way::Cold, Way::Warm], layouts);
    cases.extend(legacy.map(|case| Case { streams: Streams::Legacy, ..case }));
    cases
}

/// Every layout in every state.
pub fn point(layouts: &[Layout]) -> Vec<Case> {
    let mut cases = vec![Case::new(Section::Point, Way::Direct)];
    cases.extend(through_busload(Section::Point, &[Way::Cold, Way::Warm, Way::Near], layouts));
    cases
}

/// Every layout, cold and warm.
pub fn fetch(layouts: &[Layout]) -> Vec<Case> {
    let mut cases = vec![Case::new(Section::Fetch, Way::Direct)];
    cases.extend(through_busload(Section::Fetch, &[Way::Cold, Way::Warm], layouts));
    cases
}

/// Rows that are compared stand, and are measured, next to each other.
fn through_busload<'a>(
    section: Section,
    ways: &'a [Way],
    layouts: &'a [Layout],
) -> impl Iterator<Item = Case> + 'a {
    layouts.iter().flat_map(move |layout| {
        ways.iter().map(move |way| Case { layout: Some(*layout), ..Case::new(section, *way) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[Layout] = &[Layout::Files, Layout::Records];

    fn titles(cases: &[Case]) -> Vec<String> {
        cases.iter().map(Case::title).collect()
    }

    #[test]
    fn a_scan_is_read_in_every_way() {
        let titles = titles(&scan(BOTH));
        assert_eq!(titles.len(), 2 + 2 * 3 + 2 * 2);
        assert_eq!(
            titles[..5].join("; "),
            "plain download; direct; cold, files; warm, files; warm, 0 ms, files"
        );
        assert_eq!(titles[11], "warm, records, legacy");
        assert_eq!(scan(&[Layout::Records]).len(), 2 + 3 + 2);
    }
}

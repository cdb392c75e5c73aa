//! Requests that were not answered as they should have been.

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused or failed, and said so.
    Refused(String),
    /// Answered with what was not asked for.
    Wrong(String),
}

/// Failures of one kind: how many, and the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub example: Option<String>,
}

impl Failures {
    /// One more.
    pub fn add(&mut self, text: String) {
        self.count += 1;
        self.example.get_or_insert(text);
    }

    /// Adds what another load saw.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}

/// Notes beside a row in which some requests failed.
pub fn notes(refused: &Failures, wrong: &Failures) -> Vec<String> {
    let kinds = [("REFUSED", refused), ("WRONG", wrong)].into_iter();
    let note = |(kind, failures): (&str, &Failures)| {
        format!("{kind}:{} ({})", failures.count, failures.example.as_deref().unwrap_or_default())
    };
    kinds.filter(|(_, failures)| 0 < failures.count).map(note).collect()
}

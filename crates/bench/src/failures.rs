//! Requests that were not answered as they should have been.

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
    pub count: u64,
    pub example: Option<String>,
}

impl Failures {
    fn add(&mut self, text: String) {
        self.count += 1;
        self.example.get_or_insert(text);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}

/// Failures of both kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    pub refused: Failures,
    pub wrong: Failures,
}

impl Failed {
    pub fn add(&mut self, failure: Failure) {
        match failure {
            Failure::Refused(text) => self.refused.add(text),
            Failure::Wrong(text) => self.wrong.add(text),
        }
    }

    /// Adds what another load saw.
    pub fn merge(&mut self, other: &Self) {
        self.refused.merge(&other.refused);
        self.wrong.merge(&other.wrong);
    }

    pub fn count(&self) -> u64 {
        self.refused.count + self.wrong.count
    }

    /// Returns the notes beside a row in which some requests failed.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let kinds = [("REFUSED", &self.refused), ("WRONG", &self.wrong)].into_iter();
        let kinds = kinds.filter(|(_, failures)| 0 < failures.count);
        kinds.map(|(kind, Failures { count, example })| {
            format!("{kind}:{count} ({})", example.as_deref().unwrap_or_default())
        })
    }
}

//! Replies of a measurement that should not have come.

use busload_resp::reply::ReplyCounter;

/// Replies that a measurement should not have had.
#[derive(Clone, Debug, Default)]
pub struct Oddities {
    pub errors: u64,
    /// The first of them.
    pub example: Option<String>,
    /// Nulls: keys that were not there.
    pub nils: u64,
}

impl Oddities {
    /// Adds what one connection saw.
    pub fn add_connection(&mut self, counter: &ReplyCounter) {
        let counts = counter.counts();
        let example = counter.first_error().map(|text| String::from_utf8_lossy(text).into_owned());
        self.merge(&Self {
            errors: counts.errors + counts.errors_nested,
            example,
            nils: counts.nulls,
        });
    }

    /// Adds what another measurement saw.
    pub fn merge(&mut self, other: &Self) {
        self.errors += other.errors;
        self.nils += other.nils;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_nulls_of_all_connections_add_up() {
        let mut oddities = Oddities::default();
        for stream in [&b"+OK\r\n$-1\r\n"[..], b"-ERR one\r\n-ERR two\r\n", b"-ERR three\r\n"] {
            let mut counter = ReplyCounter::default();
            counter.feed(stream).unwrap();
            oddities.add_connection(&counter);
        }
        assert_eq!((oddities.errors, oddities.nils), (3, 1));
        assert_eq!(oddities.example.as_deref(), Some("ERR one"));
    }
}

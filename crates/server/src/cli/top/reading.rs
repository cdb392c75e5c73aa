//! One answer of `/api/stats`.

use serde_json::Value;

/// Values of a server at one moment. What a server of another version does not say is 0 or empty.
#[derive(Clone, Debug)]
pub struct Reading(Value);

impl Reading {
    /// Parses an answer; `None` when it is none of `/api/stats`.
    pub fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        value.get("uptime_ms")?.as_u64()?;
        Some(Self(value))
    }

    /// Returns the time between two readings in seconds; 0 when the server was started again.
    pub fn seconds_since(&self, before: &Reading) -> f64 {
        let (now_ms, before_ms) =
            (self.all().number("uptime_ms"), before.all().number("uptime_ms"));
        (now_ms - before_ms).max(0.0) / 1e3
    }

    /// Returns the whole reading.
    pub fn all(&self) -> Part<'_> {
        Part(&self.0)
    }
}

/// Object of a reading.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(&'a Value);

impl<'a> Part<'a> {
    /// Returns the object of this name.
    pub fn part(self, name: &str) -> Part<'a> {
        Part(self.0.get(name).unwrap_or(&Value::Null))
    }

    /// Returns the objects of the list of this name.
    pub fn list(self, name: &str) -> impl Iterator<Item = Part<'a>> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().map(Part)
    }

    /// Returns the object of a list that has this name.
    pub fn named(self, list: &str, name: &str) -> Part<'a> {
        self.list(list).find(|part| part.text("name") == name).unwrap_or(Part(&Value::Null))
    }

    /// Returns the number of this name, 0 where there is none.
    pub fn number(self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// Returns the whole number of this name, 0 where there is none.
    pub fn count(self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the text of this name, empty where there is none.
    pub fn text(self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns whether the value is true.
    pub fn is(self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns whether there is a value.
    pub fn has(self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns the buckets of a histogram: bound and count. The last may have no bound.
    pub fn buckets(self) -> Vec<(f64, u64)> {
        let list = self.0.get("buckets").and_then(Value::as_array).into_iter().flatten();
        let bucket = |bucket: &Value| {
            let bound = bucket.get(0)?.as_f64().unwrap_or(f64::INFINITY);
            Some((bound, bucket.get(1)?.as_u64()?))
        };
        list.filter_map(bucket).collect()
    }
}

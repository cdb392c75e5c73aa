//! Who may ask over HTTP.

use axum::http::HeaderMap;

/// Everybody, or who knows the password.
#[derive(Clone, Debug, Default)]
pub struct Access {}

impl Access {
    /// Whether credentials in these headers are good, or none are asked for.
    pub fn allows(&self, headers: &HeaderMap) -> bool {
        let _ = headers;
        true
    }

    /// What URLs of downloads of a table carry, because clients send no credentials with them; none where none are asked for.
    pub fn key(&self, table: &str) -> Option<String> {
        let _ = table;
        None
    }

    /// Whether a URL's key is that of the table, or none is asked for.
    pub fn allows_key(&self, table: &str, key: Option<&str>) -> bool {
        let _ = (table, key);
        true
    }
}

//! Parser of libpq's connection URLs: `postgres://user:password@host1:1,host2/db?name=value&...`.
//!
//! These are not WHATWG URLs: they may have several hosts and percent-encoded socket directories as
//! hosts, and `+` is a plus. No error shows a part of the URL that could be a piece of a password
//! that somebody forgot to encode.
//!
//! `tokio_postgres::Config` parses them as well, but ends a password at its first `@` and takes the
//! rest for a host, and refuses the options that it does not know: those of tables, `passfile` and
//! certificates. With the query split off, it would replace the sixty lines for hosts and ports.

use percent_encoding::percent_decode_str;

use crate::{SettingsError, limits::URL_BYTES_MAX, password::Password};

const EXPECTED: &str = "expected postgres://user@host:port/db?relation=NAME&key=COLUMN";
const ENCODE: &str =
    "in a user, a password or a database write `/` as %2F, `@` as %40 and `:` as %3A";

/// Parts of a URL, decoded, unchecked.
#[derive(Debug, Default)]
pub(crate) struct Url {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    pub(crate) dbname: Option<String>,
    pub(crate) query: Vec<(String, String)>,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        if URL_BYTES_MAX < text.len() {
            return Err(problem(format!("longer than {URL_BYTES_MAX} bytes")));
        }
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or_else(|| problem(EXPECTED))?;
        let mut url = Self::default();
        let rest = url.take_user(rest)?;
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, dbname) = location.split_once('/').unwrap_or((location, ""));
        url.hosts = parse_hosts(hosts)?;
        url.dbname = parse_dbname(dbname)?;
        url.query = parse_query(query)?;
        Ok(url)
    }

    /// Removes `user:password@` from the front. As in libpq, only a `/` ends the search for the
    /// `@`.
    fn take_user<'a>(&mut self, rest: &'a str) -> Result<&'a str, SettingsError> {
        let authority = rest.split('/').next().unwrap_or(rest);
        let Some(at) = authority.rfind('@') else { return Ok(rest) };
        let (user, password) = match authority[..at].split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (&authority[..at], None),
        };
        self.user = some_text(decode("the user", user)?);
        if let Some(password) = password {
            self.password = some_text(decode("the password", password)?).map(Password::new);
        }
        Ok(&rest[at + 1..])
    }
}

fn problem(text: impl ToString) -> SettingsError {
    SettingsError::Url(text.to_string())
}

fn some_text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn decode(part: &str, text: &str) -> Result<String, SettingsError> {
    let whole = text.split('%').skip(1).all(|escape| {
        escape.len() >= 2 && escape.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit)
    });
    if !whole {
        return Err(problem(format!(
            "a `%` in {part} that two hexadecimal digits must follow (%25 is a `%`)"
        )));
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        _ => Err(problem(format!("{part} is not UTF-8 without NUL"))),
    }
}

fn parse_hosts(text: &str) -> Result<Vec<(String, Option<u16>)>, SettingsError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(parse_host).collect()
}

fn parse_host(text: &str) -> Result<(String, Option<u16>), SettingsError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest
                .split_once(']')
                .ok_or_else(|| problem("a `]` must follow the address behind `[`"))?;
            (
                address,
                if port.is_empty() { None } else { Some(port.strip_prefix(':').unwrap_or(port)) },
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.filter(|port| !port.is_empty()).map(parse_port).transpose()?;
    Ok((decode("a host", host)?, port))
}

/// Parses a port. The error does not show the text: it may be the end of a password.
fn parse_port(text: &str) -> Result<u16, SettingsError> {
    match text.parse() {
        Ok(port) if port != 0 && !text.starts_with('+') => Ok(port),
        _ => Err(problem(format!(
            "expected a port from 1 to 65535 behind the host's `:` ({ENCODE})"
        ))),
    }
}

fn parse_dbname(text: &str) -> Result<Option<String>, SettingsError> {
    if text.contains(['/', '@']) {
        return Err(problem(ENCODE));
    }
    decode("the database", text).map(some_text)
}

fn parse_query(text: &str) -> Result<Vec<(String, String)>, SettingsError> {
    text.split('&').filter(|pair| !pair.is_empty()).map(parse_pair).collect()
}

fn parse_pair(text: &str) -> Result<(String, String), SettingsError> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| problem("expected name=value pairs with & between them"))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(problem(format!("a name in the query has odd letters ({ENCODE}, `&` as %26)")));
    }
    Ok((name.to_owned(), decode(name, value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Url::parse(text) {
            Ok(url) => {
                let password = url.password.as_ref().map(|password| password.reveal().to_vec());
                let password = password.map(|bytes| String::from_utf8(bytes).unwrap());
                format!(
                    "{:?} {:?} {:?} {:?} {:?}",
                    url.user, password, url.hosts, url.dbname, url.query
                )
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn urls_as_libpq_writes_them() {
        for (text, expected) in [
            ("postgres://", "None None [] None []"),
            ("postgresql://h", r#"None None [("h", None)] None []"#),
            ("postgres://u@h:5433/db", r#"Some("u") None [("h", Some(5433))] Some("db") []"#),
            ("postgres://u:p%40s@h/", r#"Some("u") Some("p@s") [("h", None)] None []"#),
            ("postgres://u:p@s:s@h/", r#"Some("u") Some("p@s:s") [("h", None)] None []"#),
            ("postgres://u:a?b@h/db", r#"Some("u") Some("a?b") [("h", None)] Some("db") []"#),
            ("postgres://u:@h", r#"Some("u") None [("h", None)] None []"#),
            (
                "postgres://a:1,b,[::1]:3/d",
                r#"None None [("a", Some(1)), ("b", None), ("::1", Some(3))] Some("d") []"#,
            ),
            ("postgres://[fe80::1]/d", r#"None None [("fe80::1", None)] Some("d") []"#),
            ("postgres:///db?host=/var/run", r#"None None [] Some("db") [("host", "/var/run")]"#),
            (
                "postgres://%2Fvar%2Frun:5433/db",
                r#"None None [("/var/run", Some(5433))] Some("db") []"#,
            ),
            (
                "postgres://h?key=a,b&relation=%22Odd%20Name%22&x=1+1",
                "None None [(\"h\", None)] None \
                 [(\"key\", \"a,b\"), (\"relation\", \"\\\"Odd Name\\\"\"), (\"x\", \"1+1\")]",
            ),
            (
                "postgres://h/d?a=1&&b=",
                r#"None None [("h", None)] Some("d") [("a", "1"), ("b", "")]"#,
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_one_is_told() {
        for (text, expected) in [
            ("http://h", EXPECTED),
            ("", EXPECTED),
            ("postgres://h:port", "expected a port from 1 to 65535"),
            ("postgres://h:0", "expected a port from 1 to 65535"),
            ("postgres://h:+1", "expected a port from 1 to 65535"),
            ("postgres://h:65536", "expected a port from 1 to 65535"),
            ("postgres://[::1", "a `]` must follow"),
            ("postgres://h/d?key", "expected name=value"),
            ("postgres://h/d?key=%4", "a `%` in key that two"),
            ("postgres://u:%zz@h/d", "a `%` in the password that two"),
            ("postgres://h/d?key=%ff", "key is not UTF-8"),
            ("postgres://h/d?key=%00", "key is not UTF-8 without NUL"),
        ] {
            assert!(shown(text).contains(expected), "{text}: {}", shown(text));
        }
        assert!(
            shown(&format!("postgres://{}", "h".repeat(URL_BYTES_MAX))).contains("longer than")
        );
    }

    /// A `/`, `?`, `&` or `%` in an unencoded password splits the URL at the wrong places.
    #[test]
    fn no_error_shows_a_piece_of_a_password() {
        for password in [
            "SEC/RET",
            "SEC?RET",
            "SEC/RET?x",
            "SEC&RET",
            "SEC%RET",
            "SEC/RET=x",
            "SEC:RET/",
            "9/SEC/RET",
            "SEC?a=b/RET",
        ] {
            let text = format!("postgres://user:{password}@host/db?relation=t&key=k");
            let debugged = format!("{:?}", Url::parse(&text));
            assert!(!debugged.contains("SEC") && !debugged.contains("RET"), "{text}: {debugged}");
        }
    }
}

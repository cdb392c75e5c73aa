//! The URL under which clients reach the HTTP front, where the server cannot take it from their
//! requests: behind a proxy that changes host names.

use std::str::FromStr;

use axum::http::uri::Authority;

const EXPECTED: &str = "expected one like https://cache.example.com or https://example.com/busload";

/// Scheme, host, perhaps a port, perhaps a path that the proxy removes again. No slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl(String);

impl HttpUrl {
    /// Returns the text to which paths are appended.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// Turns it into that text.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl FromStr for HttpUrl {
    type Err = String;

    /// Parses the URL. No message shows it, because it may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim_end_matches('/');
        let scheme = |name| text.strip_prefix(name)?.strip_prefix("://");
        let rest = scheme("https").or_else(|| scheme("http"));
        let rest = rest.ok_or_else(|| format!("this is no URL of HTTP; {EXPECTED}"))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.contains('@') {
            return Err(format!(
                "the URL holds credentials before an @, which clients would see; {EXPECTED}"
            ));
        }
        if rest.contains(['?', '#']) {
            return Err(format!(
                "the URL holds more than a path, to which paths could not be added; {EXPECTED}"
            ));
        }
        if !is_authority(host) || !path.split('/').skip(1).all(is_component) {
            return Err(format!("host or path of the URL are not as they must be; {EXPECTED}"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Returns whether the text is a host, perhaps with a port.
fn is_authority(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let port = text.strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':'));
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
    !authority.host().is_empty() && port_fits
}

/// Returns whether a part of a path may stand in a URL as it is: escaped where needed, not `.` or
/// `..`.
fn is_component(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@%".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_without_the_slash_at_their_end() {
        for (text, expected) in [
            ("https://cache.example.com", "https://cache.example.com"),
            ("https://cache.example.com/", "https://cache.example.com"),
            ("http://cache:6381", "http://cache:6381"),
            ("http://[2001:db8::1]:6381", "http://[2001:db8::1]:6381"),
            ("http://10.1.2.3:80/a/b/", "http://10.1.2.3:80/a/b"),
        ] {
            assert_eq!(
                text.parse::<HttpUrl>().map(HttpUrl::into_text),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn mistakes_say_what_was_expected_and_show_no_password() {
        for (text, part) in [
            ("", "no URL of HTTP"),
            ("cache.example.com", "no URL of HTTP"),
            ("ftp://cache.example.com", "no URL of HTTP"),
            ("HTTPS://cache.example.com", "no URL of HTTP"),
            ("https:/cache.example.com", "no URL of HTTP"),
            ("https://", "no URL of HTTP"),
            ("https://user:hush@cache.example.com", "credentials before an @"),
            ("https://hush@cache.example.com", "credentials before an @"),
            ("https://cache.example.com?token=hush", "more than a path"),
            ("https://cache.example.com/a?token=hush", "more than a path"),
            ("https://cache.example.com/#hush", "more than a path"),
            ("https://:6381", "host or path"),
            ("https://cache:", "host or path"),
            ("https://cache:0", "host or path"),
            ("https://cache:65536", "host or path"),
            ("https://cache:port", "host or path"),
            ("https://ca che", "host or path"),
            ("https://cache//a", "host or path"),
            ("https://cache/../a", "host or path"),
            ("https://cache/a b", "host or path"),
            ("https://cache/\"", "host or path"),
        ] {
            let message = text.parse::<HttpUrl>().expect_err(text);
            assert!(
                message.contains(part) && message.contains("https://cache.example.com"),
                "{text}: {message}"
            );
            assert!(!message.contains("hush"), "{message}");
        }
    }
}

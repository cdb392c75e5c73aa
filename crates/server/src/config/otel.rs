//! Settings of traces: where they go, and of how many requests.

use std::{fmt, str::FromStr};

use axum::http::Uri;

use crate::failure::Failure;

const ENDPOINT_EXPECTED: &str = "expected the URL of an OTLP collector over HTTP, like \
                                 http://127.0.0.1:4318 (its headers come from \
                                 OTEL_EXPORTER_OTLP_HEADERS)";
/// Longest name that a service may have.
const SERVICE_BYTES_MAX: usize = 256;

/// Settings of the traces of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "such a build refuses them"))]
pub struct TraceSettings {
    /// URL of the collector.
    pub endpoint: String,
    /// Share of requests that are traced.
    pub sample: SampleShare,
    /// Name of this service, if it is not that of the environment.
    pub service: Option<String>,
}

/// URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtelEndpoint(String);

/// Name of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtelService(String);

/// Share of requests: `1%`, `0.01%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleShare {
    pub per_million: u32,
}

/// Checks the settings; there are none without an endpoint. `supported` tells whether this build
/// can trace.
pub fn settings(
    endpoint: Option<OtelEndpoint>,
    sample: Option<SampleShare>,
    service: Option<OtelService>,
    supported: bool,
) -> Result<Option<TraceSettings>, Failure> {
    let given = [
        ("otel_endpoint", endpoint.is_some()),
        ("otel_sample", sample.is_some()),
        ("otel_service", service.is_some()),
    ];
    let Some((first, _)) = given.into_iter().find(|(_, is_given)| *is_given) else {
        return Ok(None);
    };
    if !supported {
        return Err(Failure::usage(format!(
            "{first} is set, but this busload was built without the feature otel; expected a \
             build by `cargo build --release --features otel`, or no {first}"
        )));
    }
    let Some(OtelEndpoint(endpoint)) = endpoint else {
        return Err(Failure::usage(format!(
            "{first} is set without otel_endpoint, so nothing is traced; expected both"
        )));
    };
    let sample = sample.unwrap_or(SampleShare::DEFAULT);
    Ok(Some(TraceSettings { endpoint, sample, service: service.map(|service| service.0) }))
}

impl SampleShare {
    /// One of a hundred.
    const DEFAULT: Self = Self { per_million: 10_000 };
}

impl FromStr for SampleShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent: Option<f64> =
            text.strip_suffix('%').filter(|number| is_plain(number)).and_then(|n| n.parse().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        // At most a million.
        percent.map(|percent| Self { per_million: (percent * 10_000.0).round() as u32 }).ok_or_else(
            || format!("`{text}` is no share of requests; expected 0% to 100%, like 1% or 0.05%"),
        )
    }
}

fn is_plain(number: &str) -> bool {
    number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

impl fmt::Display for SampleShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.per_million) / 10_000.0)
    }
}

impl FromStr for OtelEndpoint {
    type Err = String;

    /// Parses the URL. No message shows it, because it may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |what: &str| Err(format!("{what}; {ENDPOINT_EXPECTED}"));
        let Ok(url) = text.parse::<Uri>() else { return refuse("this is no URL") };
        let (scheme, authority) = (url.scheme_str(), url.authority());
        match (scheme, authority) {
            (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
                refuse("the URL holds credentials before an @")
            }
            (Some("http" | "https"), Some(_)) if url.query().is_none() => Ok(Self(text.to_owned())),
            (Some("http" | "https"), Some(_)) => refuse("the URL holds more than a path"),
            _ => refuse("this is no URL of HTTP"),
        }
    }
}

impl FromStr for OtelService {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = !text.is_empty() && text.len() <= SERVICE_BYTES_MAX;
        if fits && text.chars().all(|c| !c.is_control()) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("expected a name of 1 to {SERVICE_BYTES_MAX} bytes without control characters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        for (text, per_million) in
            [("0%", 0), ("1%", 10_000), ("0.05%", 500), ("33.3%", 333_000), ("100%", 1_000_000)]
        {
            assert_eq!(text.parse(), Ok(SampleShare { per_million }), "{text}");
            assert_eq!(SampleShare { per_million }.to_string(), text);
        }
        for text in ["", "%", "1", "0.5", "-1%", "101%", "NaN%", "1e2%", "+1%", "inf%"] {
            assert!(text.parse::<SampleShare>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_endpoint_is_a_url_without_credentials() {
        for text in ["http://127.0.0.1:4318", "https://otel.internal/base", "http://[::1]:4318/"] {
            assert_eq!(text.parse(), Ok(OtelEndpoint(text.to_owned())));
        }
        for text in ["", "4318", "localhost:4318", "grpc://a:4317", "http://u:pw@a", "http://a?b"] {
            let error = text.parse::<OtelEndpoint>().unwrap_err();
            assert!(error.contains("expected the URL"), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn settings_need_an_endpoint_and_a_build_that_can_trace() {
        let endpoint = || Some(OtelEndpoint("http://a:4318".to_owned()));
        let share = Some(SampleShare { per_million: 5 });
        assert_eq!(settings(None, None, None, false).unwrap(), None);
        let missing = settings(endpoint(), None, None, false).unwrap_err().to_string();
        assert!(missing.contains("without the feature otel"), "{missing}");
        let alone = settings(None, share, None, true).unwrap_err().to_string();
        assert!(alone.starts_with("otel_sample is set without otel_endpoint"), "{alone}");
        let all = settings(endpoint(), None, None, true).unwrap().unwrap();
        assert_eq!((all.sample.per_million, all.service), (10_000, None));
    }
}

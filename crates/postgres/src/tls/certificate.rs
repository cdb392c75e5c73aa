//! Checks of a certificate that rustls does not offer: its validity period alone, and its common
//! name.

use std::time::Duration;

use rustls::{
    CertificateError, Error,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use x509_cert::{
    Certificate,
    der::{
        Decode, Tag, Tagged,
        asn1::{PrintableStringRef, TeletexStringRef, Utf8StringRef},
        oid::db::rfc4519::COMMON_NAME,
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// Checks that the certificate is valid now.
pub(super) fn check_validity(der: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let certificate = parse(der).ok_or(CertificateError::BadEncoding)?;
    let validity = certificate.tbs_certificate.validity;
    let now = Duration::from_secs(now.as_secs());
    if now < validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if validity.not_after.to_unix_duration() < now {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Returns whether the certificate lists no name of the host's kind (DNS name, address), and its
/// common name matches the host.
pub(super) fn common_name_fits(der: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let Some(certificate) = parse(der) else { return false };
    let is_address = matches!(host, ServerName::IpAddress(_));
    if lists_names(&certificate, is_address) {
        return false;
    }
    let host = host.to_str();
    common_name(&certificate).is_some_and(|name| name_fits(&name, &host, is_address))
}

fn parse(der: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::from_der(der.as_ref()).ok()
}

fn lists_names(certificate: &Certificate, addresses: bool) -> bool {
    // Unreadable names count as names: then the common name is ignored.
    let Ok(names) = certificate.tbs_certificate.get::<SubjectAltName>() else { return true };
    let of_kind = |name: &GeneralName| match name {
        GeneralName::DnsName(_) => !addresses,
        GeneralName::IpAddress(_) => addresses,
        _ => false,
    };
    names.is_some_and(|(_, names)| names.0.iter().any(of_kind))
}

fn common_name(certificate: &Certificate) -> Option<String> {
    let mut attributes =
        certificate.tbs_certificate.subject.0.iter().flat_map(|relative| relative.0.iter());
    let value = &attributes.find(|attribute| attribute.oid == COMMON_NAME)?.value;
    let text = match value.tag() {
        Tag::Utf8String => Utf8StringRef::try_from(value).ok()?.as_str().to_owned(),
        Tag::PrintableString => PrintableStringRef::try_from(value).ok()?.as_str().to_owned(),
        Tag::TeletexString => TeletexStringRef::try_from(value).ok()?.as_str().to_owned(),
        _ => return None,
    };
    Some(text).filter(|text| !text.contains('\0'))
}

/// Compares names without regard to case. `*.` at the front stands for one label of a DNS name, as
/// in libpq.
fn name_fits(name: &str, host: &str, is_address: bool) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    match (name.strip_prefix("*."), host.split_once('.')) {
        (Some(suffix), Some((label, rest))) => {
            !is_address
                && !label.is_empty()
                && !suffix.is_empty()
                && suffix.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (name, host, fits) in [
            ("db.example.com", "DB.example.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.db.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.", "db.", false),
            ("*", "db", false),
            ("d*.example.com", "db.example.com", false),
            ("other", "db", false),
        ] {
            assert_eq!(name_fits(name, host, false), fits, "{name} for {host}");
        }
        assert!(name_fits("10.0.0.1", "10.0.0.1", true));
        assert!(!name_fits("*.0.0.1", "10.0.0.1", true));
    }
}

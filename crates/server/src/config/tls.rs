//! Settings of TLS: the files of the server's certificate, its key, and the authorities of clients.

use std::{path::PathBuf, sync::Arc, time::Duration};

use busload_io::{Clock, RealClock};
use busload_tls::{Files, Identity};

use crate::{failure::Failure, logger::Utc};

/// Time before a certificate expires from which a start warns of it.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 3600);

/// Reads the files, if they are set.
pub fn identity(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_authorities: Option<PathBuf>,
) -> Result<Option<Arc<Identity>>, Failure> {
    let (certificate, key) = match (certificate, key, &client_authorities) {
        (Some(certificate), Some(key), _) => (certificate, key),
        (None, None, None) => return Ok(None),
        (None, None, Some(_)) => {
            return Err(Failure::usage(
                "tls_client_ca asks clients for certificates, but TLS is off; expected tls_cert \
                 and tls_key, too",
            ));
        }
        (Some(_), None, _) => {
            return Err(Failure::usage(
                "tls_cert needs the private key of the certificate; expected tls_key, too",
            ));
        }
        (None, Some(_), _) => {
            return Err(Failure::usage(
                "tls_key needs the certificate of the key; expected tls_cert, too",
            ));
        }
    };
    let identity = Identity::load(Files { certificate, key, client_authorities });
    identity
        .map(|identity| Some(Arc::new(identity)))
        .map_err(|error| Failure::usage(format!("TLS cannot be served: {error}")))
}

/// Returns what there is to say about the time at which the certificate expires.
pub fn warning(identity: &Identity) -> Option<String> {
    let expires = identity.expires()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    let expires_ms = i64::try_from(expires.as_millis()).unwrap_or(i64::MAX);
    let left_ms = expires_ms - RealClock::new().wall_ms();
    let file = identity.files().certificate.display();
    let warning_ms = i64::try_from(EXPIRY_WARNING.as_millis()).unwrap_or(i64::MAX);
    match left_ms {
        ..0 => Some(format!(
            "the certificate in {file} has expired ({}); clients will refuse it",
            Utc(expires_ms)
        )),
        _ if left_ms < warning_ms => {
            Some(format!("the certificate in {file} expires soon ({})", Utc(expires_ms)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_those_it_needs_is_refused_and_names_them() {
        let file = || Some(PathBuf::from("x.pem"));
        for (cert, key, authorities, expected) in [
            (file(), None, None, "expected tls_key"),
            (None, file(), None, "expected tls_cert"),
            (None, None, file(), "expected tls_cert and tls_key"),
            (file(), None, file(), "expected tls_key"),
            (file(), file(), None, "cannot read x.pem"),
        ] {
            let error = identity(cert, key, authorities).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(identity(None, None, None).unwrap().is_none());
    }
}

//! Settings of a client that trusts authorities: with them, servers ask their peers.

use std::{path::Path, sync::Arc};

use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::identity::{Files, IdentityError, read_authorities, read_certificates, read_key};

/// Returns the settings of a client that accepts certificates signed by the authorities in this
/// file, or by those of the operating system. `own` is shown where a server asks for a certificate.
///
/// Blocks, because it reads files.
///
/// # Errors
/// If a file cannot be read, or is not what it should be.
pub fn trusting_config(
    authorities: Option<&Path>,
    own: Option<&Files>,
) -> Result<ClientConfig, IdentityError> {
    let roots = match authorities {
        Some(file) => read_authorities(file)?,
        None => system_roots(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of both versions")
        .with_root_certificates(roots);
    let Some(own) = own else { return Ok(builder.with_no_client_auth()) };
    let chain = read_certificates(&own.certificate)?;
    let key = read_key(&own.key)?;
    builder.with_client_auth_cert(chain, key).map_err(|error| IdentityError::Unfit {
        certificate: own.certificate.clone(),
        key: own.key.clone(),
        error,
    })
}

/// Returns the authorities of the operating system. Where it has none, no certificate is accepted.
fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    found.errors.iter().for_each(|error| log::warn!("certificates of the system: {error}"));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}

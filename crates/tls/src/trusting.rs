//! Settings of a client that trusts authorities: with them, servers ask their peers.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, SignatureScheme, client::ResolvesClientCert, crypto::ring,
    sign::CertifiedKey,
};

use crate::identity::{Identity, IdentityError, read_authorities};

/// Returns the settings of a client that accepts certificates signed by the authorities in this
/// file, or by those of the operating system. Where a server asks for a certificate, it is shown
/// that of `own`, as it is then.
///
/// Blocks, because it reads files.
///
/// # Errors
/// If the file cannot be read, or is not what it should be.
pub fn trusting_config(
    authorities: Option<&Path>,
    own: Option<Arc<Identity>>,
) -> Result<ClientConfig, IdentityError> {
    let roots = match authorities {
        Some(file) => read_authorities(file)?,
        None => system_roots(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of both versions")
        .with_root_certificates(roots);
    Ok(match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(OwnCertificate(own))),
    })
}

/// Certificate of the server itself, which a reload may replace.
#[derive(Debug)]
struct OwnCertificate(Arc<Identity>);

impl ResolvesClientCert for OwnCertificate {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Returns the authorities of the operating system. Where it has none, no certificate is accepted.
fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    found.errors.iter().for_each(|error| log::warn!("certificates of the system: {error}"));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Files;

    #[test]
    fn servers_that_ask_are_shown_the_certificate_of_the_last_reload() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files {
            certificate: directory.path().join("cert.pem"),
            key: directory.path().join("key.pem"),
            client_authorities: None,
        };
        let renew = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(&files.certificate, made.cert.pem()).unwrap();
            std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        };
        renew();
        let identity = Arc::new(Identity::load(files.clone()).unwrap());
        let config = trusting_config(Some(&files.certificate), Some(identity.clone())).unwrap();
        let shown = || config.client_auth_cert_resolver.resolve(&[], &[]).unwrap().cert[0].clone();
        let before = shown();
        assert_eq!(before, identity.certificate());
        renew();
        identity.reload().unwrap();
        assert_ne!(shown(), before);
        assert_eq!(shown(), identity.certificate());
    }
}

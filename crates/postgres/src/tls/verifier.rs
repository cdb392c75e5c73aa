//! Verification of a server's certificate.

use std::{collections::HashSet, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::certificate;

/// Says whether the certificate must be for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameCheck {
    None,
    Full,
}

/// Certificates that are trusted.
#[derive(Debug)]
pub(super) struct Roots {
    store: RootCertStore,
    /// Certificates of a file, byte by byte. A server may show one of them itself.
    listed: HashSet<Vec<u8>>,
}

impl Roots {
    pub(super) fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        let listed = certificates.iter().map(|certificate| certificate.to_vec()).collect();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates);
        Self { store, listed }
    }

    pub(super) fn of_system(store: RootCertStore) -> Self {
        Self { store, listed: HashSet::new() }
    }

    pub(super) fn store_len(&self) -> usize {
        self.store.len()
    }
}

/// Checks chain and name as far as the mode requires, and always that the server has the
/// certificate's key.
#[derive(Debug)]
pub(super) struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    roots: Option<Roots>,
    name: NameCheck,
}

impl Verifier {
    pub(super) fn new(
        provider: &Arc<CryptoProvider>,
        roots: Option<Roots>,
        name: NameCheck,
    ) -> Self {
        Self { algorithms: provider.signature_verification_algorithms, roots, name }
    }

    /// Accepts a certificate that is itself in the file, as OpenSSL does: the usual self-signed
    /// certificate of a server calls itself a CA, which rustls does not accept as a server's.
    fn check_chain(&self, roots: &Roots, shown: Shown<'_>) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(shown.certificate)?;
        let chain = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &roots.store,
            shown.intermediates,
            shown.now,
            self.algorithms.all,
        );
        match chain {
            Err(_) if roots.listed.contains(shown.certificate.as_ref()) => {
                certificate::check_validity(shown.certificate, shown.now)
            }
            chain => chain,
        }
    }
}

/// Certificates that the server showed, and when.
#[derive(Clone, Copy)]
struct Shown<'a> {
    certificate: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
    now: UnixTime,
}

/// libpq checks the common name when the certificate lists no name of the host's kind.
fn check_name(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    match verify_server_name(&parsed, host) {
        Err(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) if certificate::common_name_fits(certificate, host) => Ok(()),
        checked => checked,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            self.check_chain(roots, Shown { certificate, intermediates, now })?;
            if self.name == NameCheck::Full {
                check_name(certificate, host)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

//! Settings of a client that trusts one certificate: with them, busload's own commands ask the
//! server whose files they know, whatever name they reach it by.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::identity::{Files, IdentityError, read_certificates, read_key};

/// Returns the settings of a client of the server with these files. The client accepts exactly the
/// server's certificate, and where the server asks for a certificate it shows that one, too.
///
/// # Errors
/// If a file cannot be read, or is not what it should be.
pub fn client_config(files: &Files) -> Result<ClientConfig, IdentityError> {
    let chain = read_certificates(&files.certificate)?;
    let key = read_key(&files.key)?;
    let unfit = |error| IdentityError::Unfit {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        error,
    };
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned { certificate: chain[0].clone(), provider: Arc::clone(&provider) };
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_client_auth_cert(chain, key)
        .map_err(unfit)
}

/// Check of a server's certificate: it is this one, and the server has its key.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("the server has another certificate than tls_cert".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

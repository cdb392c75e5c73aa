//! Certificate and key of the server, read from files, and replaced while it runs.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::SystemTime,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use thiserror::Error;
use x509_cert::{Certificate, der::Decode};

use crate::{Counters, limits::FILE_BYTES_MAX};

/// Protocols of the HTTP front, the preferred one first.
const HTTP_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Files of an identity, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Certificate of the server, and behind it those that lead to a root.
    pub certificate: PathBuf,
    /// Private key of the certificate: PKCS #8, PKCS #1 or SEC1, without a passphrase.
    pub key: PathBuf,
    /// Certificates of the authorities of clients. If set, every client needs a certificate that
    /// one of them signed.
    pub client_authorities: Option<PathBuf>,
}

/// Reason why files are no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    Unreadable {
        /// File that was read.
        file: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {found}; expected {expected}", file.display())]
    Unexpected {
        /// File that was read.
        file: PathBuf,
        /// Mistake that was found in it.
        found: String,
        /// Contents that it should have.
        expected: &'static str,
    },
    /// Certificate and key do not make a server.
    #[error(
        "{} and {} do not go together: {error}; expected a certificate and the private key that \
         was made with it", certificate.display(), key.display()
    )]
    Unfit {
        /// File with the certificate.
        certificate: PathBuf,
        /// File with the key.
        key: PathBuf,
        /// Error of the library.
        error: rustls::Error,
    },
}

/// Certificate, key and what is asked of clients, shared by all fronts.
#[derive(Debug)]
pub struct Identity {
    files: Files,
    counters: Counters,
    current: RwLock<Current>,
}

#[derive(Clone, Debug)]
struct Current {
    resp: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    certified: Arc<CertifiedKey>,
    expires: Option<SystemTime>,
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// The error names the file, and what it should hold.
    pub fn load(files: Files) -> Result<Self, IdentityError> {
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, counters: Counters::default(), current })
    }

    /// Reads the files again. New connections get the new certificate.
    ///
    /// # Errors
    /// As of [`Identity::load`]; then nothing changes.
    pub fn reload(&self) -> Result<(), IdentityError> {
        let new = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Returns the counters of all fronts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the files that are read.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the settings of a new connection of a Redis client.
    pub fn resp(&self) -> Arc<ServerConfig> {
        self.current().resp
    }

    /// Returns the settings of a new connection of HTTP.
    pub fn http(&self) -> Arc<ServerConfig> {
        self.current().http
    }

    /// Returns the certificate of the server.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.current().certified.cert[0].clone()
    }

    /// Returns certificate and key, for servers that ask this one for a certificate.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.current().certified
    }

    /// Returns the time at which the first certificate of the chain expires.
    pub fn expires(&self) -> Option<SystemTime> {
        self.current().expires
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(files: &Files) -> Result<Current, IdentityError> {
    let chain = read_certificates(&files.certificate)?;
    let key = read_key(&files.key)?;
    let authorities = files.client_authorities.as_deref().map(read_authorities).transpose()?;
    let expires = chain.iter().filter_map(|certificate| expiry(certificate)).min();
    let unfit = |error| IdentityError::Unfit {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        error,
    };
    let provider = Arc::new(ring::default_provider());
    let certified = CertifiedKey::from_der(chain, key, &provider).map_err(unfit)?;
    let mut resp = server_config(&provider, authorities, certified.clone()).map_err(unfit)?;
    resp.send_tls13_tickets = 1;
    let mut http = resp.clone();
    http.alpn_protocols = HTTP_PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    Ok(Current { resp: Arc::new(resp), http: Arc::new(http), certified: certified.into(), expires })
}

/// Clients resume sessions by tickets that the server encrypts with a key of this process, so a
/// session costs no memory. A reload makes another key: who resumes was checked against the same
/// authorities.
fn server_config(
    provider: &Arc<CryptoProvider>,
    authorities: Option<RootCertStore>,
    certified: CertifiedKey,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
                    .build()
                    .map_err(|error| rustls::Error::General(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let mut config = builder.with_cert_resolver(resolver);
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

/// Returns the certificates of a PEM file, at least one.
pub(crate) fn read_certificates(
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let expected = "PEM certificates (-----BEGIN CERTIFICATE-----)";
    let bytes = read_file(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let unexpected =
        |found: String| IdentityError::Unexpected { file: file.to_owned(), found, expected };
    let found = found.map_err(|error| unexpected(error.to_string()))?;
    if found.is_empty() { Err(unexpected("no certificate in it".to_owned())) } else { Ok(found) }
}

pub(crate) fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let bytes = read_file(file)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let encrypted = bytes.windows(9).any(|text| text == b"ENCRYPTED");
        IdentityError::Unexpected {
            file: file.to_owned(),
            found: match encrypted {
                true => "its key has a passphrase".to_owned(),
                false => error.to_string(),
            },
            expected: "one private key in PEM (-----BEGIN PRIVATE KEY-----) without a passphrase",
        }
    })
}

pub(crate) fn read_authorities(file: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file)? {
        roots.add(certificate).map_err(|error| IdentityError::Unexpected {
            file: file.to_owned(),
            found: error.to_string(),
            expected: "certificates of authorities",
        })?;
    }
    Ok(roots)
}

fn read_file(file: &Path) -> Result<Vec<u8>, IdentityError> {
    let mut bytes = Vec::new();
    let read =
        File::open(file).and_then(|open| open.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let unreadable = |error| IdentityError::Unreadable { file: file.to_owned(), error };
    read.map_err(unreadable)?;
    if FILE_BYTES_MAX < bytes.len() as u64 {
        let message = format!("it is longer than {FILE_BYTES_MAX} bytes");
        return Err(unreadable(io::Error::other(message)));
    }
    Ok(bytes)
}

/// Returns the time at which a certificate expires, if it can be read.
fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let parsed = Certificate::from_der(certificate).ok()?;
    Some(parsed.tbs_certificate.validity.not_after.to_system_time())
}

#[cfg(test)]
mod tests;

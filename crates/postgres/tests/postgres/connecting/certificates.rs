//! Certificate authorities, certificates and their files.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use busload_cluster::Tls;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// Everything the tests need, made once.
pub struct Certificates {
    directory: TempDir,
    /// Certificate for `localhost`, signed by the right authority.
    pub server: Tls,
    /// Names `localhost` only as its common name, signed by itself, calls itself an authority: as
    /// `openssl req -x509` makes them.
    pub self_signed: Tls,
    /// Like the one before, but long expired.
    pub expired: Tls,
}

impl Certificates {
    pub fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The server's user must be able to read the authority's certificate.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let right = authority("right authority");
        let wrong = authority("wrong authority");
        let server = signed(&right, &["localhost"], "somebody else");
        let self_signed = self_signed("localhost", 4000);
        let expired = self_signed_of_2001("localhost");
        let made = Self { directory, server, self_signed, expired };
        made.write("right.crt", &right.pem());
        made.write("wrong.crt", &wrong.pem());
        made.write("self_signed.crt", &made.self_signed.certificate);
        made.write("expired.crt", &made.expired.certificate);
        made.write("rubbish.crt", "nothing of the kind");
        let client = signed(&right, &[], "certified");
        made.write("client.crt", &client.certificate);
        made.write("client.key", &client.key);
        made
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        let mode = if name.ends_with(".key") { 0o600 } else { 0o644 };
        set_mode(&path, mode);
    }
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed(authority: &CertifiedIssuer<'static, KeyPair>, names: &[&str], common_name: &str) -> Tls {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Tls { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn self_signed(common_name: &str, last_year: i32) -> Tls {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    Tls { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

fn self_signed_of_2001(common_name: &str) -> Tls {
    self_signed(common_name, 2001)
}

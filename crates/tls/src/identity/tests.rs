use super::*;

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
}

/// Files of a new certificate that the tests made.
fn made(directory: &Path) -> Files {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    write(&certificate, &made.cert.pem());
    write(&key, &made.signing_key.serialize_pem());
    Files { certificate, key, client_authorities: None }
}

#[test]
fn a_reload_takes_the_new_certificate_and_keeps_the_old_one_if_files_are_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::load(made(directory.path())).unwrap();
    let (first, old) = (identity.certificate(), identity.resp());
    made(directory.path());
    identity.reload().unwrap();
    let second = identity.certificate();
    assert_ne!(first, second);
    assert!(!Arc::ptr_eq(&old, &identity.resp()));
    // A key that does not belong to the certificate: the renewal is half done.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write(&identity.files().key, &other.signing_key.serialize_pem());
    let error = identity.reload().unwrap_err().to_string();
    assert!(error.contains("do not go together"), "{error}");
    assert_eq!(identity.certificate(), second);
}

#[test]
fn wrong_files_are_told_by_name_with_what_was_expected() {
    let directory = tempfile::tempdir().unwrap();
    let files = made(directory.path());
    let empty = directory.path().join("empty.pem");
    write(&empty, "");
    let encrypted = directory.path().join("encrypted.pem");
    write(
        &encrypted,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let long = directory.path().join("long.pem");
    File::create(&long).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    let missing = directory.path().join("missing.pem");
    for (files, parts) in [
        (Files { certificate: missing, ..files.clone() }, ["missing.pem", "cannot read"]),
        (Files { certificate: empty.clone(), ..files.clone() }, ["empty.pem", "no certificate"]),
        (Files { certificate: files.key.clone(), ..files.clone() }, ["key.pem", "no certificate"]),
        (Files { key: empty.clone(), ..files.clone() }, ["empty.pem", "expected one private key"]),
        (Files { key: encrypted, ..files.clone() }, ["encrypted.pem", "has a passphrase"]),
        (Files { key: long, ..files.clone() }, ["long.pem", "longer than"]),
        (
            Files { client_authorities: Some(empty), ..files.clone() },
            ["empty.pem", "no certificate"],
        ),
    ] {
        let error = Identity::load(files).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn the_time_of_expiry_is_that_of_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let files = made(directory.path());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2031, 5, 7);
    write(&files.certificate, &parameters.self_signed(&key).unwrap().pem());
    write(&files.key, &key.serialize_pem());
    let expires = Identity::load(files).unwrap().expires().unwrap();
    let seconds = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(seconds, 1_935_878_400);
}

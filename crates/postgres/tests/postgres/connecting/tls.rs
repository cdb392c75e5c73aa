//! `sslmode` against servers with and without TLS, right and wrong names, right and wrong
//! authorities.

use busload_cluster::Cluster;

use crate::connecting::{
    certificates::set_mode,
    servers::{
        CERTIFICATES, EXPIRED,
        Outcome::{self, Encrypted, Plain, Refused},
        PLAIN, SELF_SIGNED, SIGNED, failure, libpqs, ours,
    },
};

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
/// Name in the certificates of all servers, and a name that is not in them.
const RIGHT_NAME: &str = "localhost";
const WRONG_NAME: &str = "127.0.0.1";

fn url(cluster: &Cluster, user: &str, host: &str, query: &str) -> String {
    format!("postgres://{user}@{host}:{}/busload?{query}", cluster.port())
}

fn root(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!("&sslrootcert={}", CERTIFICATES.path(name).display()),
    }
}

/// One row per kind of server, name and authority; one column per mode.
#[tokio::test(flavor = "multi_thread")]
async fn modes_do_what_the_manual_of_libpq_says() {
    const TLS: [Outcome; 6] = [Plain, Plain, Encrypted, Encrypted, Encrypted, Encrypted];
    let unverified = |outcomes: [Outcome; 6]| {
        [outcomes[0], outcomes[1], outcomes[2], outcomes[3], Refused, Refused]
    };
    let no_tls = [Plain, Plain, Plain, Refused, Refused, Refused];
    // `prefer` uses the plain connection when it rejects the certificate.
    let distrusted = [Plain, Plain, Plain, Refused, Refused, Refused];
    let wrong_name = [Plain, Plain, Encrypted, Encrypted, Encrypted, Refused];
    for (cluster, host, authority, expected) in [
        (&*PLAIN, RIGHT_NAME, "", no_tls),
        (&*PLAIN, RIGHT_NAME, "right.crt", no_tls),
        (&*SIGNED, RIGHT_NAME, "", unverified(TLS)),
        (&*SIGNED, RIGHT_NAME, "right.crt", TLS),
        (&*SIGNED, RIGHT_NAME, "wrong.crt", distrusted),
        (&*SIGNED, WRONG_NAME, "", unverified(TLS)),
        (&*SIGNED, WRONG_NAME, "right.crt", wrong_name),
        (&*SIGNED, WRONG_NAME, "wrong.crt", distrusted),
        (&*SELF_SIGNED, RIGHT_NAME, "self_signed.crt", TLS),
        (&*SELF_SIGNED, WRONG_NAME, "self_signed.crt", wrong_name),
        (&*SELF_SIGNED, RIGHT_NAME, "right.crt", distrusted),
        (&*EXPIRED, RIGHT_NAME, "", unverified(TLS)),
        (&*EXPIRED, RIGHT_NAME, "expired.crt", distrusted),
    ] {
        for (mode, expected) in MODES.into_iter().zip(expected) {
            let url = url(cluster, "busload", host, &format!("sslmode={mode}{}", root(authority)));
            let (outcome, error) = ours(&url).await;
            assert_eq!(outcome, expected, "{url}: {error}");
            let (outcome, error) = libpqs(&url);
            assert_eq!(outcome, expected, "libpq: {url}: {error}");
        }
    }
}

/// Servers that accept a role only with TLS, or only without.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_tried_with_the_other_encryption() {
    for (user, expected) in [
        ("only_tls", [Refused, Encrypted, Encrypted, Encrypted, Encrypted, Encrypted]),
        ("no_tls", [Plain, Plain, Plain, Refused, Refused, Refused]),
    ] {
        for (mode, expected) in MODES.into_iter().zip(expected) {
            let url =
                url(&SIGNED, user, RIGHT_NAME, &format!("sslmode={mode}{}", root("right.crt")));
            assert_eq!(ours(&url).await.0, expected, "{url}");
            assert_eq!(libpqs(&url).0, expected, "libpq: {url}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_never_encrypted() {
    for mode in MODES {
        let socket = SIGNED.unix_url();
        let (login, database) = socket.rsplit_once('/').unwrap();
        let query = format!("sslmode={mode}{}", root("right.crt"));
        // It fails even if other hosts of the same URL would accept it.
        for url in [
            format!("{socket}?{query}"),
            format!("{login},localhost:{}/{database}?{query}", SIGNED.port()),
        ] {
            assert_eq!(ours(&url).await.0, Plain, "{url}");
            assert_eq!(libpqs(&url).0, Plain, "libpq: {url}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_can_be_the_login() {
    let files = |certificate: &str, key: &str| {
        let (certificate, key) = (CERTIFICATES.path(certificate), CERTIFICATES.path(key));
        format!("sslmode=require&sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    let with = url(&SIGNED, "certified", RIGHT_NAME, &files("client.crt", "client.key"));
    assert_eq!((ours(&with).await.0, libpqs(&with).0), (Encrypted, Encrypted));
    let without = url(&SIGNED, "certified", RIGHT_NAME, "sslmode=require");
    assert_eq!((ours(&without).await.0, libpqs(&without).0), (Refused, Refused));
    assert!(
        failure(&without).await.contains("valid client certificate"),
        "{}",
        failure(&without).await
    );

    let open_key = CERTIFICATES.path("open.key");
    std::fs::copy(CERTIFICATES.path("client.key"), &open_key).unwrap();
    set_mode(&open_key, 0o644);
    let open = url(&SIGNED, "certified", RIGHT_NAME, &files("client.crt", "open.key"));
    assert_eq!((ours(&open).await.0, libpqs(&open).0), (Refused, Refused));
    assert!(failure(&open).await.contains("can be read by others"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_certificate_is_told() {
    let at = |cluster: &Cluster, host: &str, query: &str| {
        (
            url(cluster, "busload", host, query),
            format!("cannot connect to postgres at {host}:{}: ", cluster.port()),
        )
    };
    let file = |name: &str| CERTIFICATES.path(name).display().to_string();
    for ((url, place), expected) in [
        (at(&PLAIN, RIGHT_NAME, "sslmode=require"), "TLS: server does not support TLS".to_owned()),
        (
            at(&SIGNED, RIGHT_NAME, &format!("sslmode=verify-ca{}", root("wrong.crt"))),
            "TLS: invalid peer certificate: UnknownIssuer".to_owned(),
        ),
        (
            at(&SIGNED, WRONG_NAME, &format!("sslmode=verify-full{}", root("right.crt"))),
            "TLS: invalid peer certificate: certificate not valid for name \"127.0.0.1\"; \
             certificate is only valid for DnsName(\"localhost\")"
                .to_owned(),
        ),
        (
            at(&EXPIRED, RIGHT_NAME, &format!("sslmode=verify-ca{}", root("expired.crt"))),
            "TLS: invalid peer certificate: Expired".to_owned(),
        ),
        (
            at(&SIGNED, RIGHT_NAME, "sslmode=verify-full"),
            "sslmode=verify-full needs root certificates: ~/.postgresql/root.crt does not exist; \
             set sslrootcert"
                .to_owned(),
        ),
        (
            at(&SIGNED, RIGHT_NAME, &format!("sslmode=require{}", root("missing.crt"))),
            format!("cannot read sslrootcert {}: No such file or directory", file("missing.crt")),
        ),
        (
            at(&SIGNED, RIGHT_NAME, &format!("sslmode=require{}", root("rubbish.crt"))),
            format!("sslrootcert {}: expected certificates in PEM", file("rubbish.crt")),
        ),
    ] {
        let error = failure(&url).await;
        assert!(error.starts_with(&place), "{error}");
        assert!(error[place.len()..].starts_with(&expected), "{error}");
    }
}

/// No system trusts the authority of these tests.
#[tokio::test(flavor = "multi_thread")]
async fn the_systems_authorities_do_not_vouch_for_everybody() {
    let error = failure(&url(&SIGNED, "busload", RIGHT_NAME, "sslrootcert=system")).await;
    let expected = ["TLS: invalid peer certificate: UnknownIssuer", "sslrootcert=system: "];
    assert!(expected.iter().any(|expected| error.contains(expected)), "{error}");
}

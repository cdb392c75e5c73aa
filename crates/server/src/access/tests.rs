use busload_pipeline::limits::{GUESS_INTERVAL, GUESSES_AT_ONCE};

use super::*;
use futures_util::FutureExt;

fn headers(authorization: Option<&str>) -> HeaderMap {
    authorization.into_iter().map(|text| (header::AUTHORIZATION, text.parse().unwrap())).collect()
}

fn visitor() -> Arc<Visitor> {
    Visitor::new(IpAddr::from([10, 1, 2, 3]))
}

fn credentials(scheme: &str, text: &str) -> String {
    format!("{scheme} {}", BASE64_STANDARD.encode(text))
}

/// Checks credentials that need no worker.
fn check(access: &Access, headers: &HeaderMap, visitor: &Visitor) -> Result<(), Denied> {
    access.check(headers, visitor).now_or_never().expect("nothing to wait for").map(drop)
}

/// A time, in milliseconds since 1970.
const NOW_MS: i64 = 1_700_000_000_000;

/// Decodes 64 hexadecimal digits.
fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn where_no_password_is_asked_for_everybody_may() {
    let access = Access::default();
    for authorization in [None, Some("nonsense"), Some("Bearer x")] {
        assert_eq!(check(&access, &headers(authorization), &visitor()), Ok(()));
    }
    assert_eq!((access.key("db", NOW_MS), access.url_lifetime()), (None, None));
    for key in [None, Some("x")] {
        assert!(!access.asks() && access.allows_key("db", key, NOW_MS));
    }
}

#[test]
fn the_password_is_taken_with_any_user_name_and_nothing_else_is() {
    let access = Access::asking(b"open:sesame");
    for user in ["", "default", "ada"] {
        for scheme in ["Basic", "basic", "BASIC"] {
            let authorization = credentials(scheme, &format!("{user}:open:sesame"));
            assert_eq!(
                check(&access, &headers(Some(&authorization)), &visitor()),
                Ok(()),
                "{authorization}"
            );
        }
    }
    assert_eq!(check(&access, &headers(Some(&basic(DEFAULT, b"open:sesame"))), &visitor()), Ok(()));
    for (authorization, denied) in [
        (None, Denied::Missing),
        (Some(credentials("Basic", "ada:open:sesam")), Denied::Wrong),
        (Some(credentials("Basic", "ada:sesame")), Denied::Wrong),
        (Some(credentials("Basic", "ada:")), Denied::Wrong),
        (Some(credentials("Basic", "open:sesame")), Denied::Wrong),
        (Some(credentials("Basic", "nothing")), Denied::Unknown),
        (Some(credentials("Bearer", "ada:open:sesame")), Denied::Unknown),
        (Some("Bearer ada:open:sesam".to_owned()), Denied::Wrong),
        (Some("Basic".to_owned()), Denied::Unknown),
        (Some("Basic ada:open:sesame".to_owned()), Denied::Unknown),
        (Some("Bearer eyJhbGciOiJFZERTQSJ9.e30.x".to_owned()), Denied::Unknown),
        (Some(String::new()), Denied::Unknown),
    ] {
        assert_eq!(
            check(&access, &headers(authorization.as_deref()), &visitor()),
            Err(denied),
            "{authorization:?}"
        );
    }
}

#[test]
fn wrong_passwords_make_their_address_wait_and_nobody_else() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let access = Access::asking(b"secret");
        let try_one = |visitor: &Arc<Visitor>, password: &str| {
            check(&access, &headers(Some(&basic(DEFAULT, password.as_bytes()))), visitor)
        };
        let (guesser, neighbour, logged_in) = (visitor(), visitor(), visitor());
        let other = Visitor::new(IpAddr::from([10, 1, 2, 4]));
        assert_eq!(try_one(&logged_in, "secret"), Ok(()));
        for _ in 0..GUESSES_AT_ONCE {
            assert_eq!(try_one(&guesser, "guess"), Err(Denied::Wrong));
        }
        for password in ["guess", "secret"] {
            assert_eq!(try_one(&guesser, password), Err(Denied::TooMany(1)), "whatever it is");
        }
        assert_eq!(
            try_one(&neighbour, "secret"),
            Err(Denied::TooMany(1)),
            "it could be the guesser"
        );
        assert_eq!(
            check(&access, &headers(None), &neighbour),
            Err(Denied::Missing),
            "that is no guess"
        );
        assert_eq!(try_one(&other, "secret"), Ok(()));
        for _ in 0..3 {
            assert_eq!(try_one(&logged_in, "secret"), Ok(()), "it has said that it knows it");
        }
        assert_eq!(try_one(&logged_in, "guess"), Err(Denied::Wrong));
        assert_eq!(try_one(&logged_in, "secret"), Err(Denied::TooMany(2)), "not any more");
        tokio::time::advance(2 * GUESS_INTERVAL).await;
        assert_eq!(try_one(&neighbour, "secret"), Ok(()));
    });
}

#[test]
fn a_key_is_of_one_table_and_one_password_and_outlives_the_process_but_not_its_time() {
    let access = Access::asking(b"secret");
    let key = access.key("db", NOW_MS).unwrap();
    let (expires, mac) = key.split_once('.').unwrap();
    let expires: i64 = expires.parse().unwrap();
    // An hour, rounded up to a multiple of an eighth of it.
    assert!((3_600..3_600 + 450).contains(&(expires - NOW_MS / 1_000)), "{key}");
    assert_eq!(mac.len(), 22);
    assert_eq!(access.key("db", NOW_MS + 1), Some(key.clone()), "equal URLs are merged");
    assert_eq!(Access::asking(b"secret").key("db", NOW_MS).as_ref(), Some(&key));
    assert!(access.allows_key("db", Some(&key), NOW_MS));
    assert!(access.allows_key("db", Some(&key), expires * 1_000 - 1));
    assert!(!access.allows_key("db", Some(&key), expires * 1_000), "it has expired");
    assert!(!access.allows_key("other", Some(&key), NOW_MS), "of another table");
    assert!(!Access::asking(b"other").allows_key("db", Some(&key), NOW_MS), "another password");
    for wrong in [
        String::new(),
        "secret".to_owned(),
        key[1..].to_owned(),
        format!("{key}="),
        format!("0{key}"),
        format!("+{key}"),
        mac.to_owned(),
        format!(".{mac}"),
        format!("{}.{mac}", expires + 450),
        format!("{}.{mac}", u64::MAX),
        format!("99999999999999999999.{mac}"),
    ] {
        assert!(!access.allows_key("db", Some(&wrong), NOW_MS), "{wrong:?}");
    }
    assert!(!access.allows_key("db", None, NOW_MS));
}

/// Test vectors of PBKDF2 with HMAC-SHA256 from RFC 7914, 11.
#[test]
fn the_derivation_is_pbkdf2() {
    for (password, salt, steps, expected) in [
        ("passwd", "salt", 1, "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"),
        (
            "Password",
            "NaCl",
            80_000,
            "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56",
        ),
    ] {
        assert_eq!(
            derived(password.as_bytes(), salt.as_bytes(), steps).as_slice(),
            bytes(expected),
            "{password}"
        );
    }
}

#[test]
fn a_peer_logs_in_by_a_key_of_the_same_password_that_is_none_of_downloads() {
    let (access, other) = (Access::asking(b"secret"), Access::asking(b"secret"));
    let key = access.peer_authorization(NOW_MS).unwrap();
    let checked = |authorization: &str, access: &Access, now_ms| {
        let checked = access.check_peer(&headers(Some(authorization)), now_ms);
        checked.map(|checked| checked.map(|PeerSender| ()))
    };
    assert_eq!(checked(&key, &other, NOW_MS), Some(Ok(())), "all peers take it");
    // Clocks that differ by minutes do no harm, and an old key is worth nothing.
    let lifetime_ms = i64::try_from(PEER_KEY_LIFETIME.as_millis()).unwrap();
    assert_eq!(checked(&key, &other, NOW_MS - lifetime_ms), Some(Ok(())));
    assert_eq!(checked(&key, &other, NOW_MS + 2 * lifetime_ms), Some(Err(Denied::PeerKey)));
    let wrong = Access::asking(b"another");
    assert_eq!(checked(&key, &wrong, NOW_MS), Some(Err(Denied::PeerKey)));
    for table in ["db", "peer"] {
        let of_download = format!("{PEER} {}", access.key(table, NOW_MS).unwrap());
        assert_eq!(checked(&of_download, &other, NOW_MS), Some(Err(Denied::PeerKey)));
    }
    let (_, of_peer) = key.split_once(' ').unwrap();
    assert!(!access.allows_key("db", Some(of_peer), NOW_MS), "it opens no download");
    assert_eq!(check(&access, &headers(Some(&key)), &visitor()), Err(Denied::Unknown));
    // Other schemes are for users and tokens.
    assert_eq!(checked(&basic(DEFAULT, b"secret"), &access, NOW_MS), None);
    assert_eq!(checked(&key, &Access::default(), NOW_MS), None, "where nobody is asked");
    assert_eq!(Access::default().peer_authorization(NOW_MS), None);
}

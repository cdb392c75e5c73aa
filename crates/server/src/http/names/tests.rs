use super::*;

fn names() -> Names {
    Names::new(
        vec!["Cache.internal.".parse().unwrap()],
        Some("https://cache.example.com:8443/busload"),
        false,
    )
}

fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    pairs.iter().for_each(|(name, value)| _ = headers.append(name.clone(), value.parse().unwrap()));
    headers
}

fn uri(authority: Option<&str>) -> Uri {
    match authority {
        Some(authority) => format!("http://{authority}/metrics").parse().unwrap(),
        None => "/metrics".parse().unwrap(),
    }
}

#[test]
fn a_name_that_anybody_can_point_here_is_refused_wherever_it_stands() {
    for (host, is_ours) in [
        ("localhost", true),
        ("LOCALHOST:6381", true),
        ("localhost.:6381", true),
        ("127.0.0.1", true),
        ("127.0.0.1:6381", true),
        ("127.8.8.8:1", true),
        ("[::1]:6381", true),
        ("[::1]", true),
        ("10.1.2.3:6381", true),
        ("cache.internal:6381", true),
        ("CACHE.example.com", true),
        ("evil.example", false),
        ("evil.example:6381", false),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example:6381", false),
        ("cache.internal.evil.example", false),
        ("user@localhost", false),
        ("evil.example@127.0.0.1", false),
        ("localhost@evil.example", false),
        ("", false),
        (":6381", false),
        ("127.0.0.1/evil", false),
    ] {
        let given = headers(&[(header::HOST, host)]);
        assert_eq!(names().check(false, &uri(None), &given).is_ok(), is_ours, "Host: {host}");
        assert_eq!(names().check(true, &uri(None), &given), Ok(()), "with a password: {host}");
        if let Ok(authority) = host.parse::<Authority>() {
            let checked = names().check(false, &uri(Some(authority.as_str())), &HeaderMap::new());
            assert_eq!(checked.is_ok(), is_ours, ":authority {host}");
        }
    }
    assert_eq!(names().check(false, &uri(None), &HeaderMap::new()), Ok(()), "no browser");
    // Of two hosts in one request, the foreign one decides.
    let two = headers(&[(header::HOST, "localhost"), (header::HOST, "evil.example")]);
    assert!(names().check(false, &uri(None), &two).is_err());
    let one = headers(&[(header::HOST, "localhost")]);
    assert!(names().check(false, &uri(Some("evil.example")), &one).is_err());
    let bytes = HeaderMap::from_iter([(header::HOST, b"localhost\xff"[..].try_into().unwrap())]);
    assert!(names().check(false, &uri(None), &bytes).is_err());
}

#[test]
fn a_page_of_another_site_is_refused_with_and_without_a_password() {
    for (host, origin, is_own) in [
        ("127.0.0.1:6381", "http://127.0.0.1:6381", true),
        ("[::1]:6381", "http://[::1]:6381", true),
        ("localhost:6381", "http://LOCALHOST:6381", true),
        ("127.0.0.1:6381", "https://cache.example.com", true),
        ("127.0.0.1:6381", "http://cache.internal:3000", true),
        ("127.0.0.1:6381", "http://127.0.0.1", false),
        ("127.0.0.1:6381", "http://127.0.0.1:80", false),
        ("127.0.0.1:6381", "https://127.0.0.1:6381", false),
        ("127.0.0.1:6381", "http://localhost:6381", false),
        ("127.0.0.1:6381", "http://evil.example", false),
        ("127.0.0.1:6381", "null", false),
        ("127.0.0.1:6381", "", false),
        ("127.0.0.1:6381", "http://evil@cache.internal", false),
    ] {
        for asks in [false, true] {
            let given = headers(&[(header::HOST, host), (header::ORIGIN, origin)]);
            let checked = names().check(asks, &uri(None), &given);
            assert_eq!(checked.is_ok(), is_own, "{host} {origin}");
            let given = headers(&[(header::ORIGIN, origin)]);
            assert_eq!(
                names().check(asks, &uri(Some(host)), &given).is_ok(),
                is_own,
                "{host} {origin}"
            );
        }
    }
    let own = headers(&[(header::HOST, "any:6381"), (header::ORIGIN, "http://any:6381")]);
    assert_eq!(names().check(true, &uri(None), &own), Ok(()));
    let two = headers(&[
        (header::HOST, "localhost"),
        (header::ORIGIN, "http://localhost"),
        (header::ORIGIN, "http://evil.example"),
    ]);
    assert!(names().check(true, &uri(None), &two).is_err());
}

#[test]
fn refusals_name_the_setting_in_the_words_of_the_protocol_and_repeat_little() {
    let call = headers(&[(header::CONTENT_TYPE, "application/grpc")]);
    let long = headers(&[(header::HOST, &"evil.".repeat(10_000))]);
    let refused = names().check(false, &uri(None), &long).unwrap_err();
    assert!(refused.to_string().len() < 500, "{refused}");
    for refused in [refused, Foreign::Origin("http://evil.example".into())] {
        assert!(refused.to_string().contains("http_hosts"), "{refused}");
        assert_eq!(
            refused.clone().into_response(&HeaderMap::new()).status(),
            StatusCode::FORBIDDEN
        );
        let answer = refused.into_response(&call);
        assert_eq!(
            (answer.status(), &answer.headers()["grpc-status"]),
            (StatusCode::OK, &"7".parse().unwrap())
        );
    }
}

#[test]
fn names_are_hosts_and_nothing_more() {
    for name in ["cache", "cache.example.com", "Cache.Example.Com.", "10.1.2.3", "[2001:db8::1]"] {
        assert!(name.parse::<HostName>().is_ok(), "{name}");
    }
    for wrong in ["", "cache:6381", "http://cache", "cache/path", "user@cache", "a b", "*", "c,d"] {
        let message = wrong.parse::<HostName>().expect_err(wrong);
        assert!(message.contains("like cache.example.com"), "{message}");
    }
}

#[test]
fn a_page_of_a_server_with_tls_is_its_own_over_https_only() {
    let names = Names::new(Vec::new(), None, true);
    for (origin, is_own) in [("https://127.0.0.1:6381", true), ("http://127.0.0.1:6381", false)] {
        let given = headers(&[(header::HOST, "127.0.0.1:6381"), (header::ORIGIN, origin)]);
        assert_eq!(names.check(false, &uri(None), &given).is_ok(), is_own, "{origin}");
    }
}

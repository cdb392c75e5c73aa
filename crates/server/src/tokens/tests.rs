//! Tokens of a file, and what an endpoint says.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    jwt::{
        DoltKey,
        tests::{NOW, pair, signed},
    },
    *,
};

fn file(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.toml");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    (directory, path)
}

fn entry(token: &str, more: &str) -> String {
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[token]]\nsha256 = '{hash}'\nread = ['org/*']\n{more}\n")
}

#[tokio::test]
async fn tokens_of_the_file_read_their_stores_until_they_expire_or_are_taken_back() {
    let text = entry("good", "") + &entry("old", "expires = 2027-01-15T08:00:00Z");
    let (_directory, path) = file(&text);
    let tokens = Tokens::new(Some(&path), None, vec![]).unwrap();
    let reader = tokens.reader("good", None, NOW).unwrap();
    assert_eq!(reader.may_read("org/a").await, Ok(true));
    assert_eq!(reader.may_read("other").await, Ok(false));
    assert_eq!(tokens.reader("old", None, NOW).unwrap_err(), TokenError::Expired);
    assert!(tokens.reader("old", None, NOW - Duration::from_secs(1)).is_ok());
    assert_eq!(tokens.reader("x", None, NOW).unwrap_err(), TokenError::Unknown);
    let long = "x".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(tokens.reader(&long, None, NOW).unwrap_err(), TokenError::Long);
    fs::write(&path, "[[tokens]]").unwrap();
    assert!(tokens.reload().is_err() && tokens.reader("good", None, NOW).is_ok());
    fs::write(&path, "").unwrap();
    assert_eq!(tokens.reload(), Ok(true));
    assert_eq!(tokens.reader("good", None, NOW).unwrap_err(), TokenError::Unknown);
    assert!(!format!("{tokens:?} {reader:?}").contains("good"));
}

#[test]
fn a_jwt_of_a_known_key_is_for_the_host_that_was_asked_or_the_audience() {
    let (signer, text) = pair(3);
    let (_directory, path) = file(&format!("[[key]]\npublic_key = '{text}'\nread = ['**']"));
    let key = DoltKey::parse(&text).unwrap();
    let claims = json!({"aud": "cache.example.com", "exp": NOW.as_secs() + 30});
    let token = signed(&signer, &json!({"alg": "EdDSA", "kid": key.id()}), &claims);
    let tokens = Tokens::new(Some(&path), None, vec![]).unwrap();
    for host in ["cache.example.com", "Cache.example.com:443"] {
        assert!(tokens.reader(&token, Some(host), NOW).is_ok(), "{host}");
    }
    let wrong = TokenError::Jwt(JwtError::Audience);
    for host in [None, Some("other"), Some("cache.example.com.evil")] {
        assert_eq!(tokens.reader(&token, host, NOW).unwrap_err(), wrong, "{host:?}");
    }
    let named = |audience: &str| Tokens::new(Some(&path), None, vec![audience.into()]).unwrap();
    assert!(named("cache.example.com").reader(&token, None, NOW).is_ok());
    assert_eq!(
        named("x").reader(&token, Some("cache.example.com"), NOW).unwrap_err(),
        wrong,
        "the host is no audience where the audiences are named"
    );
    // Dolt signs for an IPv6 address without its brackets.
    let claims = json!({"aud": ["::1"], "exp": NOW.as_secs() + 30});
    let token = signed(&signer, &json!({"alg": "EdDSA", "kid": key.id()}), &claims);
    for host in ["[::1]", "[::1]:6381"] {
        assert!(tokens.reader(&token, Some(host), NOW).is_ok(), "{host}");
    }
    assert_eq!(tokens.reader(&token, Some("[::2]:6381"), NOW).unwrap_err(), wrong);
    // A token of a key that is not in the file.
    let other = signed(&pair(4).0, &json!({"alg": "EdDSA", "kid": "x"}), &claims);
    assert_eq!(tokens.reader(&other, None, NOW).unwrap_err(), TokenError::Unknown);
}

/// Answers each request with this status and body; returns the URL and the count of requests.
async fn endpoint(answer: &'static str) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/check", listener.local_addr().unwrap());
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"}") {
                let length = socket.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..length]);
            }
            counted.fetch_add(1, Relaxed);
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, count)
}

const YES: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 17\r\n\r\n\
                   {\"allowed\": true}";

#[tokio::test]
async fn however_many_ask_the_endpoint_is_asked_once_for_a_token_and_a_store() {
    let (url, count) = endpoint(YES).await;
    let tokens = Tokens::new(None, Some(url), vec![]).unwrap();
    let reader = tokens.reader("opaque", None, NOW).unwrap();
    assert!(!reader.is_known());
    let asked = futures_util::future::join_all((0..50).map(|_| reader.may_read("org/a"))).await;
    assert_eq!(asked, vec![Ok(true); 50]);
    assert_eq!(count.load(Relaxed), 1);
    assert_eq!(tokens.metrics().cache_hits.load(Relaxed), 49);
    assert_eq!(reader.may_read("org/b").await, Ok(true));
    assert_eq!(count.load(Relaxed), 2, "another store is another question");
    assert!(reader.is_known());
    assert_eq!(tokens.reload(), Ok(false));
    assert!(!reader.is_known());
    assert_eq!(reader.may_read("org/a").await, Ok(true));
    assert_eq!(count.load(Relaxed), 3, "a reload forgets answers");
}

#[tokio::test]
async fn no_answer_and_a_wrong_one_are_no_yes() {
    for (answer, expected) in [
        ("HTTP/1.1 403 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", Ok(false)),
        (
            "HTTP/1.1 401 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            Err(TokenError::Unknown),
        ),
        (
            "HTTP/1.1 500 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            Err(TokenError::Unavailable),
        ),
        (
            "HTTP/1.1 302 x\r\nlocation: /yes\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            Err(TokenError::Unavailable),
        ),
    ] {
        let (url, _) = endpoint(answer).await;
        let tokens = Tokens::new(None, Some(url), vec![]).unwrap();
        let reader = tokens.reader("opaque", None, NOW).unwrap();
        assert_eq!(reader.may_read("a").await, expected, "{answer}");
        assert!(!reader.is_known());
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let tokens = Tokens::new(None, Some(format!("http://{nobody}/")), vec![]).unwrap();
    let reader = tokens.reader("opaque", None, NOW).unwrap();
    assert_eq!(reader.may_read("a").await, Err(TokenError::Unavailable));
    assert_eq!(tokens.metrics().endpoint_failures.load(Relaxed), 1);
}

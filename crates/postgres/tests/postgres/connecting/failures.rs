//! Error texts when there is no connection.

use std::net::{Ipv4Addr, TcpListener};

use tokio::net::TcpSocket;

use crate::connecting::{
    certificates::set_mode,
    servers::{CERTIFICATES, LOCKED, PASSWORD, PLAIN, ask, failure, open},
};

/// Returns a port that nobody can listen on as long as the socket exists.
fn refusing() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

#[tokio::test]
async fn a_refused_connection_names_its_place() {
    let (_taken, port) = refusing();
    assert_eq!(
        failure(&format!("postgres://u@127.0.0.1:{port}/d")).await,
        format!("cannot connect to postgres at 127.0.0.1:{port}: Connection refused")
    );
    assert_eq!(
        failure("postgres://u@/d?host=/nonexistent&port=5433").await,
        "cannot connect to postgres at /nonexistent/.s.PGSQL.5433: No such file or directory"
    );
}

#[tokio::test]
async fn a_host_without_an_address_is_told() {
    // A resolver that loses a packet asks again after five seconds.
    let error = failure("postgres://u@host.invalid/d?connect_timeout=600s").await;
    assert!(
        error.starts_with("cannot connect to postgres at host.invalid:5432: failed to lookup"),
        "{error}"
    );
    assert!(!error.contains("os error"), "{error}");
}

/// The system completes the connection, but no server answers.
#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for mode in ["disable", "prefer", "require"] {
        let error = failure(&format!(
            "postgres://u@127.0.0.1:{port}/d?connect_timeout=50ms&sslmode={mode}"
        ))
        .await;
        assert_eq!(
            error,
            format!("cannot connect to postgres at 127.0.0.1:{port}: no answer within 50ms")
        );
    }
}

#[tokio::test]
async fn hosts_are_tried_in_order_and_all_are_named() {
    let ((_taken, first), (_taken_too, second)) = (refusing(), refusing());
    let error = failure(&format!("postgres://u@127.0.0.1:{first},localhost:{second}/d")).await;
    let expected = format!(
        "cannot connect to postgres at 127.0.0.1:{first}: Connection refused; \
         at localhost:{second}: Connection refused"
    );
    assert_eq!(error, expected);
    let url = format!("postgres://busload@127.0.0.1:{first},127.0.0.1:{}/busload", PLAIN.port());
    let connected = open(&url).await.unwrap();
    assert_eq!(ask(&connected, "SELECT 'here'").await, "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_says_what_the_server_says() {
    let at =
        |cluster_port: u16| format!("cannot connect to postgres at 127.0.0.1:{cluster_port}: ");
    let plain = PLAIN.port();
    for (login, expected) in [
        ("nobody@127.0.0.1", "role \"nobody\" does not exist"),
        ("busload@127.0.0.1/nowhere", "database \"nowhere\" does not exist"),
    ] {
        let (login, database) = login.split_once('/').unwrap_or((login, "busload"));
        let error = failure(&format!("postgres://{login}:{plain}/{database}")).await;
        assert_eq!(error, at(plain) + expected);
    }
    let locked = LOCKED.port();
    for (login, expected) in [
        ("busload:WRONG", "password authentication failed for user \"busload\""),
        (
            "busload",
            "the server asks for a password and none was found (password_file, PGPASSWORD, \
             PGPASSFILE, ~/.pgpass)",
        ),
    ] {
        let error = failure(&format!("postgres://{login}@127.0.0.1:{locked}/busload")).await;
        assert_eq!(error, at(locked) + expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_a_password() {
    let secret = "SECRETPASSWORD";
    let certificate = CERTIFICATES.path("right.crt");
    let others = CERTIFICATES.path("others_password");
    std::fs::write(&others, format!("{secret}\n{secret}")).unwrap();
    set_mode(&others, 0o600);
    for query in [
        "sslmode=disable".to_owned(),
        "sslmode=prefer".to_owned(),
        "sslmode=verify-full".to_owned(),
        format!("sslmode=verify-full&sslrootcert={}", certificate.display()),
        "channel_binding=require&sslmode=disable".to_owned(),
        format!("password_file={}", others.display()),
        "options=-c%20nonsense%3D1".to_owned(),
        "target_session_attrs=read-only".to_owned(),
    ] {
        let url =
            format!("postgres://busload:{secret}@127.0.0.1:{}/busload?{query}", LOCKED.port());
        let error = open(&url).await.map(|_| "connected").unwrap_err();
        assert!(!format!("{error} {error:?} {error:#?}").contains("SECRET"), "{error}");
    }
    let log = LOCKED.log();
    assert!(!log.contains("SECRET") && !log.contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_will_not_do_is_told() {
    let url = format!("{}?target_session_attrs=read-only", PLAIN.url());
    let error = failure(&url).await;
    assert!(error.ends_with(": database is not read only"), "{error}");
    open(&format!("{}?target_session_attrs=read-write", PLAIN.url())).await.unwrap();
    let error = failure(&format!("{}?channel_binding=require", PLAIN.url())).await;
    assert!(error.contains("server did not use channel binding"), "{error}");
}

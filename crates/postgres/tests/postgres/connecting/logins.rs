//! Passwords that reach the server.

use std::fs;

use crate::connecting::{
    certificates::set_mode,
    servers::{CERTIFICATES, LOCKED, PASSWORD, ask, environment, failure, open, settings_under},
};
use busload_postgres::{Environment, connect::connect};

/// The same password, percent-encoded for URLs.
const ENCODED: &str = "p4ss%3Aw0rd%5C";

fn url(host: &str) -> String {
    format!("postgres://busload@{host}:{}/busload", LOCKED.port())
}

async fn user_under(url: &str, environment: &Environment) -> Result<String, String> {
    let connected =
        connect(&settings_under(url, environment)).await.map_err(|error| error.to_string())?;
    Ok(ask(&connected, "SELECT current_user::text").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_found_in_each_of_its_places() {
    let file = CERTIFICATES.path("password");
    fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let pass_file = CERTIFICATES.path("pgpass");
    fs::write(&pass_file, "127.0.0.1:*:busload:busload:p4ss\\:w0rd\\\\\n").unwrap();
    set_mode(&pass_file, 0o600);
    let home = CERTIFICATES.path("home");
    fs::create_dir_all(&home).unwrap();
    fs::copy(&pass_file, home.join(".pgpass")).unwrap();
    let none = Environment::empty();
    let plain = url("127.0.0.1");
    for (url, environment) in [
        (format!("postgres://busload:{ENCODED}@127.0.0.1:{}/busload", LOCKED.port()), none.clone()),
        (format!("{plain}?password={ENCODED}"), none.clone()),
        (format!("{plain}?password_file={}", file.display()), none.clone()),
        (format!("{plain}?passfile={}", pass_file.display()), none),
        (plain.clone(), environment(vec![("PGPASSWORD", PASSWORD.to_owned())])),
        (plain.clone(), environment(vec![("PGPASSFILE", pass_file.display().to_string())])),
        (plain.clone(), environment(vec![("HOME", home.display().to_string())])),
    ] {
        assert_eq!(
            user_under(&url, &environment).await.as_deref(),
            Ok("busload"),
            "{url} {environment:?}"
        );
    }
    // The line is for another host.
    let elsewhere = format!("{}?passfile={}", url("localhost"), pass_file.display());
    let error = user_under(&elsewhere, &Environment::empty()).await.unwrap_err();
    assert!(error.contains("the server asks for a password"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_password_file_needs_no_restart() {
    let file = CERTIFICATES.path("changing_password");
    let settings = settings_under(
        &format!("{}?password_file={}", url("127.0.0.1"), file.display()),
        &Environment::empty(),
    );
    let error = connect(&settings).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("cannot read password_file"), "{error}");
    fs::write(&file, PASSWORD).unwrap();
    connect(&settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_is_bound_to_the_channel() {
    let login = format!("postgres://busload:{ENCODED}@localhost:{}/busload", LOCKED.port());
    let connected =
        open(&format!("{login}?channel_binding=require&sslmode=require")).await.unwrap();
    assert_eq!(ask(&connected, "SELECT current_user::text").await, "busload");
    let error = failure(&format!("{login}?channel_binding=require&sslmode=disable")).await;
    assert!(error.contains("server did not use channel binding"), "{error}");
}

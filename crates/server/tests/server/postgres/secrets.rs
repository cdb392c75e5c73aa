//! Passwords: every way to give one works but the command line, and no output shows one.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, sync::OnceLock};

use busload_cluster::Cluster;
use tempfile::tempdir;

use crate::support::{Ended, Server, busload, on_free_ports};

const PASSWORD: &str = "open-sesame";

/// Returns a cluster that asks for the password.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::builder().password(PASSWORD).start().unwrap();
        cluster
            .execute("CREATE TABLE t (k text PRIMARY KEY, v text); INSERT INTO t VALUES ('a', '1')")
            .unwrap();
        cluster
    })
}

fn table() -> String {
    format!("my-objects={}?relation=t&key=k&timeout=60s", cluster().url())
}

fn command(arguments: &[&str]) -> Command {
    let mut command = busload();
    command.args(on_free_ports(&["serve", "--log-level", "trace"])).args(arguments);
    for variable in ["PGPASSWORD", "PGPASSFILE", "HOME"] {
        command.env_remove(variable);
    }
    command
}

/// Asserts that the server answers, and that nothing it prints contains the password.
#[track_caller]
fn answers_and_keeps_it(command: Command, data: &std::path::Path) {
    let mut command = command;
    command.arg("--data").arg(data);
    let server = Server::try_start(command).unwrap();
    let mut client = server.client();
    assert_eq!(client.text(&["GET", "my-objects:a"]), "1");
    let shown = [
        client.text(&["INFO"]),
        client.text(&["CONFIG", "GET", "*"]),
        client.text(&["GET", "my-objects:\u{0}"]),
        client.text(&["CLIENT", "LIST"]),
        server.http("/metrics").1,
        server.http("/").1,
        server.said().join("\n"),
        fs::read_to_string(format!("/proc/{}/cmdline", server.process_id())).unwrap(),
    ];
    for text in shown {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

#[test]
fn a_password_may_come_from_the_environment_or_from_files() {
    let directory = tempdir().unwrap();
    let data = |name: &str| directory.path().join(name);
    let table = table();
    let with = ["--table", table.as_str()];

    let mut own = command(&with);
    own.env("BUSLOAD_TABLE_MY_OBJECTS_PASSWORD", PASSWORD).env("PGPASSWORD", "wrong");
    answers_and_keeps_it(own, &data("own"));

    let mut general = command(&with);
    general.env("PGPASSWORD", PASSWORD);
    answers_and_keeps_it(general, &data("general"));

    let pass_file = data("pgpass");
    fs::write(&pass_file, format!("127.0.0.1:{}:*:busload:{PASSWORD}\n", cluster().port()))
        .unwrap();
    fs::set_permissions(&pass_file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut by_file = command(&with);
    by_file.env("PGPASSFILE", &pass_file);
    answers_and_keeps_it(by_file, &data("pass-file"));

    let password_file = data("password");
    fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&password_file, fs::Permissions::from_mode(0o600)).unwrap();
    let section = format!(
        "[tables.my-objects]\nkind = 'postgres'\nrelation = 't'\nkey = 'k'\ntimeout = '60s'\n\
         url = '{}'\n",
        cluster().url()
    );
    let in_section = format!("{section}password_file = '{}'\n", password_file.display());
    let in_url = section.replace("busload@", &format!("busload:{PASSWORD}@"));
    for (name, text) in [("in-section", in_section), ("in-url", in_url)] {
        let config = data(&format!("{name}.toml"));
        fs::write(&config, text).unwrap();
        answers_and_keeps_it(command(&["--config", config.to_str().unwrap()]), &data(name));
    }
}

#[test]
fn a_password_on_the_command_line_is_refused() {
    for url in [
        cluster().url().replace("busload@", &format!("busload:{PASSWORD}@")),
        format!("{}?password={PASSWORD}", cluster().url()),
    ] {
        let separator = if url.contains('?') { '&' } else { '?' };
        let table = format!("my-objects={url}{separator}relation=t&key=k");
        for what in ["serve", "check"] {
            let ended = Ended::of(busload().args([what, "--table", &table]).output().unwrap());
            let line = ended.failed(2);
            assert!(
                line.contains("BUSLOAD_TABLE_MY_OBJECTS_PASSWORD") && line.contains("ps"),
                "{line}"
            );
            assert!(!format!("{ended:?}").contains(PASSWORD), "{ended:?}");
        }
    }
}

#[test]
fn a_wrong_password_is_an_error_that_does_not_repeat_it() {
    let directory = tempdir().unwrap();
    let table = table();
    let mut wrong = command(&["--table", &table, "--data", directory.path().to_str().unwrap()]);
    wrong.env("PGPASSWORD", "wr0ng-one");
    let server = Server::try_start(wrong).unwrap();
    let reply = server.client().text(&["GET", "my-objects:a"]);
    assert!(reply.starts_with("-ERR table my-objects: ") && reply.contains("password"), "{reply}");
    let said = server.said().join("\n");
    assert!(
        said.contains("table my-objects: ") && !format!("{said}{reply}").contains("wr0ng-one"),
        "{said}"
    );

    let mut check = busload();
    check.args(on_free_ports(&["check"])).args([
        "--table",
        &table,
        "--data",
        directory.path().join("d").to_str().unwrap(),
    ]);
    let ended = Ended::of(check.env("PGPASSWORD", "wr0ng-one").output().unwrap());
    let line = ended.failed(1);
    assert!(
        line.contains("table my-objects could not be served: ") && !line.contains("wr0ng-one"),
        "{line}"
    );
}

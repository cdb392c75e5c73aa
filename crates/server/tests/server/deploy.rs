//! The files in `deploy/` and the Dockerfile, compared with the program: commands, flags,
//! configurations, ports, paths, probes.

mod compose;
mod image;
mod kubernetes;
mod units;

use std::{
    fs,
    path::{Path, PathBuf},
};

use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{Ended, busload, run};

/// Directory of the data in images.
const DATA: &str = "/var/lib/busload";
/// Path of the configuration in images.
const CONFIGURATION: &str = "/etc/busload/busload.toml";
/// User of the image.
const USER: i64 = 65532;

/// Returns the path of a file of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn file(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Parses all documents of a file.
fn yaml(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the texts of a list.
#[track_caller]
fn texts(list: &Yaml) -> Vec<&str> {
    let list = list.as_vec().unwrap_or_else(|| panic!("{list:?} is no list"));
    list.iter().map(|text| text.as_str().unwrap_or_else(|| panic!("{text:?} is no text"))).collect()
}

/// Asserts that the program takes these arguments: it then prints its help.
#[track_caller]
fn assert_taken(arguments: &[&str]) {
    let ended = run(&[arguments, &["--help"]].concat());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    assert!(ended.stdout.contains("Usage:"), "{arguments:?}: {ended:?}");
}

fn parsed(configuration: &str) -> toml::Table {
    configuration.parse().unwrap_or_else(|error| panic!("{error}: {configuration}"))
}

/// Returns the port of an address in a configuration.
#[track_caller]
fn port(configuration: &toml::Table, front: &str) -> i64 {
    let (_, port) = configuration[front].as_str().unwrap().rsplit_once(':').unwrap();
    port.parse().unwrap()
}

/// Runs `busload check` on a configuration whose data are elsewhere. Port numbers are those of the
/// file, so a test of several such runs them one after the other.
fn checked(configuration: &str, environment: &[(&str, &str)]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("busload.toml");
    fs::write(&file, configuration).unwrap();
    let mut command = busload();
    command.arg("check").arg("--config").arg(&file);
    command.arg("--data").arg(directory.path().join("data"));
    // Ports may be in use on this machine; that the addresses need a password is checked all the
    // same.
    for front in ["resp", "http"] {
        let address = parsed(configuration)[front].as_str().unwrap().to_owned();
        let (host, _) = address.rsplit_once(':').unwrap();
        command.args([&format!("--{front}"), &format!("{host}:0")]);
    }
    Ended::of(command.envs(environment.iter().copied()).output().unwrap())
}

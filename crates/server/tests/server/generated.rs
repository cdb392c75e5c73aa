//! Texts about the program, from the program: example and page of the configuration, man pages,
//! completions for shells.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use crate::support::run;
use tempfile::tempdir;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn printed(arguments: &[&str]) -> String {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[test]
fn the_example_that_is_printed_is_a_configuration() {
    let example = printed(&["config", "example"]);
    assert_eq!(example, file("busload.example.toml"));
    let directory = tempdir().unwrap();
    let path = directory.path().join("busload.toml");
    fs::write(&path, example).unwrap();
    let data = directory.path().join("data");
    let arguments = ["--config", path.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let checked = run(&[&["check", "--resp", "127.0.0.1:0"][..], &arguments].concat());
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn the_page_that_is_printed_is_the_committed_one() {
    assert_eq!(printed(&["config", "docs"]), file("docs/configuration.md"));
}

#[test]
fn there_is_a_man_page_for_each_command() {
    let directory = tempdir().unwrap();
    let pages = directory.path().join("share/man1");
    printed(&["man", pages.to_str().unwrap()]);
    for (name, parts) in [
        ("busload", &["Exit codes", "busload-serve(1)", "grace_period", "BUSLOAD_PASSWORD"][..]),
        ("busload-serve", &["snapshot-log"]),
        ("busload-log-repair", &["NEWDIR"]),
        ("busload-backup-verify", &["DEST"]),
        ("busload-health", &["readyz"]),
    ] {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        let page = page.replace('\\', "");
        assert!(page.contains(&format!(".TH {name} 1")), "{name}: {}", &page[..200]);
        for part in parts {
            assert!(page.contains(part), "{name} says nothing of {part}");
        }
    }
    let page = fs::read_to_string(pages.join("busload.1")).unwrap();
    let (_, manual) = page.split_once("\n.SH MANUAL\n.nf\n").unwrap();
    let (manual, rest) = manual.split_once("\n.fi\n.SH ").unwrap();
    assert!(manual.contains("\n    grace_period    time") && !manual.contains("\n.SH "));
    assert!(rest.starts_with("VERSION\n") && !rest.contains("\n.fi"), "{rest}");
    let file = pages.join("busload.1").join("under-a-file");
    let ended = run(&["man", file.to_str().unwrap()]);
    assert!(ended.failed(1).contains("cannot write man pages"), "{ended:?}");
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = printed(&["completions", "bash"]);
    for (words, expected) in [
        (&["busload", "ba"][..], "backup"),
        (&["busload", "serve", "--snapshot-c"], "--snapshot-cpu"),
        (&["busload", "log", "rep"], "repair"),
    ] {
        let last = words.len() - 1;
        let ask = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}; _busload busload {} {}; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words.join(" "),
            words[last],
            words[last - 1],
        );
        let mut bash = Command::new("bash")
            .args(["--norc", "--noprofile"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        bash.stdin.take().unwrap().write_all(ask.as_bytes()).unwrap();
        let completed = bash.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(completed.stdout).unwrap().trim(), expected, "{words:?}");
    }
}

#[test]
fn every_shell_has_a_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for part in ["memory-max", "repair", "health"] {
            assert!(script.contains(part), "{shell}: {part}");
        }
    }
}

//! `busload chunks ls|cat|verify`.

use busload_chunks::ChunkAddress;

use super::fixtures;
use crate::support::{busload, run};

#[test]
fn every_sound_store_verifies() {
    for name in fixtures::sound() {
        let ended = run(&["chunks", "verify", &fixtures::url(name)]);
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        assert!(
            ended.stdout.starts_with("sound: ") && ended.stdout.lines().count() == 1,
            "{name}: {ended:?}"
        );
        assert!(!ended.stderr.contains('\u{1b}'), "no bars where there is no terminal: {ended:?}");
    }
}

#[test]
fn chunks_that_are_not_what_their_addresses_say_are_named_and_end_it_with_1() {
    for name in fixtures::MADE_UP {
        let ended = run(&["chunks", "verify", &fixtures::url(name)]);
        assert_eq!(ended.code, Some(1), "{name}: {ended:?}");
        let listed = fixtures::listed(name);
        assert_eq!(ended.stdout.lines().count(), listed.len(), "{name}: {ended:?}");
        for listed in &listed {
            assert!(ended.stdout.contains(&listed.address), "{name} {}", listed.address);
        }
        let line = ended.stderr.lines().last().unwrap();
        let said =
            format!("{} of {} chunks are not what their addresses say", listed.len(), listed.len());
        assert!(line.starts_with("busload: ") && line.contains(&said), "{line}");
    }
}

#[test]
fn a_flipped_byte_is_found() {
    let directory = tempfile::tempdir().unwrap();
    fixtures::copy("real-classic", directory.path());
    let mut files: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("manifest"))
        .collect();
    files.sort();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    bytes[10] ^= 0x20;
    std::fs::write(&files[0], bytes).unwrap();
    let ended = run(&["chunks", "verify", &format!("file://{}", directory.path().display())]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(ended.stdout.contains(name), "the file is named: {ended:?}");
    assert!(ended.stderr.contains("1 of 1120 chunks"), "{ended:?}");
}

#[test]
fn stores_that_are_not_served_end_it_with_1_and_their_reason() {
    for what in [&["ls"][..], &["verify"], &["cat"]] {
        let mut arguments = vec!["chunks", what[0]];
        let url = fixtures::url("real-journal");
        arguments.push(&url);
        if what[0] == "cat" {
            arguments.push("00000000000000000000000000000000");
        }
        let ended = run(&arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.lines().last().unwrap().contains("journal"), "{ended:?}");
    }
}

#[test]
fn a_store_is_listed_with_its_files_and_every_chunk() {
    for name in fixtures::sound() {
        let ended = run(&["chunks", "ls", &fixtures::url(name)]);
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        assert!(ended.stdout.starts_with("root "), "{ended:?}");
        let ended = run(&["chunks", "ls", "--chunks", &fixtures::url(name)]);
        let mut addresses: Vec<&str> =
            ended.stdout.lines().filter(|line| line.parse::<ChunkAddress>().is_ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut listed: Vec<String> =
            fixtures::listed(name).into_iter().map(|listed| listed.address).collect();
        listed.sort();
        listed.dedup();
        assert_eq!(addresses, listed, "{name}");
    }
    let ended = run(&["chunks", "ls", &fixtures::url("real-classic")]);
    assert!(ended.stdout.contains("\nfiles 8, chunks 1120\n"), "{ended:?}");
    assert_eq!(
        ended.stdout.lines().filter(|line| line.starts_with("file ")).count(),
        8,
        "{ended:?}"
    );
}

#[test]
fn contents_go_to_standard_output_as_they_are() {
    for listed in fixtures::listed("synth-sizes-archive-snappy") {
        let url = fixtures::url("synth-sizes-archive-snappy");
        let output = busload().args(["chunks", "cat", &url, &listed.address]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(ChunkAddress::of(&output.stdout).to_string(), listed.address);
    }
}

#[test]
fn what_is_not_there_and_what_makes_no_sense_is_told_with_its_code() {
    let url = fixtures::url("real-classic");
    let unknown = "00000000000000000000000000000000";
    let line = run(&["chunks", "cat", &url, unknown]).failed(1).to_owned();
    assert!(line.contains("the store has no chunk 00000000000000000000000000000000"), "{line}");
    for (arguments, part) in [
        (&["chunks", "cat", &url, "x"][..], "expected 32 characters of 0-9a-v"),
        (&["chunks", "verify", "ftp://x"], "expected file, s3, aws, gs, az"),
        (&["chunks", "verify", "/x"], "expected one like s3://bucket/prefix or file:///directory"),
        (&["chunks", "ls"], "URL"),
        (&["chunks"], "Dolt store"),
        (&["chunks", "ls", "s3://b?endpoint=nonsense"], "expected a URL"),
    ] {
        let line = run(arguments).failed(2).to_owned();
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
}

#[test]
fn a_directory_without_a_manifest_is_perhaps_a_typing_error() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    for command in ["ls", "verify"] {
        let ended = run(&["chunks", command, &url]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("there is no manifest"), "{ended:?}");
    }
    std::fs::write(directory.path().join("manifest"), MANIFEST_OF_NOTHING).unwrap();
    let ended = run(&["chunks", "ls", &url]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("files 0, chunks 0"), "{ended:?}");
    assert_eq!(run(&["chunks", "verify", &url]).code, Some(0));
}

const MANIFEST_OF_NOTHING: &str = "5:__DOLT__:00000000000000000000000000000000:\
                                   00000000000000000000000000000000:\
                                   00000000000000000000000000000000";

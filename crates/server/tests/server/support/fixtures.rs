//! Stores written by Dolt and lists of their chunks: `crates/chunks/tests/fixtures/dolt`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names of stores of databases and of single files, all of them sound.
pub fn sound() -> impl Iterator<Item = &'static str> {
    include_str!("../../../../chunks/tests/fixtures/dolt/sound.txt").lines()
}

/// Stores with made-up addresses: no chunk matches its address.
pub const MADE_UP: [&str; 2] = ["synth-collide-archive", "synth-collide-classic"];

/// Returns the directory of a store.
pub fn store(name: &str) -> PathBuf {
    directory(name).join("store").canonicalize().unwrap()
}

/// Returns the URL of a store.
pub fn url(name: &str) -> String {
    format!("file://{}", store(name).display())
}

/// Returns the argument of `--table` for a store.
pub fn table(table: &str, store: &str, query: &str) -> String {
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{table}=chunks+{}{separator}{query}", url(store))
}

/// Entry of a store's list of chunks.
#[derive(Clone, Debug)]
pub struct Listed {
    pub address: String,
    /// Hash of the contents, in hexadecimal digits.
    pub sha256: String,
    pub bytes: usize,
}

/// Reads the list of a store's chunks.
pub fn listed(name: &str) -> Vec<Listed> {
    let text = fs::read_to_string(directory(name).join("chunks.jsonl")).unwrap();
    let mut lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    if let Ok(text) = fs::read_to_string(directory(name).join("chunks-oldgen.jsonl")) {
        lines.extend(
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()),
        );
    }
    let listed: Vec<Listed> = lines
        .iter()
        .map(|line| Listed {
            address: line["addr"].as_str().unwrap().to_owned(),
            sha256: line["sha256"].as_str().unwrap().to_owned(),
            bytes: usize::try_from(line["len"].as_u64().unwrap()).unwrap(),
        })
        .collect();
    assert!(!listed.is_empty(), "{name} lists nothing");
    listed
}

/// Copies the objects of a store.
pub fn copy(name: &str, to: &Path) {
    copy_directory(&store(name), to);
}

/// Copies everything in a directory.
pub fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../chunks/tests/fixtures/dolt").join(name)
}

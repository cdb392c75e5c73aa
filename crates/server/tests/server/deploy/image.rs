//! The Dockerfile and what belongs to it.

use super::{CONFIGURATION, DATA, USER, assert_taken, checked, file, parsed, path, port};

/// Returns the arguments of an instruction, continued lines joined.
fn instructions(name: &str) -> Vec<String> {
    let lines: Vec<String> = file("Dockerfile")
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .map(str::to_owned)
        .collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let found = joined.lines().map(str::trim).filter_map(|line| line.strip_prefix(name));
    found.map(|rest| rest.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Parses the last instruction of this name in its form as a list.
fn command(name: &str) -> Vec<String> {
    let instruction = instructions(&format!("{name} [")).pop().unwrap();
    serde_json::from_str(&format!("[{instruction}")).unwrap()
}

#[test]
fn the_image_runs_what_the_program_has() {
    assert_eq!(command("ENTRYPOINT"), ["/usr/bin/busload"]);
    let start = command("CMD");
    assert_eq!(start, ["serve", "--config", CONFIGURATION]);
    assert_taken(&start.iter().map(String::as_str).collect::<Vec<_>>());
    let [check] = &instructions("HEALTHCHECK")[..] else { panic!("one health check") };
    let (_, check) = check.split_once("CMD ").unwrap();
    let check: Vec<String> = serde_json::from_str(check).unwrap();
    assert_eq!(check[0], "/usr/bin/busload");
    assert_taken(&check[1..].iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(instructions("USER "), [format!("{USER}:{USER}")]);
    assert_eq!(instructions("VOLUME "), [DATA]);
}

#[test]
fn the_image_serves_on_the_ports_that_it_exposes() {
    let text = file("deploy/docker/busload.toml");
    let configuration = parsed(&text);
    let ports = format!("{} {}", port(&configuration, "resp"), port(&configuration, "http"));
    assert_eq!(instructions("EXPOSE "), [ports]);
    assert_eq!(configuration["data"].as_str(), Some(DATA));
    let ended = checked(&text, &[]);
    assert!(ended.failed(2).contains("without a password"), "{ended:?}");
    let ended = checked(&text, &[("BUSLOAD_PASSWORD", "sesame")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn the_build_has_the_files_that_it_copies() {
    let ignored = file(".dockerignore");
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for name in &kept {
        assert!(path(name).exists(), "{name}");
    }
    let build = instructions("RUN ").pop().unwrap();
    for name in ["deploy/docker/busload.toml", "LICENSE-APACHE", "LICENSE-MIT"] {
        assert!(build.contains(name), "{name}");
        assert!(kept.iter().any(|kept| name.starts_with(kept)), "{name} is ignored");
    }
    // The program includes its example, and cargo reads the manifest of every crate.
    for name in ["busload.example.toml", "crates", "Cargo.lock"] {
        assert!(kept.contains(&name), "{name}");
    }
    assert!(build.contains("--profile \"$PROFILE\""), "{build}");
    assert!(file("Cargo.toml").contains("\n[profile.dist]\n"));
}

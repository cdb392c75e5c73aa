//! The pages of five minutes: what they tell a reader to type is typed, and what they say it prints
//! is compared.
//!
//! ```text
//!  docs/quickstart-KIND.md: sh blocks ------> a server, ended when the next one starts
//!                           console blocks -> bash, line by line; what is printed, by its shape
//! ```
//!
//! With `BUSLOAD_WRITE_DOCS` set, what was printed is written into the page instead.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use busload_cluster::{Cluster, ClusterError, find_programs};

use super::{ClientFolders, Outcome, dolt, server::Server, tools};
use crate::steps::root;

/// Begins the names of these pages, and of the clients that type them.
const PREFIX: &str = "quickstart-";
/// Line that bash prints behind what a command has printed.
const END: &str = "end of what was printed";
/// Folder that the pages show instead of the one that is worked in.
const SHOWN_FOLDER: &str = "/home/ada";
/// Letters and digits in the address of a chunk, and in the hash of a commit.
const HASH_CHARS: usize = 32;

/// Returns whether this is the name of a page of five minutes.
pub fn is_page(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Types a page and compares what is printed.
pub fn check(name: &str, busload: &Path) -> Result<Outcome> {
    if let Some(why) = tools::find("redis-cli").or_else(|| tools::find("redis-benchmark")) {
        return Ok(Outcome::Missing(why));
    }
    let mut reader = Reader::new(name, busload)?;
    let kind = name.trim_start_matches(PREFIX);
    let cluster = (kind == "postgres").then(|| reader.use_postgres()).transpose();
    let cluster = match cluster {
        Err(error) if matches!(error.downcast_ref(), Some(ClusterError::NoPrograms { .. })) => {
            return Ok(Outcome::Missing(error.to_string()));
        }
        started => started?,
    };
    if kind == "chunks"
        && let Err(error) = reader.use_dolt()
    {
        return Ok(Outcome::Missing(format!("dolt cannot be built: {error:#}")));
    }
    let page = root().join("docs").join(name).with_extension("md");
    let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let typed = reader.read(&text)?;
    drop(cluster);
    if std::env::var_os("BUSLOAD_WRITE_DOCS").is_some() {
        fs::write(&page, typed)?;
        return Ok(Outcome::Passed);
    }
    let (page, typed) = (shapes(&text), shapes(&typed));
    if let Some((page, typed)) = page.iter().zip(&typed).find(|(page, typed)| page != typed) {
        bail!("expected {page:#?}, got {typed:#?}");
    }
    Ok(Outcome::Passed)
}

/// Somebody who reads a page and types what it says, in a folder of their own.
struct Reader {
    folder: PathBuf,
    programs: Vec<PathBuf>,
    variables: Vec<(&'static str, String)>,
    server: Option<Server>,
}

impl Reader {
    fn new(name: &str, busload: &Path) -> Result<Self> {
        let folder = ClientFolders::new(name)?.download("work");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let (programs, home) = (folder.join("programs"), folder.join("home"));
        [&programs, &home].into_iter().try_for_each(fs::create_dir_all)?;
        symlink(busload, programs.join("busload"))?;
        let variables = [("HOME", home.display().to_string()), ("TERM", "dumb".to_owned())];
        Ok(Self { folder, programs: vec![programs], variables: variables.into(), server: None })
    }

    /// Starts a cluster, and lets psql and busload find it.
    fn use_postgres(&mut self) -> Result<Cluster> {
        let cluster = Cluster::builder().start()?;
        self.programs.push(find_programs()?.directory().to_owned());
        let port = cluster.port().to_string();
        self.variables.extend([("PGHOST", "127.0.0.1".to_owned()), ("PGPORT", port)]);
        let name = "busload".to_owned();
        self.variables.extend([("PGUSER", name.clone()), ("PGDATABASE", name)]);
        Ok(cluster)
    }

    /// Builds dolt, and gives its user a name.
    fn use_dolt(&mut self) -> Result<()> {
        let dolt = dolt::install(&ClientFolders::new("dolt")?)?;
        let folder = dolt.canonicalize()?;
        self.programs.push(folder.parent().context("a program lies in a folder")?.to_owned());
        self.variables.push(("DOLT_DISABLE_EVENT_FLUSH", "1".to_owned()));
        let mut shell = Shell::start(&mut self.command())?;
        shell.print("dolt config --global --add user.name Ada")?;
        shell.print("dolt config --global --add user.email ada@example.com")?;
        Ok(())
    }

    /// Makes a bash that works in the folder.
    fn command(&self) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).current_dir(self.folder.join("home"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = self.programs.iter().cloned().chain(std::env::split_paths(&path));
        let paths = std::env::join_paths(paths).expect("folders without a colon");
        bash.env("PATH", paths).env_remove("BUSLOAD_PASSWORD");
        bash.envs(self.variables.iter().map(|(name, value)| (name, value)));
        bash
    }

    /// Types all blocks. Returns the page with what was printed.
    fn read(&mut self, page: &str) -> Result<String> {
        let mut shell = Shell::start(&mut self.command())?;
        // Prints as in a terminal, but where the page says otherwise.
        shell.print(
            "redis-cli() { case \" $* \" in *' --raw '*) command redis-cli \"$@\";; \
             *) command redis-cli --no-raw \"$@\";; esac; }",
        )?;
        let mut typed = String::new();
        let mut lines = page.split_inclusive('\n');
        while let Some(line) = lines.next() {
            typed += line;
            let block = lines.clone().take_while(|line| *line != "```\n");
            match line.trim_end() {
                "```sh" => {
                    let block: String = block.collect();
                    self.server = None;
                    self.server = Some(self.serve(&block)?);
                }
                "```console" => {
                    lines = lines.clone();
                    for line in block {
                        lines.next();
                        let Some(command) = line.strip_prefix("$ ") else { continue };
                        typed += line;
                        typed += &self.shown(&shell.print(&self.with_ports(command))?);
                    }
                }
                _ => {}
            }
        }
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        Ok(typed)
    }

    fn serve(&self, block: &str) -> Result<Server> {
        if !block.starts_with("busload serve ") {
            bail!("expected a block that starts a server, got {block}");
        }
        let ports = "--resp 127.0.0.1:0 --http 127.0.0.1:0";
        let mut command = self.command();
        command.arg("-c").arg(format!("exec {} {ports}", block.trim_end()));
        Server::start_by(command)
    }

    /// Replaces the ports that the page has by those of the server.
    fn with_ports(&self, command: &str) -> String {
        let Some(server) = &self.server else { return command.to_owned() };
        let http = server.http_port().unwrap_or_default();
        let command = command.replace("-p 6380", &format!("-p {}", server.port()));
        let command = command.replace("cache list", &format!("cache list --http 127.0.0.1:{http}"));
        command.replace("127.0.0.1:6381", &format!("127.0.0.1:{http}"))
    }

    /// Returns what was printed as a terminal shows it, without blank ends.
    fn shown(&self, printed: &str) -> String {
        let folder = self.folder.join("home").display().to_string();
        let printed = without_escapes(&printed.replace("\r\n", "\n").replace('\r', "\n"))
            .replace(&folder, SHOWN_FOLDER);
        let port = self.variables.iter().find(|(name, _)| *name == "PGPORT");
        let printed = match port {
            Some((_, port)) => printed.replace(&format!(":{port}/"), ":5432/"),
            None => printed,
        };
        let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let text = lines.join("\n");
        match text.trim_matches('\n') {
            "" => String::new(),
            text => format!("{text}\n"),
        }
    }
}

/// A bash that is told one line after the other.
struct Shell {
    child: Child,
    printed: BufReader<ChildStdout>,
}

impl Shell {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let printed = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut shell = Self { child, printed };
        shell.print("exec 2>&1")?;
        Ok(shell)
    }

    /// Types a line. Returns what it prints, errors included.
    fn print(&mut self, line: &str) -> Result<String> {
        let input = self.child.stdin.as_mut().context("no stdin")?;
        writeln!(input, "{}\necho; echo {END}", line.trim_end())?;
        let mut printed = String::new();
        loop {
            let start = printed.len();
            if self.printed.read_line(&mut printed)? == 0 {
                bail!("bash ended: {printed}");
            }
            if printed[start..].trim_end() == END {
                printed.truncate(start);
                return Ok(printed);
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may be over already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Removes what moves a terminal's cursor and colours its text.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.trim_start_matches(|c: char| !c.is_alphabetic()).get(1..).unwrap_or_default()
    })
}

/// Shapes of what stands below each line that is typed. Files are listed by their hashes, so the
/// order of lines is none of it.
fn shapes(page: &str) -> Vec<(String, Vec<String>)> {
    let mut shapes: Vec<(String, Vec<String>)> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        match (line, line.strip_prefix("$ ")) {
            ("```console", _) => is_console = true,
            ("```", _) => is_console = false,
            (_, Some(command)) if is_console => shapes.push((command.to_owned(), Vec::new())),
            _ if is_console && !line.is_empty() => {
                shapes.last_mut().expect("a block begins with a command").1.push(shape(line));
            }
            _ => {}
        }
    }
    shapes.iter_mut().for_each(|(_, lines)| lines.sort());
    shapes
}

/// Shape of a line: every number is 0 and every unit of bytes B, hashes and dates are left out.
fn shape(line: &str) -> String {
    if line.starts_with("Date:") {
        return "Date:".to_owned();
    }
    let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.filter(|word| word.len() != HASH_CHARS);
    let words = words.map(|word| match word {
        "KiB" | "MiB" | "GiB" => "B".to_owned(),
        _ => without_digits(word),
    });
    let words: Vec<String> = words.collect();
    words.join(" ").replace("0 0", "0")
}

/// Replaces every run of digits by one 0.
fn without_digits(word: &str) -> String {
    let mut shape = String::new();
    for c in word.chars() {
        match c {
            '0'..='9' if shape.ends_with('0') => {}
            '0'..='9' => shape.push('0'),
            other => shape.push(other),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_no_numbers_and_no_hashes() {
        let hash = "o4d1gefr3ht86mben6ao157o92q1ha00";
        for (line, expected) in [
            ("(integer) 17", "integer 0"),
            ("files    0 snapshots, 4.8 KiB;", "files 0 snapshots 0 B"),
            ("p50=0.663 msec", "p0 0 msec"),
            (&format!("  {hash}.darc  7 chunks")[..], "darc 0 chunks"),
            ("Date:  Mon Nov 23", "Date:"),
            ("\"hello\"", "hello"),
        ] {
            assert_eq!(shape(line), expected);
        }
    }

    #[test]
    fn what_is_printed_belongs_to_the_line_above() {
        let page = "$ no\n```console\n$ a b\n2\n1 x\n$ c\n```\nno\n";
        let expected = [
            ("a b".to_owned(), vec!["0".to_owned(), "0 x".to_owned()]),
            ("c".to_owned(), Vec::new()),
        ];
        assert_eq!(shapes(page), expected);
        assert_eq!(without_escapes("\u{1b}[1A\u{1b}[J9 of 9"), "9 of 9");
    }
}

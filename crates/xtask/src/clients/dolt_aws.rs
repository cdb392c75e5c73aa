//! `dolt` with a remote of `aws://`: pushes to a bucket and DynamoDB, and reads of busload, which
//! finds the manifest there.
//!
//! ```text
//!  source --push--> DynamoDB (the manifest), S3 (table files) <--reads-- busload <--clone-- copies
//!     `-----push--> a folder: the same chunks
//! ```
//!
//! DynamoDB is Amazon's for tests, in memory, on Java; S3 is the server of our own tests, which
//! checks signatures. Then [`pattern`] serves two databases by one pattern, to who has a token.

mod pattern;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::{
    ClientFolders, Outcome,
    dolt::{Remote, Run},
    server::{self, Server},
};
use crate::{
    steps::{cargo, output, run},
    tests::FEATURES,
};

/// DynamoDB table with the manifests.
const TABLE: &str = "dolt-manifests";
const BUCKET: &str = "bucket";
const KEY_ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "secret-of-a-test";
const REGION: &str = "us-east-1";
/// Flags with which `dolt remote add` takes a remote of `aws://`.
const REMOTE_SETTINGS: [&str; 4] = ["--aws-region", REGION, "--aws-creds-type", "env"];
/// Name of a database, which is the item's key and the prefix of the table files.
const DATABASE: &str = "org/repo";
/// Stores without an item that are served as well, so that busload reads several keys at once.
const EMPTY_STORES: usize = 20;

/// Runs all checks with `dolt` and DynamoDB.
pub fn check(folders: &ClientFolders, busload: &Path) -> Result<Outcome> {
    let libraries = match libraries(folders) {
        Ok(libraries) => libraries,
        Err(error) => {
            return Ok(Outcome::Missing(format!("DynamoDB cannot be fetched: {error:#}")));
        }
    };
    let dolt = match ClientFolders::new("dolt").and_then(|folders| super::dolt::install(&folders)) {
        Ok(dolt) => dolt,
        Err(error) => return Ok(Outcome::Missing(format!("dolt cannot be built: {error:#}"))),
    };
    let s3_root = folders.download("s3");
    if s3_root.exists() {
        fs::remove_dir_all(&s3_root)?;
    }
    let s3 = s3(&s3_root)?;
    let dynamodb = dynamodb(folders, &libraries)?;
    let run = Run::with_environment(folders, dolt, environment(&s3.said, &dynamodb.said))?;
    Aws { busload, run, s3, dynamodb }.check()?;
    fs::remove_dir_all(s3_root)?;
    Ok(Outcome::Passed)
}

/// Amazon's DynamoDB for tests, and all that it needs.
pub fn libraries(folders: &ClientFolders) -> Result<PathBuf> {
    output(Command::new("java").arg("-version"))?;
    let libraries = folders.download("libraries");
    if !libraries.exists() {
        let mut fetch = Command::new("mvn");
        fetch.args(["--quiet", "--batch-mode", "--file"]).arg(folders.script("pom.xml"));
        let mut directory = std::ffi::OsString::from("-DoutputDirectory=");
        directory.push(&libraries);
        output(fetch.arg("dependency:copy-dependencies").arg(directory))?;
    }
    Ok(libraries)
}

/// Program that serves until its input ends, and what it said first.
struct Helper {
    child: Child,
    stdin: Option<ChildStdin>,
    said: String,
}

impl Helper {
    fn start(mut command: Command) -> Result<Self> {
        let name = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no stdout")?;
        let mut helper = Self { child, stdin, said: String::new() };
        for line in BufReader::new(stdout).lines() {
            if let Some(said) = line?.strip_prefix("ready ") {
                helper.said = said.to_owned();
                return Ok(helper);
            }
        }
        bail!("{name} did not start")
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn s3(root: &Path) -> Result<Helper> {
    fs::create_dir_all(root)?;
    // Of the crate `bucket`. The tests are built with the same features, so nothing else is built.
    let example = ["build", "--workspace", FEATURES[0], FEATURES[1], "--example", "serve"];
    run(cargo().args(example).arg("--quiet"))?;
    let mut command = Command::new(server::target().join("debug/examples/serve"));
    command.arg(root.canonicalize()?).args([KEY_ID, SECRET]);
    Helper::start(command)
}

fn dynamodb(folders: &ClientFolders, libraries: &Path) -> Result<Helper> {
    let mut java = Command::new("java");
    let mut natives = std::ffi::OsString::from("-Djava.library.path=");
    natives.push(libraries);
    java.arg(natives).arg("--class-path").arg(libraries.join("*"));
    Helper::start({
        java.arg(folders.script("DynamoServer.java")).arg(TABLE).current_dir(folders.download(""));
        java
    })
}

fn environment(s3: &str, dynamodb: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
        ("AWS_ENDPOINT_URL_S3", s3.to_owned()),
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.to_owned()),
    ]
}

/// Dolt, busload and the two services.
struct Aws<'a> {
    busload: &'a Path,
    run: Run,
    s3: Helper,
    dynamodb: Helper,
}

impl Aws<'_> {
    fn check(&self) -> Result<()> {
        let url = format!("aws://[{TABLE}:{BUCKET}]/{DATABASE}");
        let mut source = self.run.make_source(&Remote { url: &url, settings: &REMOTE_SETTINGS })?;
        // The same pushes to a folder: where busload has long read manifests.
        let folder = self.run.add_folder(&source)?;
        self.run.push_to_folder(&source)?;
        self.expect_chunks_of(&url, &folder)?;

        let server = self.serve(&url)?;
        self.run.check_reads(&server, &mut source)?;
        self.run.push_to_folder(&source)?;
        self.expect_chunks_of(&url, &folder)?;
        expect_shared_requests(&server)?;
        server.stop()?;
        self.check_pattern()
    }

    /// Settings of a store in the query of its URL.
    fn query(&self) -> String {
        let (s3, dynamodb) = (&self.s3.said, &self.dynamodb.said);
        format!("endpoint={s3}&dynamodb-endpoint={dynamodb}&region={REGION}&poll=100ms&disk=64MiB")
    }

    /// Serves the store, and others that are empty beside it.
    fn serve(&self, url: &str) -> Result<Server> {
        let query = self.query();
        let mut command = Server::command(self.busload)?;
        command.args(["--http", "127.0.0.1:0", "--table"]);
        command.arg(format!("db=chunks+{url}?{query}&dolt_paths=org/repo"));
        for number in 0..EMPTY_STORES {
            let table = format!("empty{number}=chunks+{url}-{number}?{query}");
            command.arg("--table").arg(table);
        }
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        Server::start_by(command)
    }

    /// Verifies every chunk of the store, and checks that it has all that the folder has. It may
    /// have more: the roots between two pushes to the folder.
    fn expect_chunks_of(&self, url: &str, folder: &Path) -> Result<()> {
        println!("{}", self.chunks(&["verify", url])?.trim());
        let of_aws = self.addresses(url)?;
        let of_folder = self.addresses(&format!("file://{}", folder.display()))?;
        let missing = of_folder.difference(&of_aws).count();
        let (ours, theirs) = (of_aws.len(), of_folder.len());
        if theirs == 0 || missing != 0 {
            bail!("{url} lacks {missing} of {theirs} chunks");
        }
        println!("{url}: {ours} chunks, with all {theirs} of the same pushes to a folder");
        Ok(())
    }

    fn addresses(&self, url: &str) -> Result<BTreeSet<String>> {
        let listed = self.chunks(&["ls", "--chunks", url])?;
        Ok(listed.lines().filter(|line| line.len() == 32).map(str::to_owned).collect())
    }

    fn chunks(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.busload);
        command.arg("chunks").args(arguments);
        output(command.envs(environment(&self.s3.said, &self.dynamodb.said)))
    }
}

/// Checks that stores have shared requests: BatchGetItem as Amazon answers it.
fn expect_shared_requests(server: &Server) -> Result<()> {
    let port = server.http_port().context("no HTTP front")?;
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let count = |name: &str| -> Result<u64> {
        let name = format!("busload_dynamodb_{name}_total{{");
        let line = answer.lines().find(|line| line.starts_with(&name)).context(name)?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    };
    let (requests, keys) = (count("requests")?, count("keys")?);
    let (throttles, failures) = (count("throttles")?, count("failures")?);
    println!(
        "DynamoDB: {keys} keys in {requests} requests, {throttles} throttled, {failures} failed"
    );
    if keys <= requests || throttles + failures != 0 {
        bail!("expected several keys in one request, and no failure");
    }
    Ok(())
}

//! Flags and subcommands, and the manual that `--help` prints.

mod credentials;

use std::{path::PathBuf, time::Duration};

use busload_backup::Target;
use clap::{Args, Parser, Subcommand, error::ErrorKind};
use clap_complete::Shell;

pub use self::credentials::{
    AddTokenArgs, AddUserArgs, TokenCommand, UserArgs, UserCommand, UserFileArgs,
};
use super::{
    settings_page::manual,
    target::{parse_keep, parse_target},
};
use crate::{
    config::{Config, Options, TableChanges},
    failure::Failure,
    machine::Machine,
};

const ABOUT: &str = "\
An in-memory database that speaks the Redis protocol, logs every write before it answers, and does \
both in batches that form by themselves. It also serves tables in Postgres, turning the single-key \
requests of many clients into few statements, and chunks of Dolt stores in a bucket, which it \
caches on local disk.

busload without arguments serves memory tables from ./busload-data, to Redis clients on \
127.0.0.1:6380 and over HTTP on 127.0.0.1:6381. When it is ready it says so on stderr, in one line \
that begins with `ready` and names every address.";

const MANUAL: &str = "\
Configuration file
  --config FILE names a TOML file with the same names as the flags (`_` for `-`) and a section for
  each table:

    resp = \"127.0.0.1:6380\"
    memory_max = \"2GiB\"
    [tables.sessions]
    kind = \"memory\"
    sync = \"always\"
    [tables.objects]
    kind = \"postgres\"
    url = \"postgres://app@db/lake\"
    relation = \"objects\"
    key = [\"repo\", \"path\"]
    columns = [\"meta\"]
    [tables.db]
    kind = \"chunks\"
    url = \"s3://bucket/prefix\"
    disk = \"20GiB\"

  Flags win over the file. An unknown key is an error. Relative paths start at the working
  directory. `busload config example` prints a file with every setting and its default, `busload
  config docs` a page about all of them.

Tables
  The log holds their names and settings. busload refuses to start, and says how many keys are
  concerned, when keys in `default` already have the prefix of a new table (--adopt-tables moves
  them), or when a table that holds keys is no longer configured (--drop-table NAME drops it with
  its keys). `busload check` shows beforehand whether a start would be refused.

Postgres tables
  GET objects:KEY reads the row of KEY from Postgres, in one statement with what other clients ask
  for at the same time. There is no timer: a lone request is sent at once. A column is a field of a
  hash (HGET, HGETALL ...); with one value column GET and SET read and write that column. Writes
  (SET, MSET, HSET, HDEL, DEL) need writable = true.

    {POSTGRES}

  The password comes from password_file, the URL (only in the file: `ps` shows flags), the variable
  BUSLOAD_TABLE_OBJECTS_PASSWORD (the table's name in upper case, `_` for other characters),
  PGPASSWORD, PGPASSFILE or ~/.pgpass. A URL takes what libpq takes there, including sslmode and
  several hosts. docs/postgres.md has the details.

Chunk tables
  GET db:ADDRESS reads a chunk of a Dolt store from local disk, and from the store while it is not
  on disk yet; MGET, EXISTS, STRLEN and TYPE work as well. ADDRESS is 32 characters of 0-9a-v, or
  20 bytes. There are no writes. A store is a directory or a bucket: file:///DIR,
  s3://BUCKET/PREFIX (also gs://, az://, and aws://[TABLE:BUCKET]/DATABASE as Dolt writes it), on
  the command line with chunks+ before it and these settings in its query:

    {CHUNKS}

  The rest of the query is the store's: endpoint, region, path-style, anonymous, profile.
  Credentials come from the environment, and for AWS from profiles, too. docs/chunks.md has the
  details.

  A stock dolt clones, fetches and pulls from the HTTP port: dolt clone http://127.0.0.1:6381/db.
  docs/dolt.md has the details.

TLS
  --tls-cert and --tls-key encrypt every TCP address: Redis clients (rediss://), gRPC and HTTP
  (https://). With --tls-client-ca every client needs a certificate of these authorities. Commands
  like `busload top`, given the same files, accept exactly the certificate in them, and show it
  where one is asked for. docs/security.md has the details.

Signals
  SIGTERM, SIGINT   stop reading, execute every request received whole, send the replies for at
                    most 5 s, sync, exit with 0. A second signal, or a first one before `ready`,
                    exits at once with 128 plus the signal's number.
  SIGHUP            reads the configuration again, as busload reload has it do: limits, levels of
                    the log, the file of users and the files of --tls-cert, --tls-key and
                    --tls-client-ca. Connections go on. The log says what needs a restart.
  Under systemd (Type=notify) busload says when it is ready, how far a recovery is, and that its
  threads turn (WatchdogSec=).

Environment
  BUSLOAD_PASSWORD  the password clients must give, unless --password-file is given. HTTP asks for
                    it, too, where it does not listen on a loopback address.
  BUSLOAD_USER      the user as whom busload top, cache and snapshot log in [default:
                    default]; the password is that of this user then.
  BUSLOAD_USER_PASSWORD  the password that busload user add and passwd give a user.
  BUSLOAD_LOG       the levels of the log, like --log-level, which wins over it.
  BUSLOAD_TABLE_NAME_PASSWORD, PGPASSWORD, PGPASSFILE, PGHOST and others of libpq: for Postgres
  tables.
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_PROFILE and others of AWS, Google and
  Azure: for chunk tables.

Exit codes
  0  clean shutdown    1  failed at run time    2  mistake in usage or configuration

Examples
  busload
  busload serve --data /var/lib/busload --table default='memory:?sync=os&memory_max=2GiB'
  busload serve --table objects='postgres://app@db/lake?relation=objects&key=path&columns=meta'
  busload serve --table db='chunks+s3://bucket/prefix?disk=20GiB'
  busload serve --resp 0.0.0.0:6380 --http 0.0.0.0:6381 --password-file /etc/busload/password \
    --tls-cert /etc/busload/tls.crt --tls-key /etc/busload/tls.key
  busload check --config busload.toml
  busload log verify --data /var/lib/busload
  busload log repair --data /var/lib/busload --to /var/lib/busload-repaired
  busload snapshot verify --data /var/lib/busload
  busload backup /backup/busload --data /var/lib/busload --keep 30d
  busload restore /backup/busload --data /var/lib/busload-new --to 2025-08-01T10:00:00Z
  busload user add reader --rules '%R~sessions:* +@read +@connection' --acl-file users.acl
  busload cache warm db --config busload.toml
  busload top --http 127.0.0.1:6381
  busload health --http 127.0.0.1:6381 && echo serves
  busload reload --config busload.toml
  busload chunks verify s3://bucket/prefix";

/// A database that speaks the Redis protocol and batches by itself
#[derive(Debug, Parser)]
#[command(
    name = "busload",
    version,
    long_about = ABOUT,
    after_long_help = manual(MANUAL),
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 110
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Subcommands of `busload`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve (the default)
    #[command(after_long_help = manual(MANUAL), max_term_width = 110)]
    Serve(ServeArgs),
    /// Validate the configuration and say what a start would do, without writing anything
    ///
    /// Reads the log as a start would, so it takes as long and as much memory, and asks Postgres
    /// and object stores whether they could serve their tables. Exits with 2 when a start would be
    /// refused because of the configuration, with 1 when it would fail for another reason or a
    /// table could not be served.
    Check(ServeArgs),
    /// Check or print a log
    #[command(subcommand)]
    Log(LogCommand),
    /// Ask a running server for a snapshot, or check or print the snapshots beside a log
    ///
    /// Without a subcommand does what `make` does.
    Snapshot(SnapshotArgs),
    /// Copy the log and its snapshots to a directory, also of a running server
    ///
    /// DEST then holds everything that was answered before the backup began, and all states that
    /// earlier backups to it hold. The first backup creates it; later ones copy only what is new,
    /// so one may be made every few minutes. A backup that was interrupted left the one before as
    /// it was: do it again, it goes on with the files that are there. Every file is checked as it
    /// is copied. The server is not asked, and goes on as if there were no backup.
    ///
    /// DEST belongs to one log: that of another server, and one that was restored, need another.
    /// Not in a backup: tables with sync=off, caches of chunks, the configuration.
    Backup(BackupArgs),
    /// Make a new data directory of a backup, with its newest state or an earlier one
    ///
    /// Checks every file that it reads. The new log has an id of its own, and the positions of the
    /// original. While it lasts, and if it is interrupted, a server refuses to start with DIR; done
    /// again it begins anew. A transaction that was not complete at --to is absent as a whole.
    Restore(RestoreArgs),
    /// List, fill, check or remove what tables of kind chunks, and stores by pattern, have on disk
    ///
    /// The tables and patterns are those of the configuration, given as to `serve`. A name is that
    /// of a table, or of a store by pattern, like org/db; 'org/*' names all such stores that are
    /// open or have something on disk. While a server has a cache open, this command asks it, at
    /// the address of --http, to do the work.
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Show what a running server does, until q is pressed: health, requests, batches of stages and
    /// tables, what they save, log, latencies, slow commands
    ///
    /// Asks the server at the address of --http, with the password of the configuration. Where
    /// standard output is no terminal, prints a report every --interval. Exits with 1 when no
    /// server answers.
    Top(Box<TopArgs>),
    /// Ask a running server whether it serves: ends with 0 if it does, else with 1
    ///
    /// Asks /readyz at the address of --http, which needs no password, and prints the answer: for
    /// health checks of containers and supervisors. While the log is read at a start, while the
    /// disk is full and while it stops, a server does not serve.
    Health(Box<HealthArgs>),
    /// Have a running server read its configuration again; exits with 1 if a restart is needed
    ///
    /// Sends CONFIG RELOAD to the first address of --resp, or to --unix, with the password of the
    /// configuration; SIGHUP does the same. The server reads the file that it was started with; the
    /// flags of its start still win. Prints what has changed, or else what needs a restart. A file
    /// with a mistake changes nothing.
    Reload(Box<ConfigurationArgs>),
    /// Print an example of the configuration file, or a page about all settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a man page for each command to a directory
    Man(ManArgs),
    /// Print a script with which a shell completes commands and flags
    ///
    /// For bash: busload completions bash > /etc/bash_completion.d/busload
    Completions(CompletionsArgs),
    /// Add, list and remove users, and change their passwords, in the file of users
    ///
    /// The file is that of --acl-file, or acl_file in the configuration file. A running server
    /// takes changes over with ACL LOAD. docs/security.md has the rules.
    #[command(subcommand)]
    User(UserCommand),
    /// Add a token to the file of tokens
    ///
    /// The file is that of --token-file, or token_file in the configuration file. A running server
    /// takes changes over with `busload reload`. docs/security.md says what tokens are for.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Read a Dolt store without serving it
    ///
    /// URL names a store, like file:///directory or s3://bucket/prefix?endpoint=...&region=...,
    /// with credentials in the environment. Nothing is kept on disk.
    #[command(subcommand)]
    Chunks(ChunksCommand),
}

/// Arguments of `busload serve` and `busload check`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub options: Options,

    /// New tables take over the keys of `default` that have their prefix
    #[arg(long, help_heading = "Data")]
    adopt_tables: bool,

    /// Drop a table that is in the log but no longer configured, with its keys; may be given
    /// several times
    #[arg(long = "drop-table", value_name = "NAME", help_heading = "Data")]
    drop_tables: Vec<String>,
}

impl ServeArgs {
    /// Returns what to do about tables on which log and configuration do not agree.
    pub fn table_changes(&self) -> TableChanges {
        TableChanges { adopt: self.adopt_tables, drop: self.drop_tables.clone() }
    }
}

/// Subcommands of `busload log`. A running server locks its log against a second server, but not
/// against readers.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Check every frame of the log and say what is in it; exits with 1 when it is corrupt
    Verify(LogArgs),
    /// Print every record as lines of text: position, time, and what changed
    Dump(DumpArgs),
    /// Write what can still be read of a corrupt log into a new directory, and say what is lost
    ///
    /// Takes every record that verifies, also behind corrupt ones and with files missing, leaves
    /// the original as it is, and prints the positions of lost records, and the keys of those that
    /// cannot be applied. What the lost records had changed is as it was before them. Takes as
    /// much memory as a start.
    Repair(RepairArgs),
}

/// Arguments of `busload snapshot`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    pub command: Option<SnapshotCommand>,
    #[command(flatten)]
    pub configuration: ConfigurationArgs,
}

/// Subcommands of `busload snapshot`.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Ask a running server to make a snapshot now, wait for it, and say what was made
    ///
    /// Sends SAVE to the first address of --resp, or to --unix, with the password of the
    /// configuration. Other clients are served meanwhile. Exits with 1 when no server answers or
    /// no snapshot was made.
    Make(Box<ConfigurationArgs>),
    /// Check every block of every snapshot; exits with 1 when one is corrupt
    ///
    /// A start that finds the newest snapshot corrupt takes the one before and the log behind it.
    Verify(LogArgs),
    /// Print every entry of the newest snapshot as a line of text
    Dump(LogArgs),
}

/// Subcommands of `busload cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the files that are on disk, and how much of each
    ///
    /// Of stores by pattern it lists each that is open or has something on disk: how many files and
    /// how much disk, and of an open one the memory of its index and when it was last used.
    List(ListArgs),
    /// Bring every file of the store to disk
    ///
    /// A store by pattern, like org/db, is opened for that. 'org/*' warms the stores that are open
    /// or have something on disk, a few at a time; it ends with the stores that failed, and then
    /// exits with 1.
    Warm(CacheArgs),
    /// Read and check every block on disk and remove corrupt ones; exits with 1 when there were any
    ///
    /// Takes a table. What stores by pattern have on disk is checked whenever it is read.
    Verify(CacheArgs),
    /// Remove everything from disk
    ///
    /// Of stores by pattern their indexes, too. Stores in use go on, from the bucket.
    Drop(CacheArgs),
}

impl CacheCommand {
    /// Takes the configuration file and options out of the command.
    pub fn take_configuration(&mut self) -> ConfigurationArgs {
        let configuration = match self {
            Self::List(arguments) => &mut arguments.configuration,
            Self::Warm(arguments) | Self::Verify(arguments) | Self::Drop(arguments) => {
                &mut arguments.configuration
            }
        };
        std::mem::take(configuration)
    }
}

/// Configuration file and options that name the tables.
#[derive(Args, Debug, Default)]
pub struct ConfigurationArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl ConfigurationArgs {
    /// Reads the file, if there is one, and resolves all settings.
    pub fn load(self) -> Result<Config, Failure> {
        let (changes, machine) = (TableChanges::default(), Machine::this());
        Config::load(self.config.as_deref(), self.options, changes, &machine)
    }
}

/// Arguments of `busload top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Print one report and end
    #[arg(long)]
    pub once: bool,

    /// Seconds between two reports, over which rates are taken
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,

    #[command(flatten)]
    configuration: ConfigurationArgs,
}

impl TopArgs {
    /// Takes the configuration file and options out of the command.
    pub fn take_configuration(&mut self) -> ConfigurationArgs {
        std::mem::take(&mut self.configuration)
    }
}

/// Arguments of `busload health`.
#[derive(Args, Debug)]
pub struct HealthArgs {
    /// Ask only whether the process answers (/healthz)
    #[arg(long)]
    pub live: bool,

    /// Seconds after which a server that does not answer is none
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_interval)]
    pub timeout: Duration,

    #[command(flatten)]
    configuration: ConfigurationArgs,
}

impl HealthArgs {
    /// Takes the configuration file and options out of the command.
    pub fn take_configuration(&mut self) -> ConfigurationArgs {
        std::mem::take(&mut self.configuration)
    }
}

/// Subcommands of `busload config`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration file with every setting, its default and what it means
    Example,
    /// Print a page (Markdown) with every setting: name, flag, value, default, meaning
    Docs,
}

/// Arguments of `busload man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Directory for the pages; created when missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `busload completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell for which to print the script
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Longest interval of `busload top` and timeout of `busload health`, in seconds.
const INTERVAL_SECONDS_MAX: u64 = 24 * 60 * 60;

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=INTERVAL_SECONDS_MAX).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("expected seconds from 1 to {INTERVAL_SECONDS_MAX}"))
}

/// Arguments of `busload backup`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BackupArgs {
    #[command(subcommand)]
    pub command: Option<BackupCommand>,

    /// Directory of the backup: a new or empty one, or one with earlier backups of the same log
    #[arg(value_name = "DEST", required = true)]
    pub to: Option<PathBuf>,

    /// Directory of the data [default: that of --config, or busload-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Configuration file (TOML) that names the directory of the data
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Remove what is not needed to restore any state of this time span, like 30d or 12h
    /// [default: keep everything]
    ///
    /// The two newest snapshots and the log behind the older one stay in any case.
    #[arg(long, value_name = "SPAN", value_parser = parse_keep)]
    pub keep: Option<Duration>,
}

/// Subcommands of `busload backup`.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Check every byte of a backup and say what it can be restored to; exits with 1 when a file
    /// is corrupt, and names it
    Verify(VerifyBackupArgs),
}

/// Arguments of `busload backup verify`.
#[derive(Args, Debug)]
pub struct VerifyBackupArgs {
    /// Directory of the backup
    #[arg(value_name = "DEST")]
    pub from: PathBuf,
}

/// Arguments of `busload restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "SRC")]
    pub from: PathBuf,

    /// New or empty directory for the restored data; a server is then started with it as --data
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// State to restore: an LSN (123 or lsn:123), a time (2025-08-01T10:00:00Z) or seconds since
    /// 1970 (@1754042400) [default: the newest]
    ///
    /// For a time it is everything that was logged up to then. `busload backup verify` says what
    /// there is.
    #[arg(long, value_name = "TARGET", value_parser = parse_target)]
    pub to: Option<Target>,
}

/// Arguments of `busload cache list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Table of kind chunks, or a store or a pattern of stores: db, org/db, 'org/*' [default: all
    /// tables and stores]
    pub name: Option<String>,
    #[command(flatten)]
    configuration: ConfigurationArgs,
}

/// Arguments of the other subcommands of `busload cache`.
#[derive(Args, Debug)]
pub struct CacheArgs {
    /// Table of kind chunks, or a store or a pattern of stores: db, org/db, 'org/*'
    pub name: String,
    #[command(flatten)]
    configuration: ConfigurationArgs,
}

/// Subcommands of `busload chunks`.
#[derive(Debug, Subcommand)]
pub enum ChunksCommand {
    /// Print the root, the files and how many chunks they hold
    Ls(LsArgs),
    /// Write the contents of a chunk to standard output
    Cat(CatArgs),
    /// Read every chunk and verify it against its address; exits with 1 when one is corrupt
    Verify(StoreArgs),
}

/// Store that a subcommand of `busload chunks` reads.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// URL of the store
    #[arg(value_name = "URL")]
    pub url: String,
}

/// Arguments of `busload chunks ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Print the address of every chunk, too
    #[arg(long)]
    pub chunks: bool,
}

/// Arguments of `busload chunks cat`.
#[derive(Args, Debug)]
pub struct CatArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Address of the chunk: 32 characters of 0-9a-v
    #[arg(value_name = "ADDRESS")]
    pub address: String,
}

/// Log that a subcommand of `busload log` reads.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// Directory of the data [default: busload-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Arguments of `busload log dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    #[command(flatten)]
    pub log: LogArgs,
    /// First record to print, by its position
    #[arg(long, value_name = "LSN", default_value_t = 1)]
    pub from: u64,
}

/// Arguments of `busload log repair`.
#[derive(Args, Debug)]
pub struct RepairArgs {
    #[command(flatten)]
    pub log: LogArgs,
    /// New or empty directory for the repaired data; a server is then started with it as --data
    #[arg(long, value_name = "NEWDIR")]
    pub to: PathBuf,
}

/// Outcome of parsing the command line.
#[derive(Debug)]
pub enum Request {
    /// Execute this command.
    Do(Box<Command>),
    /// Print this text and exit with 0: `--help` or `--version`.
    Print(String),
}

/// Parses the command line.
pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Request, Failure> {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => Ok(Request::Do(Box::new(cli.command.unwrap_or(Command::Serve(cli.serve))))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Request::Print(error.render().to_string()))
            }
            _ => Err(Failure::usage(one_line(&error.render().to_string()))),
        },
    }
}

/// Cuts clap's multi-line explanation to the one line that a log wants.
fn one_line(rendered: &str) -> String {
    let explained = rendered.split("\nUsage:").next().unwrap_or(rendered);
    let explained = explained.split("\nFor more information").next().unwrap_or(explained);
    let words: Vec<&str> = explained.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line).replace(" tip: ", "; ");
    let line = line.trim_end_matches('.');
    format!("{line} (see busload --help)")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Request, Failure> {
        parse(["busload"].iter().chain(arguments).map(std::ffi::OsString::from))
    }

    fn command(arguments: &[&str]) -> Command {
        match parsed(arguments) {
            Ok(Request::Do(command)) => *command,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    fn mistake(arguments: &[&str]) -> String {
        parsed(arguments).expect_err("a mistake").to_string()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_is_what_is_done_when_nothing_else_is_asked() {
        for arguments in [&[][..], &["serve"], &["--data", "x"], &["serve", "--data", "x"]] {
            assert!(matches!(command(arguments), Command::Serve(_)), "{arguments:?}");
        }
        assert!(matches!(command(&["check", "--data", "x"]), Command::Check(_)));
    }

    #[test]
    fn a_snapshot_is_asked_for_when_no_subcommand_is_given() {
        for arguments in [&["snapshot"][..], &["snapshot", "--resp", "127.0.0.1:1"]] {
            let Command::Snapshot(snapshot) = command(arguments) else { panic!("{arguments:?}") };
            assert!(snapshot.command.is_none(), "{arguments:?}");
        }
        let Command::Snapshot(snapshot) = command(&["snapshot", "make"]) else { panic!() };
        assert!(matches!(snapshot.command, Some(SnapshotCommand::Make(_))));
        let Command::Backup(backup) = command(&["backup", "verify", "d"]) else { panic!() };
        assert!(matches!(backup.command, Some(BackupCommand::Verify(_))));
        let Command::Backup(backup) = command(&["backup", "d"]) else { panic!() };
        assert!(backup.command.is_none() && backup.to.is_some());
    }

    #[test]
    fn mistakes_are_one_line_that_names_the_argument() {
        for (arguments, part) in [
            (&["--dta", "x"][..], "--dta"),
            (&["serve", "--dta", "x"], "--data"),
            (&["frobnicate"], "frobnicate"),
            (&["--resp", "x"], "expected HOST:PORT"),
            (&["--net-threads", "2"], "expected 0 or 1"),
            (&["--memory-max", "lots"], "expected a size like 2GiB"),
            (&["--table", "a"], "expected NAME=URL"),
            (&["--maxclients"], "--maxclients"),
            (&["log"], "log"),
            (&["cache", "warm"], "NAME"),
            (&["chunks", "cat", "file:///d"], "ADDRESS"),
            (&["log", "dump", "--from", "-"], "--from"),
            (&["backup"], "DEST"),
            (&["top", "--interval", "0"], "expected seconds from 1"),
            (&["health", "--timeout", "x"], "expected seconds from 1"),
            (&["man"], "DIR"),
            (&["token", "add", "ci"], "--stores"),
            (&["completions", "cmd.exe"], "bash, elvish, fish, powershell, zsh"),
            (&["backup", "d", "--keep", "long"], "expected one like 30d"),
            (&["restore", "d"], "--data"),
            (&["restore", "d", "--data", "n", "--to", "noon"], "expected an LSN like 123"),
        ] {
            let line = mistake(arguments);
            assert!(line.contains(part), "{arguments:?}: {line}");
            assert!(
                !line.contains('\n') && !line.contains("Usage") && line.len() < 400,
                "{arguments:?}: {line}"
            );
        }
    }

    #[test]
    fn no_mistake_repeats_a_url() {
        for table in [
            "postgres://app:secret@db/lake?relation=t&key=k",
            "a:b=postgres://app:secret@db/lake",
            "app:secret@db/lake?relation=t",
            "default=postgres://app:secret@db/lake",
            "objects=redis://:secret@db",
            "objects=postgres+tls://app:secret@db/lake",
            "db=chunks+s3://key:secret@bucket/prefix",
            "db=chunks+s3://bucket/prefix?session_token=secret",
            "db=chunks+s3://bucket/prefix?endpoint=http://user:secret@host",
            "db=chunks+ftp://key:secret@bucket/prefix",
        ] {
            let line = mistake(&["--table", table]);
            assert!(line.contains("--table") && !line.contains("secret"), "{table}: {line}");
        }
    }

    #[test]
    fn help_reads_like_a_manual() {
        let Ok(Request::Print(help)) = parsed(&["--help"]) else { panic!("no help") };
        for part in [
            "--password-file",
            "sync",
            "interval:MS",
            "Signals",
            "Exit codes",
            "[tables.sessions]",
            "check",
            "Postgres tables",
            "BUSLOAD_TABLE_OBJECTS_PASSWORD",
            "Chunk tables",
            "AWS_SECRET_ACCESS_KEY",
            "    join_in_flight ",
            "    grace_period ",
        ] {
            assert!(help.contains(part), "{part}");
        }
    }
}

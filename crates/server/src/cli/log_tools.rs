//! `busload log verify` and `busload log dump`: read a log without changing it.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
};

use busload_log::{Lsn, OpenError, RecordRef, RecoveryReport, bytes_behind, tools};
use busload_pipeline::tx::StartError;
use busload_tables::effect::{self, Catalogue, Effect};

use super::{copy_on_write_disk::CopyOnWriteDisk, snapshot_tools::base_of_log};
use crate::{
    config::{Size, log_directory},
    failure::Failure,
    logger::Utc,
    open_files,
    recovery::{END_UNNAMED, ended_before, start_failure},
};

/// Longest part of a key, field or value that is shown.
const SHOWN_BYTES_MAX: usize = 64;

/// Checks every frame and prints what each segment holds; fails on corruption.
pub fn verify(data: Option<&Path>) -> Result<(), Failure> {
    let (disk, directory) = open(data)?;
    let base = base_of_log(&disk)?;
    // Each segment is read once by itself, and once in its place, as a start reads it.
    let total = 2 * bytes_behind(&disk, base.as_ref()).unwrap_or(0);
    let meter = disk.meter().show("checking the log", total);
    let report = tools::verify(&disk, base.as_ref());
    drop(meter);
    let report = report.map_err(|error| failure(error, &directory))?;
    let mut out = Out::new();
    for segment in &report.segments {
        out.line(format_args!(
            "segment {:>6}  {}  LSN {} to {}  {} records in {} frames  {} of {} used{}",
            segment.number,
            segment.path.display(),
            segment.first_lsn,
            segment.last_lsn,
            segment.records,
            segment.frames,
            Size(segment.used_bytes),
            Size(segment.file_bytes),
            if segment.clean_shutdown { "  clean shutdown" } else { "" }
        ));
    }
    for problem in &report.problems {
        out.line(format_args!(
            "problem  {} at offset {}, LSN {}: {}",
            problem.path.display(),
            problem.offset,
            problem.lsn,
            problem.what
        ));
    }
    let verdict = report.verdict.map_err(|error| failure(error, &directory));
    if let Ok(report) = &verdict {
        out.line(format_args!("sound    {}", summary(report)));
    }
    out.finish();
    verdict.map(drop)
}

/// Prints every record from LSN `from` on.
pub fn dump(data: Option<&Path>, from: u64) -> Result<(), Failure> {
    let (disk, directory) = open(data)?;
    let mut out = Out::new();
    let base = base_of_log(&disk)?;
    let total = bytes_behind(&disk, base.as_ref()).unwrap_or(0);
    let meter = disk.meter().show_beside_output("reading the log", total);
    let dumped = tools::dump(&disk, base.as_ref(), Lsn(from), &mut |record| {
        dump_record(&mut out, record);
        if out.is_closed() { Err("nobody reads any more".into()) } else { Ok(()) }
    });
    drop(meter);
    let closed = out.is_closed();
    out.finish();
    match dumped {
        Err(OpenError::Replay { .. }) if closed => Ok(()),
        result => result.map(drop).map_err(|error| failure(error, &directory)),
    }
}

/// Describes in words what a log holds.
pub fn summary(report: &RecoveryReport) -> String {
    let mut text = format!(
        "{} records in {} segments, {}; {}",
        report.records,
        report.segments,
        Size(report.bytes),
        ended_before(report)
    );
    if let Some(torn) = &report.torn_tail {
        let (path, offset, lsn, bytes) =
            (torn.path.display(), torn.offset, torn.lsn, Size(torn.bytes));
        text += &format!(
            "; a start cuts the torn end of {path} at offset {offset} (LSN {lsn}): {bytes}"
        );
    }
    if 0 < report.segments && !report.end_is_named {
        text += &format!("; {END_UNNAMED}");
    }
    text
}

pub(super) fn open(data: Option<&Path>) -> Result<(CopyOnWriteDisk, std::path::PathBuf), Failure> {
    let directory = log_directory(data);
    if !directory.is_dir() {
        return Err(no_log(&directory));
    }
    open_files::fit_log(&directory);
    let disk =
        CopyOnWriteDisk::open(&directory).map_err(|error| Failure::run(error.to_string()))?;
    Ok((disk, directory))
}

/// Describes that the log's directory does not exist.
pub(super) fn no_log(directory: &Path) -> Failure {
    Failure::run(format!(
        "there is no log in {}; expected the directory that was given to busload by --data",
        directory.parent().unwrap_or(directory).display()
    ))
}

pub(super) fn failure(error: OpenError, directory: &Path) -> Failure {
    start_failure(StartError::Log(error), directory)
}

fn dump_record(out: &mut Out, record: RecordRef<'_>) {
    let (lsn, time) = (record.lsn, Utc(record.wall_ms));
    for effect in effect::decode(record.bytes) {
        match effect {
            Ok(effect) => out.line(format_args!("{lsn} {time} {}", Shown(&effect))),
            Err(error) => out.line(format_args!(
                "{lsn} {time} {} bytes are no effects: {error}",
                record.bytes.len()
            )),
        }
    }
}

/// Displays an effect as a line.
pub(super) struct Shown<'a>(pub(super) &'a Effect<'a>);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = self.0.table().map_or(0, |table| table.0);
        match self.0 {
            Effect::Part { position, bytes } => {
                write!(
                    f,
                    "part place={} bytes={}",
                    format!("{position:?}").to_lowercase(),
                    bytes.len()
                )
            }
            Effect::Put { key, value, expiry, .. } => {
                write!(f, "put table={table} key={} value={}", Text(key), Text(value))?;
                expiry.map_or(Ok(()), |at| write!(f, " expires={}", Utc(at)))
            }
            Effect::Patch { key, offset, bytes, .. } => {
                write!(
                    f,
                    "patch table={table} key={} offset={offset} bytes={}",
                    Text(key),
                    Text(bytes)
                )
            }
            Effect::Delete { key, .. } => write!(f, "delete table={table} key={}", Text(key)),
            Effect::Expire { key, expiry: Some(at), .. } => {
                write!(f, "expire table={table} key={} at={}", Text(key), Utc(*at))
            }
            Effect::Expire { key, expiry: None, .. } => {
                write!(f, "persist table={table} key={}", Text(key))
            }
            Effect::HashPut { key, pairs, .. } => {
                write!(f, "hash-put table={table} key={}", Text(key))?;
                pairs
                    .clone()
                    .try_for_each(|(field, value)| write!(f, " {}={}", Text(field), Text(value)))
            }
            Effect::HashDelete { key, fields, .. } => {
                write!(f, "hash-delete table={table} key={}", Text(key))?;
                fields.clone().try_for_each(|field| write!(f, " {}", Text(field)))
            }
            Effect::Flush { .. } => write!(f, "flush table={table}"),
            Effect::Catalogue(Catalogue::Created { name, settings, .. }) => {
                write!(
                    f,
                    "table-created table={table} name={} settings={}",
                    Text(name),
                    Text(settings)
                )
            }
            Effect::Catalogue(Catalogue::Settings { settings, .. }) => {
                write!(f, "table-settings table={table} settings={}", Text(settings))
            }
            Effect::Catalogue(Catalogue::Dropped { .. }) => {
                write!(f, "table-dropped table={table}")
            }
        }
    }
}

/// Displays bytes in quotes: cut when long, anything but printable ASCII escaped.
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        match self.0.len() {
            all if shown.len() < all => write!(f, "({all} bytes)"),
            _ => Ok(()),
        }
    }
}

/// Standard output, which may be closed at any time; the rest is then not printed.
pub(super) struct Out {
    writer: BufWriter<io::Stdout>,
    /// True where a person reads, and perhaps a bar is shown: each line goes out by itself.
    is_terminal: bool,
    closed: bool,
}

impl Out {
    pub(super) fn new() -> Self {
        let (stdout, closed) = (io::stdout(), false);
        Self { is_terminal: stdout.is_terminal(), writer: BufWriter::new(stdout), closed }
    }

    pub(super) fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.closed |= writeln!(self.writer, "{line}").is_err();
        if self.is_terminal {
            self.closed |= self.writer.flush().is_err();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn finish(mut self) {
        self.closed |= self.writer.flush().is_err();
    }
}

#[cfg(test)]
mod tests {
    use busload_tables::TableId;
    use expect_test::expect;

    use super::*;

    #[test]
    fn every_effect_is_shown() {
        let table = TableId(0);
        let mut record = Vec::new();
        effect::catalogue_created(&mut record, table, b"default", b"kind=memory");
        effect::catalogue_settings(&mut record, table, b"kind=memory sync=os");
        effect::put(&mut record, table, b"k\r\n", "caf\u{e9}".as_bytes(), None);
        effect::put(&mut record, table, b"k", &[b'x'; 100], Some(0));
        effect::patch(&mut record, table, b"k", 3, b"y");
        effect::expire(&mut record, table, b"k", 1000);
        effect::persist(&mut record, table, b"k");
        effect::hash_put_header(&mut record, table, b"h", 2);
        effect::hash_put_pair(&mut record, b"f", b"1");
        effect::hash_put_pair(&mut record, b"g", b"");
        effect::hash_delete_header(&mut record, table, b"h", 1);
        effect::hash_delete_field(&mut record, b"f");
        effect::delete(&mut record, table, b"k");
        effect::flush(&mut record, table);
        effect::catalogue_dropped(&mut record, table);
        let lines: Vec<String> = effect::decode(&record)
            .map(|effect| format!("{}\n", Shown(&effect.unwrap())))
            .collect();
        expect![[r#"
            table-created table=0 name="default" settings="kind=memory"
            table-settings table=0 settings="kind=memory sync=os"
            put table=0 key="k\r\n" value="caf\xc3\xa9"
            put table=0 key="k" value="xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"(100 bytes) expires=1970-01-01T00:00:00.000Z
            patch table=0 key="k" offset=3 bytes="y"
            expire table=0 key="k" at=1970-01-01T00:00:01.000Z
            persist table=0 key="k"
            hash-put table=0 key="h" "f"="1" "g"=""
            hash-delete table=0 key="h" "f"
            delete table=0 key="k"
            flush table=0
            table-dropped table=0
        "#]].assert_eq(&lines.concat());
    }
}

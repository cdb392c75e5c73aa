//! The lines of a report, from two readings of a server.

use std::fmt::Write;

use super::reading::{Part, Reading};
use crate::config::Size;

/// Field with the number of statements, reads or syncs that requests took together.
const SENT: &str = "round_trips";
/// Number of slow commands that are shown.
const SLOW_COMMANDS: usize = 5;
/// Number of the busiest stores that are shown.
const BUSIEST_STORES: usize = 5;
/// Number of latencies that are shown.
const LATENCIES: usize = 12;
/// Longest part of a text of clients or errors that is shown.
const TEXT_CHARS: usize = 200;

/// Weight of a line on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Title,
    Good,
    Warning,
    Bad,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub tone: Tone,
}

impl Line {
    /// Creates an ordinary line.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    /// Creates the title of a section.
    pub fn title(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Title }
    }

    /// Creates a line that should be noticed first.
    pub fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Bad }
    }
}

/// Two readings, between which rates are taken.
struct Span<'a> {
    before: Part<'a>,
    now: Part<'a>,
    seconds: f64,
}

impl<'a> Span<'a> {
    /// Returns the same span of a part.
    fn part(&self, name: &str) -> Span<'a> {
        self.of(self.before.part(name), self.now.part(name))
    }

    /// Returns the same span of an object that both lists have under its name.
    fn named(&self, list: &str, name: &str) -> Span<'a> {
        self.of(self.before.named(list, name), self.now.named(list, name))
    }

    fn of(&self, before: Part<'a>, now: Part<'a>) -> Span<'a> {
        Span { before, now, seconds: self.seconds }
    }

    /// Returns by how much a counter has grown; all of it if it was reset in between.
    fn growth(&self, name: &str) -> u64 {
        let (before, now) = (self.before.count(name), self.now.count(name));
        if before <= now { now - before } else { now }
    }

    /// Returns the growth of a counter per second.
    fn rate(&self, name: &str) -> f64 {
        if self.seconds == 0.0 { 0.0 } else { self.growth(name) as f64 / self.seconds }
    }

    /// Returns how many items each of the batches of this span had on average.
    fn mean(&self, items: &str, batches: &str) -> f64 {
        ratio(self.growth(items), self.growth(batches))
    }
}

/// Makes the report of what a server did between two readings.
pub fn report(before: &Reading, now: &Reading) -> Vec<Line> {
    let seconds = now.seconds_since(before);
    let span = Span { before: before.all(), now: now.all(), seconds };
    let mut lines = head(&span);
    lines.extend(stages(&span));
    lines.extend(tables(&span));
    lines.extend(saved(&span));
    lines.extend(savings(span.now));
    lines.extend(busiest(&span));
    lines.extend(log(&span));
    lines.extend(latencies(span.now));
    lines.extend(slow_commands(span.now));
    lines
}

fn head(span: &Span<'_>) -> Vec<Line> {
    let now = span.now;
    let uptime_s = now.count("uptime_ms") / 1_000;
    let mut lines = vec![Line::title(format!(
        "busload {}, up {}, {}",
        now.text("version"),
        duration(uptime_s),
        one_line(now.text("state"))
    ))];
    lines.extend(health(now));
    let (commands, connections) = (span.part("commands"), now.part("connections"));
    let (hits, misses) = (commands.growth("hits"), commands.growth("misses"));
    lines.push(Line::plain(""));
    lines.push(Line::title(format!(
        "{} requests/s, {} errors/s",
        number(commands.rate("executed")),
        number(commands.rate("errors"))
    )));
    lines.push(Line::plain(format!(
        "{} connections, {} wait for the log, {} in buffers, {} requests at sources",
        whole(connections.count("open")),
        whole(connections.count("blocked")),
        Size(connections.count("memory_bytes")),
        whole(commands.now.count("at_sources"))
    )));
    let memory = now.part("memory");
    let max = match memory.count("max_bytes") {
        0 => "no limit".to_owned(),
        bytes => format!("of {}", Size(bytes)),
    };
    lines.push(Line::plain(format!(
        "{} keys take {} {max}, resident {}; {} of reads find their key",
        whole(memory.count("keys")),
        Size(memory.count("used_bytes")),
        Size(memory.count("resident_bytes")),
        percent(hits, hits + misses)
    )));
    let calls = span.part("calls");
    lines.push(Line::plain(format!(
        "{}/s in, {}/s out, {} system calls per request",
        Size(calls.rate("received_bytes") as u64),
        Size(calls.rate("sent_bytes") as u64),
        calls_per_request(span)
    )));
    lines
}

/// Returns the system calls of the sockets and the log for each request.
fn calls_per_request(span: &Span<'_>) -> String {
    let (calls, log) = (span.part("calls"), span.part("log"));
    let count = ["polls", "receives", "sends"].map(|name| calls.growth(name)).iter().sum::<u64>()
        + log.growth("frames")
        + log.growth("syncs");
    match span.part("commands").growth("executed") {
        0 => "no".to_owned(),
        executed => format!("{:.3}", ratio(count, executed)),
    }
}

/// Shows what is wrong, the worst first.
fn health(now: Part<'_>) -> Vec<Line> {
    let health = now.part("health");
    let tone = |level: &str| match level {
        "ok" => Tone::Good,
        "warning" => Tone::Warning,
        _ => Tone::Bad,
    };
    let level = health.text("level");
    let mut lines = vec![Line { text: format!("health: {}", one_line(level)), tone: tone(level) }];
    for reason in health.list("reasons") {
        let (subject, what) = (reason.text("subject"), one_line(reason.text("what")));
        lines.push(Line {
            text: format!("  {}: {what}", one_line(subject)),
            tone: tone(reason.text("level")),
        });
        lines.push(Line::plain(format!("    {}", one_line(reason.text("action")))));
    }
    lines
}

fn stages(span: &Span<'_>) -> Vec<Line> {
    let mut lines = section("STAGE            batches/s      items/s   mean batch      largest");
    for stage in span.now.list("stages") {
        let name = stage.text("name");
        let both = span.named("stages", name);
        lines.push(Line::plain(format!(
            "{name:<12} {:>13} {:>12} {:>12.1} {:>12}",
            number(both.rate("batches")),
            number(both.rate("items")),
            both.mean("items", "batches"),
            whole(stage.count("items_max"))
        )));
    }
    lines
}

fn tables(span: &Span<'_>) -> Vec<Line> {
    let mut lines = section(
        "TABLE            kind     state     requests/s    sent/s    mean  waiting in flight",
    );
    for table in span.now.list("tables") {
        let name = table.text("name");
        let both = span.named("tables", name);
        let refused = both.growth("refused") + both.growth("expired");
        let text = format!(
            "{:<16} {:<8} {:<8} {:>11} {:>9} {:>7.1} {:>8} {:>9}",
            shortened(name, 16),
            shortened(table.text("kind"), 8),
            shortened(table.text("state"), 8),
            number(both.rate("requests")),
            number(both.rate(SENT)),
            both.mean("entries", "batches"),
            whole(table.count("waiting")),
            whole(table.count("in_flight"))
        );
        let is_well = !table.has("error") && refused == 0;
        lines.push(Line { text, tone: if is_well { Tone::Plain } else { Tone::Bad } });
        if refused != 0 {
            let text = format!("  {} requests were refused or timed out", whole(refused));
            lines.push(Line::bad(text));
        }
        lines.extend(tiers(&both));
    }
    lines
}

/// Shows where the answers of a table came from.
fn tiers(table: &Span<'_>) -> Option<Line> {
    let tiers: Vec<String> = table
        .now
        .list("tiers")
        .filter_map(|tier| {
            let name = tier.text("name");
            let grown = table.named("tiers", name).growth("requests");
            (grown != 0).then(|| format!("{} {name}", whole(grown)))
        })
        .collect();
    (!tiers.is_empty()).then(|| Line::plain(format!("  answers: {}", tiers.join(", "))))
}

fn saved(span: &Span<'_>) -> Vec<Line> {
    let mut lines = section("SAVED since start    asked for        sent       saved   share");
    for saved in span.now.list("saved") {
        let (requests, sent) = (saved.count("requests"), saved.count(SENT));
        let spared = requests.saturating_sub(sent);
        lines.push(Line::plain(format!(
            "{:<16} {:>13} {:>11} {:>11} {:>7}",
            saved.text("name"),
            whole(requests),
            whole(sent),
            whole(spared),
            percent(spared, requests)
        )));
    }
    lines
}

/// Shows what tables of chunks and patterns of stores saved: less than nothing where busload asked
/// for more than its clients.
fn savings(now: Part<'_>) -> Vec<Line> {
    let row = |row: Part<'_>| {
        Line::plain(format!(
            "{:<16} {:>13} {:>11} {:>11} {:>13} {:>12}",
            shortened(row.text("name"), 16),
            whole(row.count("direct_requests")),
            whole(row.count("store_requests")),
            signed(row.number("saved_requests"), whole),
            signed(row.number("saved_bytes"), |bytes| Size(bytes).to_string()),
            format!("{:.4}", row.number("saved_usd"))
        ))
    };
    let mut lines: Vec<Line> = now.list("savings").map(row).collect();
    if !lines.is_empty() {
        let title =
            "BUCKETS since start without us        sent       saved   saved bytes    saved USD";
        lines.splice(0..0, section(title));
    }
    lines
}

/// Shows the busiest stores of patterns.
fn busiest(span: &Span<'_>) -> Vec<Line> {
    let row = |store: Part<'_>| {
        let name = store.text("name");
        let both = span.named("busiest", name);
        Line::plain(format!(
            "{:<30} {:>11} {:>7} {:>13} {:>11} {:>9}",
            shortened(name, 30),
            number(both.rate("reads")),
            percent(both.growth("hits"), both.growth("reads")),
            number(both.rate("downloads")),
            Size(both.growth("store_bytes")).to_string(),
            whole(both.growth("errors"))
        ))
    };
    let mut lines: Vec<Line> = span.now.list("busiest").take(BUSIEST_STORES).map(row).collect();
    if !lines.is_empty() {
        let columns = "                     reads/s    hits   downloads/s     fetched    errors";
        let title = format!("BUSIEST STORES{columns}");
        lines.splice(0..0, section(&title));
    }
    lines
}

fn log(span: &Span<'_>) -> Vec<Line> {
    let log = span.part("log");
    if !span.now.has("log") {
        return Vec::new();
    }
    let mut lines = section("LOG");
    lines.push(Line::plain(format!(
        "{}/s in {} writes/s, {} syncs/s of {} us on average, {} us at most",
        Size(log.rate("written_bytes") as u64),
        number(log.rate("frames")),
        number(log.rate("syncs")),
        whole(log.mean("sync_total_us", "syncs") as u64),
        whole(log.now.count("sync_max_us"))
    )));
    lines.push(Line::plain(format!(
        "durable up to LSN {} of {}; {} in {} segments",
        log.now.count("durable_lsn"),
        log.now.count("written_lsn"),
        Size(log.now.count("size_bytes")),
        whole(log.now.count("segments"))
    )));
    let snapshots = span.now.part("snapshots");
    let running = match snapshots.is("running") {
        true => format!(", another {:.0} % done", snapshots.number("progress_percent")),
        false => String::new(),
    };
    lines.push(Line::plain(format!(
        "{} snapshots made, {} failed{running}",
        whole(snapshots.count("made")),
        whole(snapshots.count("failed"))
    )));
    if snapshots.has("finished_ms") {
        let age_s = now_s(span.now).saturating_sub(snapshots.count("finished_ms") / 1_000);
        lines.push(Line::plain(format!(
            "  the last {} ago: {} entries, {}, up to LSN {}",
            duration(age_s),
            whole(snapshots.count("entries")),
            Size(snapshots.count("file_bytes")),
            snapshots.count("lsn")
        )));
    }
    lines
}

/// Returns the time of the reading, in Unix seconds.
fn now_s(now: Part<'_>) -> u64 {
    (now.count("started_ms") + now.count("uptime_ms")) / 1_000
}

fn latencies(now: Part<'_>) -> Vec<Line> {
    let mut seen: Vec<Part<'_>> =
        now.list("latency").filter(|latency| latency.count("count") != 0).collect();
    // What a client waits for comes first.
    seen.sort_by_key(|latency| match latency.text("what") {
        "request" | "call" => 0,
        "sync" => 1,
        _ => 2,
    });
    let mut lines: Vec<Line> = seen.into_iter().take(LATENCIES).map(latency_line).collect();
    if !lines.is_empty() {
        let title =
            "LATENCY since start                          times        p50        p99        max";
        lines.splice(0..0, section(title));
    }
    lines
}

fn latency_line(latency: Part<'_>) -> Line {
    let subject = [latency.text("subject"), latency.text("family")].join(" ");
    let (buckets, max_us) = (latency.buckets(), latency.number("max_us"));
    let quantile = |share| match quantile(&buckets, share).min(max_us) {
        0.0 => time(0.0),
        bound => format!("< {}", time(bound)),
    };
    Line::plain(format!(
        "{:<8} {:<24} {:>15} {:>10} {:>10} {:>10}",
        shortened(latency.text("what"), 8),
        shortened(&subject, 24),
        whole(latency.count("count")),
        quantile(0.5),
        quantile(0.99),
        time(max_us)
    ))
}

/// Returns the upper bound of the bucket in which this share of the values ends.
fn quantile(buckets: &[(f64, u64)], share: f64) -> f64 {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let mut left = (total as f64 * share).ceil() as u64;
    for (bound, count) in buckets {
        if left <= *count {
            return *bound;
        }
        left -= count;
    }
    0.0
}

fn slow_commands(now: Part<'_>) -> Vec<Line> {
    let now_s = now_s(now);
    let line = |slow: Part<'_>| {
        Line::plain(format!(
            "{:>10} {:>8} ago  {:<22} {}",
            time(slow.number("took_us")),
            duration(now_s.saturating_sub(slow.count("at_s"))),
            one_line(slow.text("client")),
            one_line(slow.text("command"))
        ))
    };
    let mut lines: Vec<Line> = now.list("slow").take(SLOW_COMMANDS).map(line).collect();
    if !lines.is_empty() {
        lines.splice(0..0, section("SLOW COMMANDS, the newest (SLOWLOG GET)"));
    }
    lines
}

fn section(title: &str) -> Vec<Line> {
    vec![Line::plain(""), Line::title(title)]
}

fn ratio(of: u64, to: u64) -> f64 {
    if to == 0 { 0.0 } else { of as f64 / to as f64 }
}

fn percent(of: u64, to: u64) -> String {
    if to == 0 { "-".to_owned() } else { format!("{:.1}%", 100.0 * ratio(of, to)) }
}

/// Formats a rate: precise while it is small.
fn number(rate: f64) -> String {
    if rate == 0.0 {
        "0".to_owned()
    } else if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        whole(rate.round() as u64)
    }
}

/// Formats a whole number that may be negative.
fn signed(value: f64, shown: impl Fn(u64) -> String) -> String {
    let text = shown(value.abs() as u64);
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Formats a whole number with a comma between thousands.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn time(us: f64) -> String {
    if us < 1e3 {
        format!("{us:.0} us")
    } else if us < 1e6 {
        format!("{:.1} ms", us / 1e3)
    } else {
        format!("{:.1} s", us / 1e6)
    }
}

fn duration(seconds: u64) -> String {
    let mut text = String::new();
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m")];
    for (count, unit) in parts {
        if count != 0 || !text.is_empty() {
            write!(text, "{count}{unit} ").expect("writing to a string cannot fail");
        }
    }
    write!(text, "{}s", seconds % 60).expect("writing to a string cannot fail");
    text
}

/// Returns a text of a client or an error without what would move the cursor, and not too long.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(TEXT_CHARS)
        .collect()
}

fn shortened(text: &str, chars: usize) -> String {
    let text = one_line(text);
    match text.chars().count() {
        count if count <= chars => text,
        _ => text.chars().take(chars - 2).chain("..".chars()).collect(),
    }
}

#[cfg(test)]
mod tests;

//! Net, tx and log on simulated seams in one thread: a test decides which of them moves.

use std::{sync::Arc, time::Duration};

use busload_io::{
    Clock,
    sim::{ClientId, SimClients, SimClock, SimDisk, SimNet, SimNetOptions, SimRng},
};
use busload_log::{LogStage, Options, Progress, Step, ZeroHelper};
use busload_pipeline::{
    batch::RequestBatch,
    net::NetStage,
    settings::{Settings, SyncMode, TableSettings},
    source::Source,
    stats::Stats,
    tx::{self, Now, Opened, StartError, Tx},
};
use busload_resp::reply::Reply;

/// A whole server, with its clients.
pub struct World {
    pub net: NetStage<SimNet>,
    pub tx: Tx,
    pub stage: LogStage<SimDisk>,
    pub helper: ZeroHelper<SimDisk>,
    pub progress: Progress,
    pub clients: SimClients,
    pub clock: SimClock,
    pub disk: SimDisk,
    pub stats: Arc<Stats>,
    batch: RequestBatch,
}

/// Client, with the bytes it has not parsed yet.
pub struct Client {
    pub id: ClientId,
    received: Vec<u8>,
}

/// Options with small segments, so that a test goes through many.
pub fn small_segments() -> Options {
    Options { segment_bytes: 64 * 1024, first_segment_bytes: 64 * 1024, ..Options::default() }
}

pub fn settings(sync: SyncMode) -> Settings {
    Settings { tables: vec![table("default", sync)], ..Settings::default() }
}

pub fn table(name: &str, sync: SyncMode) -> TableSettings {
    TableSettings { name: name.into(), sync, ..TableSettings::default_table() }
}

impl World {
    pub fn new(sync: SyncMode) -> World {
        Self::start(SimDisk::new(), settings(sync), SimClock::new(1_000_000), 1)
            .expect("a fresh start")
    }

    pub fn with(settings: Settings) -> World {
        Self::start(SimDisk::new(), settings, SimClock::new(1_000_000), 1).expect("a fresh start")
    }

    /// Does what [`World::with`] does, over a network that moves up to 256 KiB at once, as real
    /// ones do.
    pub fn wide(settings: Settings) -> World {
        let wide = SimNetOptions {
            send_buffer_bytes: 1024 * 1024,
            piece_bytes_max: 256 * 1024,
            ..SimNetOptions::default()
        };
        let clock = SimClock::new(1_000_000);
        Self::start_over(wide, SimDisk::new(), settings, clock, 1).expect("a fresh start")
    }

    pub fn start(
        disk: SimDisk,
        settings: Settings,
        clock: SimClock,
        seed: u64,
    ) -> Result<World, StartError> {
        Self::start_over(SimNetOptions::default(), disk, settings, clock, seed)
    }

    fn start_over(
        options: SimNetOptions,
        disk: SimDisk,
        settings: Settings,
        clock: SimClock,
        seed: u64,
    ) -> Result<World, StartError> {
        let stats = Arc::new(Stats::default());
        let opened = tx::open(
            disk.clone(),
            small_segments(),
            settings.clone(),
            Arc::clone(&stats),
            Arc::default(),
            Box::new(SimRng::new(seed)),
            read(&clock),
            &mut |_| {},
        )?;
        let Opened { tx, progress, stage, helper, .. } = opened;
        let (net, clients) = SimNet::new(seed, options);
        let net = NetStage::new(net, progress.clone(), Arc::clone(&stats), &settings);
        let batch = RequestBatch::default();
        Ok(World { net, tx, stage, helper, progress, clients, clock, disk, stats, batch })
    }

    pub fn add_source(&mut self, name: &str, source: Box<dyn Source>) {
        self.tx.add_source(name, source);
    }

    /// Runs one turn of net and tx.
    pub fn turn(&mut self) {
        self.net.prepare_wait();
        self.net
            .collect(&mut self.batch, Some(Duration::ZERO))
            .expect("the simulated driver works");
        let now = read(&self.clock);
        if !self.batch.is_empty() {
            self.batch.received = now.monotonic;
            self.tx.execute(&mut self.batch, now);
            self.tx.note_executed(now.monotonic, self.clock.now());
        }
        self.tx.end_turn();
        self.net.deliver(&mut self.batch);
        if let Some(mut answers) = self.tx.poll_answers(now) {
            self.net.deliver(&mut answers);
        }
        self.net.finish_turn(self.clock.now());
    }

    /// Runs a turn with two batches under way at once, as when net and tx have a thread each.
    pub fn overlapped_turn(&mut self) {
        let now = read(&self.clock);
        let mut batches = [RequestBatch::default(), RequestBatch::default()];
        for batch in &mut batches {
            self.net.prepare_wait();
            self.net.collect(batch, Some(Duration::ZERO)).expect("the simulated driver works");
            self.net.finish_turn(self.clock.now());
        }
        for batch in batches.iter_mut().filter(|batch| !batch.is_empty()) {
            self.tx.execute(batch, now);
        }
        self.tx.end_turn();
        for batch in &mut batches {
            self.net.deliver(batch);
        }
        self.net.finish_turn(self.clock.now());
    }

    /// Runs net and tx until everything sent has been received and answered as far as the log
    /// allows.
    pub fn turns(&mut self) {
        for _ in 0..200 {
            self.turn();
        }
    }

    /// Runs one step of the log.
    pub fn log_step(&mut self) -> Step {
        self.stage.step(self.clock.now())
    }

    /// Runs the log until it has nothing to do.
    pub fn run_log(&mut self) {
        while matches!(self.log_step(), Step::Worked | Step::Synced)
            | matches!(self.helper.step(self.clock.now()), Step::Worked | Step::Synced)
        {}
    }

    /// Runs the log up to its next sync, which it does not do.
    pub fn run_log_until_written(&mut self) {
        let last = self.tx_last_written();
        for _ in 0..100 {
            if last <= self.progress.written().0 {
                return;
            }
            self.log_step();
        }
        panic!("the log did not write");
    }

    fn tx_last_written(&self) -> u64 {
        self.progress.written().0 + 1
    }

    /// Runs net, tx and log until nothing moves.
    pub fn settle(&mut self) {
        for _ in 0..60 {
            for _ in 0..10 {
                self.turn();
            }
            self.run_log();
        }
    }

    pub fn connect(&mut self) -> Client {
        let client = Client { id: self.clients.connect(), received: Vec::new() };
        self.turn();
        client
    }

    /// Sends commands, one per line.
    pub fn send(&mut self, client: &Client, commands: &str) {
        for line in commands.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            self.send_words(client, &words);
        }
    }

    pub fn send_words<W: AsRef<[u8]>>(&mut self, client: &Client, words: &[W]) {
        self.clients.write(client.id, &request(words));
    }

    /// Returns the replies that have arrived since the last call.
    pub fn replies(&mut self, client: &mut Client) -> Vec<String> {
        client.received.extend(self.clients.read(client.id));
        let mut replies = Vec::new();
        while let Some((reply, length)) =
            Reply::parse(&client.received).expect("replies are well formed")
        {
            client.received.drain(..length);
            replies.push(show(&reply));
        }
        replies
    }

    /// Sends one command, runs everything, and returns the reply.
    pub fn run_words<W: AsRef<[u8]>>(&mut self, client: &mut Client, words: &[W]) -> String {
        self.send_words(client, words);
        self.settle();
        self.replies(client).remove(0)
    }

    /// Sends commands, runs everything, and returns the replies.
    pub fn run(&mut self, client: &mut Client, commands: &str) -> Vec<String> {
        self.send(client, commands);
        self.settle();
        self.replies(client)
    }
}

pub fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = Vec::new();
    busload_resp::write_array(&mut bytes, words.len());
    for word in words {
        busload_resp::write_bulk(&mut bytes, word.as_ref());
    }
    bytes
}

pub fn read(clock: &SimClock) -> Now {
    Now { monotonic: clock.now(), wall_ms: clock.wall_ms() }
}

/// Formats a reply in a short readable form.
pub fn show(reply: &Reply) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let list = |replies: &[Reply]| replies.iter().map(show).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Simple(bytes) | Reply::Bulk(bytes) => text(bytes),
        Reply::Error(bytes) => format!("-{}", text(bytes)),
        Reply::Integer(value) => format!(":{value}"),
        Reply::Null(_) => "nil".into(),
        Reply::Array(replies) | Reply::Push(replies) => format!("[{}]", list(replies)),
        other => format!("{other:?}"),
    }
}

//! Starts a server from a configuration, runs it, and shuts it down cleanly.
//!
//! ```text
//!  addresses bound (clients wait in the backlog)
//!    --> log recovered, its threads started
//!    --> stores open, sources connect
//!    --> `ready`, also to the service manager --> pipeline (this thread, and `net`)
//!    --> told to stop
//!    --> sources and stores closed
//!    --> log synced --> exit
//! ```
//!
//! The server binds its addresses first, so that a port in use fails the start at once and not
//! after minutes of recovery. It starts even if a source cannot be reached.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Write,
    sync::Arc,
    task::Waker,
    thread::{self, JoinHandle},
};

use busload_io::{Address, Clock, Net, NetOptions, RealClock, RealNet, handover::ThreadWaker};
use busload_log::Progress;
use busload_pipeline::{
    net::NetStage,
    stats::Stats,
    wiring::{self, Ending},
};
use busload_tls::TlsNet;

use crate::{
    chunk_stores::ChunkStores,
    config::Config,
    failure::Failure,
    http, logger, open_files,
    peers::Peers,
    recovery::{Recovered, recover},
    reload::{Reloader, Running},
    service_manager::{Heartbeat, Pulse, ServiceManager},
    signals,
    sources::{Pipeline, PostgresTables, RuntimePlacement, attach_chunks},
    status::Status,
    traces::Tracer,
};

/// Serves until a signal or a client stops it.
pub fn serve(config: Config) -> Result<(), Failure> {
    end_on_panic();
    logger::init_queued(&config.log_levels, config.log_format)
        .map_err(|error| Failure::run(format!("the thread `logger` cannot start: {error}")))?;
    let manager = ServiceManager::of_process();
    let ended = run(config, &manager);
    if let Err(failure) = &ended {
        manager.status(failure);
    }
    ended
}

fn run(mut config: Config, manager: &ServiceManager) -> Result<(), Failure> {
    config.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    let clock = RealClock::new();
    let status = Arc::new(Status::new(clock.wall_ms(), config.prices));
    if let Some(peers) = config.peers.take() {
        let own = config.tls.clone();
        status.set_peers(Peers::new(peers, own, config.front.access.clone())?);
    }
    let stopper = signals::watch(Arc::clone(&status.signals), manager.clone())?;
    let reloader = Reloader::new(&config);

    let connections = open_files::fit(&config);
    config.settings.clients_max = connections.clients;
    let mut net = bind(&mut config)?;
    let http = config
        .http
        .map(|address| {
            let size =
                http::Size { threads: config.http_threads, connections_max: connections.http };
            http::start(address, size, config.front.clone(), Arc::clone(&status))
        })
        .transpose()?;
    let tracer = Tracer::start(config.traces.as_ref(), &status.spans)?;
    status.trace(tracer.clone());
    let tx_waker = ThreadWaker::current();
    // The thread that executes transactions polls the sources. With no net threads it waits for
    // sockets, too, and runs the sources' tasks while it waits.
    let (placement, waker) = match config.net_threads {
        0 => (RuntimePlacement::Embedded(Arc::default()), net.waker()),
        _ => (RuntimePlacement::Threads, tx_waker.waker()),
    };
    let pipeline = Pipeline { signals: Arc::clone(&status.signals), waker, tracer: tracer.clone() };
    let Recovered { mut tx, progress, log_threads, snapshots } =
        recover(&config, &clock, &status, manager)?;
    // The stores open while the sources connect to Postgres.
    let peers = status.peers().cloned();
    let chunk_stores = Arc::new(ChunkStores::start(&config.chunks, &config.stores, peers)?);
    status.serve_stores(Arc::clone(&chunk_stores));
    let postgres =
        Arc::new(PostgresTables::start(&config.postgres, &clock, placement, pipeline.clone())?);
    postgres.wait_for_first_attempts();
    chunk_stores.wait_for_first_attempts();
    tx.set_clock(Box::new(clock));
    postgres.attach(&mut tx);
    attach_chunks(&chunk_stores, &mut tx, &pipeline);
    status.add_postgres(Arc::clone(&postgres));
    if let Some(embedded_runtime) = postgres.embedded_runtime() {
        net.set_idle(Box::new(embedded_runtime));
    }

    let net = TlsNet::new(net, config.tls.clone(), clock);
    let stage = NetStage::new(net, progress.clone(), Arc::clone(&status.stats), &config.settings);
    let running = Running {
        pipeline: pipeline.clone(),
        postgres: Arc::clone(&postgres),
        chunk_stores: Arc::clone(&chunk_stores),
        clients_max_at_start: config.settings.clients_max,
    };
    reloader.start(running, manager.clone())?;
    stopper.arm(stage.waker());
    status.serve();
    let ready = ready_line(&config, http);
    logger::say(&ready);
    // Who waits for that line has it before the first answer.
    logger::flush();
    manager.ready(&ready);
    manager.watch(heartbeat(pipeline.waker, stage.waker(), &status.stats), Arc::clone(&status))?;
    let ending = match config.net_threads {
        0 => wiring::run_inline(stage, tx, &clock),
        _ => wiring::run_threads(stage, tx, clock, &tx_waker),
    };
    if matches!(ending, Ending::Stopped) {
        postgres.stop();
        chunk_stores.stop();
        tracer.stop();
    }
    snapshots.stop()?;
    end(ending, log_threads, &progress)
}

/// Binds the addresses and notes the ports that the system chose in the configuration.
fn bind(config: &mut Config) -> Result<RealNet, Failure> {
    let options =
        NetOptions { connection_count_limit: config.settings.clients_max, ..NetOptions::default() };
    let net = RealNet::bind(&config.resp_addresses(), options)
        .map_err(|error| Failure::run(error.to_string()))?;
    let tcp = net.addresses().iter().filter_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    });
    config.resp = tcp.collect();
    let about = &mut config.settings.about;
    about.port = config.resp.first().map_or(0, std::net::SocketAddr::port);
    about.bind = net.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    Ok(net)
}

/// Heartbeat of the threads of the pipeline. With no net thread both wakers wake the same one.
fn heartbeat(tx: Waker, net: Waker, stats: &Arc<Stats>) -> Heartbeat {
    let (of_tx, of_net) = (Arc::clone(stats), Arc::clone(stats));
    Heartbeat::new([
        Pulse { thread: "tx", waker: tx, turns: Box::new(move || of_tx.turns_total.get()) },
        Pulse { thread: "net", waker: net, turns: Box::new(move || of_net.net_polls_total.get()) },
    ])
}

fn ready_line(config: &Config, http: Option<std::net::SocketAddr>) -> String {
    let mut line = "ready".to_owned();
    // Writing to a string cannot fail.
    config.resp.iter().for_each(|address| _ = write!(line, " resp={address}"));
    config.unix.iter().for_each(|path| _ = write!(line, " unix={}", path.display()));
    http.iter().for_each(|address| _ = write!(line, " http={address}"));
    let _ = write!(line, " data={} net_threads={}", config.data.display(), config.net_threads);
    line
}

/// Aborts the process on a panic in any thread: half a pipeline would hang, and the log recovers
/// every acknowledged write.
fn end_on_panic() {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = thread::current();
        let mut report = format!("thread '{}' {panic}", thread.name().unwrap_or("without a name"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            // Writing to a string cannot fail.
            let _ = write!(report, "\n{backtrace}");
        }
        logger::say_failure(&report);
        logger::flush();
        std::process::abort();
    }));
}

/// Waits until the log is synced, unless it has failed.
fn end(
    ending: Ending,
    log_threads: Vec<JoinHandle<()>>,
    progress: &Progress,
) -> Result<(), Failure> {
    match ending {
        Ending::Stopped => {
            for thread in log_threads {
                thread.join().map_err(|_| Failure::run("a thread of the log panicked"))?;
            }
            match progress.failure() {
                None => {
                    log::info!("stopped; the log is synced up to LSN {}", progress.durable());
                    Ok(())
                }
                Some(message) => Err(log_failure(&message)),
            }
        }
        Ending::LogFailed(message) => Err(log_failure(&message)),
        Ending::NetFailed(error) => {
            Err(Failure::run(format!("the event loop of the sockets failed: {error}")))
        }
    }
}

fn log_failure(message: &str) -> Failure {
    Failure::run(format!("the log failed and nothing more was answered: {message}"))
}

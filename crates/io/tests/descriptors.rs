//! Behaviour of the socket driver when the process has no file descriptors left. This test has a
//! process of its own because it takes them all.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use busload_io::{Address, Event, Net, NetOptions, RealNet};

static WARNINGS: AtomicUsize = AtomicUsize::new(0);

struct CountWarnings;

impl log::Log for CountWarnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        assert!(
            record.args().to_string().starts_with("cannot accept clients at 127.0.0.1:"),
            "{}",
            record.args()
        );
        WARNINGS.fetch_add(1, Ordering::Relaxed);
    }

    fn flush(&self) {}
}

fn poll(net: &mut RealNet, timeout: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    net.poll(&mut events, Some(timeout)).expect("the driver works");
    events
}

#[test]
fn without_descriptors_clients_wait_in_the_backlog_and_nothing_spins() {
    log::set_logger(&CountWarnings).expect("no other logger");
    log::set_max_level(log::LevelFilter::Warn);
    let loopback = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let mut net = RealNet::bind(&[loopback], NetOptions::default()).expect("a free port");
    let Address::Tcp(address) = net.addresses()[0] else { panic!("it is a TCP address") };
    for round in 1..=2 {
        let client = TcpStream::connect(address).expect("the backlog takes it");
        let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let few = rustix::process::Rlimit { current: Some(64), ..limits };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few)
            .expect("lowering is allowed");
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }

        let polls_before = net.counters().polls;
        // The first poll reports the client, the others nothing; each waits for its back-off or its
        // timeout.
        for _ in 0..3 {
            let events = poll(&mut net, Duration::from_secs(20));
            assert!(events.is_empty(), "a back-off is no timeout of the caller: {events:?}");
        }
        assert_eq!(net.counters().polls - polls_before, 3);
        assert_eq!(WARNINGS.load(Ordering::Relaxed), round, "one line for as long as it lasts");

        drop(taken);
        let events = poll(&mut net, Duration::from_secs(20));
        assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limits)
            .expect("back to what it was");
        drop(client);
        while !matches!(poll(&mut net, Duration::from_secs(20))[..], [Event::Closed { .. }]) {}
    }
}

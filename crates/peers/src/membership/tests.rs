use super::*;

const ME: &str = "http://a:6381";

fn url(name: &str) -> String {
    format!("http://{name}:6381")
}

fn of(names: &[&str]) -> Membership {
    let mut membership = Membership::new(ME);
    membership.handle_listed(names.iter().map(|name| url(name)), Duration::ZERO).unwrap();
    membership
}

fn files() -> impl Iterator<Item = [u8; 20]> {
    (0..3_000u32).map(|number| {
        let mut id = [0; 20];
        id[..4].copy_from_slice(&number.to_be_bytes());
        id
    })
}

fn owners(membership: &Membership) -> Vec<String> {
    let text = |owner: Owner<'_>| match owner {
        Owner::Me => ME.to_owned(),
        Owner::Peer(url) => url.to_owned(),
    };
    files().map(|file| text(membership.owner("db", &file))).collect()
}

#[test]
fn alone_everything_is_mine() {
    for alone in [Membership::new(ME), of(&[]), of(&["a"]), of(&["a", "a"])] {
        assert!(owners(&alone).iter().all(|owner| owner == ME));
        assert_eq!(alone.view().counts(), crate::PeerCounts::default());
        assert_eq!(alone.next_probe_at(), None);
    }
}

#[test]
fn a_peer_is_suspect_after_failures_in_a_row_until_it_answers() {
    let mut peers = of(&["a", "b", "c"]);
    let (all, b) = (owners(&peers), url("b"));
    assert!(all.contains(&b));
    for _ in 1..FAILURES_UNTIL_SUSPECT {
        peers.handle_failed(&b);
    }
    assert_eq!(owners(&peers), all, "an answer may still come");
    peers.handle_answered(&b);
    for _ in 1..FAILURES_UNTIL_SUSPECT {
        peers.handle_failed(&b);
    }
    assert_eq!(owners(&peers), all, "failures before an answer do not count");
    peers.handle_failed(&b);
    let without = owners(&peers);
    assert_eq!((peers.view().counts().alive, peers.view().counts().suspect), (1, 1));
    for (before, after) in all.iter().zip(&without) {
        assert_ne!(*after, b);
        assert!(*before == b || before == after, "only the files of the suspect move");
    }
    assert_eq!(without, owners(&of(&["a", "c"])), "as if it were not on the list");
    peers.handle_answered(&b);
    assert_eq!(owners(&peers), all);
}

#[test]
fn a_new_list_keeps_what_is_known_of_its_peers() {
    let mut peers = of(&["a", "b", "c"]);
    (0..FAILURES_UNTIL_SUSPECT).for_each(|_| peers.handle_failed(&url("b")));
    peers.handle_listed(["b", "c", "d"].map(url), Duration::from_secs(9)).unwrap();
    assert_eq!((peers.view().counts().alive, peers.view().counts().suspect), (2, 1));
    peers.handle_listed(["c"].map(url), Duration::from_secs(9)).unwrap();
    // Events of peers that have gone come late and change nothing.
    peers.handle_answered(&url("b"));
    peers.handle_failed(&url("d"));
    assert_eq!(owners(&peers), owners(&of(&["a", "c"])));
}

#[test]
fn a_list_that_is_too_long_changes_nothing() {
    let mut peers = of(&["a", "b"]);
    let before = owners(&peers);
    let many = (0..PEER_COUNT_MAX).map(|number| url(&format!("p{number}")));
    let refused = peers.handle_listed(many, Duration::ZERO).unwrap_err();
    assert_eq!(refused.to_string(), "expected at most 256 peers, got 257");
    assert_eq!(owners(&peers), before);
}

#[test]
fn probes_are_spread_and_each_peer_gets_one_an_interval() {
    let mut peers = of(&["a", "b", "c", "d"]);
    let mut now = Duration::ZERO;
    let mut probed = std::collections::BTreeMap::<String, u32>::new();
    let mut random = 1u32;
    while now < PROBE_INTERVAL * 100 {
        random = random.wrapping_mul(0x9e37_79b1).wrapping_add(12_345);
        match peers.poll_probe(now, random) {
            Some(url) => *probed.entry(url).or_default() += 1,
            None => now = peers.next_probe_at().unwrap(),
        }
    }
    assert_eq!(probed.keys().cloned().collect::<Vec<_>>(), ["b", "c", "d"].map(url));
    assert!(probed.values().all(|count| (90..=115).contains(count)), "{probed:?}");
}

#[test]
fn a_peer_where_nobody_listens_is_suspect_at_once() {
    let mut peers = of(&["a", "b", "c"]);
    peers.handle_refused(&url("b"));
    assert_eq!((peers.view().counts().alive, peers.view().counts().suspect), (1, 1));
    assert_eq!(owners(&peers), owners(&of(&["a", "c"])));
    peers.handle_answered(&url("b"));
    assert_eq!(peers.view().counts().alive, 2);
}

#[test]
fn a_peer_that_ends_a_connection_is_probed_at_once_and_in_no_loop() {
    let mut peers = of(&["a", "b"]);
    let mut now = Duration::ZERO;
    let probe = |peers: &mut Membership, now| peers.poll_probe(now, 0);
    assert_eq!(probe(&mut peers, now), Some(url("b")));
    assert_eq!(probe(&mut peers, now), None);
    now += PROBE_INTERVAL / 2;
    assert!(peers.handle_disconnected(&url("b"), now));
    assert_eq!(peers.next_probe_at(), Some(now));
    assert_eq!(probe(&mut peers, now), Some(url("b")));
    // It closes each connection as soon as it has answered.
    peers.handle_disconnected(&url("b"), now);
    assert_eq!(
        (probe(&mut peers, now), peers.next_probe_at()),
        (None, Some(now + PROBE_AGAIN_AFTER))
    );
    // What is due sooner stays so, and a peer that has gone changes nothing.
    peers.handle_listed([url("c")], now).unwrap();
    assert!(!peers.handle_disconnected(&url("b"), now + PROBE_INTERVAL));
    peers.handle_disconnected(&url("c"), now + PROBE_INTERVAL);
    assert_eq!(peers.next_probe_at(), Some(now));
}

/// A process that ends closes its connections first, and then the socket that it listens on.
#[test]
fn a_peer_that_cuts_probes_off_is_probed_at_once_until_it_is_suspect() {
    let mut peers = of(&["a", "b"]);
    let mut now = Duration::ZERO;
    for _ in 1..FAILURES_UNTIL_SUSPECT {
        assert_eq!(peers.poll_probe(now, 0), Some(url("b")));
        assert!(peers.handle_cut_off(&url("b"), now));
        now += PROBE_CUT_OFF_AFTER;
        assert_eq!(peers.next_probe_at(), Some(now));
    }
    assert_eq!(peers.poll_probe(now, 0), Some(url("b")));
    assert!(!peers.handle_cut_off(&url("b"), now));
    assert_eq!(peers.view().counts().suspect, 1);
    assert!(now + PROBE_INTERVAL / 2 < peers.next_probe_at().unwrap());
    assert!(!peers.handle_cut_off(&url("gone"), now));
}

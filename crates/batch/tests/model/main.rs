//! In every order of events the queue does what a simple reference does, and keeps its promises.

mod change;
mod reference;
mod world;

use std::time::Duration;

use busload_batch::limits::REQUEST_OVERHEAD_BYTES;
use busload_batch::{DispatchPolicy, QueueSettings, Sharing};
use proptest::collection::vec;
use proptest::prelude::*;

use change::Action;
use world::{Deadline, KEYS, Step, World};

const STEPS_MAX: usize = 150;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn line_does_what_the_reference_does(
        settings in settings(),
        steps in vec(step(), 1..STEPS_MAX),
    ) {
        run(settings, steps);
    }
}

fn run(settings: QueueSettings, steps: Vec<Step>) {
    let mut world = World::new(settings);
    for step in steps {
        world.step(step);
    }
    world.finish();
}

fn settings() -> impl Strategy<Value = QueueSettings> {
    let requests_max = prop_oneof![1..5_usize, 10..60_usize];
    let bytes_max = prop_oneof![1..1_000_usize, Just(1_000_000)]
        .prop_map(|bytes| bytes + REQUEST_OVERHEAD_BYTES);
    let batch = (1..6_usize, prop_oneof![1..40_usize, Just(10_000)]);
    (requests_max, bytes_max, batch, 1..4_usize, sharing()).prop_flat_map(
        |(requests_max, bytes_max, (entries, bytes), in_flight, sharing)| {
            dispatch(entries).prop_map(move |dispatch| QueueSettings {
                requests_max,
                bytes_max,
                batch_entries_max: entries,
                batch_bytes_max: bytes,
                batches_in_flight_max: in_flight,
                dispatch,
                sharing,
            })
        },
    )
}

fn sharing() -> impl Strategy<Value = Sharing> {
    prop_oneof![Just(Sharing::Waiting), Just(Sharing::InFlight)]
}

fn dispatch(batch_entries_max: usize) -> impl Strategy<Value = DispatchPolicy> {
    let wait = prop_oneof![Just(0), 1..2_000_u64].prop_map(Duration::from_micros);
    prop_oneof![
        2 => Just(DispatchPolicy::Adaptive),
        1 => Just(DispatchPolicy::Eager),
        1 => (1..=batch_entries_max, wait)
            .prop_map(|(entries, wait)| DispatchPolicy::Window { entries, wait }),
        1 => Just(DispatchPolicy::Immediate),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..KEYS, 0..9_u8, deadline())
            .prop_map(|(key, key_bytes, deadline)| Step::Read { key, key_bytes, deadline }),
        12 => (0..KEYS, 0..9_u8, action(), deadline())
            .prop_map(|(key, key_bytes, action, deadline)| {
                Step::Write { key, key_bytes, action, deadline }
            }),
        6 => any::<usize>().prop_map(|request| Step::Leave { request }),
        6 => Just(Step::NextBatch),
        4 => Just(Step::AllBatches),
        4 => any::<usize>().prop_map(|batch| Step::Make { batch }),
        8 => any::<(usize, usize)>().prop_map(|(batch, entry)| Step::Answer { batch, entry }),
        6 => any::<usize>().prop_map(|batch| Step::End { batch }),
        6 => (0..1_500_u64).prop_map(|micros| Step::Advance { micros }),
        2 => (0..300_u64).prop_map(|micros| Step::GoBack { micros }),
        2 => Just(Step::Expire),
        1 => Just(Step::TakeWaiting),
        4 => Just(Step::SleepUntilWake),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (0..20_u8).prop_map(Action::Set),
        2 => (0..6_u8).prop_map(Action::SetField),
        1 => Just(Action::Delete),
    ]
}

fn deadline() -> impl Strategy<Value = Deadline> {
    prop_oneof![2 => Just(None), 1 => Just(Some(1_000)), 1 => (0..5_000_u64).prop_map(Some)]
}

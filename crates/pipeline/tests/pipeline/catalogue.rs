//! Tables that appear, change and disappear between two starts; no start hides keys.

use crate::world::{World, settings, table};
use busload_io::sim::{CrashKind, SimClock, SimDisk, SimRng};
use busload_pipeline::settings::{Settings, SourceTable, SyncMode};

fn start(disk: &SimDisk, settings: Settings) -> World {
    World::start(disk.clone(), settings, SimClock::new(1_000_000), 1).expect("starts")
}

fn refused(disk: &SimDisk, settings: Settings) -> String {
    match World::start(disk.clone(), settings, SimClock::new(1_000_000), 1) {
        Ok(_) => panic!("started"),
        Err(error) => error.to_string(),
    }
}

fn run(world: &mut World, commands: &str) -> Vec<String> {
    let mut client = world.connect();
    world.run(&mut client, commands)
}

fn with_users(sync: SyncMode) -> Settings {
    let mut settings = settings(SyncMode::Always);
    settings.tables.push(table("users", sync));
    settings
}

#[test]
fn keys_belong_to_the_table_their_prefix_names_in_every_space() {
    let disk = SimDisk::new();
    let mut world = start(&disk, with_users(SyncMode::Always));
    let replies = run(
        &mut world,
        "SET users:1 a\nSET other:1 b\nSELECT 3\nGET users:1\nGET other:1\nSET other:1 \
         c\nDBSIZE\nSELECT 0\nDBSIZE\nKEYS users:*",
    );
    assert_eq!(replies, ["OK", "OK", "OK", "a", "nil", "OK", ":1", "OK", ":2", "[users:1]"]);
    assert_eq!(
        run(
            &mut world,
            "SELECT 3\nFLUSHDB\nGET users:1\nSELECT 0\nGET other:1\nFLUSHDB\nGET users:1\nDBSIZE"
        ),
        ["OK", "OK", "a", "OK", "b", "OK", "nil", ":0"]
    );
}

#[test]
fn a_new_table_over_existing_keys_is_refused_until_it_adopts_them() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Always));
    run(&mut world, "SET users:1 a\nHSET users:2 f v\nPEXPIRE users:2 100000\nSET other 1");
    drop(world);
    let message = refused(&disk, with_users(SyncMode::Always));
    assert!(
        message.contains("2 keys that begin with `users:`") && message.contains("--adopt-tables"),
        "{message}"
    );

    let adopting = Settings { adopt_tables: true, ..with_users(SyncMode::Always) };
    let mut world = start(&disk, adopting);
    let expected = ["a", "v", ":100000", "1", ":3"];
    assert_eq!(
        run(&mut world, "GET users:1\nHGET users:2 f\nPTTL users:2\nGET other\nDBSIZE"),
        expected
    );
    drop(world);
    // They are where they were moved, even after a crash that loses everything unsynced.
    let disk = disk.crash(&mut SimRng::new(3), CrashKind::DropUnsynced);
    let mut world = start(&disk, with_users(SyncMode::Always));
    assert_eq!(
        run(&mut world, "GET users:1\nHGET users:2 f\nPTTL users:2\nGET other\nDBSIZE"),
        expected
    );
}

#[test]
fn keys_in_other_spaces_cannot_be_adopted() {
    let disk = SimDisk::new();
    let mut world = start(&disk, settings(SyncMode::Always));
    run(&mut world, "SELECT 5\nSET users:1 a");
    drop(world);
    let message = refused(&disk, Settings { adopt_tables: true, ..with_users(SyncMode::Always) });
    assert!(message.contains("1 keys") && message.contains("spaces 1 to 15"), "{message}");
}

#[test]
fn a_table_that_is_not_configured_any_more_is_dropped_only_on_purpose() {
    let disk = SimDisk::new();
    let mut world = start(&disk, with_users(SyncMode::Always));
    run(&mut world, "SET users:1 a\nSET k 1");
    drop(world);
    let message = refused(&disk, settings(SyncMode::Always));
    assert!(
        message.contains("table users holds 1 keys") && message.contains("--drop-table users"),
        "{message}"
    );

    let dropping =
        |name: &str| Settings { drop_tables: vec![name.into()], ..settings(SyncMode::Always) };
    assert!(refused(&disk, dropping("nosuch")).contains("the log knows no such table"));
    let mut world = start(&disk, dropping("users"));
    assert_eq!(run(&mut world, "GET users:1\nGET k\nSET users:1 mine"), ["nil", "1", "OK"]);
    drop(world);
    let mut world = start(&disk, settings(SyncMode::Always));
    assert_eq!(run(&mut world, "GET users:1\nGET k"), ["mine", "1"]);
}

#[test]
fn an_empty_table_may_go_silently_and_its_id_is_never_used_again() {
    let disk = SimDisk::new();
    drop(start(&disk, with_users(SyncMode::Always)));
    drop(start(&disk, settings(SyncMode::Always)));
    let mut again = settings(SyncMode::Always);
    again.tables.push(table("orders", SyncMode::Always));
    let mut world = start(&disk, again);
    assert_eq!(run(&mut world, "SET orders:1 a\nGET orders:1"), ["OK", "a"]);
}

#[test]
fn a_table_that_stops_being_logged_keeps_its_keys_until_the_next_stop_only() {
    let disk = SimDisk::new();
    let mut world = start(&disk, with_users(SyncMode::Always));
    run(&mut world, "SET users:1 a\nSET k 1");
    drop(world);
    let mut world = start(&disk, with_users(SyncMode::Off));
    assert_eq!(run(&mut world, "GET users:1\nGET k"), ["a", "1"]);
    drop(world);
    let mut world = start(&disk, with_users(SyncMode::Off));
    assert_eq!(run(&mut world, "GET users:1\nGET k\nSET users:2 b"), ["nil", "1", "OK"]);
    drop(world);
    let mut world = start(&disk, with_users(SyncMode::Always));
    assert_eq!(run(&mut world, "GET users:2\nSET users:3 c"), ["nil", "OK"]);
    drop(world);
    assert_eq!(run(&mut start(&disk, with_users(SyncMode::Always)), "GET users:3"), ["c"]);
}

#[test]
fn what_moves_out_of_an_off_table_is_logged_whole() {
    let disk = SimDisk::new();
    let mut world = start(&disk, with_users(SyncMode::Off));
    let replies = run(
        &mut world,
        "HSET users:h a 1 b 2\nPEXPIRE users:h 500000\nRENAME users:h h\nSET users:s text\nAPPEND \
         users:s !\nCOPY users:s s\nSET back 1\nRENAME back users:back",
    );
    assert_eq!(replies, [":2", ":1", "OK", "OK", ":5", ":1", "OK", "OK"]);
    drop(world);
    let mut world = start(&disk, with_users(SyncMode::Off));
    assert_eq!(
        run(&mut world, "HGET h b\nPTTL h\nGET s\nGET back\nGET users:back\nDBSIZE"),
        ["2", ":500000", "text!", "nil", "nil", ":2"]
    );
}

#[test]
fn a_crash_anywhere_in_a_start_that_adopts_leaves_a_directory_that_starts() {
    for at in 0..200 {
        let disk = SimDisk::new();
        let mut world = start(&disk, settings(SyncMode::Always));
        run(&mut world, "SET users:1 a\nSET users:2 b\nSET k 1");
        drop(world);
        let adopting = Settings { adopt_tables: true, ..with_users(SyncMode::Always) };
        let before = disk.operation_count();
        disk.crash_at(before + at);
        let finished =
            World::start(disk.clone(), adopting.clone(), SimClock::new(1_000_000), 1).is_ok();
        let after = disk.crash(&mut SimRng::new(at), CrashKind::AnySubset);
        let mut world = start(&after, adopting);
        assert_eq!(
            run(&mut world, "GET users:1\nGET users:2\nGET k\nDBSIZE"),
            ["a", "b", "1", ":3"],
            "at {at}"
        );
        if finished {
            return;
        }
    }
    panic!("a start takes fewer than 200 operations");
}

/// There is more than one frame of keys: some are moved and synced when the start is interrupted.
#[test]
fn an_interrupted_adoption_is_finished_by_the_next_start_whatever_its_flags() {
    const KEYS: usize = 60;
    let mut went_on = 0;
    for at in 0..400 {
        let disk = SimDisk::new();
        let mut world = start(&disk, settings(SyncMode::Always));
        let mut client = world.connect();
        for key in 0..KEYS {
            world.send_words(&client, &["SET", &format!("users:{key}"), &"v".repeat(4096)]);
        }
        (0..5).for_each(|_| world.settle());
        assert_eq!(world.replies(&mut client).len(), KEYS);
        drop(world);
        let before = disk.operation_count();
        disk.crash_at(before + at);
        let adopting = Settings { adopt_tables: true, ..with_users(SyncMode::Always) };
        let finished =
            World::start(disk.clone(), adopting.clone(), SimClock::new(1_000_000), 1).is_ok();
        let after = disk.crash(&mut SimRng::new(at), CrashKind::AnySubset);
        let plain =
            World::start(after.clone(), with_users(SyncMode::Always), SimClock::new(1_000_000), 1);
        went_on += u32::from(plain.is_ok() && !finished);
        let mut world = plain.unwrap_or_else(|_| start(&after, adopting));
        let mut client = world.connect();
        let names: Vec<String> = (0..KEYS).map(|key| format!("users:{key}")).collect();
        let exists = world.run(&mut client, &format!("EXISTS {}\nDBSIZE", names.join(" ")));
        assert_eq!(exists, [format!(":{KEYS}"), format!(":{KEYS}")], "at {at}");
        if finished {
            assert!(0 < went_on, "no start was interrupted between two keys");
            return;
        }
    }
    panic!("a start takes fewer than 400 operations");
}

fn with_source(mut settings: Settings) -> Settings {
    settings.sources.push(SourceTable { name: "users".into(), kind: "postgres" });
    settings
}

#[test]
fn a_source_over_existing_keys_is_refused_whatever_the_space_and_never_adopts() {
    for commands in ["SET users:1 a\nSET users:2 b", "SET users:1 a\nSELECT 9\nSET users:1 b"] {
        let disk = SimDisk::new();
        run(&mut start(&disk, settings(SyncMode::Always)), commands);
        for adopt_tables in [false, true] {
            let message = refused(
                &disk,
                with_source(Settings { adopt_tables, ..settings(SyncMode::Always) }),
            );
            assert!(
                message.contains("new postgres table, but 2 keys that begin with `users:`"),
                "{message}"
            );
        }
        // The log contains nothing of the refused starts.
        run(&mut start(&disk, settings(SyncMode::Always)), "FLUSHALL\nSET userson:1 a");
        assert_eq!(
            run(&mut start(&disk, with_source(settings(SyncMode::Always))), "DBSIZE"),
            [":1"]
        );
    }
}

#[test]
fn a_source_takes_the_name_of_a_memory_table_only_when_that_is_empty_or_dropped() {
    let disk = SimDisk::new();
    run(&mut start(&disk, with_users(SyncMode::Always)), "SET users:1 a\nSET k 1");
    let message = refused(&disk, with_source(settings(SyncMode::Always)));
    assert!(
        message.contains("a memory table of that name with 1 keys")
            && message.contains("--drop-table users"),
        "{message}"
    );
    let dropping =
        with_source(Settings { drop_tables: vec!["users".into()], ..settings(SyncMode::Always) });
    assert_eq!(run(&mut start(&disk, dropping.clone()), "DBSIZE"), [":1"]);
    assert_eq!(run(&mut start(&disk, with_source(settings(SyncMode::Always))), "DBSIZE"), [":1"]);
    assert!(refused(&disk, dropping).contains("both configured and named by --drop-table"));

    let disk = SimDisk::new();
    run(&mut start(&disk, with_users(SyncMode::Always)), "SET users:1 a\nDEL users:1");
    start(&disk, with_source(settings(SyncMode::Always)));
}

#[test]
fn a_source_may_go_and_its_name_becomes_a_prefix_like_any_other() {
    let disk = SimDisk::new();
    start(&disk, with_source(settings(SyncMode::Always)));
    let mut world = start(&disk, settings(SyncMode::Always));
    assert_eq!(run(&mut world, "SET users:1 a\nGET users:1"), ["OK", "a"]);
    drop(world);
    assert!(refused(&disk, with_source(settings(SyncMode::Always))).contains("1 keys"));

    let disk = SimDisk::new();
    start(&disk, with_source(settings(SyncMode::Always)));
    assert_eq!(
        run(&mut start(&disk, with_users(SyncMode::Always)), "SET users:1 a\nDBSIZE"),
        ["OK", ":1"]
    );
    assert_eq!(run(&mut start(&disk, with_users(SyncMode::Always)), "GET users:1"), ["a"]);
}

//! Snapshots of a log that is written, cut off and corrupted on a simulated disk. A model that
//! replays every record says what each start must find.

mod crashes;
mod maintenance;
mod roundtrip;
mod world;

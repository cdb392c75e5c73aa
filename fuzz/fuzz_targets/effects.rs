//! Records of the log and blocks of snapshots: any bytes decode to effects or an error, and apply.

#![no_main]

use busload_tables::{
    Tables,
    effect::{Effect, apply, decode},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|record: &[u8]| {
    let mut tables = Tables::new(1);
    for effect in decode(record).map_while(Result::ok) {
        // A patch far behind the end of a value takes memory by design.
        let is_long = matches!(effect, Effect::Patch { offset, .. } if 1 << 20 < offset);
        if !is_long {
            _ = apply(&mut tables, effect);
        }
    }
});

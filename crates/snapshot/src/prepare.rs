//! Prepares tables for the contents of a snapshot, and applies its blocks.

use busload_tables::{
    HashPrefix, TableId, Tables,
    effect::{ApplyError, Replayer, decode},
    limits::REPLAY_GROUP_BYTES,
};

/// Returns the tables of a catalogue, empty, prepared for as many entries as are expected, whose
/// hashes have a prefix.
pub(crate) fn prepared_tables(
    seed: u64,
    catalogue: &[u8],
    expected: &[(TableId, usize)],
    prefix: HashPrefix,
) -> Result<Tables, ApplyError> {
    let mut tables = Tables::new(seed);
    let mut replayer = Replayer::new(&mut tables);
    replayer.push(catalogue)?;
    replayer.finish();
    for &(table, entries) in expected {
        if tables.exists(table) {
            tables.reserve(table, entries, prefix);
        }
    }
    Ok(tables)
}

/// Pushes effects in groups that the replayer decodes ahead.
pub(crate) fn push_groups(replayer: &mut Replayer<'_>, block: &[u8]) -> Result<(), ApplyError> {
    let mut effects = decode(block);
    let mut start = 0;
    while let Some(effect) = effects.next() {
        effect?;
        let end = effects.offset();
        if REPLAY_GROUP_BYTES / 2 <= end - start {
            replayer.push(&block[start..end])?;
            start = end;
        }
    }
    replayer.push(&block[start..])
}

//! HRANDFIELD: fields drawn by chance.

use std::collections::HashSet;

use busload_io::{Rng, sim::SimRng};
use busload_resp::{Version, parse_i64};
use busload_tables::HashRef;

use super::{first_key, read_hash};
use crate::{
    command::Call,
    error::{CommandError, CommandResult},
    reply::Reply,
    tx::Tx,
};

type Pair<'a> = (&'a [u8], &'a [u8]);

/// HRANDFIELD
pub(in crate::command) fn hrandfield(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let mut rng = SimRng::new(tx.rng.next_u64());
    if call.args.len() == 2 {
        let hash = read_hash(tx, &first_key(tx, call))?;
        call.reply.bulk_or_null(hash.map(|hash| hash.random(rng.next_u64()).0));
        return Ok(());
    }
    let ask = Ask::parse(call)?;
    let Some(hash) = read_hash(tx, &first_key(tx, call))? else {
        call.reply.array(0);
        return Ok(());
    };
    match ask.draw {
        Draw::Different(count) => {
            let pairs = different(hash, count, &mut rng);
            write_header(pairs.len(), ask.shown, &mut call.reply);
            pairs.into_iter().for_each(|pair| write_pair(pair, ask.shown, &mut call.reply));
            Ok(())
        }
        Draw::Repeated(count) => {
            let bytes_max = tx.settings.client_reply_bytes;
            write_repeated(hash, count, ask.shown, &mut rng, bytes_max, &mut call.reply)
        }
    }
}

/// What was asked for.
struct Ask {
    draw: Draw,
    shown: Shown,
}

#[derive(Clone, Copy)]
enum Draw {
    /// At most so many, none twice.
    Different(u64),
    /// Exactly so many, each drawn from all.
    Repeated(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Fields,
    Pairs,
}

impl Ask {
    fn parse(call: &Call<'_>) -> Result<Self, CommandError> {
        let count = parse_i64(call.args.at(2)).ok_or(CommandError::NotInteger)?;
        if count == i64::MIN {
            return Err(CommandError::text(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ));
        }
        let shown = match (call.args.get(3), call.args.len()) {
            (None, _) => Shown::Fields,
            (Some(word), 4) if word.eq_ignore_ascii_case(b"withvalues") => Shown::Pairs,
            _ => return Err(CommandError::Syntax),
        };
        let magnitude = count.unsigned_abs();
        if shown == Shown::Pairs && i64::MAX as u64 / 2 < magnitude {
            return Err(CommandError::text("ERR value is out of range"));
        }
        let draw = if count < 0 { Draw::Repeated(magnitude) } else { Draw::Different(magnitude) };
        Ok(Self { draw, shown })
    }
}

/// At most `count` fields, none twice.
fn different<'a>(hash: HashRef<'a>, count: u64, rng: &mut SimRng) -> Vec<Pair<'a>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count < hash.len() / 3
        && let Some(pairs) = draw_until_different(hash, count, rng)
    {
        return pairs;
    }
    let mut pairs: Vec<Pair<'a>> = hash.iter().collect();
    if count < pairs.len() {
        shuffle_front(&mut pairs, count, rng);
        pairs.truncate(count);
    }
    pairs
}

/// Draws until there are enough different ones; for few out of many. Gives up when chance is against it.
fn draw_until_different<'a>(hash: HashRef<'a>, count: usize, rng: &mut SimRng) -> Option<Vec<Pair<'a>>> {
    const DRAWS_PER_FIELD_MAX: usize = 8;
    let mut seen = HashSet::with_capacity(count);
    let mut pairs = Vec::with_capacity(count);
    for _ in 0..count * DRAWS_PER_FIELD_MAX {
        if pairs.len() == count {
            break;
        }
        let pair = hash.random(rng.next_u64());
        if seen.insert(pair.0) {
            pairs.push(pair);
        }
    }
    (pairs.len() == count).then_some(pairs)
}

/// Puts `count` of the pairs, drawn by chance, to the front.
fn shuffle_front(pairs: &mut [Pair<'_>], count: usize, rng: &mut SimRng) {
    for index in 0..count {
        let left = (pairs.len() - index) as u64;
        pairs.swap(index, index + (rng.next_u64() % left) as usize);
    }
}

/// The reply can be far larger than the hash, so it is bounded.
fn write_repeated(
    hash: HashRef<'_>,
    count: u64,
    shown: Shown,
    rng: &mut SimRng,
    bytes_max: usize,
    reply: &mut Reply<'_>,
) -> CommandResult {
    const PROTOCOL_BYTES_MIN: usize = 6;
    let too_large = CommandError::text("ERR value is out of range, the reply would be too large");
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if bytes_max / PROTOCOL_BYTES_MIN < count {
        return Err(too_large);
    }
    write_header(count, shown, reply);
    let mut bytes = 0;
    for _ in 0..count {
        let pair = hash.random(rng.next_u64());
        bytes += PROTOCOL_BYTES_MIN + pair.0.len();
        if shown == Shown::Pairs {
            bytes += PROTOCOL_BYTES_MIN + pair.1.len();
        }
        if bytes_max < bytes {
            return Err(too_large);
        }
        write_pair(pair, shown, reply);
    }
    Ok(())
}

fn write_header(count: usize, shown: Shown, reply: &mut Reply<'_>) {
    let flat = shown == Shown::Pairs && reply.version() == Version::Resp2;
    reply.array(if flat { count * 2 } else { count });
}

fn write_pair((field, value): Pair<'_>, shown: Shown, reply: &mut Reply<'_>) {
    if shown == Shown::Fields {
        return reply.bulk(field);
    }
    if reply.version() == Version::Resp3 {
        reply.array(2);
    }
    reply.bulk(field);
    reply.bulk(value);
}

//! HRANDFIELD: fields drawn at random.

use std::collections::HashSet;

use busload_io::{Rng, sim::SimRng};
use busload_resp::{Version, parse_i64};
use busload_tables::{HashCursor, HashRef, KeyHash, TableId, Value};

use super::{first_key, read_hash};
use crate::{
    args::Args,
    command::Call,
    error::{CommandError, CommandResult},
    reply::Reply,
    tx::{Key, LockMode, Locks, Slice, Step, Tx, Work},
};

type Pair<'a> = (&'a [u8], &'a [u8]);

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
    let key = first_key(tx, call);
    let shown = ask.shown;
    match ask.draw {
        Draw::Different(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(hash.len());
            if count <= DRAWN_MAX
                && count < hash.len() / 3
                && let Some(pairs) = draw_until_different(hash, count, &mut rng)
            {
                write_header(pairs.len(), shown, &mut call.reply);
                pairs.into_iter().for_each(|pair| write_pair(pair, shown, &mut call.reply));
                return Ok(());
            }
            write_header(count, shown, &mut call.reply);
            let of = hash.len();
            let sample =
                Sample { hash: LockedHash::new(&key), shown, wanted: count, of, rng, cursor: None };
            tx.run_sliced(call, sample)
        }
        Draw::Repeated(count) => {
            let bytes_max = tx.settings.client_reply_bytes;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if bytes_max / PROTOCOL_BYTES_MIN < count {
                return Err(TOO_LARGE);
            }
            write_header(count, shown, &mut call.reply);
            let draws = Draws {
                hash: LockedHash::new(&key),
                shown,
                left: count,
                bytes_left: bytes_max,
                rng,
            };
            tx.run_sliced(call, draws)
        }
    }
}

/// Number of fields up to which they are drawn one by one; more are sampled in one pass over all.
const DRAWN_MAX: usize = 1_000;
const PROTOCOL_BYTES_MIN: usize = 6;
const TOO_LARGE: CommandError =
    CommandError::text("ERR value is out of range, the reply would be too large");

/// Hash that stays unchanged from the first slice to the last.
struct LockedHash {
    table: TableId,
    hash: KeyHash,
    locks: Option<Locks>,
}

impl LockedHash {
    fn new(key: &Key<'_>) -> Self {
        Self { table: key.table, hash: key.hash, locks: None }
    }

    fn lock(&mut self) {
        let mut locks = Locks::new(LockMode::Shared);
        locks.insert(self.table, self.hash);
        self.locks = Some(locks);
    }

    fn get<'t>(&self, tx: &'t Tx, args: &Args<'_>) -> Option<HashRef<'t>> {
        let key = Key { table: self.table, hash: self.hash, bytes: args.at(1) };
        tx.get_locked(&key).and_then(Value::hash)
    }
}

/// Work that samples fields without repetition; every choice of that many fields is equally likely
/// (Knuth, TAOCP 3.4.2, algorithm S).
struct Sample {
    hash: LockedHash,
    shown: Shown,
    wanted: usize,
    /// Number of fields still to be visited.
    of: usize,
    rng: SimRng,
    cursor: Option<HashCursor>,
}

impl Work for Sample {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let Some(hash) = self.hash.get(tx, &slice.args) else { return Ok(Step::Done) };
        let mut fields = hash.iter_from(self.cursor.unwrap_or_default());
        while self.wanted != 0
            && let Some(pair) = fields.next()
        {
            if self.rng.next_u64() % (self.of as u64) < self.wanted as u64 {
                write_pair(pair, self.shown, &mut slice.reply);
                self.wanted -= 1;
            }
            self.of -= 1;
            if !slice.step()
                && let Some(cursor) = fields.cursor()
            {
                self.cursor = Some(cursor);
                return Ok(Step::More);
            }
        }
        Ok(Step::Done)
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {
        self.hash.lock();
    }

    fn locks(&self) -> Option<&Locks> {
        self.hash.locks.as_ref()
    }
}

/// Work that draws fields from all, with repetition. The reply can be far larger than the hash, so
/// it is bounded.
struct Draws {
    hash: LockedHash,
    shown: Shown,
    left: usize,
    bytes_left: usize,
    rng: SimRng,
}

impl Work for Draws {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let Some(hash) = self.hash.get(tx, &slice.args) else { return Ok(Step::Done) };
        while self.left != 0 {
            let pair = hash.random(self.rng.next_u64());
            let value_bytes =
                if self.shown == Shown::Pairs { PROTOCOL_BYTES_MIN + pair.1.len() } else { 0 };
            let bytes = PROTOCOL_BYTES_MIN + pair.0.len() + value_bytes;
            self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(TOO_LARGE)?;
            write_pair(pair, self.shown, &mut slice.reply);
            self.left -= 1;
            if !slice.step() {
                return Ok(Step::More);
            }
        }
        Ok(Step::Done)
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {
        self.hash.lock();
    }

    fn locks(&self) -> Option<&Locks> {
        self.hash.locks.as_ref()
    }
}

/// Arguments of HRANDFIELD, parsed.
struct Ask {
    draw: Draw,
    shown: Shown,
}

#[derive(Clone, Copy)]
enum Draw {
    /// At most this many fields, none twice.
    Different(u64),
    /// Exactly this many, each drawn from all fields.
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
                "ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807",
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

/// Draws until there are enough different fields; for few fields out of many. Gives up when too
/// many draws repeat others.
fn draw_until_different<'a>(
    hash: HashRef<'a>,
    count: usize,
    rng: &mut SimRng,
) -> Option<Vec<Pair<'a>>> {
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

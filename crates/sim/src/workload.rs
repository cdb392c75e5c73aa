//! Requests that simulated clients send.

use busload_io::sim::SimRng;

use crate::model::Request;

/// Number of keys of a run, and how clients mix their requests.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Number of keys of each table.
    pub key_count: usize,
    /// Length of the longest value.
    pub value_bytes_max: usize,
    /// Share of reads, of 10.
    pub reads: u64,
    /// Share of keys in tables other than `default`, of 10.
    pub others: u64,
    /// Longest time to live in milliseconds.
    pub ttl_ms_max: u64,
    /// Says whether some transactions are so large that the log takes them in parts.
    pub has_huge: bool,
    /// Number of the last value, so that each is different.
    values: u64,
}

/// Longest value of a huge transaction.
const HUGE_VALUE_BYTES: usize = 60_000;

/// Number of keys that a huge transaction writes.
const HUGE_KEY_COUNT: usize = 40;

/// Prefixes of keys: the table `default`, then the named ones.
pub const PREFIXES: [&str; 4] = ["", "iv:", "os:", "off:"];

/// State of a client that decides what it may send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// The last request that matters was MULTI.
    pub in_multi: bool,
}

impl Workload {
    /// Draws a workload by chance.
    pub fn draw(rng: &mut SimRng) -> Self {
        Self {
            key_count: [1, 3, 8, 30][rng.index(4)],
            value_bytes_max: [8, 40, 300, 4_000][rng.index(4)],
            reads: 1 + rng.below(6),
            others: rng.below(10),
            ttl_ms_max: [20, 300, 5_000][rng.index(3)],
            has_huge: rng.chance(1, 8),
            values: 0,
        }
    }

    /// Draws the next request of a client.
    pub fn request(&mut self, rng: &mut SimRng, sending: &mut Sending) -> Request {
        if rng.chance(1, 12) {
            return self.transaction_request(rng, sending);
        }
        if self.has_huge && !sending.in_multi && rng.chance(1, 120) {
            return self.huge(rng);
        }
        if !sending.in_multi && rng.chance(1, 60) {
            let rare: &[&str] = match rng.below(12) {
                0 => &["FLUSHDB"],
                1 => &["FLUSHALL"],
                2 | 3 => &["BGSAVE"],
                4 | 5 => &["SAVE"],
                6 => &["DBSIZE"],
                7 | 8 => &["SELECT", "1"],
                9 | 10 => &["SELECT", "0"],
                _ => &["PING"],
            };
            return words(rare);
        }
        match rng.below(10) < self.reads {
            true => self.read(rng),
            false => self.write(rng),
        }
    }

    fn transaction_request(&mut self, rng: &mut SimRng, sending: &mut Sending) -> Request {
        if sending.in_multi {
            sending.in_multi = false;
            return match rng.below(8) {
                0 => words(&["DISCARD"]),
                _ => words(&["EXEC"]),
            };
        }
        match rng.below(5) {
            0 => request("WATCH", [self.key(rng), self.key(rng)]),
            1 if rng.chance(1, 3) => words(&["UNWATCH"]),
            1 if rng.chance(1, 6) => words(&["EXEC"]),
            _ => {
                sending.in_multi = true;
                words(&["MULTI"])
            }
        }
    }

    fn read(&mut self, rng: &mut SimRng) -> Request {
        let key = self.key(rng);
        match rng.below(12) {
            0..4 => request("GET", [key]),
            4 => request("MGET", [key, self.key(rng), self.key(rng)]),
            5 => request("HGETALL", [key]),
            6 => request("HGET", [key, field(rng)]),
            7 => request("EXISTS", [key, self.key(rng)]),
            8 => request("PTTL", [key]),
            9 => request("TYPE", [key]),
            10 => request("STRLEN", [key]),
            _ => request("HLEN", [key]),
        }
    }

    fn write(&mut self, rng: &mut SimRng) -> Request {
        let key = self.key(rng);
        match rng.below(24) {
            0..5 => request("SET", [key, self.value(rng)]),
            5 => {
                let ttl = self.ttl(rng);
                request("SET", [key, self.value(rng), b"PX".to_vec(), ttl])
            }
            6 => {
                let option = [b"NX".to_vec(), b"XX".to_vec(), b"KEEPTTL".to_vec()];
                request("SET", [key, self.value(rng), option[rng.index(3)].clone()])
            }
            7 => request("SET", [key, self.value(rng), b"GET".to_vec()]),
            8 | 9 => request("DEL", [key]),
            10 => request("DEL", [key, self.key(rng), self.key(rng)]),
            11 => {
                let [second, third] = [self.key(rng), self.key(rng)];
                let values = [(); 3].map(|()| self.value(rng));
                let [a, b, c] = values;
                request("MSET", [key, a, second, b, third, c])
            }
            12 | 13 => request("INCRBY", [key, rng.below(10).to_string().into_bytes()]),
            14 => request("APPEND", [key, self.value(rng)]),
            15 => {
                let offset = rng.below(30).to_string().into_bytes();
                request("SETRANGE", [key, offset, b"patched".to_vec()])
            }
            16 | 17 => request("HSET", [key, field(rng), self.value(rng)]),
            18 => request("HSET", [key, field(rng), self.value(rng), field(rng), self.value(rng)]),
            19 => request("HDEL", [key, field(rng), field(rng)]),
            20 => request("HINCRBY", [key, field(rng), b"1".to_vec()]),
            21 => {
                let ttl = self.ttl(rng);
                request("PEXPIRE", [key, ttl])
            }
            22 => match rng.below(2) {
                0 => request("PERSIST", [key]),
                _ => request("GETDEL", [key]),
            },
            _ => request("RENAME", [key, self.key(rng)]),
        }
    }

    /// Returns a request that changes many keys, with values that fill several records.
    fn huge(&mut self, rng: &mut SimRng) -> Request {
        let bytes = std::mem::replace(&mut self.value_bytes_max, HUGE_VALUE_BYTES);
        let mut request = vec![b"MSET".to_vec()];
        for _ in 0..HUGE_KEY_COUNT {
            request.extend([self.key(rng), self.value(rng)]);
        }
        self.value_bytes_max = bytes;
        request
    }

    fn key(&self, rng: &mut SimRng) -> Vec<u8> {
        let prefix = match rng.below(10) < self.others {
            true => PREFIXES[1 + rng.index(PREFIXES.len() - 1)],
            false => PREFIXES[0],
        };
        format!("{prefix}k{}", rng.index(self.key_count)).into_bytes()
    }

    /// Returns all keys, with the space in which they are.
    pub fn keys(&self) -> Vec<(u8, Vec<u8>)> {
        let keys = |space, prefix: &'static str| {
            (0..self.key_count).map(move |index| (space, format!("{prefix}k{index}").into_bytes()))
        };
        PREFIXES.iter().flat_map(|prefix| keys(0, prefix)).chain(keys(1, "")).collect()
    }

    /// Returns a value that no other write has, or a small number.
    fn value(&mut self, rng: &mut SimRng) -> Vec<u8> {
        self.values += 1;
        if rng.chance(1, 6) {
            return self.values.to_string().into_bytes();
        }
        let mut value = format!("v{}.", self.values).into_bytes();
        let length = value.len().max(rng.index(self.value_bytes_max));
        // Random bytes, so that what the values take in files is what they are long.
        while value.len() < length {
            value.extend_from_slice(&busload_io::Rng::next_u64(rng).to_le_bytes());
        }
        value
    }

    fn ttl(&self, rng: &mut SimRng) -> Vec<u8> {
        (1 + rng.below(self.ttl_ms_max)).to_string().into_bytes()
    }
}

fn field(rng: &mut SimRng) -> Vec<u8> {
    format!("f{}", rng.below(6)).into_bytes()
}

fn request<const N: usize>(name: &str, arguments: [Vec<u8>; N]) -> Request {
    std::iter::once(name.as_bytes().to_vec()).chain(arguments).collect()
}

/// Returns a request of these words.
pub fn words(words: &[&str]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

//! Limits of users, rules, passwords and of the work on them.

/// Bytes of a user's name.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes of a password that is looked at; a longer one is wrong.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Number of users that there can be.
pub const USERS_MAX: usize = 10_000;

/// Number of passwords of one user: each guess is compared with all of them.
pub const PASSWORDS_MAX: usize = 8;

/// Number of key patterns of one user: each key is compared with all of them.
pub const KEY_PATTERNS_MAX: usize = 256;

/// Bytes of a key pattern.
pub const KEY_PATTERN_BYTES_MAX: usize = 1024;

/// Number of rules in one line of the file or one `ACL SETUSER`.
pub const RULES_MAX: usize = 1024;

/// Number of commands and subcommands that there can be.
pub const COMMANDS_MAX: usize = 512;

/// Bytes of one rule: it holds the longest password, pattern or hash.
pub const RULE_BYTES_MAX: usize = 2048;

/// Bytes of the file of users.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Number of threads that hash passwords and read and write the file of users. They start when they
/// are first needed.
pub const WORKER_THREADS: usize = 2;

/// Number of passwords to verify and other tasks that wait for a worker; further ones are refused.
pub const TASKS_MAX: usize = 256;

/// Memory of one argon2id hash, in KiB (OWASP's choice, with the two numbers below).
pub const HASH_MEMORY_KIB: u32 = 19 * 1024;

/// Passes of argon2id over that memory.
pub const HASH_PASSES: u32 = 2;

/// Parallelism of argon2id hashes, as its parameter `p`.
pub const HASH_PARALLELISM: u32 = 1;

/// Memory of a hash that the file of users may ask for, in KiB.
pub const HASH_MEMORY_KIB_MAX: u32 = 256 * 1024;

/// Passes of a hash that the file of users may ask for.
pub const HASH_PASSES_MAX: u32 = 16;

/// Parallelism of a hash that the file of users may ask for.
pub const HASH_PARALLELISM_MAX: u32 = 16;

/// Bytes of the random salt of a new hash.
pub const SALT_BYTES: usize = 16;

/// Bytes of a new hash.
pub const HASH_BYTES: usize = 32;

/// Fewest and most bytes of a salt or a hash that the file of users may have.
pub const SALT_AND_HASH_BYTES: std::ops::RangeInclusive<usize> = 8..=64;

const _: () = assert!(HASH_MEMORY_KIB <= HASH_MEMORY_KIB_MAX && HASH_PASSES <= HASH_PASSES_MAX);
const _: () = assert!(
    HASH_PARALLELISM <= HASH_PARALLELISM_MAX && 8 * HASH_PARALLELISM_MAX <= HASH_MEMORY_KIB
);
const _: () = assert!(PASSWORD_BYTES_MAX < RULE_BYTES_MAX);
const _: () = assert!(KEY_PATTERN_BYTES_MAX + "%RW~*".len() <= RULE_BYTES_MAX);
const _: () = assert!(*SALT_AND_HASH_BYTES.start() <= SALT_BYTES);
const _: () = assert!(HASH_BYTES <= *SALT_AND_HASH_BYTES.end());

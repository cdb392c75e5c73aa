//! The table of users that all fronts share, and the check of passwords.
//!
//! **Cost of a check.** Argon2id takes tens of milliseconds, so it runs on a worker. A password
//! that was verified is remembered as an HMAC keyed by a random key of this process, until the user
//! changes: the next check of it costs a microsecond. Equal checks that are under way share one
//! hash, so a thousand clients that reconnect cost one.
//!
//! **Unknown users** cost as much as known ones with a wrong password, so that nobody learns names
//! from the time.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{
    commands::CommandList,
    file,
    limits::{NAME_BYTES_MAX, PASSWORD_BYTES_MAX, USERS_MAX},
    password::{PasswordHash, Secret, random},
    rule::{Rule, RuleError},
    user::{DEFAULT, Digest, User},
    worker::{Busy, Promise, Workers},
};

/// The place where users are kept. Its functions may block.
pub trait UserFile: fmt::Debug + Send + Sync {
    /// Reads the whole text; a file that does not exist is an error.
    fn read(&self) -> Result<String, String>;

    /// Replaces the text: afterwards it is there as a whole, or the one before.
    fn write(&self, text: &str) -> Result<(), String>;
}

type Table = BTreeMap<Box<str>, Arc<User>>;

/// Users that were read from the file, to take the place of those before.
#[derive(Clone, Debug)]
pub struct Loaded {
    table: Table,
    /// Text that they were read from.
    text: String,
}

/// Table of all users.
pub struct Users {
    commands: CommandList,
    table: RwLock<Arc<Table>>,
    /// Password of the configuration, which is one of the user `default`.
    configured: Option<Digest>,
    file: Option<Arc<dyn UserFile>>,
    /// Text of the file that was last put in force or written.
    file_text: Arc<Mutex<String>>,
    /// Key of the digests of passwords.
    key: Hmac<Sha256>,
    under_way: Arc<Mutex<HashMap<Digest, Promise<bool>>>>,
    nobody: PasswordHash,
    workers: Workers,
}

/// Result of the first look at a name and a password.
#[derive(Debug)]
pub enum Attempt {
    /// The password is right.
    Right(Arc<User>),
    /// The password is wrong.
    Wrong,
    /// A worker must find out.
    Slow(Unverified),
}

/// Rules that can be applied, or the index of the one that cannot.
pub type HashedRules = Result<Vec<Rule>, (usize, RuleError)>;

/// A name and a password that a worker must verify.
#[derive(Debug)]
pub struct Unverified {
    digest: Digest,
    /// The user, if there is one and it is on.
    user: Option<Arc<User>>,
    password: Secret,
}

/// A verification by a worker.
#[derive(Debug)]
pub struct Verification {
    /// Says whether the password is right, once that is known. If it is, [`Users::begin`] then
    /// says so at once, unless the user has changed meanwhile.
    pub result: Promise<bool>,
    /// Says whether nobody else has asked the same and waits.
    pub is_first: bool,
}

impl Users {
    /// Makes a table of the user `default` and those of the file. The password of the configuration
    /// is one of `default`.
    pub fn open(
        commands: CommandList,
        password: Option<&[u8]>,
        file: Option<Arc<dyn UserFile>>,
    ) -> Result<Self, String> {
        let key: [u8; 32] = random();
        let mut users = Self {
            commands,
            table: RwLock::default(),
            configured: None,
            file,
            file_text: Arc::default(),
            key: Hmac::new_from_slice(&key).expect("a key of any length is one"),
            under_way: Arc::default(),
            nobody: PasswordHash::of_nobody(),
            workers: Workers::default(),
        };
        users.configured = password.map(|password| users.digest(DEFAULT.as_bytes(), password));
        let text = users.file.as_ref().map(|file| file.read()).transpose()?.unwrap_or_default();
        let loaded = users.loaded(text)?;
        users.replace(loaded);
        Ok(users)
    }

    /// Returns the commands that rules can name.
    pub fn commands(&self) -> &CommandList {
        &self.commands
    }

    /// Returns whether the users are kept in a file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the user with this name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        if NAME_BYTES_MAX < name.len() {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?;
        self.table().get(name).cloned()
    }

    /// Returns the user `default`, which is always there.
    pub fn default_user(&self) -> Arc<User> {
        Arc::clone(&self.table()[DEFAULT])
    }

    /// Returns all users by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.table().values().cloned().collect()
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_table(&self, table: Table) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    /// Changes a user by rules, none of which is slow, or makes a new one. One thread at a time may
    /// change users. Fails with the index of the rule that does not fit.
    pub fn change(&self, name: &str, rules: &[Rule]) -> Result<(), (usize, RuleError)> {
        let mut table = (*self.table()).clone();
        let user = match table.get(name) {
            Some(user) => user.changed(rules, &self.commands)?,
            None if USERS_MAX <= table.len() => {
                return Err((0, RuleError::Text("There are too many users")));
            }
            None => User::new(name).changed(rules, &self.commands)?,
        };
        table.insert(name.into(), Arc::new(user));
        self.put_table(table);
        Ok(())
    }

    /// Removes users other than `default`; returns how many of them there were.
    pub fn remove<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut table = (*self.table()).clone();
        let before = table.len();
        let short = names.filter(|name| name.len() <= NAME_BYTES_MAX);
        let names = short.filter_map(|name| std::str::from_utf8(name).ok());
        names.filter(|name| *name != DEFAULT).for_each(|name| _ = table.remove(name));
        let removed = before - table.len();
        if removed != 0 {
            self.put_table(table);
        }
        removed
    }

    /// Has a worker hash the passwords of rules, and find those to be removed among the user's.
    pub fn hash_rules(&self, name: &str, rules: Vec<Rule>) -> Result<Promise<HashedRules>, Busy> {
        let known = self.get(name.as_bytes());
        self.workers.run(move || {
            let known = known.as_deref().map(User::passwords).unwrap_or_default();
            rules.into_iter().enumerate().map(|(at, rule)| hashed(at, rule, known)).collect()
        })
    }

    /// Has a worker read the file.
    pub fn load(&self) -> Result<Promise<Result<Loaded, String>>, Busy> {
        let Some(file) = self.file.clone() else { return Err(Busy) };
        let (commands, configured) = (self.commands.clone(), self.configured);
        self.workers.run(move || with_default(file.read()?, &commands, configured))
    }

    /// Reads the file in the calling thread, if there is one and its text is not the one that was
    /// last put in force or written.
    pub fn read_changed_file(&self) -> Result<Option<Loaded>, String> {
        let Some(file) = &self.file else { return Ok(None) };
        let text = file.read()?;
        if text == *lock(&self.file_text) {
            return Ok(None);
        }
        self.loaded(text).map(Some)
    }

    /// Puts the users of the file in the place of those before.
    pub fn replace(&self, Loaded { table, text }: Loaded) {
        self.put_table(table);
        *lock(&self.file_text) = text;
    }

    /// Has a worker write the users to the file.
    pub fn save(&self) -> Result<Promise<Result<(), String>>, Busy> {
        let Some(file) = self.file.clone() else { return Err(Busy) };
        let lines = self.all().into_iter().map(|user| user.line(&self.commands) + "\n");
        let text: String = lines.collect();
        let file_text = Arc::clone(&self.file_text);
        self.workers.run(move || {
            file.write(&text)?;
            *lock(&file_text) = text;
            Ok(())
        })
    }

    fn loaded(&self, text: String) -> Result<Loaded, String> {
        with_default(text, &self.commands, self.configured)
    }

    /// Looks at a name and a password as far as that is cheap.
    pub fn begin(&self, name: &[u8], password: &[u8]) -> Attempt {
        let user = self.get(name).filter(|user| user.is_on());
        if PASSWORD_BYTES_MAX < password.len() || NAME_BYTES_MAX < name.len() {
            return Attempt::Wrong;
        }
        if let Some(user) = &user
            && user.needs_no_password()
        {
            return Attempt::Right(Arc::clone(user));
        }
        let digest = self.digest(name, password);
        match user {
            Some(user) if user.knows(&digest) => Attempt::Right(user),
            Some(user) if user.passwords().is_empty() => Attempt::Wrong,
            // Where no user has a hash to compare with, there is no time to imitate.
            None if !self.any_hash() => Attempt::Wrong,
            user => Attempt::Slow(Unverified { digest, user, password: Secret(password.into()) }),
        }
    }

    fn any_hash(&self) -> bool {
        self.table().values().any(|user| !user.passwords().is_empty())
    }

    /// Has a worker verify a password.
    pub fn verify(&self, unverified: Unverified) -> Result<Verification, Busy> {
        let Unverified { digest, user, password } = unverified;
        let mut under_way = lock(&self.under_way);
        if let Some(result) = under_way.get(&digest) {
            return Ok(Verification { result: result.clone(), is_first: false });
        }
        let (nobody, done) = (self.nobody.clone(), Arc::clone(&self.under_way));
        let result = self.workers.run(move || {
            let is_right = match &user {
                Some(user) => user.passwords().iter().any(|hash| hash.fits(&password.0)),
                None => nobody.fits(&password.0) && user.is_some(),
            };
            if let Some(user) = user.filter(|_| is_right) {
                user.note_verified(digest);
            }
            lock(&done).remove(&digest);
            is_right
        })?;
        under_way.insert(digest, result.clone());
        Ok(Verification { result, is_first: true })
    }

    fn digest(&self, name: &[u8], password: &[u8]) -> Digest {
        let length = (name.len() as u64).to_be_bytes();
        let code = self.key.clone().chain_update(length).chain_update(name);
        code.chain_update(password).finalize().into_bytes().into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_default(
    text: String,
    commands: &CommandList,
    configured: Option<Digest>,
) -> Result<Loaded, String> {
    let mut table = file::parse(&text, commands).map_err(|error| error.to_string())?;
    let default = match table.remove(DEFAULT) {
        Some(user) => user.changed(&[], commands).expect("no rule is refused"),
        None => User::default_user(commands),
    };
    let default = match configured {
        Some(password) => default.with_configured(password),
        None => default,
    };
    table.insert(DEFAULT.into(), Arc::new(default));
    Ok(Loaded { table, text })
}

fn hashed(index: usize, rule: Rule, known: &[PasswordHash]) -> Result<Rule, (usize, RuleError)> {
    match rule {
        Rule::AddPassword(Secret(password)) if PASSWORD_BYTES_MAX < password.len() => {
            Err((index, RuleError::Text("A password has at most 1024 bytes")))
        }
        Rule::AddPassword(Secret(password)) => {
            let known = known.iter().find(|hash| hash.fits(&password));
            Ok(Rule::AddHash(known.cloned().unwrap_or_else(|| PasswordHash::new(&password))))
        }
        Rule::RemovePassword(Secret(password)) => {
            let known = known.iter().find(|hash| hash.fits(&password));
            known.cloned().map(Rule::RemoveHash).ok_or((index, RuleError::NoSuchPassword))
        }
        rule => Ok(rule),
    }
}

const _: () = assert!(PASSWORD_BYTES_MAX == 1024, "the error text says so");

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("count", &self.table().len()).finish_non_exhaustive()
    }
}

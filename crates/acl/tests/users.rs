//! Rules, lines of the file, the table of users: what a user may, and that hostile text changes
//! nothing.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::sync::{Arc, Mutex};

use busload_acl::{
    Attempt, CommandList, CommandRow, KeyPattern, Lines, Need, PasswordHash, Rule, RuleError, User,
    UserFile, Users, check_name, limits, parse,
};
use busload_hostile::{Random, mutate_with};

/// Bits of the categories `read`, `write`, `admin` and `fast`.
const READ: u32 = 1 << 1;
const WRITE: u32 = 1 << 2;
const ADMIN: u32 = 1 << 13;
const FAST: u32 = 1 << 14;

fn commands() -> CommandList {
    let row = |name, categories, subcommands| CommandRow { name, categories, subcommands };
    CommandList::new(vec![
        row("get", READ | FAST, (0, 0)),
        row("set", WRITE, (0, 0)),
        row("config", 0, (3, 5)),
        row("config|get", ADMIN, (0, 0)),
        row("config|set", ADMIN | WRITE, (0, 0)),
    ])
}

/// Applies rules to a user, in one go.
fn changed(user: &User, rules: &str) -> Result<User, String> {
    let parsed: Result<Vec<Rule>, RuleError> =
        rules.split_ascii_whitespace().map(|rule| Rule::parse(rule, &commands())).collect();
    let parsed = parsed.map_err(|error| error.to_string())?;
    user.changed(&parsed, &commands()).map_err(|(index, error)| format!("{index}: {error}"))
}

fn user(rules: &str) -> User {
    changed(&User::new("ada"), rules).unwrap()
}

fn may(user: &User) -> Vec<&'static str> {
    let commands = commands();
    let rows = commands.rows().iter().enumerate();
    rows.filter(|(index, _)| user.may_run(*index)).map(|(_, row)| row.name).collect()
}

#[test]
fn rules_add_and_remove_commands_in_their_order() {
    for (rules, expected) in [
        ("", &[][..]),
        ("+@all", &["get", "set", "config", "config|get", "config|set"]),
        ("+@all -@admin", &["get", "set", "config"]),
        ("+@all -config", &["get", "set"]),
        ("+@read", &["get"]),
        ("+@WRITE -config|set", &["set"]),
        ("+config", &["config", "config|get", "config|set"]),
        ("+config|get", &["config|get"]),
        ("+config -config|set +SET", &["set", "config", "config|get"]),
        ("+@all nocommands", &[]),
        ("-@all +get allcommands -get", &["set", "config", "config|get", "config|set"]),
        ("+get reset", &[]),
    ] {
        assert_eq!(may(&user(rules)), expected, "{rules}");
    }
}

#[test]
fn a_user_is_described_by_rules_that_make_the_same_user() {
    for (rules, expected) in [
        ("", "user ada off resetchannels -@all"),
        ("on nopass ~* &* +@all", "user ada on nopass ~* &* +@all"),
        ("allkeys %R~x", "-"),
        (
            "on %R~logs:* ~a: %W~b* +@read",
            "user ada on %R~logs:* ~a: %W~b* resetchannels -@all +@read",
        ),
        ("%R~a:* %W~a:*", "user ada off ~a:* resetchannels -@all"),
        ("%R~* %W~*", "user ada off ~* resetchannels -@all"),
        ("%WR~a* %r~b*", "user ada off ~a* %R~b* resetchannels -@all"),
        // As Redis has it: a rule about a command replaces those about its subcommands.
        (
            "+@all -get +config|get -config +config|set",
            "user ada off resetchannels +@all -get -config +config|set",
        ),
        ("+@all -set +set -set", "user ada off resetchannels +@all -set"),
        ("sanitize-payload clearselectors on", "user ada on resetchannels -@all"),
    ] {
        let Ok(user) = changed(&User::new("ada"), rules) else {
            assert_eq!(expected, "-", "{rules}");
            continue;
        };
        let line = user.line(&commands());
        assert_eq!(line, expected, "{rules}");
        let read = parse(&line, &commands()).unwrap();
        assert_eq!(read["ada"].line(&commands()), line);
        assert_eq!(may(&read["ada"]), may(&user));
    }
}

#[test]
fn mistakes_have_the_words_of_redis_and_change_nothing() {
    for (rules, expected) in [
        ("nonsense", "Syntax error"),
        ("+nope", "Unknown command or category name in ACL"),
        ("+", "Unknown command or category name in ACL"),
        ("-@nope", "Unknown command or category name in ACL"),
        ("+config|nope", "Unknown command or category name in ACL"),
        ("+get|x", "Allowing first-arg of a subcommand is not supported"),
        ("%~x", "Syntax error"),
        ("%RR~x", "Syntax error"),
        ("%X~x", "Syntax error"),
        ("%R", "Syntax error"),
    ] {
        assert_eq!(changed(&User::new("ada"), rules).unwrap_err(), expected, "{rules}");
    }
    let error = changed(&User::new("ada"), "allkeys ~x").unwrap_err();
    assert!(error.starts_with("1: Adding a pattern after the * pattern"), "{error}");
    for (rules, part) in [
        ("~a*b", "Key patterns here are"),
        ("~a?", "Key patterns here are"),
        ("~[ab]*", "Key patterns here are"),
        ("~**", "Key patterns here are"),
        ("#0123456789abcdef", "argon2id"),
        ("(~x", "not supported"),
        ("&x", "no channels"),
    ] {
        let error = changed(&User::new("ada"), rules).unwrap_err();
        assert!(error.contains(part), "{rules}: {error}");
    }
    assert_eq!(Rule::shown(">secret"), "(redacted)");
    assert!(changed(&User::new("ada"), ">secret").unwrap_err().contains("must be hashed"));
}

#[test]
fn a_pattern_is_the_beginning_of_keys_or_a_whole_key() {
    let user = user("~sessions:* %R~logs:* %W~queue:* ~one");
    let keys = user.keys();
    for (key, need, expected) in [
        ("sessions:1", Need::BOTH, true),
        ("sessions:", Need::BOTH, true),
        ("sessions", Need::ANY, false),
        ("sessionsx:1", Need::ANY, false),
        ("logs:1", Need::READ, true),
        ("logs:1", Need::ANY, true),
        ("logs:1", Need::WRITE, false),
        ("logs:1", Need::BOTH, false),
        ("queue:1", Need::WRITE, true),
        ("queue:1", Need::READ, false),
        ("queue:1", Need::ANY, true),
        ("one", Need::BOTH, true),
        ("one1", Need::ANY, false),
        ("", Need::ANY, false),
    ] {
        assert_eq!(keys.allow(key.as_bytes(), need), expected, "{key} {need:?}");
    }
    for (table, expected) in
        [("sessions:", true), ("logs:", true), ("queue:", false), ("one", false)]
    {
        assert_eq!(keys.allow_all_below(table.as_bytes(), Need::READ), expected, "{table}");
    }
    assert!(!KeyPattern::parse("~*").unwrap().to_string().is_empty());
    let many: String = (0..=limits::KEY_PATTERNS_MAX).map(|at| format!(" ~{at}:*")).collect();
    assert!(changed(&user, &many).unwrap_err().contains("at most 256"));
}

#[test]
fn only_who_may_do_everything_is_unrestricted() {
    assert!(user("on nopass allkeys +@all").is_unrestricted());
    assert!(user("allkeys +get +set +config").is_unrestricted(), "which are all that there are");
    for rules in ["+@all", "allkeys +@all -get", "+@all %R~*", "+@all ~a*", "allkeys"] {
        assert!(!user(rules).is_unrestricted(), "{rules}");
    }
}

#[test]
fn names_are_words_without_a_colon() {
    for good in ["a", "default", "team.reader-1", &"x".repeat(64)] {
        assert_eq!(check_name(good), Ok(()), "{good}");
    }
    for bad in ["", "a b", "a\0", "a:b", "\u{e9}", "a\nb", "a\tb", &"x".repeat(65)] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_file_names_the_line_of_its_mistake_and_repeats_no_password() {
    let hash = PasswordHash::of_nobody();
    let good = format!("# people\n\nuser ada on #{hash} ~* +@all\n  user bob off\n");
    let users = parse(&good, &commands()).unwrap();
    assert_eq!(users.keys().map(|name| &**name).collect::<Vec<_>>(), ["ada", "bob"]);
    for (bad, line, part) in [
        ("usr ada on", 1, "expected `user NAME"),
        ("\nuser", 2, "expected the name"),
        ("user ada\nuser ada on", 2, "defined twice"),
        ("user a:b on", 1, "colon"),
        ("user ada on >secret", 1, "password in plain text"),
        ("user ada on nopass #secret", 1, "argon2id"),
        ("user ada +nope", 1, "'+nope': Unknown command"),
        ("user ada allkeys ~secrets", 1, "after the * pattern"),
    ] {
        let error = parse(bad, &commands()).unwrap_err();
        assert_eq!(error.line, line, "{bad}");
        assert!(error.text.contains(part) && !error.text.contains("secret "), "{bad}: {error}");
        assert!(!error.text.contains(">secret") && !error.text.contains("#secret"), "{error}");
    }
    let many = format!("user ada{}", " +get".repeat(limits::RULES_MAX + 1));
    assert!(parse(&many, &commands()).unwrap_err().text.contains("1024"));
}

#[test]
fn lines_of_others_stay_as_they_are() {
    let mut lines = Lines::new("# mine\nuser ada  on\n\nuser bob off");
    lines.set("ada", "user ada off".to_owned());
    lines.set("eve", "user eve on".to_owned());
    assert!(lines.remove("bob") && !lines.remove("nobody"));
    assert_eq!(lines.to_string(), "# mine\nuser ada off\n\nuser eve on\n");
}

/// Text from elsewhere never makes a user who may more than its words say: what is accepted is
/// described by a line that makes the same user.
#[test]
fn hostile_text_is_refused_or_means_what_it_says() {
    let hash = PasswordHash::of_nobody();
    let seed = format!(
        "user ada on #{hash} ~a:* %R~b:* &* +@all -@admin +config|get\nuser bob off nopass\n"
    );
    let tokens: Vec<&[u8]> = vec![
        b"user",
        b" ",
        b"\n",
        b"~",
        b"%R~",
        b"*",
        b"+@",
        b"-",
        b"|",
        b"#",
        b"$argon2id$",
        b">",
        b"on",
        b"\xff",
        b"=",
        b",",
        b"allkeys",
        b"reset",
        b"(",
        b"4294967296",
    ];
    let mut random = Random(15);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = seed.clone().into_bytes();
        mutate_with(&mut bytes, &mut random, &tokens);
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let Ok(users) = parse(&text, &commands()) else { continue };
        accepted += 1;
        for user in users.values() {
            let line = user.line(&commands());
            let again = parse(&line, &commands()).unwrap_or_else(|error| panic!("{line}: {error}"));
            let again = &again[user.name()];
            assert_eq!(again.line(&commands()), line);
            assert_eq!(may(again), may(user), "{line}");
        }
    }
    assert!(100 < accepted, "{accepted} of the changes are harmless");
}

/// A file in memory.
#[derive(Debug, Default)]
struct Kept(Mutex<String>);

impl UserFile for Kept {
    fn read(&self) -> Result<String, String> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn write(&self, text: &str) -> Result<(), String> {
        *self.0.lock().unwrap() = text.to_owned();
        Ok(())
    }
}

/// Waits for the result of a worker.
fn wait<T: Clone>(promise: &busload_acl::Promise<T>) -> T {
    loop {
        match promise.get() {
            Some(value) => return value,
            None => std::thread::yield_now(),
        }
    }
}

fn verify(users: &Users, name: &str, password: &str) -> bool {
    match users.begin(name.as_bytes(), password.as_bytes()) {
        Attempt::Right(_) => true,
        Attempt::Wrong => false,
        Attempt::Slow(unverified) => wait(&users.verify(unverified).unwrap().result),
    }
}

fn set(users: &Users, name: &str, rules: &str) {
    let rules = rules.split_ascii_whitespace().map(|rule| Rule::parse(rule, &commands()).unwrap());
    let rules = wait(&users.hash_rules(name, rules.collect()).unwrap()).unwrap();
    users.change(name, &rules).unwrap();
}

#[test]
fn a_password_is_verified_slowly_once_and_then_at_once_until_the_user_changes() {
    let users = Users::open(commands(), Some(b"configured"), None).unwrap();
    assert!(matches!(users.begin(b"default", b"configured"), Attempt::Right(_)));
    assert!(matches!(users.begin(b"default", b"wrong"), Attempt::Wrong));
    assert!(matches!(users.begin(b"nobody", b"x"), Attempt::Wrong), "there is no time to imitate");
    set(&users, "ada", "on >one >two +get");
    assert!(matches!(users.begin(b"nobody", b"x"), Attempt::Slow(_)), "as slow as a known user");
    assert!(!verify(&users, "nobody", "x"));
    assert!(matches!(users.begin(b"ada", b"one"), Attempt::Slow(_)));
    assert!(verify(&users, "ada", "one") && !verify(&users, "ada", "three"));
    assert!(matches!(users.begin(b"ada", b"one"), Attempt::Right(_)), "it is remembered");
    assert!(matches!(users.begin(b"ada", b"two"), Attempt::Slow(_)), "the other one is not");
    assert!(matches!(users.begin(b"default", b"one"), Attempt::Wrong), "nor of another user");
    users.change("ada", &[]).unwrap();
    assert!(matches!(users.begin(b"ada", b"one"), Attempt::Slow(_)), "the user has changed");
    set(&users, "ada", "<one");
    assert!(!verify(&users, "ada", "one") && verify(&users, "ada", "two"));
    set(&users, "ada", "off");
    assert!(!verify(&users, "ada", "two"));
    set(&users, "ada", "on nopass");
    assert!(matches!(users.begin(b"ada", b"anything"), Attempt::Right(_)));
    let long = vec![b'x'; limits::PASSWORD_BYTES_MAX + 1];
    assert!(matches!(users.begin(b"default", &long), Attempt::Wrong));
    let removal =
        wait(&users.hash_rules("ada", vec![Rule::parse("<x", &commands()).unwrap()]).unwrap());
    assert_eq!(removal.unwrap_err(), (0, RuleError::NoSuchPassword));
}

#[test]
fn equal_verifications_share_one_hash() {
    let users = Users::open(commands(), None, None).unwrap();
    set(&users, "ada", "on >one");
    let begin = |password: &[u8]| match users.begin(b"ada", password) {
        Attempt::Slow(unverified) => users.verify(unverified).unwrap(),
        other => panic!("{other:?}"),
    };
    // Both workers have something to do first, so that the next ones wait.
    let before: Vec<_> = (0..8_u8).map(|number| begin(&[number])).collect();
    let (first, second) = (begin(b"one"), begin(b"one"));
    assert!(first.is_first && !second.is_first);
    assert!(wait(&first.result) && wait(&second.result));
    assert!(before.iter().all(|wrong| !wait(&wrong.result)));
}

#[test]
fn work_that_waits_is_bounded() {
    let users = Users::open(commands(), None, None).unwrap();
    set(&users, "ada", "on >one");
    let mut refused = 0;
    for number in 0..limits::TASKS_MAX + limits::WORKER_THREADS + 50 {
        let Attempt::Slow(unverified) = users.begin(b"ada", number.to_string().as_bytes()) else {
            panic!("no password is known");
        };
        refused += usize::from(users.verify(unverified).is_err());
    }
    assert!(0 < refused, "the queue has a bound");
    // One that was refused can be asked again.
    loop {
        if verify_if_free(&users) {
            break;
        }
    }
}

fn verify_if_free(users: &Users) -> bool {
    match users.begin(b"ada", b"one") {
        Attempt::Right(_) => true,
        Attempt::Wrong => panic!("it is the password"),
        Attempt::Slow(unverified) => users.verify(unverified).is_ok_and(|it| wait(&it.result)),
    }
}

#[test]
fn users_are_saved_and_loaded_as_a_whole() {
    let file = Arc::new(Kept::default());
    let kept = Arc::clone(&file) as Arc<dyn UserFile>;
    let users = Users::open(commands(), Some(b"configured"), Some(Arc::clone(&kept))).unwrap();
    set(&users, "ada", "on >one ~a:* +get");
    wait(&users.save().unwrap()).unwrap();
    let text = file.read().unwrap();
    assert!(text.starts_with("user ada on #$argon2id$") && !text.contains("one"), "{text}");
    assert!(!text.contains("nopass"), "the configured password is no reason to be open: {text}");
    let again = Users::open(commands(), Some(b"configured"), Some(kept)).unwrap();
    assert!(verify(&again, "ada", "one") && verify(&again, "default", "configured"));
    assert_eq!(users.remove([&b"ada"[..], b"default", b"nobody"].into_iter()), 1);
    assert!(users.get(b"ada").is_none() && users.get(b"default").is_some());
    let loaded = wait(&users.load().unwrap()).unwrap();
    users.replace(loaded);
    assert!(verify(&users, "ada", "one"));
    *file.0.lock().unwrap() = "user ada on >plain".to_owned();
    let error = wait(&users.load().unwrap()).unwrap_err();
    assert!(error.starts_with("line 1: ") && !error.contains(">plain"), "{error}");
    assert!(Users::open(commands(), None, Some(file)).is_err());
}

//! CONFIG, INFO, COMMAND, TIME, SHUTDOWN: what tools ask a server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::common::{Client, START_MS, Server, check, show_bytes};
use busload_pipeline::{
    command::COMMANDS,
    reload::OrderStep,
    settings::{Eviction, Settings, SyncMode, TableSettings},
    tx::{NewLimits, Now},
};
use busload_resp::reply::Reply;

fn parsed(server: &mut Server, line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let bytes = server.send(Client::FIRST, &words);
    match Reply::parse(&bytes) {
        Ok(Some((reply, length))) if length == bytes.len() => reply,
        other => panic!("{line}: not one reply: {other:?}"),
    }
}

fn text_of(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(text) | Reply::Simple(text) | Reply::Verbatim { text, .. } => {
            String::from_utf8(text.to_vec()).expect("text")
        }
        other => panic!("no text: {other:?}"),
    }
}

fn elements(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(elements) | Reply::Set(elements) => elements,
        other => panic!("no elements: {other:?}"),
    }
}

fn info(server: &mut Server, sections: &str) -> String {
    let line = format!("INFO {sections}");
    text_of(&parsed(server, line.trim_end()))
}

fn field(info: &str, name: &str) -> String {
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in\n{info}")).to_owned()
}

#[test]
fn config_get_matches_patterns_in_any_case() {
    let mut server = Server::new();
    assert_eq!(server.run("CONFIG GET save"), "['save', '']");
    assert_eq!(server.run("CONFIG GET appendonly"), "['appendonly', 'yes']");
    assert_eq!(server.run("CONFIG GET APPEND*"), "['appendonly', 'yes', 'appendfsync', 'always']");
    assert_eq!(server.run("config get nosuch"), "[]");
    assert_eq!(
        server.run("CONFIG GET databases maxmemory maxmem*"),
        "['maxmemory', '0', 'maxmemory-policy', 'noeviction', 'databases', '16']",
        "each once"
    );
    server.run("HELLO 3");
    assert_eq!(server.run("CONFIG GET timeout port"), "{'timeout': '0', 'port': '0'}");
    assert_eq!(server.run("CONFIG GET nosuch"), "{}");
}

#[test]
fn the_password_is_never_shown() {
    let mut server =
        Server::with(Settings { password: Some(b"hunter2".to_vec()), ..Settings::default() });
    server.run("AUTH hunter2");
    for line in ["CONFIG GET *", "INFO everything", "CLIENT LIST", "CLIENT INFO"] {
        assert!(!server.run(line).contains("hunter2"), "{line}");
    }
    assert_eq!(server.run("CONFIG GET requirepass"), "['requirepass', '***']");
    assert!(server.run("CONFIG SET requirepass ***").starts_with("-ERR CONFIG SET failed"));
}

#[test]
fn config_set_refuses_as_redis_refuses() {
    check(
        "
        CONFIG                                -> -ERR wrong number of arguments for 'config' command
        CONFIG FOO                            -> -ERR unknown subcommand 'FOO'. Try CONFIG HELP.
        CONFIG GET -> -ERR wrong number of arguments for 'config|get' command
        CONFIG SET maxmemory -> -ERR wrong number of arguments for 'config|set' command
        CONFIG SET maxmemory 1 c              -> -ERR syntax error
        CONFIG SET nosuch 1 -> -ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'
        CONFIG SET maxmemory 1 nosuch 1       -> -ERR Unknown option or number of arguments for \
        CONFIG SET - 'nosuch'
        CONFIG SET maxmemory 1 databases 1    -> -ERR CONFIG SET failed (possibly related to \
        argument 'databases') - can't set immutable config
        CONFIG SET maxmemory 1 maxmemory 2    -> -ERR CONFIG SET failed (possibly related to \
        argument 'maxmemory') - duplicate parameter
        CONFIG SET maxmemory 1kib             -> -ERR CONFIG SET failed (possibly related to \
        argument 'maxmemory') - argument must be a memory value
        CONFIG SET maxmemory -1               -> -ERR CONFIG SET failed (possibly related to \
        argument 'maxmemory') - argument must be a memory value
        CONFIG SET timeout -1                 -> -ERR CONFIG SET failed (possibly related to \
        argument 'timeout') - argument must be between 0 and 2147483647 inclusive
        CONFIG SET timeout x                  -> -ERR CONFIG SET failed (possibly related to \
        argument 'timeout') - argument couldn't be parsed into an integer
        CONFIG SET port 99999                 -> -ERR CONFIG SET failed (possibly related to \
        argument 'port') - argument must be between 0 and 65535 inclusive
        CONFIG SET appendonly foo             -> -ERR CONFIG SET failed (possibly related to \
        argument 'appendonly') - argument must be 'yes' or 'no'
        CONFIG SET appendfsync foo            -> -ERR CONFIG SET failed (possibly related to \
        argument 'appendfsync') - argument(s) must be one of the following: everysec, always, no
        CONFIG SET maxmemory-policy foo       -> -ERR CONFIG SET failed (possibly related to \
        argument 'maxmemory-policy') - argument(s) must be one of the following: volatile-lru, \
        volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, \
        noeviction, allkeys-s3-fifo
        CONFIG RESETSTAT x -> -ERR wrong number of arguments for 'config|resetstat' command
        CONFIG GET maxmemory                  -> ['maxmemory', '0']
        CONFIG SET maxmemory 1gb              -> OK
        CONFIG GET maxmemory                  -> ['maxmemory', '1073741824']
        CONFIG SET MaxMemory 2k save ''       -> OK
        CONFIG GET maxmemory                  -> ['maxmemory', '2000']
        CONFIG SET maxmemory 0                -> OK
    ",
    );
}

#[test]
fn config_reload_answers_what_became_of_it() {
    let mut server = Server::new();
    assert_eq!(server.run("CONFIG RELOAD"), "-ERR this server cannot reload its configuration");
    let signals = Arc::clone(&server.signals);
    signals.reloads.serve();
    // Requests are numbered from 1, so these answer the next two.
    signals.reloads.answer(1, Ok("changed maxclients".into()));
    assert_eq!(server.run("CONFIG RELOAD"), "'changed maxclients'");
    signals.reloads.answer(2, Err("a restart is needed for resp".into()));
    assert_eq!(server.run("CONFIG RELOAD"), "-ERR a restart is needed for resp");
    assert!(server.run("CONFIG RELOAD now").starts_with("-ERR wrong number of arguments"));
    server.run("MULTI");
    assert!(server.run("CONFIG RELOAD").starts_with("-ERR"), "a transaction cannot wait");
}

#[test]
fn an_order_of_another_thread_runs_once_between_turns() {
    let mut server = Server::new();
    let limits = NewLimits { memory_max: Some(123), clients_max: Some(7), ..NewLimits::default() };
    let put = server.signals.orders.put(Box::new(move |tx| {
        tx.set_limits(limits);
        tx.change_table("default", SyncMode::Os, Some(1 << 20));
        OrderStep::Done
    }));
    assert!(put.is_ok());
    assert_eq!(server.run("CONFIG GET maxmemory"), "['maxmemory', '0']");
    let now = Now { monotonic: Duration::ZERO, wall_ms: START_MS };
    let told = server.tx.poll_answers(now).expect("net is told of its limits");
    assert_eq!(told.limits.map(|limits| limits.clients_max), Some(7));
    assert_eq!(
        server.run("CONFIG GET maxmemory maxclients appendfsync"),
        "['maxmemory', '123', 'appendfsync', 'no', 'maxclients', '7']"
    );
    assert!(server.signals.orders.take().is_none());
    assert!(server.tx.poll_answers(now).is_none());
}

#[test]
fn what_only_a_start_can_change_is_accepted_unchanged() {
    let mut server = Server::new();
    assert_eq!(
        server.run("CONFIG SET appendonly YES maxclients 10000 timeout 0 appendfsync always"),
        "OK"
    );
    for change in
        ["appendonly no", "tcp-keepalive 5", "appendfsync no", "save '3600 1'", "dir /tmp"]
    {
        let reply = server.run(format!("CONFIG SET maxmemory 5 {change}"));
        assert!(
            reply.starts_with("-ERR CONFIG SET failed (possibly related to argument '"),
            "{reply}"
        );
        assert!(
            reply.ends_with("it can be changed only in the configuration file, for the next start"),
            "{reply}"
        );
    }
    assert_eq!(server.run("CONFIG GET maxmemory"), "['maxmemory', '0']", "all or nothing");
}

#[test]
fn maxmemory_takes_effect_at_once() {
    let mut server = Server::new();
    server.run("SET k v");
    assert_eq!(server.run("CONFIG SET maxmemory 1"), "OK");
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(server.run("SET k w"), oom);
    assert_eq!(server.run("COPY k l"), oom);
    assert_eq!(server.run("GET k"), "'v'");
    assert_eq!(server.run("EXPIRE k 100"), "1");
    assert_eq!(server.run("DEL k"), "1");
    assert_eq!(server.run("CONFIG SET maxmemory 0"), "OK");
    assert_eq!(server.run("SET k w"), "OK");
}

#[test]
fn info_has_the_fields_that_clients_read() {
    let mut server = Server::new();
    server.run("SET k v");
    server.run("SET l v EX 100");
    server.run("GET k");
    server.run("GET nokey");
    server.advance(90_061_000);
    let all = info(&mut server, "");
    for (name, value) in [
        ("redis_version", "7.2.4"),
        ("redis_mode", "standalone"),
        ("loading", "0"),
        ("role", "master"),
        ("connected_slaves", "0"),
        ("connected_clients", "1"),
        ("maxclients", "10000"),
        ("maxmemory", "0"),
        ("maxmemory_human", "0B"),
        ("maxmemory_policy", "noeviction"),
        ("cluster_enabled", "0"),
        ("keyspace_hits", "1"),
        ("keyspace_misses", "1"),
        ("uptime_in_seconds", "90061"),
        ("uptime_in_days", "1"),
        ("log_records", "3"),
        ("log_durable_lsn", "3"),
        ("db0", "keys=2,expires=1,avg_ttl=0"),
    ] {
        assert_eq!(field(&all, name), value, "{name}");
    }
    assert_ne!(field(&all, "used_memory"), "0");
    assert!(all.contains("\r\n\r\n# Clients\r\n"), "an empty line between sections");
    assert!(!all.contains("\n\n"), "lines end with CR LF");
    assert_eq!(info(&mut server, "everything").lines().count(), all.lines().count());
}

#[test]
fn info_gives_the_sections_asked_for() {
    let mut server = Server::new();
    let titles = |text: String| {
        text.lines()
            .filter_map(|line| line.strip_prefix("# "))
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(titles(info(&mut server, "REPLICATION server nosuch")), ["Server", "Replication"]);
    assert_eq!(info(&mut server, "nosuch"), "");
    assert!(info(&mut server, "memory").starts_with("# Memory\r\nused_memory:"));
    server.run("HELLO 3");
    assert!(server.run("INFO keyspace").starts_with("txt'# Keyspace"));
}

#[test]
fn info_shows_tables_with_what_survives_and_stages_with_their_batches() {
    let mut settings = Settings::default();
    let named = TableSettings {
        name: "cache".into(),
        sync: SyncMode::Off,
        memory_max: Some(1 << 30),
        evict: Eviction::S3Fifo,
    };
    settings.tables.push(named);
    let mut server = Server::with(settings);
    server.run("SET a 1");
    server.run("SET cache:a 1");
    let tables = info(&mut server, "tables");
    assert!(field(&tables, "table_default").starts_with("kind=memory,sync=always,keys=1,bytes="));
    let cache = field(&tables, "table_cache");
    assert!(cache.starts_with("kind=memory,sync=off,keys=1,bytes="), "{cache}");
    assert!(
        cache.ends_with(
            ",memory_max=1073741824,evict=s3-fifo,survives=nothing survives a stop of the process"
        ),
        "{cache}"
    );
    let stages = info(&mut server, "stages");
    assert_eq!(field(&stages, "tx_batch_mean"), "1.00");
    for stage in ["net", "tx", "commit", "log", "reply"] {
        for metric in ["batches", "batch_mean", "batch_max"] {
            field(&stages, &format!("{stage}_{metric}")).parse::<f64>().expect("a number");
        }
    }
    for name in ["net_polls", "net_receives", "net_sends", "system_calls_per_request"] {
        field(&stages, name).parse::<f64>().expect("a number");
    }
}

#[test]
fn memory_of_tables_that_are_not_logged_is_counted_apart() {
    let mut settings = Settings::default();
    let sync = SyncMode::Off;
    settings.tables.push(TableSettings {
        name: "cache".into(),
        sync,
        ..settings.tables[0].clone()
    });
    let mut server = Server::with(settings);
    let mut bytes_after = |line: &str| {
        server.run(line);
        server.housekeep();
        let stats = &server.stats;
        (stats.memory_logged_bytes.get(), stats.memory_used_bytes.get())
    };
    let value = "v".repeat(1 << 12);
    let (logged, used) = bytes_after(&format!("SET a {value}"));
    assert!(1 << 12 < logged && logged <= used, "{logged} of {used}");
    let (logged_later, used_later) = bytes_after(&format!("SET cache:a {value}"));
    assert_eq!(logged_later, logged);
    assert!(used + (1 << 12) < used_later, "{used}, then {used_later}");
}

#[test]
fn resetstat_lets_counters_start_again() {
    let mut server = Server::new();
    server.run("GET nokey");
    assert_eq!(server.run("CONFIG RESETSTAT"), "OK");
    let stats = info(&mut server, "stats");
    assert_eq!(field(&stats, "keyspace_misses"), "0");
}

#[test]
fn commands_describe_themselves() {
    let mut server = Server::new();
    let get = "['get', 2, [readonly, fast], 1, 1, 1, [@read, @string, @fast], [], \
               [['flags', [RO, access], 'begin_search', ['type', 'index', 'spec', ['index', 1]], \
               'find_keys', ['type', 'range', 'spec', ['lastkey', 0, 'keystep', 1, 'limit', 0]]]], \
               []]";
    assert_eq!(server.run("COMMAND INFO get"), format!("[{get}]"));
    assert_eq!(server.run("command info GET nosuch client|nosuch"), format!("[{get}, nil, nil]"));
    assert_eq!(
        server.run("COMMAND INFO client|kill"),
        "[['client|kill', -3, [admin], 0, 0, 0, [@admin, @slow, @dangerous, @connection], [], [], \
         []]]"
    );
    server.run("HELLO 3");
    let get = "['get', 2, ~[readonly, fast], 1, 1, 1, ~[@read, @string, @fast], ~[], \
               ~[{'flags': ~[RO, access], 'begin_search': {'type': 'index', 'spec': {'index': 1}}, \
               'find_keys': {'type': 'range', 'spec': {'lastkey': 0, 'keystep': 1, 'limit': 0}}}], \
               ~[]]";
    assert_eq!(server.run("COMMAND INFO get"), format!("[{get}]"));
}

#[test]
fn all_commands_are_counted_listed_and_described() {
    let mut server = Server::new();
    let count = COMMANDS.len();
    assert_eq!(server.run("COMMAND COUNT"), count.to_string());
    for line in ["COMMAND", "COMMAND INFO"] {
        let all = parsed(&mut server, line);
        assert_eq!(elements(&all).len(), count, "{line}");
        let names: BTreeSet<String> =
            elements(&all).iter().map(|of| text_of(&elements(of)[0])).collect();
        assert_eq!(names, COMMANDS.iter().map(|command| command.name.to_owned()).collect());
        assert!(elements(&all).iter().all(|of| elements(of).len() == 10));
    }
    let docs = parsed(&mut server, "COMMAND DOCS");
    assert_eq!(elements(&docs).len(), 2 * count);
    let subcommands: usize = COMMANDS.iter().map(|command| command.subcommands.len()).sum();
    let list = parsed(&mut server, "COMMAND LIST");
    assert_eq!(elements(&list).len(), count + subcommands);
}

#[test]
fn documentation_has_the_shape_that_redis_cli_reads() {
    let mut server = Server::new();
    assert_eq!(
        server.run("COMMAND DOCS get nosuch"),
        "['get', ['summary', 'Returns the string value of a key.', 'since', '1.0.0', 'group', \
         'string', 'arguments', [['name', 'key', 'type', 'key', 'key_spec_index', 0]]]]"
    );
    server.run("HELLO 3");
    assert_eq!(
        server.run("COMMAND DOCS expire"),
        "{'expire': {'summary': 'Sets the expiration of a key, in seconds from now.', 'since': \
         '1.0.0', 'group': 'generic', 'arguments': [{'name': 'key', 'type': 'key', \
         'key_spec_index': 0}, {'name': 'seconds', 'type': 'integer'}, {'name': 'nx-xx-gt-lt', \
         'type': 'oneof', 'flags': ~[optional], 'arguments': [{'name': 'nx', 'type': 'pure-token', \
         'token': 'NX'}, {'name': 'xx', 'type': 'pure-token', 'token': 'XX'}, {'name': 'gt', \
         'type': 'pure-token', 'token': 'GT'}, {'name': 'lt', 'type': 'pure-token', 'token': \
         'LT'}]}]}}"
    );
    let container = server.run("COMMAND DOCS memory");
    assert!(container.contains("'subcommands': {'memory|usage': {'summary': "), "{container}");
}

#[test]
fn lists_of_commands_can_be_filtered() {
    check(
        "
        COMMAND LIST FILTERBY MODULE x         -> []
        COMMAND LIST FILTERBY PATTERN HSETN?   -> ['hsetnx']
        COMMAND LIST FILTERBY PATTERN nosuch*  -> []
        COMMAND LIST FILTERBY ACLCAT nosuch    -> []
        COMMAND LIST FILTERBY x                -> -ERR syntax error
        COMMAND LIST FILTERBY x y              -> -ERR syntax error
        COMMAND LIST FOO                       -> -ERR syntax error
        COMMAND FOO                            -> -ERR unknown subcommand 'FOO'. Try COMMAND HELP.
        COMMAND COUNT x -> -ERR wrong number of arguments for 'command|count' command
    ",
    );
    let mut server = Server::new();
    let transaction = "['multi', 'exec', 'discard', 'watch', 'unwatch']";
    assert_eq!(server.run("COMMAND LIST FILTERBY aclcat TRANSACTION"), transaction);
}

#[test]
fn keys_are_found_in_any_command() {
    check(
        "
        COMMAND GETKEYS -> -ERR wrong number of arguments for 'command|getkeys' command
        COMMAND GETKEYS get a               -> ['a']
        COMMAND GETKEYS MSET a 1 b 2        -> ['a', 'b']
        COMMAND GETKEYS rename a b          -> ['a', 'b']
        COMMAND GETKEYS del a b c           -> ['a', 'b', 'c']
        COMMAND GETKEYS object encoding k   -> ['k']
        COMMAND GETKEYS get a b -> -ERR Invalid number of arguments specified for command
        COMMAND GETKEYS nosuch a            -> -ERR Invalid command specified
        COMMAND GETKEYS client nosuch       -> -ERR Invalid command specified
        COMMAND GETKEYS client kill         -> -ERR The command has no key arguments
        COMMAND GETKEYS ping a              -> -ERR The command has no key arguments
    ",
    );
}

#[test]
fn time_is_seconds_and_microseconds() {
    let mut server = Server::new();
    server.advance(1_234);
    assert_eq!(server.run("TIME"), "['1700000001', '234000']");
    assert_eq!(server.run("TIME x"), "-ERR wrong number of arguments for 'time' command");
}

#[test]
fn functions_there_are_none_of_can_be_flushed() {
    check(
        "
        FUNCTION FLUSH          -> OK
        FUNCTION FLUSH async    -> OK
        FUNCTION FLUSH SYNC     -> OK
        FUNCTION FLUSH foo      -> -ERR FUNCTION FLUSH only supports SYNC|ASYNC option
        FUNCTION FLUSH SYNC x   -> -ERR unknown subcommand or wrong number of arguments for \
        'FLUSH'. Try FUNCTION HELP.
        FUNCTION FOO            -> -ERR unknown subcommand 'FOO'. Try FUNCTION HELP.
        FUNCTION                -> -ERR wrong number of arguments for 'function' command
    ",
    );
}

#[test]
fn help_is_made_from_the_table() {
    let mut server = Server::new();
    assert_eq!(
        server.run("SLOWLOG HELP"),
        "[SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:, GET [count],     \
         Returns the newest entries: id, Unix time, microseconds, arguments, client, its name., \
         LEN,     Returns how many entries there are., RESET,     Removes all entries., HELP,     \
         Prints the subcommands.]"
    );
    for container in COMMANDS.iter().filter(|command| !command.subcommands.is_empty()) {
        let help = parsed(&mut server, &format!("{} HELP", container.name));
        assert_eq!(
            elements(&help).len(),
            1 + 2 * container.subcommands.len(),
            "{}",
            container.name
        );
    }
}

#[test]
fn shutdown_stops_without_a_reply() {
    for line in ["SHUTDOWN", "SHUTDOWN NOSAVE", "shutdown save", "SHUTDOWN NOW FORCE"] {
        let mut server = Server::new();
        assert_eq!(server.run(line), "no reply");
        assert!(server.signals.stopping(), "{line}");
        assert_eq!(server.run("PING"), "no reply", "what was sent behind it is not answered");
    }
}

#[test]
fn a_mistaken_shutdown_stops_nothing() {
    let mut server = Server::new();
    for (line, error) in [
        ("SHUTDOWN foo", "-ERR syntax error"),
        ("SHUTDOWN NOSAVE SAVE", "-ERR syntax error"),
        ("SHUTDOWN NOW ABORT", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("MULTI", "OK"),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "OK"),
    ] {
        assert_eq!(server.run(line), error, "{line}");
    }
    assert!(!server.signals.stopping());
}

#[test]
fn every_subcommand_is_named_after_its_command() {
    for container in COMMANDS {
        for subcommand in container.subcommands {
            let (of, _) = subcommand.name.split_once('|').expect("a bar");
            assert_eq!(of, container.name);
            assert!(subcommand.subcommands.is_empty());
        }
    }
}

/// Each name costs a lookup and a reply that is much longer than it: a megabyte of names kept
/// everybody else waiting for seconds.
#[test]
fn many_names_in_one_request_are_refused() {
    let mut server = Server::new();
    let repeated = |line: &str, word: &str, count: usize| {
        format!("{line}{}", format!(" {word}").repeat(count))
    };
    for (line, word) in [
        ("COMMAND DOCS", "get"),
        ("COMMAND INFO", "get"),
        ("CONFIG GET", "maxmemory"),
        ("CONFIG SET", "timeout 0"),
        ("CLIENT LIST ID", "1"),
        ("INFO", "server"),
    ] {
        let reply = send_words(&mut server, &repeated(line, word, 1025));
        assert_eq!(reply, "-ERR more than 1024 names in one request", "{line}");
        let reply = send_words(&mut server, &repeated(line, word, 512));
        assert!(!reply.contains("1024 names"), "{line} {reply}");
    }
    let config = server.send(Client::FIRST, &[b"CONFIG", b"GET", &[b'*'; 1 << 20]]);
    assert_eq!(config, b"-ERR patterns are longer than 1 MiB\r\n");
    let config = server.send(Client::FIRST, &[b"CONFIG", b"SET", b"save", &[b'x'; 100_000]]);
    let refused =
        b"-ERR CONFIG SET failed (possibly related to argument 'save') - argument is too long\r\n";
    assert_eq!(config, refused);
    for words in [&[&b"SETNAME"[..]][..], &[b"SETINFO", b"lib-name"], &[b"SETINFO", b"lib-ver"]] {
        let reply =
            server.send(Client::FIRST, &[&[&b"CLIENT"[..]], words, &[&[b'x'; 5_000]]].concat());
        assert_eq!(reply, b"-ERR a name is longer than 4 KiB\r\n");
    }
}

/// Sends a command as client libraries do: a line would be too long.
fn send_words(server: &mut Server, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    show_bytes(&server.send(Client::FIRST, &words))
}

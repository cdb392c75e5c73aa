//! HELLO, AUTH, CLIENT and the like: what stock clients send when they connect, and what they
//! expect.

use std::net::SocketAddr;

use crate::common::{Client, Server, check, check_on};
use busload_io::{Address, Peer};
use busload_pipeline::{limits::GUESSES_AT_ONCE, session::Session, settings::Settings};
use busload_resp::reply::Reply;

const TOO_MANY: &str = "-ERR too many wrong passwords came from this address, so none is looked at \
                        now; try again in 1 s";
const NOAUTH: &str = "-NOAUTH Authentication required.";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

fn with_password() -> Server {
    Server::with(Settings { password: Some(b"secret".to_vec()), ..Settings::default() })
}

fn peer(remote: &str) -> Peer {
    let address = |text: &str| Address::Tcp(text.parse::<SocketAddr>().expect("an address"));
    Peer { remote: address(remote), local: address("127.0.0.1:6380") }
}

/// Returns the text of a verbatim or bulk reply.
fn text(server: &mut Server, client: Client, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let bytes = server.send(client, &words);
    match Reply::parse(&bytes) {
        Ok(Some((Reply::Bulk(text) | Reply::Verbatim { text, .. }, _))) => {
            String::from_utf8(text.to_vec()).expect("text")
        }
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn hello_says_who_answers_and_changes_the_protocol() {
    let mut server = Server::new();
    assert_eq!(
        server.run("HELLO"),
        "['server', 'redis', 'version', '7.2.4', 'proto', 2, 'id', 1, 'mode', 'standalone', \
         'role', 'master', 'modules', []]"
    );
    assert_eq!(
        server.run("hello 3"),
        "{'server': 'redis', 'version': '7.2.4', 'proto': 3, 'id': 1, 'mode': 'standalone', \
         'role': 'master', 'modules': []}"
    );
    assert_eq!(server.send(Client::FIRST, &[b"GET", b"nokey"]), b"_\r\n");
    assert!(server.run("HELLO").starts_with('{'), "without a version the protocol stays");
    assert!(server.run("HELLO 2 AUTH default any SETNAME me").starts_with('['));
    assert_eq!(server.run("CLIENT GETNAME"), "'me'");
    assert_eq!(server.send(Client::FIRST, &[b"GET", b"nokey"]), b"$-1\r\n");
}

#[test]
fn a_bad_hello_changes_nothing() {
    check(
        r#"
        HELLO 4                       -> -NOPROTO unsupported protocol version
        HELLO 1                       -> -NOPROTO unsupported protocol version
        HELLO x                       -> -ERR Protocol version is not an integer or out of range
        HELLO 2 foo                   -> -ERR Syntax error in HELLO option 'foo'
        HELLO 3 AUTH a                -> -ERR Syntax error in HELLO option 'AUTH'
        HELLO 3 AUTH foo x -> -WRONGPASS invalid username-password pair or user is disabled.
        HELLO 3 SETNAME               -> -ERR Syntax error in HELLO option 'SETNAME'
   HELLO 3 SETNAME "a b" -> -ERR Client names cannot contain spaces, newlines or special characters.
        CLIENT GETNAME                -> nil
        HGETALL nokey                 -> []
    "#,
    );
}

#[test]
fn a_name_is_taken_only_from_a_hello_that_is_right_to_its_end() {
    let mut server = Server::new();
    assert_eq!(server.run("HELLO 3 SETNAME me foo"), "-ERR Syntax error in HELLO option 'foo'");
    assert_eq!(server.run("HELLO 3 SETNAME me AUTH foo x"), WRONGPASS);
    assert_eq!(server.run("CLIENT GETNAME"), "nil");
}

#[test]
fn without_a_password_auth_is_refused_or_needless() {
    check(
        "
        AUTH x             -> -ERR AUTH <password> called without any password configured for the \
        default user. Are you sure your configuration is correct?
        AUTH default x     -> OK
        AUTH foo x         -> -WRONGPASS invalid username-password pair or user is disabled.
        AUTH a b c         -> -ERR syntax error
        AUTH               -> -ERR wrong number of arguments for 'auth' command
    ",
    );
}

#[test]
fn after_some_wrong_passwords_none_from_there_is_looked_at_for_a_while() {
    let mut server = with_password();
    let logged_in = server.connect_as(peer("10.0.0.1:1"));
    assert_eq!(server.run_on(logged_in, "AUTH secret"), "OK");
    let guesser = server.connect_as(peer("10.0.0.1:2"));
    for _ in 0..GUESSES_AT_ONCE {
        assert_eq!(server.run_on(guesser, "AUTH guess"), WRONGPASS);
    }
    assert_eq!(server.closed, []);
    let mut refused = vec![guesser];
    assert_eq!(server.run_on(guesser, "AUTH guess"), TOO_MANY);
    for line in ["AUTH secret", "HELLO 3 AUTH default secret", "AUTH foo secret"] {
        let again = server.connect_as(peer("10.0.0.1:3"));
        assert_eq!(server.run_on(again, line), TOO_MANY, "right or wrong: {line}");
        refused.push(again);
    }
    assert_eq!(server.closed, refused, "who goes on pays with its connection");
    assert_eq!(server.run_on(logged_in, "PING"), "PONG");
    assert_eq!(server.run_on(logged_in, "AUTH secret"), "OK", "who has said it may say it again");
    let other = server.connect_as(peer("10.0.0.2:1"));
    assert_eq!(server.run_on(other, "AUTH secret"), "OK");
    let stats = server.run_on(other, "INFO stats");
    assert!(stats.contains(&format!("acl_access_denied_auth:{GUESSES_AT_ONCE}")), "{stats}");
    assert!(stats.contains(&format!("auth_refused:{}", refused.len())), "{stats}");
    server.advance(1_000);
    let again = server.connect_as(peer("10.0.0.1:4"));
    assert_eq!(server.run_on(again, "AUTH secret"), "OK");
}

#[test]
fn with_a_password_nothing_works_before_it_is_given() {
    let mut server = with_password();
    for line in
        ["GET k", "PING", "SELECT 1", "CLIENT ID", "MULTI", "INFO", "CONFIG GET *", "SHUTDOWN"]
    {
        assert_eq!(server.run(line), NOAUTH, "{line}");
    }
    assert!(!server.signals.stopping());
    let hello = server.run("HELLO 3");
    assert!(
        hello.starts_with("-NOAUTH HELLO must be called with the client already authenticated"),
        "{hello}"
    );
    for line in [
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH foo secret",
        "HELLO 3 AUTH default wrong",
        "AUTH secre",
    ] {
        assert_eq!(server.run(line), WRONGPASS, "{line}");
    }
    assert_eq!(server.run("GET k"), NOAUTH);
    assert_eq!(server.run("RESET"), "RESET");
    assert_eq!(server.run("AUTH secret"), "OK");
    assert_eq!(server.run("GET k"), "nil");
    assert_eq!(server.run("AUTH wrong"), WRONGPASS);
    assert_eq!(server.run("GET k"), "nil", "a wrong password does not log out");
    assert_eq!(server.run("RESET"), "RESET");
    assert_eq!(server.run("GET k"), NOAUTH, "RESET does");
    let other = server.connect();
    assert!(
        server
            .run_on(other, "HELLO 3 AUTH default secret SETNAME me")
            .starts_with("{'server': 'redis'")
    );
    assert_eq!(server.run_on(other, "CLIENT GETNAME"), "'me'");
    let stats = server.run_on(other, "INFO stats");
    assert!(stats.contains("acl_access_denied_auth:6"), "{stats}");
    assert_eq!(server.run("QUIT"), "OK");
}

#[test]
fn ping_echo_and_select_answer_as_in_redis() {
    check(
        r#"
        PING              -> PONG
        PING "a\r\nb"     -> 'a\r\nb'
        PING a b          -> -ERR wrong number of arguments for 'ping' command
        ECHO ""           -> ''
        ECHO a            -> 'a'
        ECHO              -> -ERR wrong number of arguments for 'echo' command
        @ resp3
        PING              -> PONG
        ECHO a            -> 'a'
    "#,
    );
}

#[test]
fn reset_forgets_everything_but_the_connection() {
    let mut server = Server::new();
    for line in [
        "HELLO 3 SETNAME me",
        "SELECT 5",
        "CLIENT NO-TOUCH ON",
        "CLIENT NO-EVICT ON",
        "WATCH k",
        "MULTI",
    ] {
        server.run(line);
    }
    assert_eq!(server.run("SET k v"), "QUEUED");
    assert_eq!(server.run("RESET"), "RESET");
    assert_eq!(server.send(Client::FIRST, &[b"CLIENT", b"GETNAME"]), b"$-1\r\n");
    let line = text(&mut server, Client::FIRST, "CLIENT INFO");
    for part in ["id=1 ", " name= ", " flags=U ", " db=0 ", " multi=-1 ", " resp=2 "] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(server.run("EXISTS k"), "0");
}

#[test]
fn reset_turns_replies_on_again() {
    let mut server = Server::new();
    assert_eq!(server.run("CLIENT REPLY OFF"), "no reply");
    assert_eq!(server.run("PING"), "no reply");
    assert_eq!(server.run("RESET"), "RESET");
    assert_eq!(server.run("PING"), "PONG");
}

#[test]
fn quit_answers_and_ends_the_connection() {
    let mut server = Server::new();
    let client = server.connect();
    server.run_on(client, "MULTI");
    assert_eq!(server.run_on(client, "QUIT"), "OK");
    assert_eq!(server.closed, [client]);
    assert_eq!(server.run_on(client, "SET k v"), "no reply", "nothing is executed any more");
    assert_eq!(server.run("EXISTS k"), "0");
}

#[test]
fn replies_can_be_turned_off_and_skipped() {
    let mut server = Server::new();
    for (line, reply) in [
        ("CLIENT REPLY SKIP", "no reply"),
        ("SET a 1", "no reply"),
        ("GET a", "'1'"),
        ("CLIENT REPLY OFF", "no reply"),
        ("SET a 2", "no reply"),
        ("NONSENSE", "no reply"),
        ("CLIENT REPLY SKIP", "no reply"),
        ("GET a", "no reply"),
        ("GET a", "no reply"),
        ("CLIENT REPLY ON", "OK"),
        ("GET a", "'2'"),
        ("CLIENT REPLY x", "-ERR syntax error"),
        ("CLIENT REPLY", "-ERR wrong number of arguments for 'client|reply' command"),
    ] {
        assert_eq!(server.run(line), reply, "{line}");
    }
}

#[test]
fn names_are_printable_and_can_be_taken_back() {
    check(
        r#"
        CLIENT GETNAME           -> nil
        CLIENT SETNAME a-b:c     -> OK
        CLIENT GETNAME           -> 'a-b:c'
    CLIENT SETNAME "a b" -> -ERR Client names cannot contain spaces, newlines or special characters.
   CLIENT SETNAME "a\nb" -> -ERR Client names cannot contain spaces, newlines or special characters.
   CLIENT SETNAME "\xc3" -> -ERR Client names cannot contain spaces, newlines or special characters.
        CLIENT GETNAME           -> 'a-b:c'
        CLIENT SETNAME ""        -> OK
        CLIENT GETNAME           -> nil
        CLIENT SETNAME           -> -ERR wrong number of arguments for 'client|setname' command
        CLIENT                   -> -ERR wrong number of arguments for 'client' command
        CLIENT FOO               -> -ERR unknown subcommand 'FOO'. Try CLIENT HELP.
        CLIENT NO-EVICT on       -> OK
        CLIENT NO-EVICT x        -> -ERR syntax error
    "#,
    );
}

#[test]
fn what_libraries_say_about_themselves_is_kept() {
    let mut server = Server::new();
    assert_eq!(server.run("CLIENT SETINFO LIB-NAME redis-py"), "OK");
    assert_eq!(server.run("CLIENT SETINFO lib-ver 8.1.0"), "OK");
    assert_eq!(server.run("CLIENT SETINFO foo x"), "-ERR Unrecognized option 'foo'");
    assert_eq!(
        server.run("CLIENT SETINFO lib-name 'a b'"),
        "-ERR lib-name cannot contain spaces, newlines or special characters."
    );
    let arity = "-ERR wrong number of arguments for 'client|setinfo' command";
    assert_eq!(server.run("CLIENT SETINFO lib-name"), arity);
    let line = text(&mut server, Client::FIRST, "CLIENT INFO");
    assert!(line.ends_with(" lib-name=redis-py lib-ver=8.1.0\n"), "{line}");
}

#[test]
fn requests_that_clients_ignore_the_refusal_of_are_refused_as_unknown() {
    check(
        "
        CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-fqdn -> -ERR unknown \
        subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.
    ",
    );
}

#[test]
fn client_list_has_a_line_for_every_connection() {
    let mut server = Server::new();
    let second = server.connect_as(peer("127.0.0.1:50001"));
    let third = server.connect_as(peer("127.0.0.1:50002"));
    server.run_on(second, "CLIENT SETNAME worker");
    server.run_on(third, "SELECT 3");
    server.run_on(third, "MULTI");
    server.run_on(third, "GET k");
    server.advance(2_500);
    let list = text(&mut server, Client::FIRST, "CLIENT LIST");
    let lines: Vec<&str> = list.lines().collect();
    // Without a net stage nobody measures buffers.
    let session = size_of::<Session>();
    let sizes = format!(
        "qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
         tot-mem={session} events="
    );
    assert_eq!(
        lines[..2],
        [
            format!(
                "id=1 addr=/sim:0 laddr=/sim:0 fd=-1 name= age=2 idle=0 flags=U db=0 sub=0 psub=0 \
                 ssub=0 multi=-1 {sizes} cmd=client|list user=default redir=-1 resp=2 lib-name= \
                 lib-ver="
            ),
            format!(
                "id=2 addr=127.0.0.1:50001 laddr=127.0.0.1:6380 fd=-1 name=worker age=2 idle=2 \
                 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 {sizes} cmd=client|setname user=default \
                 redir=-1 resp=2 lib-name= lib-ver="
            ),
        ]
    );
    assert!(
        lines[2].starts_with("id=3 ")
            && lines[2].contains(" flags=x db=3 ")
            && lines[2].contains(" multi=1 ")
    );
    assert_eq!(lines.len(), 3);
    let of = |server: &mut Server, line: &str| {
        let list = text(server, Client::FIRST, line);
        list.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(&mut server, "CLIENT LIST TYPE normal"), ["id=1", "id=2", "id=3"]);
    assert_eq!(of(&mut server, "CLIENT LIST TYPE PUBSUB"), [] as [&str; 0]);
    assert_eq!(of(&mut server, "CLIENT LIST ID 3 99 2"), ["id=3", "id=2"]);
}

#[test]
fn bad_filters_of_client_list_and_kill_are_refused() {
    check(
        "
        CLIENT LIST TYPE foo                     -> -ERR Unknown client type 'foo'
        CLIENT LIST TYPE                         -> -ERR syntax error
        CLIENT LIST ID                           -> -ERR syntax error
        CLIENT LIST ID a                         -> -ERR Invalid client ID
        CLIENT LIST foo                          -> -ERR syntax error
        CLIENT KILL -> -ERR wrong number of arguments for 'client|kill' command
        CLIENT KILL 1.2.3.4:5                    -> -ERR No such client
        CLIENT KILL ID                           -> -ERR No such client
        CLIENT KILL ID 77777777                  -> 0
        CLIENT KILL ID abc                       -> -ERR client-id should be greater than 0
        CLIENT KILL ID 0                         -> -ERR client-id should be greater than 0
        CLIENT KILL ID -1                        -> -ERR client-id should be greater than 0
        CLIENT KILL FOO 1                        -> -ERR syntax error
        CLIENT KILL ID 1 FOO                     -> -ERR syntax error
        CLIENT KILL TYPE foo                     -> -ERR Unknown client type 'foo'
        CLIENT KILL TYPE pubsub                  -> 0
        CLIENT KILL USER nosuch                  -> -ERR No such user 'nosuch'
        CLIENT KILL ADDR a LADDR b SKIPME maybe  -> -ERR syntax error
        CLIENT KILL SKIPME no ADDR 1             -> 0
    ",
    );
}

#[test]
fn a_killed_client_is_closed_and_executes_nothing_more() {
    let mut server = Server::new();
    let killer = server.connect_as(peer("127.0.0.1:50001"));
    let victim = server.connect_as(peer("127.0.0.1:50002"));
    let bystander = server.connect_as(peer("127.0.0.1:50003"));
    assert_eq!(server.run_on(killer, "CLIENT KILL ID 3"), "1");
    assert_eq!(server.closed, [victim]);
    assert_eq!(server.run_on(victim, "SET k v"), "no reply");
    assert_eq!(server.run_on(killer, "CLIENT KILL ID 3"), "0", "it is as good as gone");
    assert_eq!(server.run_on(bystander, "EXISTS k"), "0");
    assert_eq!(server.run_on(killer, "CLIENT KILL 127.0.0.1:50003"), "OK");
    assert_eq!(server.closed, [victim, bystander]);
    assert_eq!(server.run_on(killer, "CLIENT KILL 127.0.0.1:50003"), "-ERR No such client");
}

#[test]
fn a_client_spares_itself_unless_asked_not_to() {
    let mut server = Server::new();
    let killer = server.connect_as(peer("127.0.0.1:50001"));
    let other = server.connect_as(peer("127.0.0.1:50002"));
    assert_eq!(
        server.run_on(killer, "CLIENT KILL LADDR 127.0.0.1:6380 USER default TYPE normal"),
        "1"
    );
    assert_eq!(server.closed, [other]);
    assert_eq!(server.run_on(killer, "CLIENT KILL LADDR 127.0.0.1:6380 SKIPME no"), "1");
    assert_eq!(server.closed, [other, killer], "its reply still leaves");
    let first = killer;
    let killer = server.connect_as(peer("127.0.0.1:50004"));
    assert_eq!(server.run_on(killer, "CLIENT KILL 127.0.0.1:50004"), "OK");
    assert_eq!(server.closed, [other, first, killer]);
}

#[test]
fn connection_commands_work_inside_a_transaction() {
    check_on(
        Server::new(),
        "
        @ 0
        MULTI               -> OK
        SELECT 2            -> QUEUED
        SET k v             -> QUEUED
        HELLO 3             -> QUEUED
        GET nokey           -> QUEUED
        CLIENT SETNAME me   -> QUEUED
        EXEC                -> [OK, OK, {'server': 'redis', 'version': '7.2.4', 'proto': 3, 'id': \
        1, 'mode': 'standalone', 'role': 'master', 'modules': []}, nil, OK]
        CLIENT GETNAME      -> 'me'
        GET k               -> 'v'
        SELECT 0            -> OK
        GET k               -> nil
        MULTI               -> OK
        CLIENT FOO          -> -ERR unknown subcommand 'FOO'. Try CLIENT HELP.
        EXEC                -> -EXECABORT Transaction discarded because of previous errors.
    ",
    );
}

/// Valkey 8 does so; Redis 7 let EXEC run what was queued beside them, with fewer replies than
/// commands.
#[test]
fn multi_and_watch_inside_a_transaction_spoil_it() {
    for (line, error) in [
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
    ] {
        let mut server = Server::new();
        for (line, reply) in [
            ("MULTI", "OK"),
            ("SET k v", "QUEUED"),
            (line, error),
            ("SET k w", "QUEUED"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("EXEC", "-ERR EXEC without MULTI"),
            ("GET k", "nil"),
            ("MULTI", "OK"),
            (line, error),
            ("DISCARD", "OK"),
            ("MULTI", "OK"),
            ("SET k v", "QUEUED"),
            ("EXEC", "[OK]"),
            ("GET k", "'v'"),
        ] {
            assert_eq!(server.run(line), reply, "{line}");
        }
    }
}

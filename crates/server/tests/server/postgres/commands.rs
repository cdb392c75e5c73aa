//! Every command on tables with one value column and with several.

use busload_resp::reply::Reply;

use super::{Relation, Served};
use crate::support::client::{binary_command, command, text};

#[test]
fn reads_of_a_table_with_one_value_column() {
    for net_threads in ["0", "1"] {
        let relation =
            Relation::of_rows(&[("a", "one"), ("empty", ""), ("null", "NULL"), ("b", "two")]);
        let mut served =
            Served::start(&[&relation.table("key=pk")], &["--net-threads", net_threads]);
        served.check(
            "
            GET objects:a                               -> one
            GET objects:empty                           ->
            GET objects:null                            -> nil
            GET objects:none                            -> nil
            MGET objects:b objects:none objects:a objects:null -> two nil one nil
            EXISTS objects:a                            -> 1
            EXISTS objects:null                         -> 1
            EXISTS objects:none                         -> 0
            EXISTS objects:a objects:none objects:a     -> 2
            STRLEN objects:a                            -> 3
            STRLEN objects:null                         -> 0
            STRLEN objects:none                         -> 0
            TYPE objects:a                              -> string
            TYPE objects:null                           -> string
            TYPE objects:none                           -> none
            HGET objects:a payload                      -> one
            HGET objects:a pk                           -> nil
            HGET objects:null payload                   -> nil
            HGET objects:none payload                   -> nil
            HMGET objects:a nosuch payload              -> nil one
            HMGET objects:none payload                  -> nil
            HGETALL objects:a                           -> payload one
            HGETALL objects:empty                       -> payload
            HGETALL objects:null                        ->
            HGETALL objects:none                        ->
            HEXISTS objects:a payload                   -> 1
            HEXISTS objects:empty payload               -> 1
            HEXISTS objects:null payload                -> 0
            HEXISTS objects:a nosuch                    -> 0
            HKEYS objects:a                             -> payload
            HKEYS objects:null                          ->
            HLEN objects:a                              -> 1
            HLEN objects:null                           -> 0
            HLEN objects:none                           -> 0
            ",
        );
    }
}

#[test]
fn reads_of_a_table_with_several_value_columns() {
    let relation = Relation::new(
        "repo text, path text, size bigint, meta text, raw bytea, flag boolean, \
         PRIMARY KEY (repo, path)",
    );
    relation.execute(
        r#"INSERT INTO @ VALUES
           ('r', 'a/b', 12, 'say "hi"', '\x00ff', true),
           ('r:1', 'c\d', NULL, NULL, 'text', NULL)"#,
    );
    let query = "key=repo,path&columns=meta,size,raw,flag";
    let mut served = Served::start(&[&relation.table(query)], &[]);
    served.check(
        r#"
        GET objects:r:a/b         -> {"meta":"say \"hi\"","size":"12","raw":"\\x00ff","flag":"true"}
        GET objects:r\:1:c\\d       -> {"meta":null,"size":null,"raw":"text","flag":null}
        GET objects:r:none          -> nil
        STRLEN objects:r\:1:c\\d    -> 50
        TYPE objects:r:a/b          -> hash
        HGET objects:r:a/b size     -> 12
        HMGET objects:r:a/b flag nosuch meta -> true nil say "hi"
        HKEYS objects:r\:1:c\\d     -> raw
        HGETALL objects:r\:1:c\\d   -> raw text
        HLEN objects:r:a/b          -> 4
        HLEN objects:r\:1:c\\d      -> 1
        "#,
    );
    for (key, parts) in [("r", "1 part"), ("r:a/b:c", "3 parts")] {
        served.check(&format!(
            "GET objects:{key} -> -ERR table objects: the key has {parts}, expected 2: repo:path \
             (a backslash before : or \\ makes it part of a value)"
        ));
    }
    served.client.send(&binary_command(&[b"HGET", b"objects:r:a/b", b"raw"]));
    let reply = served.client.receive().unwrap();
    assert_eq!(reply, Reply::Bulk(vec![0, 0xff]), "bytes as they are");
}

#[test]
fn keys_have_their_columns_types() {
    let relation = Relation::new("id int PRIMARY KEY, v text");
    relation.execute("INSERT INTO @ VALUES (7, 'seven'), (-1, 'minus')");
    let mut served = Served::start(&[&relation.table("key=id")], &[]);
    let error = "-ERR table objects: the key is not a whole number from -2147483648 to 2147483647 \
                 (column id is int4)";
    let transcript = "
        MGET objects:7 objects:007 objects:-1 objects:8 -> seven seven minus nil
        GET objects:x                                   -> ERROR
        MGET objects:7 objects:99999999999 objects:-1   -> seven ERROR minus
        EXISTS objects:7 objects:x                      -> ERROR
        ";
    served.check(&transcript.replace("ERROR", error));
}

#[test]
fn writes_of_a_table_with_one_value_column() {
    for net_threads in ["0", "1"] {
        let relation = Relation::of_rows(&[("a", "one"), ("null", "NULL")]);
        let table = relation.table("key=pk&writable=true");
        let mut served = Served::start(&[&table], &["--net-threads", net_threads]);
        served.check(
            "
            SET objects:a 1                             -> OK
            GET objects:a                               -> 1
            SET objects:new 2                           -> OK
            MGET objects:a objects:new                  -> 1 2
            MSET objects:a x objects:b y objects:a z    -> OK
            MGET objects:a objects:b                    -> z y
            DEL objects:a objects:none objects:a        -> 1
            UNLINK objects:b                            -> 1
            EXISTS objects:a objects:b                  -> 0
            HSET objects:h payload v                    -> 1
            HSET objects:h payload w                    -> 0
            HSET objects:null payload v                 -> 0
            HDEL objects:h payload                      -> 1
            HDEL objects:h payload                      -> 0
            HDEL objects:none payload                   -> 0
            EXISTS objects:h objects:none               -> 1
            GET objects:h                               -> nil
            SET objects:a 1 EX 10    -> -ERR SET takes no options on this kind of table
            HSET objects:a nosuch 1  -> -ERR table objects: there is no value column \
                                        `nosuch`; there are payload
            HDEL objects:a pk        -> -ERR table objects: there is no value column \
                                        `pk`; there are payload
            ",
        );
        assert_eq!(relation.execute("SELECT pk, payload FROM @ ORDER BY pk"), "h|\nnew|2\nnull|v");
    }
}

#[test]
fn writes_of_a_table_with_several_value_columns() {
    let relation = Relation::new("id bigint PRIMARY KEY, a text, b int, c bytea DEFAULT 'made'");
    let mut served = Served::start(&[&relation.table("key=id&columns=a,b,c&writable=yes")], &[]);
    served.check(
        "
        HSET objects:1 a x b 5          -> 2
        HSET objects:1 b 6 b 7          -> 0
        HGETALL objects:1               -> a x b 7 c made
        HDEL objects:1 a nosuch         -> -ERR table objects: there is no value column `nosuch`; \
                                           there are a, b, c
        HDEL objects:1 a b              -> 2
        HGETALL objects:1               -> c made
        SET objects:1 v                 -> -ERR table objects: SET is not possible: the table has \
                                           several value columns (a, b, c); use HSET
        MSET objects:1 v objects:2 w    -> -ERR table objects: MSET is not possible: the table has \
                                           several value columns (a, b, c); use HSET
        HSET objects:1 a                -> -ERR wrong number of arguments for 'hset' command
        HSET objects:2 b text           -> -ERR table objects: invalid input syntax for type \
                                           integer: \"text\" (SQLSTATE 22P02)
        EXISTS objects:2                -> 0
        DEL objects:1                   -> 1
        ",
    );
}

#[test]
fn one_bad_write_fails_alone_and_what_was_written_is_counted() {
    let relation = Relation::new("pk text PRIMARY KEY, v text CHECK (v <> 'bad')");
    let mut served = Served::start(&[&relation.table("key=pk&writable=true")], &[]);
    for index in 0..100 {
        let value = if index % 10 == 3 { "bad" } else { "good" };
        served.client.send(&command(&["SET", &format!("objects:{index}"), value]));
    }
    for index in 0..100 {
        let reply = text(&served.client.receive().unwrap());
        if index % 10 == 3 {
            assert!(
                reply.contains("violates check constraint") && reply.contains("23514"),
                "{reply}"
            );
        } else {
            assert_eq!(reply, "OK", "{index}");
        }
    }
    assert_eq!(
        relation.execute("SELECT count(*), count(*) FILTER (WHERE v = 'bad') FROM @"),
        "90|0"
    );
    let reply = served.run("MSET objects:x good objects:y bad objects:z good");
    assert!(
        reply.contains("violates check") && reply.ends_with("(2 of 3 keys were written)"),
        "{reply}"
    );
    served.check("MGET objects:x objects:y objects:z -> good nil good");
}

#[test]
fn bytes_that_text_cannot_hold_are_refused_before_they_are_queued() {
    let relation = Relation::of_rows(&[("a", "1")]);
    let mut served = Served::start(&[&relation.table("key=pk&writable=true")], &[]);
    for (words, part) in [
        ([&b"GET"[..], b"objects:\xff"].to_vec(), "is not UTF-8"),
        ([&b"GET"[..], b"objects:a\0"].to_vec(), "NUL byte"),
        ([&b"SET"[..], b"objects:a", b"\xff"].to_vec(), "is not UTF-8"),
        ([&b"SET"[..], b"objects:a", b"\0"].to_vec(), "NUL byte"),
    ] {
        served.client.send(&binary_command(&words));
        let reply = text(&served.client.receive().unwrap());
        assert!(reply.starts_with("-ERR table objects: ") && reply.contains(part), "{reply}");
    }
    served.check("GET objects:a -> 1");
}

#[test]
fn a_table_that_is_not_writable_says_how_it_would_be() {
    let relation = Relation::of_rows(&[("a", "one")]);
    let mut served = Served::start(&[&relation.table("key=pk")], &[]);
    for command in [
        "SET objects:a 1",
        "MSET objects:a 1",
        "HSET objects:a payload 1",
        "HDEL objects:a payload",
        "DEL objects:a",
    ] {
        let name = command.split(' ').next().unwrap();
        let expected = format!(
            "-ERR table objects: {name} is not possible: the table is not writable (writable = \
             true in its settings allows writes)"
        );
        assert_eq!(served.run(command), expected);
    }
    served.check("GET objects:a -> one");
}

#[test]
fn what_postgres_tables_cannot_do_is_refused_and_changes_nothing() {
    let relation = Relation::of_rows(&[("a", "5")]);
    let mut served = Served::start(&[&relation.table("key=pk&writable=true")], &[]);
    let kinds =
        "-ERR keys of more than one kind of table in one write command; nothing was executed";
    served.check(&format!(
        "
        INCR objects:a                  -> -ERR table objects: INCR is not supported \
                                           on a postgres table
        EXPIRE objects:a 10             -> -ERR table objects: EXPIRE is not supported \
                                           on a postgres table
        WATCH objects:a                 -> -ERR table objects: WATCH is not supported \
                                           on a postgres table
        HINCRBY objects:a payload 1     -> -ERR table objects: HINCRBY is not supported \
                                           on a postgres table
        RENAME objects:a b              -> -ERR table objects: RENAME is not supported \
                                           on a postgres table
        MSET objects:a 1 m 2            -> {kinds}
        DEL m objects:a                 -> {kinds}
        SET m 1                         -> OK
        MGET m objects:a none           -> 1 5 nil
        EXISTS m objects:a none         -> 2
        DBSIZE                          -> 1
        KEYS *                          -> m
        SELECT 3                        -> OK
        GET objects:a                   -> 5
        SELECT 0                        -> OK
        FLUSHALL                        -> OK
        GET objects:a                   -> 5
        MULTI                           -> OK
        SET m 2                         -> QUEUED
        "
    ));
    let queued = served.run("GET objects:a");
    assert!(
        queued.contains("GET cannot be queued") && queued.contains("MULTI must turn that off"),
        "{queued}"
    );
    served.check(
        "
        EXEC          -> -EXECABORT Transaction discarded because of previous errors.
        GET m         -> nil
        GET objects:a -> 5
        ",
    );
}

#[test]
fn resp3_clients_get_maps() {
    let relation = Relation::new("id int PRIMARY KEY, a text, b text");
    relation.execute("INSERT INTO @ VALUES (1, 'x', NULL)");
    let mut served = Served::start(&[&relation.table("key=id")], &[]);
    served.client.call(&["HELLO", "3"]);
    let reply = format!("{:?}", served.client.call(&["HGETALL", "objects:1"]));
    assert!(reply.starts_with("Map"), "{reply}");
    served.check(
        "GET objects:none1 -> -ERR table objects: the key is not a whole number from -2147483648 \
         to 2147483647 (column id is int4)\nGET objects:2 -> nil",
    );
}

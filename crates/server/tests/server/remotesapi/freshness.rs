//! Pushes are seen at once: by who asks for the root, and after a hint over HTTP. The poll takes
//! part in none of these tests.

use busload_bucket::{Fault, Faults, Rule};
use busload_chunks::ChunkAddress;
use serde_json::{Value, json};

use super::{
    eventually,
    fixture::{Served, World, Written, classic},
    http::Answer,
};

/// Settings of a table that polls far later than the test ends.
const NO_POLL: &str = "poll=10m";

/// A bucket with a store, and a table file that a push adds to it.
struct Pushed {
    world: World,
    before: Written,
    pushed: Written,
}

impl Pushed {
    fn new() -> Self {
        let [before, pushed] = [1, 2].map(|seed| classic(seed, [900, 70, 3_000]));
        let world = World::of_files(std::slice::from_ref(&before));
        world.put(&pushed);
        Self { world, before, pushed }
    }

    fn serve(&self, settings: &str) -> Served {
        let served = Served::start(&[self.world.as_db(settings)]);
        served.wait_until_open();
        served
    }

    fn push(&self) -> Vec<u8> {
        self.world.name(&[&self.pushed, &self.before]).to_vec()
    }
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Returns what the root is written as in JSON.
fn text_of(root: &[u8]) -> String {
    ChunkAddress(root.try_into().unwrap()).to_string()
}

#[test]
fn a_root_is_not_older_than_a_push_before_it() {
    let pushed = Pushed::new();
    let served = pushed.serve(NO_POLL);
    let client = &served.client;
    assert_eq!(client.root("db").unwrap(), pushed.before.chunks[0].0);
    let root = pushed.push();
    // A machine that takes longer than a second for a refresh answers with the version before.
    eventually("the push is seen", || client.root("db").unwrap() == root);
    assert_eq!(client.list("db").unwrap().root_hash, root);
    assert!(served.server.stop().success());
}

#[test]
fn roots_of_a_store_that_cannot_be_read_now_are_those_read_last() {
    let pushed = Pushed::new();
    // No timeout of the table ends a wait for the store.
    let served = pushed.serve(&format!("{NO_POLL}&timeout=10m"));
    let client = &served.client;
    let before = client.root("db").unwrap();
    let stall = Rule::always(Fault::Stall(0)).to("manifest");
    pushed.world.proxy.set(Faults { rules: vec![stall], ..Faults::default() });
    let root = pushed.push();
    assert_eq!(client.root("db").unwrap(), before, "while the store does not answer");
    pushed.world.proxy.set(Faults::default());
    pushed.world.proxy.go_away();
    assert_eq!(client.root("db").unwrap(), before, "while the store is away");
    pushed.world.proxy.come_back();
    eventually("the push is seen", || client.root("db").unwrap() == root);
    assert!(served.server.stop().success());
}

#[test]
fn a_hint_over_http_answers_when_the_push_is_served() {
    let pushed = Pushed::new();
    let served = pushed.serve(&format!("{NO_POLL}&timeout=1m"));
    let client = &served.client;
    let root = text_of(&pushed.push());
    let answer = client.http().post("/api/stores/db/refresh", "", "");
    let expected = json!({"table": "db", "root": root, "files": 2, "chunks": 6});
    assert_eq!((answer.head.status, json_of(&answer)), (200, expected), "{}", answer.text());

    for (target, status, text) in [
        ("/api/stores/nothing/refresh", 404, "no table of kind chunks is called `nothing`"),
        ("/api/stores/..%2Fdb/refresh", 404, "no table of kind chunks is called `../db`"),
    ] {
        let answer = client.http().post(target, "", "");
        assert_eq!(answer.head.status, status, "{}", answer.text());
        assert!(json_of(&answer)["failed"].as_str().unwrap().contains(text), "{}", answer.text());
    }
    assert_eq!(client.http().get("/api/stores/db/refresh").head.status, 405);

    pushed.world.proxy.go_away();
    let answer = client.http().post("/api/stores/db/refresh", "", "");
    assert_eq!(answer.head.status, 503, "{}", answer.text());
    assert!(json_of(&answer)["failed"].as_str().unwrap().contains("s3://"), "{}", answer.text());
    assert!(served.server.stop().success());
}

#[test]
fn notifications_of_s3_refresh_the_stores_whose_manifests_they_name() {
    let pushed = Pushed::new();
    let other = World::of_files(std::slice::from_ref(&pushed.before));
    let db = pushed.world.as_db(&format!("{NO_POLL}&timeout=1m"));
    let gone = other.as_db(&format!("{NO_POLL}&timeout=1s")).replacen("db=", "gone=", 1);
    let served = Served::start(&[db.clone(), gone]);
    served.wait_until_open();
    let client = &served.client;
    eventually("both are open", || client.root("gone").is_ok());
    let bucket = db.split("s3://").nth(1).unwrap().split('/').next().unwrap();
    let notify = |key: &str| {
        let record = json!({"s3": {"bucket": {"name": bucket}, "object": {"key": key}}});
        let event = json!({"Records": [record]}).to_string();
        let body = json!({"Messages": [{"MessageId": "1", "Body": event}]}).to_string();
        client.http().post("/api/events/s3", "Content-Type: application/json\r\n", &body)
    };

    let root = pushed.push();
    for key in [pushed.pushed.spec.id.to_string(), "q/manifest".to_owned()] {
        let answer = notify(&format!("p/{key}"));
        assert_eq!(json_of(&answer), json!({"objects": 1, "refreshed": []}));
    }
    // Both tables are of a bucket of this name and of this prefix.
    let answer = notify("p/manifest");
    assert_eq!(json_of(&answer), json!({"objects": 1, "refreshed": ["db", "gone"]}));
    let served_root = client.http().post("/api/stores/db/refresh", "", "");
    assert_eq!(json_of(&served_root)["root"], text_of(&root));

    other.proxy.go_away();
    let answer = notify("p/manifest");
    assert_eq!(answer.head.status, 503, "so that it is sent again");
    let outcome = json_of(&answer);
    assert_eq!(outcome["refreshed"], json!(["db"]), "{outcome}");
    assert!(outcome["failed"]["gone"].is_string(), "{outcome}");

    let answer = client.http().post("/api/events/s3", "", "{}");
    assert_eq!(answer.head.status, 400, "{}", answer.text());
    let answer = client.http().post("/api/events/s3", "", &"x".repeat((1 << 20) + 1));
    assert_eq!(answer.head.status, 413, "{}", answer.text());
    assert!(served.server.stop().success());
}

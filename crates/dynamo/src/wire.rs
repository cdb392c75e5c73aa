//! Requests and answers of GetItem and BatchGetItem, as JSON.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::item::Item;

/// Attribute that finds an item: Dolt's tables have this one as their key.
pub(crate) const KEY_ATTRIBUTE: &str = "db";

/// Value of the header `X-Amz-Target` for a read of one key.
pub(crate) const GET_ITEM: &str = "DynamoDB_20120810.GetItem";
/// Value of the header `X-Amz-Target` for a read of several keys.
pub(crate) const BATCH_GET_ITEM: &str = "DynamoDB_20120810.BatchGetItem";

/// Answer to one key. The item may be malformed, for this reason.
pub(crate) type KeyAnswer = Result<Option<Item>, String>;

/// Answers to the keys of a request; none for a key that DynamoDB left unprocessed.
pub(crate) type Answers = Vec<Option<KeyAnswer>>;

/// Writes a request for the item of one key.
pub(crate) fn get_item(table: &str, key: &str) -> Vec<u8> {
    json!({"TableName": table, "Key": {KEY_ATTRIBUTE: {"S": key}}, "ConsistentRead": true})
        .to_string()
        .into_bytes()
}

/// Writes a request for the items of several keys.
pub(crate) fn batch_get_item(table: &str, keys: &[&str]) -> Vec<u8> {
    let keys: Vec<Value> = keys.iter().map(|key| json!({KEY_ATTRIBUTE: {"S": key}})).collect();
    json!({"RequestItems": {table: {"Keys": keys, "ConsistentRead": true}}})
        .to_string()
        .into_bytes()
}

/// Parses the answer for one key.
pub(crate) fn parse_get_item(body: &[u8], key: &str) -> Result<KeyAnswer, String> {
    match object(body)?.get("Item") {
        None => Ok(Ok(None)),
        Some(Value::Object(item)) if key_of(item) == Some(key) => Ok(Item::parse(item).map(Some)),
        Some(Value::Object(_)) => Err("an item that was not asked for".to_owned()),
        Some(_) => Err("expected an object as Item".to_owned()),
    }
}

/// Parses the answer for several keys, which are sorted and unique.
pub(crate) fn parse_batch_get_item(
    body: &[u8],
    table: &str,
    keys: &[&str],
) -> Result<Answers, String> {
    let answer = object(body)?;
    let mut answers: Answers = keys.iter().map(|_| Some(Ok(None))).collect();
    let of_key: HashMap<&str, usize> =
        keys.iter().enumerate().map(|(index, key)| (*key, index)).collect();
    let index_of = |item: &Value| {
        let key = item.as_object().and_then(key_of);
        key.and_then(|key| of_key.get(key).copied()).ok_or("a key that was not asked for")
    };
    for item in list(&answer, "Responses", table, None)? {
        answers[index_of(item)?] =
            Some(item.as_object().map_or(Ok(None), |item| Item::parse(item).map(Some)));
    }
    for key in list(&answer, "UnprocessedKeys", table, Some("Keys"))? {
        answers[index_of(key)?] = None;
    }
    Ok(answers)
}

/// Error that DynamoDB reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Name like `ResourceNotFoundException`, without its namespace; empty if there is none.
    pub(crate) kind: String,
    pub(crate) message: String,
}

/// Parses an error; an answer that is none has no name.
pub(crate) fn parse_failure(body: &[u8]) -> Failure {
    let answer = object(body).unwrap_or_default();
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|name| answer.get(*name)?.as_str());
        found.unwrap_or_default().to_owned()
    };
    let kind = text(&["__type", "code"]);
    let kind = kind.rsplit('#').next().unwrap_or_default().to_owned();
    Failure { kind, message: text(&["message", "Message"]) }
}

fn object(body: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("expected JSON: {error}")),
    }
}

fn key_of(item: &Map<String, Value>) -> Option<&str> {
    item.get(KEY_ATTRIBUTE)?.get("S")?.as_str()
}

/// Finds `answer[part][table]`, below that `[field]`, which are missing if there is nothing.
fn list<'a>(
    answer: &'a Map<String, Value>,
    part: &str,
    table: &str,
    field: Option<&str>,
) -> Result<&'a [Value], String> {
    let unexpected = || format!("expected a list of the table in {part}");
    let Some(tables) = answer.get(part) else { return Ok(&[]) };
    let Some(of_table) = tables.as_object().ok_or_else(unexpected)?.get(table) else {
        return Ok(&[]);
    };
    let list = field.map_or(Some(of_table), |field| of_table.get(field));
    list.and_then(Value::as_array).map(Vec::as_slice).ok_or_else(unexpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(answer: Value, keys: &[&str]) -> Result<Answers, String> {
        parse_batch_get_item(answer.to_string().as_bytes(), "t", keys)
    }

    #[test]
    fn requests_are_consistent_reads() {
        let parse = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).unwrap();
        assert_eq!(
            parse(get_item("t", "org/a")),
            json!({"TableName": "t", "Key": {"db": {"S": "org/a"}}, "ConsistentRead": true})
        );
        assert_eq!(
            parse(batch_get_item("t", &["a", "b"])),
            json!({"RequestItems": {"t": {
                "Keys": [{"db": {"S": "a"}}, {"db": {"S": "b"}}], "ConsistentRead": true,
            }}})
        );
    }

    #[test]
    fn a_batch_answers_each_key_that_was_processed() {
        let answers = batch(
            json!({
                "Responses": {"t": [{"db": {"S": "c"}}, {"db": {"S": "a"}, "root": {"B": "!"}}]},
                "UnprocessedKeys": {"t": {"Keys": [{"db": {"S": "d"}}], "ConsistentRead": true}},
            }),
            &["a", "b", "c", "d"],
        );
        let [a, b, c, d] = answers.unwrap().try_into().unwrap();
        assert!(a.unwrap().unwrap_err().contains("root"), "one malformed item fails alone");
        assert_eq!(b, Some(Ok(None)));
        assert!(c.unwrap().unwrap().unwrap().get("db").is_some());
        assert_eq!(d, None);
    }

    #[test]
    fn an_answer_that_does_not_fit_the_request_is_refused() {
        let is_refused = |answer: Value| batch(answer, &["a"]).is_err();
        assert!(is_refused(json!([])));
        assert!(is_refused(json!({"Responses": []})));
        assert!(is_refused(json!({"Responses": {"t": {}}})));
        assert!(is_refused(json!({"Responses": {"t": [{"db": {"S": "b"}}]}})));
        assert!(is_refused(json!({"Responses": {"t": [1]}})));
        assert!(is_refused(json!({"UnprocessedKeys": {"t": []}})));
        assert!(is_refused(json!({"UnprocessedKeys": {"t": {"Keys": [{"db": {"S": "b"}}]}}})));
        assert!(parse_batch_get_item(b"{", "t", &["a"]).is_err());
        assert_eq!(batch(json!({}), &["a"]), Ok(vec![Some(Ok(None))]));

        let one = |answer: Value| parse_get_item(answer.to_string().as_bytes(), "a");
        assert!(one(json!({"Item": {"db": {"S": "b"}}})).is_err());
        assert!(one(json!({"Item": 1})).is_err());
        assert_eq!(one(json!({})), Ok(Ok(None)));
        assert!(one(json!({"Item": {"db": {"S": "a"}}})).unwrap().unwrap().is_some());
    }

    #[test]
    fn errors_have_a_name_and_a_message() {
        let body = br#"{"__type":"com.amazonaws#ThrottlingException","Message":"slow"}"#;
        let failure = parse_failure(body);
        assert_eq!((failure.kind.as_str(), &*failure.message), ("ThrottlingException", "slow"));
        assert_eq!(parse_failure(b"<html>").kind, "");
    }
}

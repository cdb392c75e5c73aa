//! Items and their attributes, as DynamoDB's JSON has them.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

/// Item of a table: its attributes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    attributes: BTreeMap<String, Attribute>,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Text, which has the type S.
    Text(String),
    /// Bytes, which have the type B.
    Bytes(Vec<u8>),
    /// A value of another type, by the type's name: N, BOOL, M, ...
    Other(String),
}

impl Item {
    /// Returns the attribute of this name.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.attributes.get(name)
    }

    /// Returns the size of the item, about: names and values of its attributes. DynamoDB bills
    /// reads by it.
    pub fn bytes(&self) -> u64 {
        let bytes = self.attributes.iter().map(|(name, value)| name.len() + value.bytes());
        u64::try_from(bytes.sum::<usize>()).expect("a size has at most 64 bits")
    }

    /// Parses the attributes of an item. An error names the attribute.
    pub(crate) fn parse(attributes: &Map<String, Value>) -> Result<Self, String> {
        let parsed = attributes.iter().map(|(name, value)| {
            let attribute = Attribute::parse(value).map_err(|why| format!("{name:?}: {why}"))?;
            Ok((name.clone(), attribute))
        });
        Ok(Self { attributes: parsed.collect::<Result<_, String>>()? })
    }
}

impl Attribute {
    /// Describes the type in a few words, for errors.
    pub fn kind(&self) -> String {
        match self {
            Self::Text(_) => "text (S)".to_owned(),
            Self::Bytes(_) => "bytes (B)".to_owned(),
            Self::Other(kind) => format!("a value of type {kind}"),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            // Values of other types are not kept. Manifests have none.
            Self::Other(_) => 0,
        }
    }

    fn parse(value: &Value) -> Result<Self, String> {
        let typed = value.as_object().filter(|typed| typed.len() == 1);
        let (kind, value) = typed
            .and_then(|typed| typed.iter().next())
            .ok_or("expected a value with its type, like {\"S\": \"..\"}")?;
        match (kind.as_str(), value) {
            ("S", Value::String(text)) => Ok(Self::Text(text.clone())),
            ("B", Value::String(text)) => {
                let bytes = BASE64_STANDARD.decode(text);
                bytes.map(Self::Bytes).map_err(|_| "expected bytes in base64".to_owned())
            }
            ("S" | "B", _) => Err(format!("expected a string after {kind}")),
            _ => Ok(Self::Other(kind.chars().take(8).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(item: Value) -> Result<Item, String> {
        Item::parse(item.as_object().unwrap())
    }

    #[test]
    fn attributes_have_the_types_that_dynamodb_gives_them() {
        let item = parse(json!({
            "db": {"S": "org/repo"}, "root": {"B": "AAEC/w=="}, "n": {"N": "1"}, "empty": {"S": ""},
        }));
        let item = item.unwrap();
        assert_eq!(item.get("db"), Some(&Attribute::Text("org/repo".to_owned())));
        assert_eq!(item.get("root"), Some(&Attribute::Bytes(vec![0, 1, 2, 255])));
        assert_eq!(item.get("n"), Some(&Attribute::Other("N".to_owned())));
        assert_eq!(item.get("empty"), Some(&Attribute::Text(String::new())));
        assert_eq!(item.get("lck"), None);
        assert_eq!(item.get("n").unwrap().kind(), "a value of type N");
    }

    #[test]
    fn what_is_no_attribute_is_refused_by_its_name() {
        for (item, part) in [
            (json!({"root": "AAEC"}), "\"root\": expected a value with its type"),
            (json!({"root": {}}), "\"root\": expected a value with its type"),
            (json!({"root": {"S": "a", "B": "AAEC"}}), "\"root\": expected a value with its type"),
            (json!({"root": {"B": "A"}}), "\"root\": expected bytes in base64"),
            (json!({"root": {"B": 1}}), "\"root\": expected a string after B"),
            (json!({"db": {"S": null}}), "\"db\": expected a string after S"),
        ] {
            let error = parse(item).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}

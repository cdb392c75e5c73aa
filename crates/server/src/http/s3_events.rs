//! Notifications of S3 about objects that were written, in the shapes in which they arrive.
//!
//! * S3's own: `{"Records": [{"s3": {"bucket": {"name"}, "object": {"key"}}}]}`; the key is encoded
//!   as in a form.
//! * Messages of SQS, as `ReceiveMessage` answers (`{"Messages": [{"Body": ".."}]}`) or as Lambda
//!   gets them (`{"Records": [{"body": ".."}]}`): JSON in a string.
//! * Notifications of SNS: `{"Type": "Notification", "Message": ".."}`, the same.
//! * EventBridge: `{"source": "aws.s3", "detail": {"bucket": {"name"}, "object": {"key"}}}`; the
//!   key as it is.
//!
//! A test notification, which S3 sends when it is set up, names no object.

use serde_json::Value;

use crate::config::percent_decoded;

/// Maximum depth of messages within messages: S3's in SNS's in SQS's.
const DEPTH_MAX: usize = 3;

/// An object that was written or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    pub bucket: String,
    pub key: String,
}

/// Returns the objects that a notification names. Fails if it has no known shape.
pub fn changed_objects(body: &[u8]) -> Result<Vec<ChangedObject>, String> {
    let value = serde_json::from_slice(body)
        .map_err(|error| format!("expected notifications of S3 as JSON: {error}"))?;
    let mut objects = Vec::new();
    collect(&value, 0, &mut objects)?;
    Ok(objects)
}

fn collect(value: &Value, depth: usize, objects: &mut Vec<ChangedObject>) -> Result<(), String> {
    if let Some(records) = value["Records"].as_array() {
        return records.iter().try_for_each(|record| match record["body"].as_str() {
            Some(body) => collect_message(body, depth, objects),
            None => {
                objects.push(object(&record["s3"], form_decoded)?);
                Ok(())
            }
        });
    }
    if let Some(messages) = value["Messages"].as_array() {
        return messages.iter().try_for_each(|message| match message["Body"].as_str() {
            Some(body) => collect_message(body, depth, objects),
            None => Err("expected a Body in each of Messages".to_owned()),
        });
    }
    match (value["Type"].as_str(), value["Message"].as_str()) {
        (Some("Notification"), Some(message)) => return collect_message(message, depth, objects),
        (Some("SubscriptionConfirmation"), _) => {
            return Err("busload confirms no subscription: open its SubscribeURL".to_owned());
        }
        _ => {}
    }
    if value["source"] == "aws.s3" {
        objects.push(object(&value["detail"], |key| Ok(key.to_owned()))?);
        return Ok(());
    }
    if value["Event"] == "s3:TestEvent" {
        return Ok(());
    }
    Err("expected a notification of S3, alone or in a message of SQS, SNS or EventBridge".into())
}

/// Collects the objects of a message that is JSON in a string.
fn collect_message(
    text: &str,
    depth: usize,
    objects: &mut Vec<ChangedObject>,
) -> Result<(), String> {
    if DEPTH_MAX <= depth {
        return Err(format!("expected at most {DEPTH_MAX} messages within messages"));
    }
    let value = serde_json::from_str(text)
        .map_err(|error| format!("expected a notification of S3 in a message: {error}"))?;
    collect(&value, depth + 1, objects)
}

fn object(
    entry: &Value,
    decoded: impl FnOnce(&str) -> Result<String, String>,
) -> Result<ChangedObject, String> {
    let (bucket, key) = (&entry["bucket"]["name"], &entry["object"]["key"]);
    let (Some(bucket), Some(key)) = (bucket.as_str(), key.as_str()) else {
        return Err("expected bucket.name and object.key in each record of S3".to_owned());
    };
    Ok(ChangedObject { bucket: bucket.to_owned(), key: decoded(key)? })
}

/// Decodes a key of S3's own notifications, which has `+` for spaces.
fn form_decoded(key: &str) -> Result<String, String> {
    percent_decoded(&key.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(value: &Value) -> Result<Vec<ChangedObject>, String> {
        changed_objects(value.to_string().as_bytes())
    }

    fn of_s3(key: &str) -> Value {
        json!({"Records": [{
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "b"}, "object": {"key": key, "size": 9}},
        }]})
    }

    fn named(keys: &[&str]) -> Result<Vec<ChangedObject>, String> {
        let object = |key: &&str| ChangedObject { bucket: "b".to_owned(), key: (*key).to_owned() };
        Ok(keys.iter().map(object).collect())
    }

    #[test]
    fn every_shape_names_its_objects() {
        let plain = of_s3("org/a+b%2Bc/manifest");
        let key = "org/a b+c/manifest";
        assert_eq!(objects(&plain), named(&[key]));
        let sns = json!({"Type": "Notification", "Message": plain.to_string()});
        assert_eq!(objects(&sns), named(&[key]));
        let sqs = json!({"Messages": [{"Body": plain.to_string()}, {"Body": sns.to_string()}]});
        assert_eq!(objects(&sqs), named(&[key, key]));
        let lambda = json!({"Records": [{"eventSource": "aws:sqs", "body": sns.to_string()}]});
        assert_eq!(objects(&lambda), named(&[key]));
        let bridge = json!({"source": "aws.s3", "detail-type": "Object Created", "detail": {
            "bucket": {"name": "b"}, "object": {"key": "a+b%20c/manifest"},
        }});
        assert_eq!(objects(&bridge), named(&["a+b%20c/manifest"]));
        let test = json!({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"});
        assert_eq!(objects(&test), named(&[]));
        assert_eq!(objects(&json!({"Records": []})), named(&[]));
    }

    #[test]
    fn what_is_no_notification_is_refused() {
        for body in ["", "x", "[]", "1", "{}", r#"{"Records":[{}]}"#, r#"{"Messages":[{}]}"#] {
            assert!(changed_objects(body.as_bytes()).unwrap_err().contains("expected"), "{body}");
        }
        let mut deep = of_s3("manifest");
        for depth in 0..=DEPTH_MAX {
            assert!(objects(&deep).is_ok(), "{depth}");
            deep = json!({"Type": "Notification", "Message": deep.to_string()});
        }
        assert!(objects(&deep).unwrap_err().contains("at most 3"));
        assert!(objects(&json!({"Type": "SubscriptionConfirmation"})).unwrap_err().contains("URL"));
        assert!(objects(&of_s3("%ff")).unwrap_err().contains("UTF-8"));
    }
}

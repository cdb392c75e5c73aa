//! Replies to requests that sources have answered.

use bytes::Bytes;

use super::{Answer, Answers, Asked};
use crate::{
    reply::Reply,
    source::{Operation, SourceValue},
};

/// Writes the reply, or says that it would be too long.
pub(super) fn write(
    asked: &Asked,
    answers: &Answers,
    reply: &mut Reply<'_>,
) -> Result<(), TooLong> {
    let start = reply.mark();
    match answers {
        Answers::One(answer) => write_answer(answer, reply),
        Answers::Several(answers) if asked.command.name == "mget" => {
            reply.array(answers.len());
            answers.iter().for_each(|answer| write_optional_answer(answer.as_ref(), reply));
        }
        Answers::Several(answers) => write_combined(asked, answers, reply),
    }
    let too_long = reply.is_cut_off();
    if too_long || asked.is_silent {
        reply.rewind(start);
    }
    if too_long && !asked.is_silent { Err(TooLong) } else { Ok(()) }
}

/// Error: the reply passed its limit and was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Writes one reply for all keys: a count, or `OK`, or the first error and how many keys succeeded.
fn write_combined(asked: &Asked, answers: &[Option<Answer>], reply: &mut Reply<'_>) {
    let operation = asked.command.source;
    if let Some(error) = answers.iter().find_map(|answer| answer.as_ref()?.as_ref().err()) {
        let done = answers.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count();
        let done_what = match operation {
            Some(Operation::Set) => "written",
            Some(Operation::Delete) => "deleted",
            _ => return reply.error(error),
        };
        return reply
            .error(&format!("{error} ({done} of {} keys were {done_what})", answers.len()));
    }
    if operation == Some(Operation::Set) {
        return reply.ok();
    }
    let counts = answers.iter().map(|answer| match answer {
        Some(Ok(SourceValue::Integer(count))) => *count,
        _ => 0,
    });
    reply.integer(counts.sum());
}

fn write_optional_answer(answer: Option<&Answer>, reply: &mut Reply<'_>) {
    match answer {
        Some(answer) => write_answer(answer, reply),
        None => reply.null(),
    }
}

fn write_answer(answer: &Answer, reply: &mut Reply<'_>) {
    match answer {
        Ok(SourceValue::Nil) => reply.null(),
        Err(error) => reply.error(error),
        Ok(SourceValue::Status(status)) => reply.simple(status),
        Ok(SourceValue::Bulk(bytes)) => reply.bulk_bytes(bytes.clone()),
        Ok(SourceValue::Integer(value)) => reply.integer(*value),
        Ok(SourceValue::Done) => reply.ok(),
        Ok(SourceValue::Values(values)) => {
            reply.array(values.len());
            values.iter().for_each(|value| write_optional(value.as_ref(), reply));
        }
        Ok(SourceValue::Fields(fields)) => {
            reply.map(fields.len());
            for (field, value) in fields {
                reply.bulk(field);
                write_optional(value.as_ref(), reply);
            }
        }
    }
}

fn write_optional(value: Option<&Bytes>, reply: &mut Reply<'_>) {
    match value {
        Some(bytes) => reply.bulk_bytes(bytes.clone()),
        None => reply.null(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use busload_resp::Version;

    use super::*;
    use crate::{
        command::lookup,
        gate::Gate,
        latency::Class,
        limits::{REPLY_COPIED_BYTES_MAX, REPLY_SMALL_BYTES},
    };

    #[test]
    fn a_reply_over_the_bound_is_taken_back_whole() {
        let command = lookup(b"hmget").command().expect("there is one");
        let mut asked = Asked {
            command,
            version: Version::Resp2,
            gate: Gate::OPEN,
            class: Class::default(),
            received: Duration::ZERO,
            is_silent: false,
        };
        let value = Some(Bytes::from(vec![0; 16 * 1024]));
        let answers =
            Answers::One(Ok(SourceValue::Values(vec![value; 1 + REPLY_SMALL_BYTES / 16 / 1024])));
        // Earlier replies filled the batch.
        let (mut out, mut shared) = (vec![0; REPLY_COPIED_BYTES_MAX - 16 * 1024], Vec::new());
        let before = out.len();
        let mut reply = Reply::new(&mut out, &mut shared, asked.version);
        assert_eq!(write(&asked, &answers, &mut reply), Err(TooLong));
        asked.is_silent = true;
        assert_eq!(write(&asked, &answers, &mut reply), Ok(()));
        assert_eq!(out.len(), before);
    }
}

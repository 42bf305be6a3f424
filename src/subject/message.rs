//! What a numbered message looks like for the client that consumes it. Pure.
//!
//! Sources: Celery's documentation, "Message Protocol", and `celery/app/amqp.py` (`as_task_v2`); kombu's
//! `transport/virtual/base.py` for its envelope on Redis; dramatiq's `message.py`.

use crate::clients::Message;
use crate::scenario::{Format, Job};
use crate::units::{TrialId, iso_8601};
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use serde_json::{Value, json};

/// Body and properties on RabbitMQ; `due` is a Celery task's ETA in nanoseconds since 1970, `now_ms` the wall clock, `job`
/// what kind of work it is, where there are kinds.
pub(super) fn amqp(
    form: &Message,
    trial: TrialId,
    queue: &str,
    number: u64,
    due: Option<i64>,
    now_ms: i64,
    job: Option<&Job>,
) -> (Vec<u8>, BasicProperties) {
    let (body, mut properties) = of_form(form, trial, queue, number, due, now_ms);
    let Some(job) = job else { return (body.into_bytes(), properties) };
    let mut fields = properties.headers().clone().unwrap_or_default();
    if !matches!(form, Message::Celery(_)) {
        for (name, value) in job.headers() {
            fields.insert(ShortString::from(name), AMQPValue::LongString(value.into()));
        }
    }
    properties =
        properties.with_headers(fields).with_priority(job.priority).with_correlation_id(id(trial, number).into());
    if job.format == Format::Pickle {
        properties = properties.with_content_type(PICKLE.into()).with_content_encoding("binary".into());
        return (pickle(number), properties);
    }
    (body.into_bytes(), properties)
}

/// The content type of Python's pickle (`kombu/serialization.py`).
pub(super) const PICKLE: &str = "application/x-python-serialize";

/// `([number], {}, {})` as Python pickles it, protocol 2 (`pickletools.py`): harmless, as nothing that is read here is.
fn pickle(number: u64) -> Vec<u8> {
    let number = u32::try_from(number).unwrap_or(u32::MAX) & 0x7fff_ffff;
    [b"\x80\x02]J".as_slice(), &number.to_le_bytes(), b"a}}\x87."].concat()
}

/// The number of a message by its name.
pub(super) fn number_of(id: &str) -> Option<u64> {
    id.strip_prefix("halfopen-")?.rsplit_once('-')?.1.parse().ok()
}

/// The number of a message that came from RabbitMQ: its body, or its name where the body is none.
pub(super) fn number_in(delivery: &Delivery) -> Option<u64> {
    let plain = std::str::from_utf8(&delivery.data).ok().and_then(|text| text.parse().ok());
    plain.or_else(|| number_of(delivery.properties.correlation_id().as_ref()?.as_str()))
}

fn of_form(
    form: &Message,
    trial: TrialId,
    queue: &str,
    number: u64,
    due: Option<i64>,
    now_ms: i64,
) -> (String, BasicProperties) {
    match form {
        Message::Celery(task) => {
            let (body, properties) = celery(task, trial, number, due);
            (body, properties)
        }
        Message::Dramatiq(actor) => {
            let body = json!({
                "queue_name": queue,
                "actor_name": actor,
                "args": [number],
                "kwargs": {},
                "options": {},
                "message_id": id(trial, number),
                "message_timestamp": now_ms,
            });
            (body.to_string(), BasicProperties::default().with_delivery_mode(2).with_priority(0))
        }
        Message::Text(body) => (text(body, number), BasicProperties::default()),
    }
}

/// The element of a list on Redis; `due` and `job` as for [`amqp`].
pub(super) fn redis(
    form: &Message,
    trial: TrialId,
    queue: &str,
    number: u64,
    due: Option<i64>,
    job: Option<&Job>,
) -> String {
    let Message::Celery(task) = form else {
        return match form {
            Message::Text(body) => text(body, number),
            // dramatiq's own layout on Redis is no list of messages.
            _ => number.to_string(),
        };
    };
    let id = id(trial, number);
    let mut headers = headers(task, trial, number);
    if let Some(due) = due {
        headers["eta"] = iso_8601(due).into();
    }
    let pickled = job.is_some_and(|job| job.format == Format::Pickle);
    let (body, encoding, kind) = match pickled {
        true => (base64(&pickle(number)), "binary", PICKLE),
        false => (body(number), "utf-8", "application/json"),
    };
    let mut envelope = json!({
        "body": body,
        "content-encoding": encoding,
        "content-type": kind,
        "headers": headers,
        "properties": {
            "correlation_id": id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": { "exchange": "", "routing_key": queue },
            "priority": job.map_or(0, |job| job.priority),
            "delivery_tag": id,
        },
    });
    if pickled {
        envelope["properties"]["body_encoding"] = "base64".into();
    }
    envelope.to_string()
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let of_three = |three: &[u8]| {
        let number = three.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let digit = |place: usize| match place <= three.len() {
            true => char::from(DIGITS[(number >> (18 - 6 * place)) as usize & 63]),
            false => '=',
        };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    bytes.chunks(3).flat_map(of_three).collect()
}

fn text(body: &str, number: u64) -> String {
    body.replace("{message}", &number.to_string())
}

fn id(trial: TrialId, number: u64) -> String {
    format!("halfopen-{trial}-{number}")
}

/// Arguments, keyword arguments, and what else could hang on the task.
fn body(number: u64) -> String {
    let embed = json!({ "callbacks": null, "errbacks": null, "chain": null, "chord": null });
    json!([[number], {}, embed]).to_string()
}

/// The headers of version 2 of a task without an ETA, as JSON.
fn headers(task: &str, trial: TrialId, number: u64) -> Value {
    let id = id(trial, number);
    json!({
        "lang": "py",
        "task": task,
        "id": id,
        "root_id": id,
        "parent_id": null,
        "group": null,
        "retries": 0,
        "expires": null,
        "eta": null,
        "timelimit": [null, null],
        "argsrepr": format!("({number},)"),
        "kwargsrepr": "{}",
        "origin": "halfopen",
    })
}

fn celery(task: &str, trial: TrialId, number: u64, due: Option<i64>) -> (String, BasicProperties) {
    let id = id(trial, number);
    let mut fields = FieldTable::default();
    if let Value::Object(headers) = headers(task, trial, number) {
        for (name, value) in headers {
            fields.insert(ShortString::from(name.as_str()), amqp_value(&value));
        }
    }
    if let Some(due) = due {
        fields.insert(ShortString::from("eta"), amqp_value(&iso_8601(due).into()));
    }
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("utf-8".into())
        .with_correlation_id(id.into())
        .with_delivery_mode(2)
        .with_headers(fields);
    (body(number), properties)
}

/// What stands in the headers: texts, small numbers, nothing, and lists of these.
fn amqp_value(value: &Value) -> AMQPValue {
    match value {
        Value::String(text) => AMQPValue::LongString(LongString::from(text.as_str())),
        Value::Number(number) => AMQPValue::LongInt(number.as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0)),
        Value::Array(all) => AMQPValue::FieldArray(FieldArray::from(all.iter().map(amqp_value).collect::<Vec<_>>())),
        _ => AMQPValue::Void,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn celerys_body_and_headers_are_those_of_version_2() {
        let form = Message::Celery("t".into());
        let (body, properties) = amqp(&form, 3, "q", 9, Some(1_735_689_600_000_000_000), 0, None);
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body, r#"[[9],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]"#);
        let headers = properties.headers().clone().unwrap_or_default();
        let header = |name: &str| headers.inner().get(name).cloned();
        assert_eq!(header("eta"), Some(AMQPValue::LongString("2025-01-01T00:00:00.000000+00:00".into())));
        assert_eq!(header("id"), Some(AMQPValue::LongString("halfopen-3-9".into())));
        assert_eq!(header("retries"), Some(AMQPValue::LongInt(0)));
        let (_, plain) = amqp(&form, 3, "q", 10, None, 0, None);
        assert_eq!(plain.headers().clone().unwrap_or_default().inner().get("eta"), Some(&AMQPValue::Void));
    }

    #[test]
    fn on_redis_a_task_lies_in_kombus_envelope_and_a_text_as_it_is() {
        let envelope: Value =
            serde_json::from_str(&redis(&Message::Celery("t".into()), 3, "q", 9, None, None)).unwrap();
        assert_eq!(envelope["properties"]["delivery_info"]["routing_key"], "q");
        assert_eq!(envelope["headers"]["task"], "t");
        assert!(envelope["body"].as_str().unwrap().starts_with("[[9],"));
        assert_eq!(redis(&Message::Text(r#"{"id": {message}}"#.into()), 3, "q", 9, None, None), r#"{"id": 9}"#);
        let due = redis(&Message::Celery("t".into()), 3, "q", 0, Some(1_735_689_600_000_000_000), None);
        let due: Value = serde_json::from_str(&due).unwrap();
        assert_eq!(due["headers"]["eta"], "2025-01-01T00:00:00.000000+00:00");
    }

    #[test]
    fn a_pickle_says_what_it_is_and_who_it_is() {
        let job = Job { format: Format::Pickle, priority: 4, ..Job::default() };
        let (body, properties) = amqp(&Message::Text("{message}".into()), 3, "q", 258, None, 0, Some(&job));
        assert_eq!(body, b"\x80\x02]J\x02\x01\x00\x00a}}\x87.");
        assert_eq!(properties.content_type().as_ref().map(|text| text.as_str()), Some(PICKLE));
        assert_eq!(properties.priority(), &Some(4));
        assert_eq!(properties.correlation_id().as_ref().and_then(|id| number_of(id.as_str())), Some(258));
        assert_eq!(
            [b"".as_slice(), b"f", b"fo", b"foo", b"foob"].map(base64),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }

    #[test]
    fn dramatiq_finds_its_queue_and_actor() {
        let (body, _) = amqp(&Message::Dramatiq("effect".into()), 3, "q", 9, None, 77, None);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["queue_name"], &body["actor_name"], &body["args"][0]),
            (&"q".into(), &"effect".into(), &9.into())
        );
    }
}

//! A message in Celery's protocol, version 2: JSON body, the task's name and number in the headers. Pure.
//!
//! Source: Celery's documentation, "Message Protocol", and `celery/app/amqp.py` (`as_task_v2`).

use crate::units::{TrialId, iso_8601};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use serde_json::json;

/// Body and properties of the task with one argument, the message's number; `due` is its ETA in nanoseconds since 1970.
pub(super) fn message(task: &str, trial: TrialId, number: u64, due: Option<i64>) -> (String, BasicProperties) {
    let embed = json!({ "callbacks": null, "errbacks": null, "chain": null, "chord": null });
    let body = json!([[number], {}, embed]).to_string();
    let id = format!("halfopen-{trial}-{number}");
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    let mut headers = FieldTable::default();
    let mut put = |name: &str, value: AMQPValue| {
        headers.insert(ShortString::from(name), value);
    };
    put("lang", text("py"));
    put("task", text(task));
    put("id", text(&id));
    put("root_id", text(&id));
    put("parent_id", AMQPValue::Void);
    put("group", AMQPValue::Void);
    put("retries", AMQPValue::LongInt(0));
    put("expires", AMQPValue::Void);
    put("eta", due.map_or(AMQPValue::Void, |due| text(&iso_8601(due))));
    put("timelimit", AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Void, AMQPValue::Void])));
    put("argsrepr", text(&format!("({number},)")));
    put("kwargsrepr", text("{}"));
    put("origin", text("halfopen"));
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("utf-8".into())
        .with_correlation_id(id.into())
        .with_delivery_mode(2)
        .with_headers(headers);
    (body, properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_and_the_headers_are_those_of_version_2() {
        let (body, properties) = message("t", 3, 9, Some(1_735_689_600_000_000_000));
        assert_eq!(body, r#"[[9],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]"#);
        let headers = properties.headers().clone().unwrap_or_default();
        let header = |name: &str| headers.inner().get(name).cloned();
        assert_eq!(header("eta"), Some(AMQPValue::LongString("2025-01-01T00:00:00.000000+00:00".into())));
        assert_eq!(header("id"), Some(AMQPValue::LongString("halfopen-3-9".into())));
        let (_, plain) = message("t", 3, 10, None);
        assert_eq!(plain.headers().clone().unwrap_or_default().inner().get("eta"), Some(&AMQPValue::Void));
    }
}

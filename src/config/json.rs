//! JSON: `broker_transport_options`, or whole Celery settings.

use super::celery_names::{self, Name, Style};
use super::entry::Reading;
use super::literal::Literal;
use super::model::SourceKind;

/// JSON as a literal, each item with its line.
///
/// # Errors
/// The line and column where it stops being JSON; never the text there.
pub(super) fn parse(text: &str) -> Result<Literal, String> {
    let text = text.trim_start_matches('\u{feff}');
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return Err(format!("not JSON from line {}, column {} on", error.line(), error.column()));
    }
    super::python::literal(text, 1).ok_or_else(|| "not JSON that is understood".to_string())
}

/// Reads a file of JSON.
pub(super) fn read(label: &str, text: &str) -> Result<Reading, String> {
    let mut reading = Reading::new(label, SourceKind::Json);
    let Literal::Dict(items) = parse(text)? else { return Err("JSON, but not a mapping".to_string()) };
    let is_settings = items.iter().any(|i| {
        i.key.as_ref().and_then(Literal::as_str).is_some_and(|k| matches!(celery_names::look_up(k), Name::Setting(..)))
    });
    if is_settings {
        for item in items {
            let Some(name) = item.key.as_ref().and_then(Literal::as_str) else { continue };
            if !reading.celery(name, &item.value, Some(item.line), 0) {
                reading.foreign(name, &item.value, Some(item.line));
            }
        }
    } else {
        for item in items {
            let Some(key) = item.key.as_ref().and_then(Literal::as_str) else { continue };
            let place = reading.place(Some(item.line), key);
            reading.push_ranked(super::entry::Domain::Transport, key, item.value.clone(), place, Style::New, 0);
        }
    }
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_options_and_whole_settings() {
        let options =
            read("o.json", "{\n \"visibility_timeout\": 3600,\n \"socket_settings\": {\"18\": 1e3}, \"a\": null\n}")
                .unwrap();
        assert_eq!(options.entries.len(), 3);
        assert_eq!(options.entries[1].place.line, Some(3));
        let settings =
            read("s.json", "{\"broker_heartbeat\": 10, \"broker_transport_options\": {\"read_timeout\": 5}}").unwrap();
        let keys: Vec<&str> = settings.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["broker_heartbeat", "read_timeout"]);
    }

    #[test]
    fn what_is_not_json_is_refused_by_its_position_alone() {
        let error = read("x.json", "{\"password\": s3cret}").unwrap_err();
        assert_eq!(error, "not JSON from line 1, column 14 on");
    }
}

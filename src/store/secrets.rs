//! No file of a run directory holds a password.

use crate::units::hide_secrets;
use serde_json::Value;
use std::borrow::Cow;

/// Puts `***` in place of secrets in every text of a value; of a key that names a secret the whole text goes.
pub(super) fn hide(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(hidden) = hide_secrets(text) {
                *text = hidden;
            }
        }
        Value::Array(all) => all.iter_mut().for_each(hide),
        Value::Object(all) => {
            for (key, value) in all {
                match value {
                    Value::String(text) => {
                        let pair = format!("{key}={text}");
                        if let Cow::Owned(hidden) = hide_secrets(&pair)
                            && let Some(hidden) = hidden.strip_prefix(&format!("{key}="))
                        {
                            *text = hidden.to_string();
                        }
                    }
                    other => hide(other),
                }
            }
        }
        _ => {}
    }
}

/// A line of JSON without its secrets.
pub(super) fn hide_in_line(line: String) -> String {
    // Quick for the millions of lines that have none.
    if matches!(hide_secrets(&line), Cow::Borrowed(_)) {
        return line;
    }
    match serde_json::from_str::<Value>(&line) {
        Ok(mut value) => {
            hide(&mut value);
            value.to_string()
        }
        Err(_) => hide_secrets(&line).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_lose_their_logins_and_nothing_else() {
        let mut value = json!({
            "text": "[subject]\ncommand = [\"w\", \"amqp://u:s3cret@h//\"]\n",
            "argv": ["redis://:s3cret@h/0", "--n", 3],
            "client": { "password": "s3cret", "n": 1 },
            "why": "a@b is no login",
        });
        hide(&mut value);
        assert!(!value.to_string().contains("s3cret"), "{value}");
        assert_eq!(value["argv"][0], "redis://***@h/0");
        assert_eq!(value["client"], json!({ "password": "***", "n": 1 }));
        assert_eq!(value["why"], "a@b is no login");
    }

    #[test]
    fn a_line_stays_json() {
        let line = json!({ "kind": "note", "text": "amqp://u:s3@h refused" }).to_string();
        let shown = hide_in_line(line);
        assert!(serde_json::from_str::<Value>(&shown).is_ok() && !shown.contains("s3"), "{shown}");
        let plain = json!({ "kind": "note", "text": "nothing" }).to_string();
        assert_eq!(hide_in_line(plain.clone()), plain);
    }
}

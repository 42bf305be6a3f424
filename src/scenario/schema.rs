//! The JSON schema of the scenario file (draft 2020-12), for editors. It says what shape can say; combinations are
//! checked by reading.

use super::command::COMMAND;
use super::keys::{Key, Kind, Repeat, Section, profile_names};
use super::model::SubjectKind;
use super::table::SECTIONS;
use super::target::TARGET;
use super::{Trigger, columns, sysctl};
use serde_json::{Map, Value, json};

const DURATION: &str = r"^([0-9._]+ *(us|ms|s|m|h|d) *)+$";

/// The schema.
#[must_use]
pub fn schema() -> Value {
    let sections = SECTIONS.iter().filter(|section| section.refused.is_none());
    let properties: Map<String, Value> =
        sections.map(|section| (section.name.to_string(), of_section(section))).collect();
    let required: Vec<&str> = SECTIONS.iter().filter(|section| section.required).map(|section| section.name).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "halfopen scenario",
        "description": "One question about half-open connections. The question itself is the file's header comment.",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "$defs": {
            "duration": {
                "type": "string",
                "pattern": DURATION,
                "description": "A duration with its unit: 250ms, 10s, 1m30s.",
            },
            "setting": { "anyOf": [{ "const": "none" }, { "$ref": "#/$defs/duration" }] },
        },
    })
}

fn of_section(section: &Section) -> Value {
    let mut table = of_keys(section.all_keys());
    table["description"] = json!(section.doc);
    match section.repeat {
        Repeat::Once => table,
        Repeat::Many => json!({ "type": "array", "minItems": 1, "items": table }),
        Repeat::OnceOrMany => json!({ "anyOf": [table, { "type": "array", "minItems": 1, "items": table }] }),
    }
}

fn of_keys<'a>(keys: impl Iterator<Item = &'a Key> + Clone) -> Value {
    let properties: Map<String, Value> = keys.clone().map(|key| (key.name.to_string(), of_key(key))).collect();
    let required: Vec<&str> = keys.filter(|key| key.required).map(|key| key.name).collect();
    let mut table = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

fn of_key(key: &Key) -> Value {
    let mut value = of_kind(key.kind);
    let default = if key.default.is_empty() { String::new() } else { format!(" Default: {}.", key.default) };
    value["description"] = json!(format!("{}{default} Example: {}", key.doc, key.example));
    value
}

fn image() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$" })
}

fn of_kind(kind: Kind) -> Value {
    let duration = || json!({ "$ref": "#/$defs/duration" });
    match kind {
        Kind::Name => json!({ "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$" }),
        Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Rate => json!({ "type": "string", "pattern": "^ *[0-9.]+ */.+$" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Time(_) => duration(),
        Kind::Setting(_) => json!({ "$ref": "#/$defs/setting" }),
        Kind::Image => image(),
        Kind::Images => {
            let image = image();
            json!({ "anyOf": [image.clone(), { "type": "array", "items": image, "minItems": 1, "uniqueItems": true }] })
        }
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Choices(words) => json!({ "anyOf": [
            { "enum": words },
            { "type": "array", "minItems": 1, "uniqueItems": true, "items": { "enum": words } },
        ] }),
        Kind::Subject => {
            let named = SubjectKind::ALL.into_iter().filter(|kind| !kind.is_own_command()).map(SubjectKind::name);
            json!({ "anyOf": [{ "enum": named.collect::<Vec<_>>() }, of_keys(COMMAND.iter())] })
        }
        Kind::Target => of_keys(TARGET.iter()),
        Kind::Texts => json!({ "type": "array", "minItems": 1, "items": { "type": "string" } }),
        Kind::Ready => json!({ "type": "string", "pattern": "^(consumes|message|log: *.+|connections: *[0-9]+)$" }),
        Kind::Phase => {
            let words: Vec<&str> = std::iter::once("uniform").chain(Trigger::ALL.map(Trigger::name)).collect();
            json!({ "anyOf": [{ "enum": words }, duration()] })
        }
        Kind::Profile => json!({ "enum": profile_names() }),
        Kind::OffOr(keys) => json!({ "anyOf": [{ "const": "off" }, of_keys(keys.iter())] }),
        Kind::Sysctls => {
            let each: Map<String, Value> = sysctl::SYSCTLS
                .iter()
                .map(|(name, min, max)| {
                    ((*name).to_string(), json!({ "type": "integer", "minimum": min, "maximum": max }))
                })
                .collect();
            json!({ "type": "object", "properties": each, "additionalProperties": false })
        }
        Kind::Native => json!({ "type": "object" }),
        Kind::Column => json!({ "enum": columns::names().collect::<Vec<_>>() }),
        Kind::Percent => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": r"^ *[0-9.]+ *%$" },
        ] }),
        Kind::BitRate => json!({ "type": "string", "pattern": r"^ *[0-9.]+ *([kmg]bit)$" }),
        Kind::Quantile | Kind::Share => json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
        Kind::TextOrTrue => json!({ "anyOf": [{ "type": "string", "minLength": 1 }, { "const": true }] }),
        Kind::Range => json!({ "type": "string", "pattern": "^.+ to .+$" }),
        Kind::Bound => json!({ "type": ["number", "string"] }),
    }
}

//! A document as a plain tree in which every key and value knows its position; files and `--set` become the same.

use super::error::Findings;
use toml_edit::{Document, Item, TableLike, Value as TomlValue};

/// A value with its position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    pub(super) at: usize,
    pub(super) node: Node,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Text(String),
    Int(i64),
    Float(f64),
    Flag(bool),
    Date,
    List(Vec<Value>),
    Table(Vec<Entry>),
}

impl Node {
    /// What it is, in words, for "expected …, found …".
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: usize,
    pub(super) value: Value,
}

/// Parses a file.
pub(super) fn from_toml(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    match Document::parse(text) {
        Ok(document) => Some(entries(document.as_table(), 0)),
        Err(error) => {
            let at = error.span().map_or(text.len(), |span| span.start);
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            findings.error(at, "", format!("not TOML: {message}"));
            None
        }
    }
}

/// The tree that `key=value` overrides make; positions are their indices.
pub(super) fn from_sets(sets: &[(String, String)], findings: &mut Findings) -> Vec<Entry> {
    let mut root = Vec::new();
    for (at, (key, text)) in sets.iter().enumerate() {
        let path: Vec<&str> = key.trim().split('.').map(str::trim).collect();
        if path.iter().any(|part| part.is_empty()) {
            findings.error(at, key.clone(), "not a key; write `--set key=value`, such as `--set heartbeat=10s`");
            continue;
        }
        insert(&mut root, &path, Value { at, node: scalar(text.trim()) }, key, findings);
    }
    root
}

fn insert(entries: &mut Vec<Entry>, path: &[&str], value: Value, whole: &str, findings: &mut Findings) {
    let (Some(head), at) = (path.first(), value.at) else { return };
    let known = entries.iter().position(|entry| entry.key == *head);
    match (path.len(), known) {
        (1, Some(_)) => findings.error(at, whole, "set twice; write it once"),
        (1, None) => entries.push(Entry { key: (*head).to_string(), at, value }),
        (_, Some(i)) => match &mut entries[i].value.node {
            Node::Table(inner) => insert(inner, &path[1..], value, whole, findings),
            _ => findings.error(at, whole, format!("`{head}` is already set as a whole; write it once")),
        },
        (_, None) => {
            let mut inner = Vec::new();
            insert(&mut inner, &path[1..], value, whole, findings);
            entries.push(Entry { key: (*head).to_string(), at, value: Value { at, node: Node::Table(inner) } });
        }
    }
}

/// A value without quotes: `10s` and `lapin` are texts, `5` a number, `true` a flag.
fn scalar(text: &str) -> Node {
    if let Ok(number) = text.parse::<i64>() {
        return Node::Int(number);
    }
    match text {
        "true" => Node::Flag(true),
        "false" => Node::Flag(false),
        _ => Node::Text(text.trim_matches('"').to_string()),
    }
}

fn entries(table: &dyn TableLike, fallback: usize) -> Vec<Entry> {
    table
        .iter()
        .filter(|(_, item)| !item.is_none())
        .map(|(key, item)| {
            let at = table.key(key).and_then(toml_edit::Key::span).map_or(fallback, |span| span.start);
            Entry { key: key.to_string(), at, value: from_item(item, at) }
        })
        .collect()
}

fn from_item(item: &Item, key_at: usize) -> Value {
    let at = item.span().map_or(key_at, |span| span.start);
    match item {
        Item::Value(value) => from_value(value, key_at),
        Item::Table(table) => Value { at, node: Node::Table(entries(table, at)) },
        Item::ArrayOfTables(tables) => {
            let each = tables.iter().map(|table| {
                let at = table.span().map_or(key_at, |span| span.start);
                Value { at, node: Node::Table(entries(table, at)) }
            });
            Value { at: key_at, node: Node::List(each.collect()) }
        }
        Item::None => Value { at, node: Node::Table(Vec::new()) },
    }
}

fn from_value(value: &TomlValue, key_at: usize) -> Value {
    let at = value.span().map_or(key_at, |span| span.start);
    let node = match value {
        TomlValue::String(text) => Node::Text(text.value().clone()),
        TomlValue::Integer(number) => Node::Int(*number.value()),
        TomlValue::Float(number) => Node::Float(*number.value()),
        TomlValue::Boolean(flag) => Node::Flag(*flag.value()),
        TomlValue::Datetime(_) => Node::Date,
        TomlValue::Array(values) => Node::List(values.iter().map(|value| from_value(value, at)).collect()),
        TomlValue::InlineTable(table) => Node::Table(entries(table, at)),
    };
    Value { at, node }
}

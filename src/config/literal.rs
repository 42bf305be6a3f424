//! Raw values between a reader and their meaning. A text in here may be a password, so its `Debug` never shows it.

use std::fmt;

/// A text that no formatter shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hidden(pub(crate) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(text)")
    }
}

/// A value as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    /// Python's `None`, JSON's `null`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other finite number.
    Float(f64),
    /// A text of a typed source (Python, JSON): a number in quotes is a text.
    Text(Hidden),
    /// A word of an untyped source (environment, ini): its reader there decides what it is.
    Word(Hidden),
    /// A list, tuple or set.
    List(Vec<Literal>),
    /// A mapping, each item with its line.
    Dict(Vec<Item>),
    /// Not a literal; why.
    Unknown(String),
}

/// One item of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// The key; `None` for a spread (`**other`).
    pub(crate) key: Option<Literal>,
    /// The value.
    pub(crate) value: Literal,
    /// Its line.
    pub(crate) line: u32,
}

impl Literal {
    /// A text from an untyped source.
    pub(crate) fn word(text: &str) -> Self {
        Self::Word(Hidden(text.to_string()))
    }

    /// A text from a typed source.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(Hidden(text.into()))
    }

    /// The text of a text.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(t) | Self::Word(t) => Some(&t.0),
            _ => None,
        }
    }

    /// A number, also one that is written as text. Infinite and NaN are not numbers.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(n) => Some(*n),
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            Self::Text(t) | Self::Word(t) => t.0.trim().replace('_', "").parse().ok(),
            _ => None,
        }
        .filter(|n| n.is_finite())
    }

    /// A switch, also one that is written as text (`yes`, `t`, `1` …).
    pub(crate) fn flag(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Int(n) => Some(*n != 0),
            Self::None => Some(false),
            Self::Text(t) | Self::Word(t) => match t.0.trim().to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
                "false" | "f" | "no" | "n" | "off" | "0" | "" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it says "nothing": `None`, or that word in an untyped source.
    pub(crate) fn is_none(&self) -> bool {
        match self {
            Self::None => true,
            Self::Word(t) => t.0.trim().is_empty(),
            _ => false,
        }
    }

    /// What may be shown of it: numbers and switches; a text only says that it is one.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::None => "None".to_string(),
            Self::Bool(b) => if *b { "True" } else { "False" }.to_string(),
            Self::Int(n) => n.to_string(),
            Self::Float(n) => n.to_string(),
            Self::Text(t) | Self::Word(t) => {
                let text = t.0.trim();
                let harmless = matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "none" | "yes" | "no");
                let short_number = text.len() <= 12 && !text.is_empty() && text.parse::<f64>().is_ok();
                if harmless || short_number { text.to_string() } else { "(text)".to_string() }
            }
            Self::List(items) => format!("(a list of {})", items.len()),
            Self::Dict(items) => format!("(a mapping of {})", items.len()),
            Self::Unknown(_) => "(not a literal)".to_string(),
        }
    }
}

/// A key that may be shown: a short identifier of the kind that options have. Anything else could be part of a secret
/// (base64 lines of a key, for example).
pub(crate) fn showable_key(key: &str) -> Option<&str> {
    let fits = key.len() <= 64
        && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    fits.then_some(key)
}

//! Errors of a scenario: where, which key, what is wrong and how to mend it, one line each.

use std::fmt;

/// Where the text of a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a file; both counted from 1, the column in characters.
    File {
        /// The file as the caller names it.
        label: String,
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// An override on the command line, `key=value`.
    Set(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { label, line, column } => write!(f, "{label}:{line}:{column}"),
            Self::Set(text) if text.is_empty() => f.write_str("--set"),
            Self::Set(text) => write!(f, "--set {text}"),
        }
    }
}

/// One thing that is wrong, or (as a warning) looks wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// Where it stands.
    pub place: Place,
    /// The section and key, such as `[[arm]] heartbeat`; empty when the text as a whole is meant.
    pub key: String,
    /// What is wrong, then the mend.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.place, self.problem)
        } else {
            write!(f, "{}: {}: {}", self.place, self.key, self.problem)
        }
    }
}

impl std::error::Error for ScenarioError {}

/// Everything that is wrong with a scenario, in file order, at least one. Printed one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioErrors(pub Vec<ScenarioError>);

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioErrors {}

/// What positions of a tree refer to: bytes of a file, or overrides by their index.
pub(super) enum Source<'a> {
    File { label: &'a str, text: &'a str },
    Sets(&'a [(String, String)]),
}

impl Source<'_> {
    /// The place of a position.
    pub(super) fn place(&self, at: usize) -> Place {
        match self {
            Self::File { label, text } => {
                let mut end = at.min(text.len());
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let before = &text[..end];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                Place::File { label: (*label).to_string(), line, column }
            }
            Self::Sets(sets) => {
                Place::Set(sets.get(at).map(|(key, value)| format!("{key}={value}")).unwrap_or_default())
            }
        }
    }
}

/// What was found so far. Reading goes on after an error, so that one run shows them all.
#[derive(Default)]
pub(super) struct Findings {
    errors: Vec<(usize, String, String)>,
    warnings: Vec<(usize, String, String)>,
}

impl Findings {
    /// Something wrong at a position.
    pub(super) fn error(&mut self, at: usize, key: impl Into<String>, problem: impl Into<String>) {
        self.errors.push((at, key.into(), problem.into()));
    }

    /// Something that looks wrong at a position.
    pub(super) fn warn(&mut self, at: usize, key: impl Into<String>, problem: impl Into<String>) {
        self.warnings.push((at, key.into(), problem.into()));
    }

    /// How many errors there are so far.
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// The errors in file order, or the warnings when there are none.
    pub(super) fn finish(self, source: &Source<'_>) -> Result<Vec<String>, ScenarioErrors> {
        let sorted = |mut found: Vec<(usize, String, String)>| {
            // Stable: what stands at one place keeps the order in which it was checked.
            found.sort_by_key(|(at, _, _)| *at);
            found.into_iter().map(|(at, key, problem)| ScenarioError { place: source.place(at), key, problem })
        };
        if self.errors.is_empty() {
            Ok(sorted(self.warnings).map(|warning| warning.to_string()).collect())
        } else {
            Err(ScenarioErrors(sorted(without_echoes(self.errors)).collect()))
        }
    }
}

/// A misspelt key is also a missing one. Only the misspelling is told: mending it mends both.
fn without_echoes(mut errors: Vec<(usize, String, String)>) -> Vec<(usize, String, String)> {
    let section = |key: &str| key.rsplit_once(' ').map_or_else(String::new, |(section, _)| section.to_string());
    let meant: Vec<String> = errors
        .iter()
        .filter_map(|(_, key, problem)| {
            let meant = problem.strip_prefix("unknown key; did you mean `")?.strip_suffix("`?")?;
            Some(format!("{} {meant}", section(key)).trim_start().to_string())
        })
        .collect();
    errors.retain(|(_, key, problem)| !(problem.starts_with("missing; ") && meant.contains(key)));
    errors
}

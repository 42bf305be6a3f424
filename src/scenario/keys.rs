//! What a key of the file is: the shape of the one table (`table`) that reading, errors, schema and documentation
//! share.

use super::profile;
use std::time::Duration;

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A name that can be a folder: letters, digits, `-`, `_`, `.`.
    Name,
    /// Any text, matched elsewhere against what the scenario has.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number in a range.
    Integer { min: i64, max: i64 },
    /// A duration with its unit.
    Time(Limits),
    /// A duration, or `"none"` for a watcher that is off.
    Setting(Limits),
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// One of a few words or a list of them, each once.
    Choices(&'static [&'static str]),
    /// The name of a container image.
    Image,
    /// The name of a container image, or a list of them, each once.
    Images,
    /// The subject: a word, or a table with a command line.
    Subject,
    /// A table that names a service of a compose project.
    Target,
    /// A list of texts.
    Texts,
    /// What says that a command is ready.
    Ready,
    /// Events a time: `"1/s"`.
    Rate,
    /// `"uniform"`, or a duration for a fixed phase.
    Phase,
    /// The name of an impairment profile.
    Profile,
    /// `"off"`, or a table with these keys.
    OffOr(&'static [Key]),
    /// A table of whitelisted sysctls.
    Sysctls,
    /// A table of somebody else's options: any keys, any values.
    Native,
    /// A column of `trials.csv`.
    Column,
    /// A number above 0, up to 1.
    Quantile,
    /// A share: a number above 0, up to 1.
    Share,
    /// A share that may also be written as a percentage: `"30%"`.
    Percent,
    /// Bits a second: `"1mbit"`.
    BitRate,
    /// A value to look for, or `true` for any.
    TextOrTrue,
    /// A number, a percentage or a duration, as the metric asks.
    Bound,
    /// Two durations, the shorter first: `"10s to 12s"`.
    Range,
}

/// What a duration may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) min: Duration,
    pub(super) max: Duration,
    /// The kernel's or protocol's own unit: the duration must be a whole multiple.
    pub(super) step: Duration,
    /// Values outside this range are legal and usually a unit mistaken for another: a warning.
    pub(super) usual: (Duration, Duration),
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Its name within its section.
    pub(super) name: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// Whether it must be there.
    pub(super) required: bool,
    /// What happens without it, in words or as written; empty where it is required.
    pub(super) default: &'static str,
    /// What it is.
    pub(super) doc: &'static str,
    /// A whole line that is right.
    pub(super) example: &'static str,
    /// The version that first had it.
    pub(super) since: &'static str,
    /// Other names by which people know it, so that the error can name this one.
    pub(super) aliases: &'static [&'static str],
}

/// How often a section may stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// `[x]`.
    Once,
    /// `[[x]]`.
    Many,
    /// `[x]` or `[[x]]`.
    OnceOrMany,
}

/// One section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) repeat: Repeat,
    pub(super) required: bool,
    pub(super) doc: &'static str,
    pub(super) keys: &'static [Key],
    /// Whether it also takes the options of an arm.
    pub(super) options: bool,
    /// Why it is refused, when this version has it not.
    pub(super) refused: Option<&'static str>,
}

impl Section {
    /// Its header as documentation writes it.
    pub(super) fn header(&self) -> String {
        if self.repeat == Repeat::Many { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }

    /// All its keys.
    pub(super) fn all_keys(&self) -> impl Iterator<Item = &'static Key> + Clone {
        let options: &'static [Key] = if self.options { super::table::OPTIONS } else { &[] };
        self.keys.iter().chain(options.iter())
    }
}

/// The valid name nearest to one that is not, when any is near.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for candidate in known {
        let score = strsim::jaro_winkler(word, candidate).max(strsim::normalized_damerau_levenshtein(word, candidate));
        if score >= 0.78 && best.is_none_or(|(top, _)| score > top) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, name)| name)
}

/// `; did you mean …?` or, when nothing is near, the whole choice.
pub(super) fn mend<'a>(word: &str, noun: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            let all: Vec<String> = known.into_iter().map(|name| format!("`{name}`")).collect();
            if all.len() == 1 {
                format!("the only {noun} is {}", all[0])
            } else {
                format!("{noun}s are {}", all.join(", "))
            }
        }
    }
}

/// The names of the profiles.
pub(super) fn profile_names() -> Vec<&'static str> {
    profile::names()
}

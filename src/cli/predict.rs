//! `halfopen predict`: reads what was given, asks `advise`, prints.

use super::args::PredictArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::advise::{Request, Style, advise, keys_text, render};
use crate::config::{self, Reading, SourceKind};
use crate::scenario::{self, Scenario};
use std::io::{IsTerminal, Read};
use std::path::Path;

/// More than any configuration; a mistaken log file is refused before it is taken in.
const LARGEST: u64 = 16 << 20;

/// Predicts.
pub fn predict(args: &PredictArgs) -> Result<Exit, Failure> {
    let style = style(args.explain);
    if args.keys {
        return print(&keys_text(&style));
    }
    let (mut scenarios, mut readings) = (Vec::new(), Vec::new());
    for path in &args.files {
        match source(path)? {
            Source::Scenario(scenario) => scenarios.push((path.display().to_string(), *scenario)),
            Source::Settings(reading) => readings.push(reading),
        }
    }
    for path in &args.env_file {
        let (label, text) = text_of(path)?;
        readings.push(config::read_as(SourceKind::EnvFile, &label, &text).map_err(usage)?);
    }
    if args.from_env {
        let all: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let pairs = all.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        readings.push(config::read_environment("environment", pairs));
    }
    let request = Request { scenarios: &scenarios, readings: &readings, sets: &args.sets };
    let answer = advise(&request).map_err(usage)?;
    if args.json {
        let value = serde_json::to_value(&answer).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?;
        print(&pretty(&value))?;
    } else {
        print(&render(&answer, &style))?;
    }
    Ok(if args.strict && answer.has_warnings() { Exit::GateFailed } else { Exit::Held })
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}

enum Source {
    Scenario(Box<Scenario>),
    Settings(Reading),
}

fn source(path: &Path) -> Result<Source, Failure> {
    let shown = path.to_string_lossy();
    if shown.contains("://") && !path.exists() {
        // The address may hold a password: it is no label.
        return config::read_as(SourceKind::Address, "address", &shown).map(Source::Settings).map_err(usage);
    }
    let (label, text) = text_of(path)?;
    if is_scenario(&label, &text) {
        return scenario::read(&label, &text).map(|s| Source::Scenario(Box::new(s))).map_err(usage);
    }
    config::read(&label, &text).map(Source::Settings).map_err(usage)
}

/// A `.toml` file, or a text with the section that every scenario must have.
fn is_scenario(label: &str, text: &str) -> bool {
    label.ends_with(".toml") || text.lines().any(|line| line.trim() == "[scenario]")
}

fn text_of(path: &Path) -> Result<(String, String), Failure> {
    let (label, read) = if path.as_os_str() == "-" {
        ("standard input".to_string(), limited(std::io::stdin().lock()))
    } else {
        (path.display().to_string(), std::fs::File::open(path).and_then(limited))
    };
    let bytes = read.map_err(|e| usage(format!("can't read {label}: {e}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(usage(format!("{label}: more than {} MiB; this is no configuration", LARGEST >> 20)));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((label, text)),
        Err(_) => Err(usage(format!("{label}: not UTF-8 text; save it as UTF-8"))),
    }
}

fn limited(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Colours and the width of the terminal only where there is one.
pub(super) fn style(explain: bool) -> Style {
    let terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size().filter(|_| terminal).map(|(width, _)| usize::from(width.0));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    Style { width: width.unwrap_or(110).clamp(60, 160), colours: terminal && !plain, explain }
}

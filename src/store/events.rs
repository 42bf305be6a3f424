//! `events.jsonl`: written as things happen, read back even when the writer was killed in the middle of a line.

use super::StoreError;
use super::secrets::hide_in_line;
use crate::events::Event;
use crate::host::clock::Clock;
use crate::units::Offset;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of a killed run may be lost.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// The events of a run that is going on. They reach the file within a second of [`EventLog::append`], as long as somebody calls
/// [`EventLog::tick`]; putting one down reads no clock.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    clock: Clock,
    writer: BufWriter<File>,
    flushed: Offset,
    pending: bool,
    secrets: Vec<String>,
}

impl EventLog {
    pub(super) fn create(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let file = File::create(path).map_err(StoreError::io("create", path))?;
        let writer = BufWriter::with_capacity(1 << 16, file);
        let path = path.to_path_buf();
        Ok(Self { path, clock, writer, flushed: clock.now(), pending: false, secrets: Vec::new() })
    }

    /// From now on this text is written as `***`, wherever it appears: for logins that a client's error might quote.
    pub fn hide(&mut self, secret: &str) {
        // As it stands inside a JSON string, where quotes and backslashes are escaped.
        let escaped = serde_json::to_string(secret).unwrap_or_default();
        let escaped = escaped.trim_matches('"').to_string();
        if !escaped.is_empty() && !self.secrets.contains(&escaped) {
            self.secrets.push(escaped);
        }
    }

    /// Appends one event.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append(&mut self, event: &Event) -> Result<(), StoreError> {
        let mut line = serde_json::to_string(event).map_err(|e| StoreError::Malformed {
            path: self.path.clone(),
            line: None,
            why: e.to_string(),
        })?;
        for secret in &self.secrets {
            if line.contains(secret.as_str()) {
                line = line.replace(secret.as_str(), "***");
            }
        }
        let mut line = hide_in_line(line);
        line.push('\n');
        self.writer.write_all(line.as_bytes()).map_err(StoreError::io("write", &self.path))?;
        self.pending = true;
        Ok(())
    }

    /// Hands what is waiting to the system when at `now` a second has passed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn tick(&mut self, now: Offset) -> Result<(), StoreError> {
        if self.pending && now.since(self.flushed) >= FLUSH_EVERY { self.flush() } else { Ok(()) }
    }

    /// When [`Self::tick`] has to be called at the latest; `None` when nothing is waiting.
    #[must_use]
    pub fn due(&self) -> Option<Offset> {
        self.pending.then(|| self.flushed + FLUSH_EVERY)
    }

    /// Hands everything to the system now.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.writer.flush().map_err(StoreError::io("write", &self.path))?;
        self.flushed = self.clock.now();
        self.pending = false;
        Ok(())
    }
}

/// Events as read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadEvents {
    /// Those that this version understands.
    pub events: Vec<Event>,
    /// Lines of kinds, sources or values that this version does not know: written by a later one.
    pub unknown: usize,
    /// Whether the last line is incomplete: the writer was killed.
    pub truncated: bool,
}

/// Reads the text of an `events.jsonl`. What is unknown is skipped and counted.
///
/// # Errors
/// [`StoreError::Malformed`] with the line, for anything but an incomplete last line.
pub fn read_events(path: &Path, text: &str) -> Result<ReadEvents, StoreError> {
    let mut read = ReadEvents::default();
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<Event>(line) {
            Ok(event) => read.events.push(event),
            Err(error) if is_of_a_later_version(line, &error) => read.unknown += 1,
            Err(_) if index + 1 == lines.len() && !text.ends_with('\n') => read.truncated = true,
            Err(error) => {
                let path = path.to_path_buf();
                return Err(StoreError::Malformed { path, line: Some(index + 1), why: error.to_string() });
            }
        }
    }
    Ok(read)
}

/// A whole event whose kind, source or a value of them is not in this version's vocabulary.
fn is_of_a_later_version(line: &str, error: &serde_json::Error) -> bool {
    let whole = serde_json::from_str::<serde_json::Value>(line);
    let has = |value: &serde_json::Value, key| value.get(key).is_some_and(serde_json::Value::is_string);
    error.to_string().starts_with("unknown variant") && whole.is_ok_and(|v| has(&v, "kind") && has(&v, "source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = r#"{"offset":1,"source":"harness","kind":"note","text":"hello"}"#;

    fn read(text: &str) -> Result<ReadEvents, StoreError> {
        read_events(Path::new("events.jsonl"), text)
    }

    #[test]
    fn events_reach_the_file_within_a_second() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("events.jsonl");
        let mut log = EventLog::create(&path, Clock::start()).unwrap();
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let created = log.flushed;
        // Far from due, however slow the machine: as if the log had been flushed an hour from now.
        log.flushed = created + Duration::from_secs(3600);
        log.append(&serde_json::from_str(KNOWN).unwrap()).unwrap();
        assert_eq!(lines(), 0);
        log.tick(log.flushed + Duration::from_millis(999)).unwrap();
        assert_eq!(lines(), 0);
        log.tick(log.flushed + FLUSH_EVERY).unwrap();
        assert_eq!((lines(), log.pending), (1, false));
    }

    #[test]
    fn unknown_kinds_sources_and_values_are_skipped_and_counted() {
        let later = r#"{"offset":1,"source":"harness","kind":"moon_phase","text":"x"}"#;
        let from = r#"{"offset":1,"source":"oracle","kind":"note","text":"x"}"#;
        let how = r#"{"offset":1,"source":"subject","trial":0,"kind":"notice","attempt":0,"cause":{"how":"smell"}}"#;
        let text = format!("{KNOWN}\n{later}\n{from}\n{how}\n{KNOWN}\n");
        let read = read(&text).unwrap();
        assert_eq!((read.events.len(), read.unknown, read.truncated), (2, 3, false));
    }

    #[test]
    fn an_added_field_is_no_obstacle() {
        let read = read(r#"{"offset":1,"source":"harness","kind":"note","text":"hello","mood":"fine"}"#).unwrap();
        assert_eq!(read.events.len(), 1);
    }

    #[test]
    fn only_the_last_line_may_be_incomplete() {
        let half = &KNOWN[..30];
        let at_the_end = read(&format!("{KNOWN}\n{half}")).unwrap();
        assert_eq!((at_the_end.events.len(), at_the_end.truncated), (1, true));
        let error = read(&format!("{KNOWN}\n{half}\n{KNOWN}\n")).unwrap_err();
        assert!(error.to_string().starts_with("events.jsonl:2: "), "{error}");
        let missing = read("{\"offset\":1,\"source\":\"harness\",\"kind\":\"note\"}\n").unwrap_err();
        assert!(missing.to_string().contains("missing field `text`"), "{missing}");
    }
}

//! What a container says that was there before the run, kept line by line with the run's clock.

use super::Message;
use crate::clients::Program;
use crate::events::{Event, How, Kind, Source};
use crate::host::clock::Clock;
use crate::host::mailbox::Sender;
use crate::units::{TrialId, hide_secrets};
use std::fs::{self, File};
use std::io::{self, Write};

/// A longer line is cut in two.
const LINE_BYTES: usize = 64 * 1024;

/// The log of a trial's container.
pub struct Log {
    trial: TrialId,
    file: File,
    lost: Vec<String>,
    clock: Clock,
    events: Sender<Message>,
    line: Vec<u8>,
}

impl Log {
    /// Opens the file that the program names.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn open(trial: TrialId, program: &Program, clock: Clock, events: Sender<Message>) -> io::Result<Self> {
        if let Some(dir) = program.log.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = File::create(&program.log)?;
        Ok(Self { trial, file, lost: program.lost.clone(), clock, events, line: Vec::new() })
    }

    /// Takes the next bytes, of any size.
    pub fn take(&mut self, piece: &[u8]) {
        for byte in piece {
            if *byte == b'\n' || self.line.len() >= LINE_BYTES {
                self.end_line();
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
    }

    fn end_line(&mut self) {
        let at = self.clock.now();
        let text = String::from_utf8_lossy(&self.line).trim_end().to_string();
        self.line.clear();
        let text = hide_secrets(&text).into_owned();
        // A full disk must not end the measurement.
        let _ = writeln!(self.file, "{:>14.6} {text}", at.as_secs());
        if self.lost.iter().any(|lost| text.contains(lost.as_str())) {
            let said = Kind::Said { how: How::Other, text };
            let _ = self.events.send(Message::Event(Event::of_trial(at, Source::Subject, self.trial, said)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::mailbox::mailbox;

    #[test]
    fn lines_are_put_together_and_the_telling_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("logs/trial-3.log");
        let (sender, inbox) = mailbox();
        let program = Program {
            argv: Vec::new(),
            env: Vec::new(),
            cwd: None,
            ready: crate::scenario::ReadyWhen::Connections(1),
            lost: vec!["connection lost".into()],
            words: Default::default(),
            done: None,
            effects: "/x".into(),
            log: log.clone(),
            user: String::new(),
            attached: Some(1),
        };
        let mut kept = Log::open(3, &program, Clock::start(), sender).unwrap();
        kept.take(b"all is well\nconnection lo");
        kept.take(b"st: amqp://u:secret@h:5672/\nhalf a li");
        drop(kept);
        let text = fs::read_to_string(log).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains("secret"), "{text}");
        let Some(Message::Event(event)) = inbox.try_recv() else { panic!("a line was told of") };
        assert!(matches!(event.kind, Kind::Said { ref text, .. } if text.starts_with("connection lost")));
        assert!(inbox.try_recv().is_none());
    }
}

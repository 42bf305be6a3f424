//! The engine's own children: subjects, producer, peer and reaper, each a process that speaks JSON lines.

use super::Message;
use crate::host::clock::Clock;
use crate::host::mailbox::Sender;
use crate::lab::{Lab, Running, Seat};
use crate::subject::protocol::{Command, Report};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::thread::JoinHandle;
use std::time::Duration;

/// A child and the thread that reads its reports.
pub struct Child {
    name: String,
    process: Running,
    commands: Option<Box<dyn Write + Send>>,
    reader: Option<JoinHandle<()>>,
}

/// What a reader thread forwards beside events.
#[derive(Debug)]
pub enum ChildNews {
    /// The child is up; names and versions of its client libraries.
    Hello(BTreeMap<String, String>),
    /// Its reports ended; whether with an orderly good-bye.
    Ended {
        /// Whether it said good-bye.
        orderly: bool,
    },
    /// A line that is no report.
    Garbled(String),
}

impl Child {
    /// Starts `halfopen <role …>` beside a host of the lab: the role's name, then arguments of its own. Its index travels with everything that it reports.
    ///
    /// # Errors
    /// When the process can't be started.
    pub fn start(
        role: &[&str],
        name: &str,
        index: usize,
        (lab, seat): (&Lab, Seat),
        clock: Clock,
        nofile: u64,
        events: &Sender<Message>,
    ) -> io::Result<Self> {
        let zero_ns = clock.zero_ns().to_string();
        let argv: Vec<String> = role.iter().copied().chain(["--zero-ns", &zero_ns]).map(String::from).collect();
        let mut process = lab.start(seat, &argv, nofile)?;
        let commands = process.take_stdin();
        let stdout = process.take_stdout().ok_or_else(|| io::Error::other("the child has no standard output"))?;
        let events = events.clone();
        let reader = std::thread::spawn(move || read(BufReader::new(stdout), index, &events));
        Ok(Self { name: name.to_string(), process, commands, reader: Some(reader) })
    }

    /// The name in messages and in the memory table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a command. A child that is gone is reported by its reader, so a broken pipe is no error here.
    pub fn send(&mut self, command: &Command) {
        if let (Some(pipe), Ok(mut line)) = (&mut self.commands, serde_json::to_vec(command)) {
            line.push(b'\n');
            if pipe.write_all(&line).is_err() {
                self.commands = None;
            }
        }
    }

    /// How it ended, in words, waiting a moment for the status of one whose reports have ended.
    pub fn status(&mut self) -> String {
        match self.process.wait_at_most(Duration::from_secs(2)) {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "its reports ended but it still runs".to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Whether it has ended.
    pub fn is_gone(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(Some(_)))
    }

    /// Kills it and waits until it is gone, with all that it held.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        self.commands = None;
        self.process.kill().map(drop)
    }

    /// Ends it at once: it may be stopped, and has nothing to say any more.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn end(mut self) -> io::Result<()> {
        self.commands = None;
        self.process.kill().map(drop)
    }

    /// Asks for an orderly end, waits for it, kills what does not come.
    ///
    /// # Errors
    /// When the child had to be killed or ended with a failure.
    pub fn close(mut self) -> io::Result<()> {
        self.send(&Command::Quit);
        self.commands = None;
        let ended = self.process.wait_at_most(Duration::from_secs(10))?;
        if ended.is_none() {
            self.process.kill()?;
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!("{} ended with {status}", self.name))),
            None => Err(io::Error::other(format!("{} did not end when asked and was killed", self.name))),
        }
    }
}

fn read(mut lines: impl BufRead, index: usize, events: &Sender<Message>) {
    let mut orderly = false;
    let mut line = String::new();
    // A process that is killed in the middle of a line has no end of it to say.
    while lines.read_line(&mut line).is_ok() && line.ends_with('\n') {
        let message = match serde_json::from_str::<Report>(&line) {
            Ok(Report::Event { event }) => Some(Message::Event(event)),
            Ok(Report::Hello { versions }) => Some(Message::Child(index, ChildNews::Hello(versions))),
            Ok(Report::Bye) => {
                orderly = true;
                None
            }
            Err(error) => {
                let text = format!("{error}: {}", line.trim_end());
                Some(Message::Child(index, ChildNews::Garbled(text)))
            }
        };
        line.clear();
        if message.is_some_and(|message| events.send(message).is_err()) {
            return;
        }
    }
    let _ = events.send(Message::Child(index, ChildNews::Ended { orderly }));
}

//! A process of a run, wherever it runs: a child of the harness in a namespace, or a process in a container.

use super::docker::Contained;
use crate::host::process::Process;
use std::fmt;
use std::io::{self, Read, Write};
use std::process::ExitStatus;
use std::time::Duration;

/// Who starts a process, and where it then is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// Beside the subjects of an arm, by the arm's place in the plan.
    Arm(usize),
    /// Beside the brokers.
    Server,
    /// Where the numbered messages are published.
    Producer,
    /// Between the subjects and the brokers.
    Proxy,
    /// Beside the brokers of the host that takes the address over.
    Standby,
    /// Nowhere: it has no network at all.
    Nowhere,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    words: String,
    success: bool,
}

impl Status {
    /// Of what is known as an exit code.
    #[must_use]
    pub fn of_code(code: Option<i64>) -> Self {
        match code {
            Some(code) => Self { words: format!("exit status: {code}"), success: code == 0 },
            None => Self { words: "an exit status that nobody kept".into(), success: false },
        }
    }

    /// Whether it was an orderly end.
    #[must_use]
    pub fn success(&self) -> bool {
        self.success
    }
}

impl From<ExitStatus> for Status {
    fn from(status: ExitStatus) -> Self {
        Self { words: status.to_string(), success: status.success() }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// A process that the lab started. Dropped while it runs, it is ended.
#[derive(Debug)]
pub enum Running {
    /// A child of this process.
    Own(Process),
    /// In a container.
    Contained(Contained),
}

impl Running {
    /// Its process id, as the machine counts.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match self {
            Self::Own(process) => process.pid(),
            Self::Contained(process) => process.pid(),
        }
    }

    /// Its standard input, once, where the harness has it.
    pub fn take_stdin(&mut self) -> Option<Box<dyn Write + Send>> {
        match self {
            Self::Own(process) => process.take_stdin().map(|pipe| Box::new(pipe) as Box<dyn Write + Send>),
            Self::Contained(process) => process.take_stdin().map(|pipe| Box::new(pipe) as Box<dyn Write + Send>),
        }
    }

    /// Its standard output, once, where the harness has it.
    pub fn take_stdout(&mut self) -> Option<Box<dyn Read + Send>> {
        match self {
            Self::Own(process) => process.take_stdout().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
            Self::Contained(process) => process.take_stdout().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        }
    }

    /// How it ended, without waiting.
    ///
    /// # Errors
    /// When that can't be known.
    pub fn try_wait(&mut self) -> io::Result<Option<Status>> {
        match self {
            Self::Own(process) => Ok(process.try_wait()?.map(Status::from)),
            Self::Contained(process) => process.wait_at_most(Duration::ZERO),
        }
    }

    /// How it ended, waiting at most `limit`; `None` when it still runs.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn wait_at_most(&mut self, limit: Duration) -> io::Result<Option<Status>> {
        match self {
            Self::Own(process) => Ok(process.wait_at_most(limit)?.map(Status::from)),
            Self::Contained(process) => process.wait_at_most(limit),
        }
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn kill(&mut self) -> io::Result<Status> {
        match self {
            Self::Own(process) => process.kill().map(Status::from),
            Self::Contained(process) => process.kill(),
        }
    }
}

impl From<Process> for Running {
    fn from(process: Process) -> Self {
        Self::Own(process)
    }
}

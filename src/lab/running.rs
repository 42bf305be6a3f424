//! A process of a run, wherever it runs: a child of the harness in a namespace, or a process in a container.

use super::docker::{Contained, Remade};
use crate::host::netns::NetNs;
use crate::host::process::{Launch, Process};
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

/// How a server was started, to be started once more on the same files.
#[derive(Debug, Clone)]
pub enum Recipe {
    /// As a child of this process.
    Own(Launch),
    /// As the main process of a container.
    Contained(Remade),
}

impl Recipe {
    /// Kills what runs of it, where that still runs, and starts it again; nobody waits until it answers. In a container this
    /// takes as long as the Docker engine takes to remove the old one and to make the new one, some tenths of a second.
    ///
    /// # Errors
    /// When the old one does not go or the new one can't be started.
    pub fn start_again(&self, running: &mut Running) -> io::Result<()> {
        running.kill()?;
        *running = match self {
            Self::Own(launch) => launch.clone().spawn()?.into(),
            Self::Contained(made) => made.start_again().map_err(|e| io::Error::other(e.to_string()))?,
        };
        Ok(())
    }

    /// The network that it is in.
    #[must_use]
    pub fn netns(&self) -> Option<NetNs> {
        match self {
            Self::Own(launch) => launch.netns.clone(),
            Self::Contained(made) => Some(made.ns.clone()),
        }
    }
}

impl From<Process> for Running {
    fn from(process: Process) -> Self {
        Self::Own(process)
    }
}

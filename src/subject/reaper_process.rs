//! The reaper process: sweeps the task store once it is told to.

use super::child::{self, Role, flag};
use super::protocol::{Command, Sweeps};
use super::report::Reporter;
use super::sweeps::{open, report};
use super::tasks::STORE;
use crate::events::Source;
use crate::reaper::{Place, Told};
use crate::units::{Offset, TrialId};
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Reaper, &[], |reporter| Reaper::of_args(args, reporter))
}

/// A reaper, in a process of its own or in a worker's.
pub(super) struct Reaper {
    reporter: Reporter,
    place: Place,
    /// Dropped, the sender ends the sweeps.
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Role for Reaper {
    fn command(&mut self, command: Command) {
        match command {
            Command::Reap { sweeps, first, only } => {
                if let Err(error) = self.reap(sweeps, first, only) {
                    self.reporter.note(format!("reaper: {error}"));
                }
            }
            // What is left in the store of a trial that is over is reaped like anything else.
            Command::Close { .. } | Command::Quit => {}
            Command::Attend { .. } => self.reporter.note("the reaper waits for no task".to_string()),
            Command::Open { trial, .. }
            | Command::Publish { trial, .. }
            | Command::Republish { trial, .. }
            | Command::Reissue { trial, .. }
            | Command::Await { trial, .. }
            | Command::Fill { trial }
            | Command::Call { trial }
            | Command::HaltAt { trial, .. }
            | Command::GoOn { trial }
            | Command::Inspect { trial, .. } => {
                self.reporter.note(format!("the reaper knows tasks only, no connection of trial {trial}"));
            }
        }
    }
}

impl Reaper {
    /// Of the store that the arguments name.
    ///
    /// # Errors
    /// When they name none.
    pub fn of_args(args: &[String], reporter: &Reporter) -> io::Result<Self> {
        let path = flag(args, STORE).ok_or_else(|| io::Error::other("--store PLACE is needed: the task store"))?;
        Self::at(path, reporter)
    }

    /// Of the store at this place.
    ///
    /// # Errors
    /// When the text names no place.
    pub fn at(place: &str, reporter: &Reporter) -> io::Result<Self> {
        let place: Place = place.parse().map_err(io::Error::other)?;
        Ok(Self { reporter: reporter.clone(), place, running: None })
    }

    /// Sweeps from now on, all tasks or those of one trial.
    ///
    /// # Errors
    /// When it does already, or its store can't be opened.
    pub fn reap(&mut self, sweeps: Sweeps, first: Duration, only: Option<TrialId>) -> io::Result<()> {
        if self.running.is_some() {
            return Err(io::Error::other("it reaps already"));
        }
        let (end, until) = channel();
        let reporter = self.reporter.clone();
        let first = reporter.now() + first;
        let reaper = open(&self.place, reporter.clock(), sweeps)?.only(only);
        let told = move |at: Offset, told: Told| report(&reporter, None, at, told);
        let sweeps = thread::Builder::new().name("sweeps".into()).spawn(move || reaper.run(first, &until, told))?;
        self.running = Some((end, sweeps));
        Ok(())
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some((end, sweeps)) = self.running.take() {
            drop(end);
            let _ = sweeps.join();
        }
    }
}

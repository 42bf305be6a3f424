//! The reaper process: sweeps the task store once it is told to.

use super::child::{self, Role, flag};
use super::protocol::{Command, Sweeps};
use super::report::Reporter;
use super::sweeps::{open, report};
use super::tasks::STORE;
use crate::events::Source;
use crate::reaper::{Place, Told};
use crate::units::Offset;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Reaper, &[], |reporter| {
        let path = flag(args, STORE).ok_or_else(|| io::Error::other("--store PLACE is needed: the task store"))?;
        let place: Place = path.parse().map_err(io::Error::other)?;
        Ok(Reaper { reporter: reporter.clone(), place, running: None })
    })
}

struct Reaper {
    reporter: Reporter,
    place: Place,
    /// Dropped, the sender ends the sweeps.
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Role for Reaper {
    fn command(&mut self, command: Command) {
        match command {
            Command::Reap { sweeps, first } => {
                if let Err(error) = self.reap(sweeps, first) {
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
            | Command::Inspect { trial, .. } => {
                self.reporter.note(format!("the reaper knows tasks only, no connection of trial {trial}"));
            }
        }
    }
}

impl Reaper {
    fn reap(&mut self, sweeps: Sweeps, first: Duration) -> io::Result<()> {
        if self.running.is_some() {
            return Err(io::Error::other("it reaps already"));
        }
        let (end, until) = channel();
        let reporter = self.reporter.clone();
        let first = reporter.now() + first;
        let reaper = open(&self.place, reporter.clock(), sweeps)?;
        let tell = reporter.clone();
        let told = move |at: Offset, told: Told| report(&tell, None, at, told);
        let sweeps = thread::Builder::new().name("sweeps".into()).spawn(move || {
            if let Err(error) = reaper.run(first, &until, told) {
                reporter.note(format!("the reaper stopped: {error}"));
            }
        })?;
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

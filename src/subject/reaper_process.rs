//! The reaper process: sweeps the task store once it is told to.

use super::child::{self, Role, flag};
use super::protocol::Command;
use super::report::Reporter;
use super::tasks::STORE;
use crate::events::{Kind, Source};
use crate::reaper::{Sweeper, Swept, TaskStore};
use crate::scenario::ReaperSettings;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Reaper, &[], |reporter| {
        let path = flag(args, STORE).ok_or_else(|| io::Error::other("--store PATH is needed: the task store"))?;
        let store = TaskStore::open(Path::new(path)).map_err(io::Error::other)?;
        Ok(Reaper { reporter: reporter.clone(), store: Some(store), running: None })
    })
}

struct Reaper {
    reporter: Reporter,
    store: Option<TaskStore>,
    /// Dropped, the sender ends the sweeps.
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Role for Reaper {
    fn command(&mut self, command: Command) {
        match command {
            Command::Reap { settings, first } => {
                if let Err(error) = self.reap(settings, first) {
                    self.reporter.note(format!("reaper: {error}"));
                }
            }
            // What is left in the store of a trial that is over is reaped like anything else.
            Command::Close { .. } | Command::Quit => {}
            Command::Open { trial, .. }
            | Command::Publish { trial, .. }
            | Command::Republish { trial, .. }
            | Command::Fill { trial }
            | Command::Call { trial }
            | Command::Inspect { trial, .. } => {
                self.reporter.note(format!("the reaper knows tasks only, no connection of trial {trial}"));
            }
        }
    }
}

impl Reaper {
    fn reap(&mut self, settings: ReaperSettings, first: Duration) -> io::Result<()> {
        let store = self.store.take().ok_or_else(|| io::Error::other("it reaps already"))?;
        let (end, until) = channel();
        let reporter = self.reporter.clone();
        let sweeper = Sweeper::new(store, reporter.clock(), settings);
        let first = reporter.now() + first;
        let tell = reporter.clone();
        let sweeps = thread::Builder::new().name("sweeps".into()).spawn(move || {
            let swept = sweeper.run(first, &until, |at, swept| match swept {
                Swept::Failed { id, rule } => {
                    tell.event(at, id.trial, Kind::Reaped { message: id.message, rule: rule.to_string() });
                }
                Swept::Requeued { id } => tell.event(at, id.trial, Kind::Requeued { message: id.message }),
            });
            if let Err(error) = swept {
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

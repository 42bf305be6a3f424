//! The user: waits for each task, polls its state, and asks for it once more when its patience is at an end.
//!
//! It looks at the task store by a path of its own that no fault touches: the web server that a user asks is not behind the
//! broker. What it asks for reaches the producer through the engine, which hears of it as everybody does.

use super::child::{self, Role, flag};
use super::protocol::Command;
use super::report::Reporter;
use super::tasks::STORE;
use crate::events::{Kind, Source};
use crate::reaper::{LAZY_CHECK, Look, Place, TaskId, TaskStore, TaskStoreError, Vigil};
use crate::scenario::User;
use crate::units::Offset;
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::User, &[], |reporter| {
        let path = flag(args, STORE).ok_or_else(|| io::Error::other("--store PLACE is needed: the task store"))?;
        let place: Place = path.parse().map_err(io::Error::other)?;
        let (orders, receiver) = channel();
        let watcher = reporter.clone();
        thread::Builder::new().name("polls".into()).spawn(move || {
            if let Err(error) = Polls::new(&watcher, &place).and_then(|polls| polls.run(&receiver)) {
                watcher.note(format!("the user can't look any more: {error}"));
            }
        })?;
        Ok(Process { reporter: reporter.clone(), orders })
    })
}

struct Process {
    reporter: Reporter,
    orders: Sender<Command>,
}

impl Role for Process {
    fn command(&mut self, command: Command) {
        match command {
            Command::Attend { .. } | Command::Await { .. } => {
                // The thread is gone only where it has said why.
                let _ = self.orders.send(command);
            }
            // What is left of a trial that is over is waited for like anything else.
            Command::Close { .. } | Command::Quit => {}
            _ => self.reporter.note("the user waits for tasks and does nothing else".to_string()),
        }
    }
}

/// The thread that polls.
struct Polls<'r> {
    reporter: &'r Reporter,
    store: TaskStore,
    user: Option<User>,
    vigils: HashMap<TaskId, Vigil>,
}

impl<'r> Polls<'r> {
    fn new(reporter: &'r Reporter, place: &Place) -> Result<Self, TaskStoreError> {
        Ok(Self { reporter, store: TaskStore::open(place)?, user: None, vigils: HashMap::new() })
    }

    fn run(mut self, orders: &Receiver<Command>) -> Result<(), TaskStoreError> {
        loop {
            let next = self.vigils.values().map(Vigil::due).min();
            let order = match next {
                Some(due) => orders.recv_timeout(due.since(self.reporter.now())),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Command::Attend { user }) => self.user = Some(user),
                Ok(Command::Await { trial, message, at, of }) => self.begin(TaskId { trial, message }, at, of),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(user) = self.user {
                self.look(&user)?;
            }
        }
    }

    fn begin(&mut self, id: TaskId, at: Offset, of: Option<u64>) {
        let Some(user) = self.user else { return };
        // A re-issue has what its predecessor had left, which is over for its user where it was cleaned up.
        let predecessor = of.and_then(|message| self.vigils.get(&TaskId { message, ..id }));
        let left = match of {
            Some(_) => predecessor.map_or(0, Vigil::left),
            None => user.reissues,
        };
        self.vigils.entry(id).or_insert_with(|| Vigil::new(&user, at, left));
    }

    /// All polls that are due.
    fn look(&mut self, user: &User) -> Result<(), TaskStoreError> {
        let now = self.reporter.now();
        let mut due: Vec<TaskId> =
            self.vigils.iter().filter(|(_, vigil)| vigil.due() <= now).map(|(id, _)| *id).collect();
        due.sort_unstable();
        for id in due {
            let task = self.store.get(id)?;
            let now = self.reporter.now();
            let Some(vigil) = self.vigils.get_mut(&id) else { continue };
            match vigil.poll(user, now, task.as_ref()) {
                Look::Waits => {}
                Look::Over(status) => {
                    self.vigils.remove(&id);
                    self.reporter.event(now, id.trial, Kind::Seen { message: id.message, status: status.to_string() });
                }
                Look::AsksAgain { cleans } => {
                    if let Some(task) = task.filter(|_| cleans)
                        && self.store.fail(&task, now, None)?
                    {
                        let (message, rule) = (id.message, LAZY_CHECK.to_string());
                        let at = self.reporter.now();
                        self.reporter.event(at, id.trial, Kind::Reaped { message, rule, retried: false });
                    }
                    self.reporter.event(self.reporter.now(), id.trial, Kind::AskedAgain { message: id.message });
                }
            }
        }
        Ok(())
    }
}

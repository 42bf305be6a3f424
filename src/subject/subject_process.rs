//! The subject process: one thread or task a trial.

use super::attempts::{Current, Trial};
use super::child::{self, Role};
use super::command::Running;
use super::halt::Halt;
use super::protocol::{Command, Routing, Sweeps};
use super::provider::Provider;
use super::reaper_process::Reaper;
use super::report::Reporter;
use super::stop::{Gate, Stop};
use super::sweeps::SweepWorker;
use super::tasks::TaskLog;
use super::{amqp_blocking, lapin_client, liveness, redis_client, tcp_reader, tcp_writer};
use crate::clients::Program;
use crate::events::{Kind, Source};
use crate::reaper::worker_name;
use crate::scenario::SubjectKind;
use crate::units::TrialId;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// First connections that are opened at a time: below every broker's listen backlog (RabbitMQ's is 128), so that no
/// handshake is slowed down by a SYN that was dropped at the broker's door.
const OPENING: usize = 64;

/// The flag that says that a fault of the run waits for a point of the work.
pub(super) const HALTS: &str = "--halts";

/// Stack of a blocking client's thread. Thousands of them are started; only touched pages take memory.
const STACK_BYTES: usize = 256 * 1024;

/// The libraries that are under test here, as `Cargo.lock` has them (a test holds them to it).
pub(super) const LIBRARIES: [(&str, &str); 3] = [("amq-protocol", "10.6.3"), ("lapin", "4.12.3"), ("redis", "1.8.1")];

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Subject, &LIBRARIES, |reporter| {
        Ok(Subjects {
            reporter: reporter.clone(),
            args: args.to_vec(),
            tasks: TaskLog::of_args(args)?,
            provider: Provider::of_args(args),
            reapers: HashMap::new(),
            own_ways: HashMap::new(),
            open: HashMap::new(),
            halts: HashMap::new(),
            programs: HashMap::new(),
            threads: Arc::new(Gate::new(OPENING)),
            openings: Arc::new(Semaphore::new(OPENING)),
            runtime: None,
        })
    })
}

struct Subjects {
    reporter: Reporter,
    args: Vec<String>,
    /// The task store, where there is a reaper.
    tasks: Option<TaskLog>,
    provider: Option<Provider>,
    /// Those that live inside the workers.
    reapers: HashMap<TrialId, Reaper>,
    /// The task store as trials reach it that have a way of their own.
    own_ways: HashMap<TrialId, String>,
    /// Where the work of a trial can be made to stand still.
    halts: HashMap<TrialId, Arc<Halt>>,
    open: HashMap<TrialId, Arc<Stop>>,
    /// Programs of somebody else's that run.
    programs: HashMap<TrialId, Running>,
    threads: Arc<Gate>,
    openings: Arc<Semaphore>,
    /// Started with the first client that needs it.
    runtime: Option<Runtime>,
}

impl Role for Subjects {
    fn command(&mut self, command: Command) {
        match command {
            Command::Open { trial, target, settings, load_interval, program, beats, jobs, worker, store, sweeps } => {
                let stop = Arc::new(Stop::default());
                let old = self.open.insert(trial, stop.clone());
                if let Some(old) = old {
                    self.reporter.note(format!("trial {trial} was open already; its first client was ended"));
                    old.stop();
                }
                let settings = *settings;
                let routing = Arc::new(Routing { jobs, delivery: settings.delivery.clone(), count: None });
                let named = if worker.name.is_empty() { worker_name(trial) } else { worker.name };
                let trial = Trial {
                    id: trial,
                    target,
                    settings,
                    load_interval,
                    routing,
                    reporter: self.reporter.clone(),
                    tasks: None,
                    provider: self.provider.clone(),
                    worker: named,
                    first_attempt: worker.first_attempt,
                    sweeps: None,
                    current: Current::default(),
                    failed: Arc::default(),
                    halt: self.halts.entry(trial).or_default().clone(),
                    halts: self.args.iter().any(|arg| arg == HALTS),
                    stop,
                };
                if let Some(place) = &store {
                    self.own_ways.insert(trial.id, place.clone());
                }
                let opened = self.stores(&trial, store.as_deref(), sweeps.map(|sweeps| *sweeps));
                let started = opened.and_then(|trial| {
                    beats.map_or(Ok(()), |beats| liveness::start(&trial, &beats))?;
                    self.start(trial, program)
                });
                if let Err(error) = started {
                    self.reporter.note(format!("cannot start the client of trial {}: {error}", trial.id));
                    trial.event(Kind::SubjectExited { status: error.to_string() });
                }
            }
            Command::Fill { trial } => {
                if let Some(stop) = self.open.get(&trial) {
                    stop.let_fill();
                }
            }
            Command::Call { trial } => {
                if let Some(stop) = self.open.get(&trial) {
                    stop.call();
                }
            }
            Command::HaltAt { trial, point, from } => self.halts.entry(trial).or_default().set(point, from),
            Command::GoOn { trial } => self.halts.entry(trial).or_default().go_on(),
            Command::Close { trial } => {
                if let Some(halt) = self.halts.remove(&trial) {
                    halt.go_on();
                }
                self.reapers.remove(&trial);
                if let Some(stop) = self.open.remove(&trial) {
                    stop.stop();
                }
                if let Some(program) = self.programs.remove(&trial) {
                    program.end();
                }
            }
            Command::Inspect { trial, attempt, tuple } => {
                if let Some(effective) = self.programs.get(&trial).and_then(|program| program.options(tuple)) {
                    self.reporter.event(self.reporter.now(), trial, Kind::Options { attempt, effective });
                }
            }
            Command::Publish { trial, .. }
            | Command::Republish { trial, .. }
            | Command::Reissue { trial, .. }
            | Command::Await { trial, .. } => {
                self.reporter.note(format!("a subject does not publish; trial {trial} ignored"));
            }
            Command::Reap { sweeps, first, only: Some(trial) } => {
                // It reaches the store as its worker does.
                let reaper = match self.own_ways.get(&trial) {
                    Some(place) => Reaper::at(place, &self.reporter),
                    None => Reaper::of_args(&self.args, &self.reporter),
                };
                let reaping = reaper.and_then(|mut reaper| reaper.reap(sweeps, first, Some(trial)).map(|()| reaper));
                match reaping {
                    Ok(reaper) => _ = self.reapers.insert(trial, reaper),
                    Err(error) => self.reporter.note(format!("the reaper inside trial {trial}'s worker: {error}")),
                }
            }
            Command::Reap { only: None, .. } => {
                self.reporter.note("a subject reaps the tasks of its own worker alone".to_string());
            }
            Command::Attend { .. } => self.reporter.note("a subject waits for nobody's tasks".to_string()),
            Command::Quit => {}
        }
    }
}

impl Subjects {
    /// The trial with its way to the task store, or with what it sweeps.
    fn stores(&self, trial: &Trial, store: Option<&str>, sweeps: Option<Sweeps>) -> io::Result<Trial> {
        let tasks = match store {
            Some(place) => Some(TaskLog::at(place)?),
            None => self.tasks.clone(),
        };
        let Some(sweeps) = sweeps else { return Ok(Trial { tasks, ..trial.clone() }) };
        let tasks = self.tasks.as_ref().ok_or_else(|| io::Error::other("there is no task store to sweep"))?;
        let sweeps = SweepWorker::open(tasks.place(), trial.reporter.clock(), sweeps)?;
        Ok(Trial { sweeps: Some(sweeps), ..trial.clone() })
    }

    fn start(&mut self, trial: Trial, program: Option<Box<Program>>) -> io::Result<()> {
        let run = match trial.settings.subject {
            SubjectKind::TcpReader => tcp_reader::run,
            SubjectKind::TcpWriter => tcp_writer::run,
            SubjectKind::RedisBlocking => redis_client::run,
            SubjectKind::AmqpBlocking => amqp_blocking::run,
            SubjectKind::Lapin => {
                let gate = self.openings.clone();
                self.runtime()?.spawn(lapin_client::run(trial, gate));
                return Ok(());
            }
            _ => {
                let program = program.ok_or_else(|| io::Error::other("no program was named"))?;
                let id = trial.id;
                self.programs.insert(id, Running::start(trial, *program)?);
                return Ok(());
            }
        };
        let gate = self.threads.clone();
        let named = thread::Builder::new().name(format!("trial-{}", trial.id)).stack_size(STACK_BYTES);
        named.spawn(move || run(&trial, &gate)).map(drop)
    }

    fn runtime(&mut self) -> io::Result<&Runtime> {
        if self.runtime.is_none() {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            self.runtime = Some(builder.worker_threads(2).enable_all().build()?);
        }
        self.runtime.as_ref().ok_or_else(|| io::Error::other("no runtime"))
    }
}

impl Drop for Subjects {
    fn drop(&mut self) {
        self.halts.values().for_each(|halt| halt.go_on());
        self.programs.values().for_each(Running::end);
        // Clients that still wait for the kernel must not hold the process up: its end closes their sockets.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LIBRARIES;

    #[test]
    fn the_versions_are_those_that_are_built_in() {
        let lock = include_str!("../../Cargo.lock");
        for (name, version) in LIBRARIES {
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&entry), "{name} is not at {version} in Cargo.lock");
        }
    }
}

//! What a fault does beyond the path: it stops or kills the processes of a broker, or stops the proxy before it or has it
//! behave badly, and looks whether it took effect.
//!
//! Every process of the broker is meant, its helpers too, found as the descendants of the one that the lab started. One
//! act hits every connection to the broker: it is done once, and each trial is told its instants. A proxy is one trial's:
//! the processes of the connections that are there are meant, in the scope `host` also the one that accepts others.

use crate::fault::Applied;
use crate::host::clock::Clock;
use crate::host::procfs::{self, Identity, RunState};
use crate::scenario::{Act, Scope};
use crate::subject::{SILENT, SWALLOWS, WITHHOLDS};
use nix::sys::signal::Signal;
use std::time::Duration;

/// How long the kernel may take until every thread of a process has stopped or is gone.
const EFFECT: Duration = Duration::from_secs(5);

/// The broker's processes, from the ones that the lab started.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    roots: Vec<u32>,
    /// Whether only the descendants are meant.
    below: bool,
    /// Whose processes they are, in words.
    whose: &'static str,
    /// Those that the last act hit.
    hit: Vec<Identity>,
    done: Option<(Act, Applied)>,
    healed: Option<Applied>,
}

/// Between two looks whether a signal has taken effect.
const LOOK: Duration = Duration::from_micros(200);

/// What a look at the processes showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// What was seen.
    pub what: String,
    /// Whether it is as the fault says.
    pub holds: bool,
}

/// How a process shows that a signal has taken effect.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// By what the kernel says of it.
    State(RunState),
    /// By the name that it gave itself.
    Named(&'static str),
}

impl Look {
    fn shows(self, process: Identity) -> bool {
        match self {
            Self::State(state) => procfs::run_state(process) == state,
            Self::Named(name) => procfs::run_state(process) == RunState::Running && procfs::name(process.pid) == name,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::State(state) => state.words(),
            Self::Named(name) => name,
        }
    }
}

/// The signal of an act, and how its processes are afterwards; `None` where none is meant.
fn means(act: Act) -> Option<(Signal, Look)> {
    match act {
        Act::FreezeBroker | Act::FreezeProxy | Act::PauseWorker => {
            Some((Signal::SIGSTOP, Look::State(RunState::Stopped)))
        }
        Act::KillBroker | Act::RestartBroker | Act::KillWorker | Act::KillReaper | Act::KillStore => {
            Some((Signal::SIGKILL, Look::State(RunState::Gone)))
        }
        Act::SwallowProxy => Some((Signal::SIGUSR1, Look::Named(SWALLOWS))),
        Act::WithholdReply => Some((Signal::SIGUSR2, Look::Named(WITHHOLDS))),
        // Nothing is to be changed: it is silent from its start.
        Act::StaySilent => Some((Signal::SIGCONT, Look::Named(SILENT))),
        Act::RebootHost | Act::VanishHost | Act::FailOver | Act::ForgetEntry => None,
        Act::AlarmBroker | Act::AlarmDisk | Act::WithholdAnswer | Act::ResetThrice => None,
    }
}

impl Actor {
    /// Over these processes and their descendants; `whose` they are is for its words.
    #[must_use]
    pub fn new(roots: Vec<u32>, whose: &'static str) -> Self {
        Self { roots, whose, ..Self::default() }
    }

    /// Over the proxy of one trial: the process that accepts its connections, and one for each of them.
    #[must_use]
    pub fn of_proxy(acceptor: u32, scope: Scope) -> Self {
        Self { roots: vec![acceptor], below: scope == Scope::Flow, whose: "the proxy", ..Self::default() }
    }

    /// Does it, once: later calls tell the same instants, until it is taken back.
    ///
    /// # Errors
    /// In words, when there is nothing to hit, or a process can't be signalled.
    pub fn act(&mut self, clock: Clock, act: Act) -> Result<Applied, String> {
        let Some((signal, state)) = means(act) else {
            return Err(format!("`{}` is nothing that is done to a process", act.name()));
        };
        if let (Some((_, applied)), None) = (self.done, self.healed) {
            return Ok(applied);
        }
        (self.done, self.healed) = (None, None);
        let meant = |process: &Identity| !self.below || !self.roots.contains(&process.pid);
        self.hit = self.roots.iter().flat_map(|root| procfs::tree(*root)).filter(meant).collect();
        if self.hit.is_empty() {
            return Err(format!("{} has no process that could be hit", self.whose));
        }
        let applied = self.signal(clock, signal, state)?;
        self.done = Some((act, applied));
        Ok(applied)
    }

    /// Takes it back, once.
    ///
    /// # Errors
    /// In words, when a process can't be signalled.
    pub fn heal(&mut self, clock: Clock, act: Act) -> Result<Applied, String> {
        match (act, self.healed) {
            (_, Some(healed)) => Ok(healed),
            (Act::FreezeBroker | Act::FreezeProxy | Act::PauseWorker, None) => {
                let healed = self.signal(clock, Signal::SIGCONT, Look::State(RunState::Running))?;
                self.healed = Some(healed);
                Ok(healed)
            }
            (act, None) => Err(format!("`{}` can't be taken back", act.name())),
        }
    }

    /// Lets whoever is still stopped run again: the teardown asks them to end.
    ///
    /// # Errors
    /// In words, when a process can't be signalled.
    pub fn release(&mut self, clock: Clock) -> Result<(), String> {
        match (self.done, self.healed) {
            (Some((act, _)), None) if act.heals() => self.heal(clock, act).map(drop),
            _ => Ok(()),
        }
    }

    /// Looks whether the act is in force.
    #[must_use]
    pub fn proof(&self, act: Act) -> Proof {
        let Some((_, wanted)) = means(act) else {
            return Proof { what: format!("no process shows `{}`", act.name()), holds: false };
        };
        let odd = self.hit.iter().filter(|process| !wanted.shows(**process)).count();
        let n = self.hit.len();
        Proof {
            what: match odd {
                0 => format!("all {n} processes of {} are {}", self.whose, wanted.words()),
                odd => format!("{odd} of {n} processes of {} are not {}", self.whose, wanted.words()),
            },
            holds: odd == 0 && n > 0,
        }
    }

    /// Signals all, then waits until it shows: the instants bracket both.
    fn signal(&self, clock: Clock, signal: Signal, state: Look) -> Result<Applied, String> {
        let before = clock.now();
        for process in &self.hit {
            match procfs::signal(*process, signal) {
                Ok(()) => {}
                // It ended meanwhile: nothing is left of it to hit.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => return Err(format!("{signal} to process {}: {error}", process.pid)),
            }
        }
        let settled = || self.hit.iter().all(|process| state.shows(*process));
        while !settled() && clock.now().since(before) < EFFECT {
            // This thread may have real-time priority: it has to let go, or those that are to stop don't get to run.
            std::thread::sleep(LOOK);
        }
        let after = clock.now();
        if settled() {
            Ok(Applied { before, after })
        } else {
            Err(format!("{} is not {} yet", self.whose, state.words()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::Launch;

    #[test]
    fn what_was_taken_back_can_be_done_again() {
        let mut child = Launch::new("sleep").args(["600"]).spawn().unwrap();
        let (clock, act) = (Clock::start(), Act::FreezeBroker);
        let mut actor = Actor::new(vec![child.pid()], "the broker");
        let first = actor.act(clock, act).unwrap();
        assert_eq!(actor.act(clock, act).unwrap(), first);
        let healed = actor.heal(clock, act).unwrap();
        assert!(!actor.proof(act).holds);
        let second = actor.act(clock, act).unwrap();
        assert!(second.before >= healed.after, "{second:?}");
        assert!(actor.proof(act).holds, "{:?}", actor.proof(act));
        assert_eq!(actor.act(clock, act).unwrap(), second);
        assert!(actor.heal(clock, act).unwrap().before >= second.after);
        child.kill().unwrap();
    }
}

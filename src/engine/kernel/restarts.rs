//! A broker that is started and killed again: the engine's part of `restarted-broker`, after the first kill.

use super::*;
use std::collections::VecDeque;

/// How often the broker is killed altogether, the first time by the cutter.
const TIMES: u32 = 3;
/// Between two of them.
const APART: Duration = Duration::from_secs(1);

/// When the broker is started again: at once, and each further time after having been killed once more.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    begun: bool,
    due: VecDeque<(Offset, u32)>,
}

impl Restarts {
    /// The broker was killed for the first time.
    pub(super) fn begin(&mut self, killed: Offset) {
        if !std::mem::replace(&mut self.begun, true) {
            self.due = (1..=TIMES).map(|time| (killed + APART * (time - 1), time)).collect();
        }
    }

    /// When something is to be done.
    pub(super) fn next(&self) -> Option<Offset> {
        self.due.front().map(|(at, _)| *at)
    }
}

impl Run<'_> {
    /// Whether the scenario means the brokers to end and begin again.
    pub(super) fn restarts_brokers(&self) -> bool {
        self.plan.scenario.faults.iter().any(|fault| fault.act == Some(Act::RestartBroker))
    }

    /// Starts the brokers again where that is due, and says so for each trial.
    pub(super) fn restart_due(&mut self, now: Offset, events: &mut EventLog) -> Result<(), EngineError> {
        while self.restarts.next().is_some_and(|at| at <= now) {
            let Some((_, time)) = self.restarts.due.pop_front() else { break };
            let (what, holds) = match self.restart_brokers() {
                Ok(pids) => {
                    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                    (
                        format!("the broker was killed {time} of {TIMES} times and runs again as {}", pids.join(", ")),
                        true,
                    )
                }
                Err(error) => (format!("the broker was not started again after kill {time}: {error}"), false),
            };
            let at = self.clock.now();
            for trial in &self.plan.trials {
                let proof = Kind::Proof { what: what.clone(), holds };
                events.append(&Event::of_trial(at, Source::Harness, trial.id, proof)).map_err(store)?;
            }
        }
        Ok(())
    }

    pub(super) fn restart_brokers(&mut self) -> std::io::Result<Vec<u32>> {
        for broker in &mut self.lab.brokers {
            broker.restart()?;
        }
        if let Some(index) = self.children.iter().position(|child| child.name() == PEER) {
            // Its port has to be free for the next one, and its reports end with it.
            self.children[index].kill()?;
            self.children[index] =
                Child::start(&["__peer"], PEER, index, (&self.lab, Seat::Server), self.clock, NOFILE, &self.sender)?;
        }
        Ok(self.broker_pids())
    }
}

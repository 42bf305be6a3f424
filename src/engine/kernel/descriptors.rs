//! How many file descriptors a plan needs, so that a limit that is too low is said beforehand. Pure.
//!
//! Short of descriptors, connections fail one by one and trials are void: a run of minutes for nothing.

use crate::plan::Plan;
use crate::scenario::BrokerKind;

/// A process and the most descriptors that it may have open at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Which process, in words.
    pub process: String,
    /// How many.
    pub count: u64,
}

/// A subject's: the socket, and a copy of it that ends it from another thread. Of 60 trials that all reconnect, lapin's
/// subject had 108 open at most, the others' 65.
const SUBJECT_PER_TRIAL: u64 = 2;
/// A broker's or peer's: the cut connection stays open on its side beside the reconnect. Of those 60 trials RabbitMQ had
/// 135 open at most, Redis 131.
const SERVER_PER_TRIAL: u64 = 2;
/// Pipes, libraries, an event loop.
const BASE: u64 = 64;
/// RabbitMQ keeps a tenth of its limit, 100 and two for files, never gives them to sockets, and has its own files open.
const RABBITMQ_BASE: u64 = 256;

/// The process of the plan that needs the most.
#[must_use]
pub fn descriptors(plan: &Plan) -> Need {
    let arms = &plan.scenario.arms;
    let trials_of = |arm: usize| plan.trials.iter().filter(|t| t.arm == arm).count() as u64;
    let subjects = arms.iter().enumerate().map(|(index, arm)| Need {
        process: format!("the subject of arm `{}`", arm.name),
        count: BASE + SUBJECT_PER_TRIAL * trials_of(index),
    });
    let servers = [BrokerKind::None, BrokerKind::Rabbitmq, BrokerKind::Redis].map(|kind| {
        let of_kind = (0..arms.len()).filter(|arm| arms[*arm].settings.subject.broker() == kind);
        let sockets = SERVER_PER_TRIAL * of_kind.map(trials_of).sum::<u64>();
        let (process, count) = match kind {
            BrokerKind::None => ("the embedded peer".to_string(), BASE + sockets),
            BrokerKind::Rabbitmq => (kind.to_string(), RABBITMQ_BASE + sockets * 10 / 9 + 1),
            BrokerKind::Redis => (kind.to_string(), BASE + sockets),
        };
        (sockets > 0).then_some(Need { process, count })
    });
    let engine = Need { process: "the engine".to_string(), count: 2 * BASE + 8 * arms.len() as u64 };
    let all = subjects.chain(servers.into_iter().flatten());
    all.fold(engine, |most, need| if need.count > most.count { need } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Overrides, build};

    fn need(subject: &str, trials: u32) -> Need {
        let text = format!(
            "# Enough?\n[scenario]\nname = \"x\"\nhorizon = \"200s\"\ntrials = {trials}\n[[arm]]\nname = \"a\"\nsubject = \
             \"{subject}\"\n[[arm]]\nname = \"b\"\nsubject = \"{subject}\"\n[fault]\nprofile = \"blackhole\"\n"
        );
        let scenario = crate::scenario::read("x.toml", &text).unwrap();
        descriptors(&build(scenario, &Overrides::default()).unwrap())
    }

    #[test]
    fn the_hungriest_process_is_named() {
        // Both arms meet in the one peer or broker.
        assert_eq!(need("tcp-reader", 100), Need { process: "the embedded peer".into(), count: 464 });
        let rabbitmq = need("lapin", 5_000);
        assert_eq!((rabbitmq.process.as_str(), rabbitmq.count), ("rabbitmq", 22_479));
        assert_eq!(need("redis-blocking", 1).process, "the engine");
    }
}

//! The phase of each cut: drawn for each trial alone, from what names the trial.

use crate::scenario::{Arm, BrokerSettings, Fault, Scenario, Settings, SubjectKind, heartbeat_in_force};
use crate::units::TrialId;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use std::time::Duration;

const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// The longest period of an arm's own: over this long a uniform phase meets every state of its timers. Between 1 s
/// and 60 s.
#[must_use]
pub fn longest_period(settings: &Settings, broker: &BrokerSettings, load_interval: Option<Duration>) -> Duration {
    let heartbeat = heartbeat_in_force(settings, broker);
    // With an interval above the idle time the steady state probes at the interval.
    let keepalive = settings.keepalive.map(|keepalive| keepalive.idle.max(keepalive.interval));
    // A blocking BRPOP asks the server to answer within half of the read timeout.
    let poll = settings.read_timeout.get().filter(|_| settings.subject == SubjectKind::RedisBlocking).map(|t| t / 2);
    let longest = [heartbeat, keepalive, poll, settings.ping, load_interval].into_iter().flatten().max();
    longest.unwrap_or(LEAST).clamp(LEAST, MOST)
}

/// The window from which the phase of an arm under a fault is drawn; zero for a fixed phase.
///
/// Where a reaper sweeps, it is a whole number of its intervals: only then do the cuts fall on every part of an interval
/// alike.
#[must_use]
pub fn window(scenario: &Scenario, arm: &Arm, fault: &Fault) -> Duration {
    // A connection that falls idle is forgotten when it does.
    if fault.at.is_some() || fault.idle.is_some() {
        return Duration::ZERO;
    }
    fault.phase_window.unwrap_or_else(|| {
        let own = longest_period(&arm.settings, &scenario.broker, scenario.load_of(arm));
        scenario.reaper.as_ref().map_or(own, |reaper| {
            let sweeps = own.as_nanos().div_ceil(reaper.interval.as_nanos().max(1));
            reaper.interval.saturating_mul(u32::try_from(sweeps).unwrap_or(u32::MAX))
        })
    })
}

/// From the moment at which a run's connections are opened to the first sweep of its reaper: U(0, interval), drawn by the
/// seed from nothing that the cuts are drawn from.
#[must_use]
pub fn first_sweep(seed: u64, interval: Duration) -> Duration {
    let mut hash = Sha256::new();
    hash.update(b"halfopen sweep 1\0");
    hash.update(seed.to_le_bytes());
    Phases(ChaCha12Rng::from_seed(hash.finalize().into())).draw(0, interval)
}

/// How long what was killed and started again lives until it is killed for the `time`th time: U(0, at most). Of one trial, or of
/// what all trials share.
#[must_use]
pub fn lives_for(seed: u64, trial: Option<TrialId>, time: u32, at_most: Duration) -> Duration {
    let mut hash = Sha256::new();
    hash.update(b"halfopen lives 1\0");
    hash.update(seed.to_le_bytes());
    hash.update(trial.map_or(u64::MAX, u64::from).to_le_bytes());
    Phases(ChaCha12Rng::from_seed(hash.finalize().into())).draw(time, at_most)
}

/// The phases of one arm under one fault.
///
/// Each depends on the seed, the arm's name, the fault's index and the trial's number among them, and on nothing else:
/// more trials, other arms or a partition leave it as it is.
#[derive(Debug, Clone)]
pub struct Phases(ChaCha12Rng);

impl Phases {
    /// The phases of the arm `arm` under the fault of index `fault`.
    #[must_use]
    pub fn new(seed: u64, arm: &str, fault: usize) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"halfopen phase 1\0");
        hash.update(seed.to_le_bytes());
        hash.update((fault as u64).to_le_bytes());
        // Last, because it is the only part whose length varies.
        hash.update(arm.as_bytes());
        Self(ChaCha12Rng::from_seed(hash.finalize().into()))
    }

    /// U(0, window) for the trial `number`, in whole microseconds: each trial is a stream of its own.
    #[must_use]
    pub fn draw(&self, number: u32, window: Duration) -> Duration {
        let mut generator = self.0.clone();
        generator.set_stream(u64::from(number));
        // 64 random bits scaled by the window: the bias is below 2^-20 of a microsecond's share.
        let micros = (u128::from(generator.next_u64()) * window.as_micros()) >> 64;
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_below_the_window() {
        let window = Duration::from_secs(10);
        let draws: Vec<Duration> = (0..4_000).map(|j| Phases::new(7, "a", 0).draw(j, window)).collect();
        assert!(draws.iter().all(|draw| *draw < window));
        // Each tenth has 400 expected; 5 standard deviations are 95.
        for tenth in 0..10 {
            let count = draws.iter().filter(|draw| draw.as_secs() == tenth).count();
            assert!((305..=495).contains(&count), "{count} draws in second {tenth}");
        }
    }

    #[test]
    fn each_name_draws_its_own() {
        let window = Duration::from_secs(10);
        let draw = |seed, arm, fault, number| Phases::new(seed, arm, fault).draw(number, window);
        let base = draw(7, "a", 0, 0);
        assert_eq!(base, draw(7, "a", 0, 0));
        for other in [draw(8, "a", 0, 0), draw(7, "b", 0, 0), draw(7, "a", 1, 0), draw(7, "a", 0, 1)] {
            assert_ne!(base, other);
        }
        assert_eq!(Phases::new(7, "a", 0).draw(0, Duration::ZERO), Duration::ZERO);
    }
}

//! The phases of one trial: drawn from what names it, and brought into line with its messages.
//!
//! Where messages set the rhythm, their schedule says how old the last segment is at the cut and when the next one
//! leaves; both come from the schedule then, not from the dice.

use crate::plan::Trial;
use crate::timers::application::broker::rabbitmq_longest_silence;
use crate::timers::{Case, Phases};
use crate::units::{Offset, TrialId, seconds};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Draws the phases of a trial. They depend on the seed, the arm's name and the trial's own address, so neither other
/// arms nor more trials nor a partition change them.
#[must_use]
pub fn phases(seed: u64, arm: &str, trial: &Trial) -> Phases {
    let mut hash = Sha256::new();
    hash.update(b"halfopen model 1\0");
    hash.update(seed.to_le_bytes());
    hash.update(arm.as_bytes());
    let mut generator = ChaCha12Rng::from_seed(hash.finalize().into());
    generator.set_stream(u64::from(u32::from(trial.client) & 0xffff));
    Phases::from_uniform(|| (generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64)
}

/// When the messages of a connection that consumes from `start` on are due: as the subjects and the producer space
/// them, each trial at a place of its own within the interval (multiples of the golden ratio modulo 1).
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    first: Offset,
    interval: Duration,
}

impl Schedule {
    /// The schedule of a trial.
    #[must_use]
    pub fn new(start: Offset, interval: Duration, trial: TrialId) -> Self {
        let place = (f64::from(trial) * 0.618_033_988_749_894_9).fract();
        Self { first: start + interval.mul_f64(place), interval }
    }

    /// The times from the first to `until`, exclusive.
    pub fn until(self, until: Offset) -> impl Iterator<Item = Offset> {
        let step = i64::try_from(self.interval.as_nanos()).unwrap_or(i64::MAX);
        (0..)
            .map(move |k: i64| Offset(self.first.0.saturating_add(k.saturating_mul(step))))
            .take_while(move |t| *t < until)
    }

    /// The first time at or after `at`.
    #[must_use]
    pub fn next(self, at: Offset) -> Offset {
        if at <= self.first {
            return self.first;
        }
        let step = self.interval.as_nanos().max(1);
        let missed = at.since(self.first).as_nanos().div_ceil(step);
        self.first + Duration::from_nanos(u64::try_from(missed * step).unwrap_or(u64::MAX))
    }

    /// The last time before `at`.
    #[must_use]
    pub fn last_before(self, at: Offset) -> Option<Offset> {
        let next = self.next(at);
        (next > self.first).then(|| next - self.interval)
    }
}

/// The longest silence between the broker's frames on a healthy link, as the timer model has it.
#[must_use]
pub fn broker_silence(case: &Case) -> Option<Duration> {
    let messages = case.conditions.traffic.broker_messages;
    case.settings.negotiated_heartbeat().map_or(messages, |hb| Some(rabbitmq_longest_silence(hb, messages)))
}

/// How often the client sends while the fault lasts, at the least, as the timer model has it.
#[must_use]
pub fn client_period(case: &Case) -> Option<Duration> {
    let (s, traffic) = (&case.settings, case.conditions.traffic);
    let beats = s
        .negotiated_heartbeat()
        .and_then(|hb| s.amqp_client()?.sends_every(hb))
        .map(|span| Duration::from_secs_f64(span.hi_s));
    let acks = traffic.broker_messages.filter(|_| traffic.client_acks && case.fault.kind.client_hears());
    [beats, traffic.client_messages, acks].into_iter().flatten().min()
}

/// Takes over what the schedule decides. `work` is the time from a delivery to its acknowledgement.
pub fn align(phases: &mut Phases, case: &Case, schedule: Option<Schedule>, cut: Offset, work: Duration) {
    // Strictly periodic: what is left of a period is what has not passed of it.
    phases.broker_send = (1.0 - phases.age).clamp(0.0, 1.0 - f64::EPSILON);
    let Some(schedule) = schedule else { return };
    let traffic = case.conditions.traffic;
    let (next, last) = (schedule.next(cut), schedule.last_before(cut));
    let share = |of: Duration, period: Duration| (seconds(of) / seconds(period)).clamp(0.0, 1.0 - f64::EPSILON);
    let passed = cut.since(last.unwrap_or(Offset::ZERO));
    let left = next.since(cut);
    if traffic.broker_messages.is_some() && broker_silence(case) == Some(schedule.interval) {
        phases.age = share(passed, schedule.interval);
        phases.broker_send = share(left, schedule.interval);
    }
    let acknowledges = traffic.client_acks && case.fault.kind.client_hears();
    if client_period(case) == Some(schedule.interval) {
        // An acknowledgement that is still being worked on leaves before that of the next message.
        let pending = last.map(|at| at + work).filter(|at| acknowledges && *at > cut).map(|at| at.since(cut));
        let next = if acknowledges { left + work } else { left };
        phases.client_send = share(pending.unwrap_or(next).min(next), schedule.interval);
        if traffic.client_messages.is_some() {
            phases.age = share(passed, schedule.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_knows_its_neighbours() {
        let schedule = Schedule::new(Offset(10), Duration::from_secs(2), 0);
        let s = Offset::from_secs;
        assert_eq!(
            schedule.until(s(5.0)).collect::<Vec<_>>(),
            [Offset(10), s(2.0) + Duration::from_nanos(10), s(4.0) + Duration::from_nanos(10)]
        );
        assert_eq!(schedule.next(s(2.0)), s(2.0) + Duration::from_nanos(10));
        assert_eq!(schedule.next(Offset(2_000_000_010)), Offset(2_000_000_010));
        assert_eq!(schedule.last_before(Offset(2_000_000_010)), Some(Offset(10)));
        assert_eq!(schedule.last_before(Offset(3)), None);
    }
}

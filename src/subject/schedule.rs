//! Absolute schedules: message *k* is due at `start + k · interval`, however late the one before was.

use crate::units::{Offset, TrialId};
use std::time::Duration;

/// When each numbered message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    next: Offset,
    interval: Duration,
}

impl Schedule {
    /// A schedule whose first message is due within one interval of `now`, at a place of the trial's own, so that
    /// thousands of connections don't all send at once.
    ///
    /// The places are the multiples of the golden ratio modulo 1, which spread evenly for any number of trials.
    pub fn staggered(now: Offset, interval: Duration, trial: TrialId) -> Self {
        // An interval of zero would never let the time pass.
        let interval = interval.max(Duration::from_micros(100));
        let place = (f64::from(trial) * 0.618_033_988_749_894_9).fract();
        Self { next: now + interval.mul_f64(place), interval }
    }

    /// When the next message is due.
    pub fn due(&self) -> Offset {
        self.next
    }

    /// How long until then.
    pub fn wait(&self, now: Offset) -> Duration {
        self.next.since(now)
    }

    /// Whether the next message is due.
    pub fn is_due(&self, now: Offset) -> bool {
        now >= self.next
    }

    /// Goes on to the following message.
    pub fn advance(&mut self) {
        self.next = self.next + self.interval;
    }

    /// Goes on to the first message that is due after `now`: those missed are left out, not sent in a burst.
    pub fn skip_missed(&mut self, now: Offset) {
        if self.next < now {
            let missed = now.since(self.next).as_nanos() / self.interval.as_nanos() + 1;
            self.next = self.next + self.interval * u32::try_from(missed).unwrap_or(u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn deadlines_do_not_drift() {
        let mut schedule = Schedule::staggered(Offset(10), SECOND, 0);
        assert!(schedule.is_due(Offset(10)));
        schedule.advance();
        schedule.advance();
        assert_eq!(schedule.due(), Offset(2_000_000_010));
        assert_eq!(schedule.wait(Offset(1_000_000_010)), SECOND);
    }

    #[test]
    fn missed_messages_are_left_out() {
        let mut schedule = Schedule::staggered(Offset::ZERO, SECOND, 0);
        schedule.skip_missed(Offset::from_secs(7.5));
        assert_eq!(schedule.due(), Offset::from_secs(8.0));
        schedule.skip_missed(Offset::from_secs(7.6));
        assert_eq!(schedule.due(), Offset::from_secs(8.0));
    }

    #[test]
    fn trials_are_spread_over_the_interval() {
        let mut places: Vec<i64> = (0..100).map(|t| Schedule::staggered(Offset::ZERO, SECOND, t).due().0).collect();
        places.sort_unstable();
        let widest = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(places[99] < 1_000_000_000 && widest < 30_000_000, "widest gap {widest} ns");
    }
}

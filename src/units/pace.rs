//! A pace that slows down: how long to wait before looking again at something that has not happened yet.
//!
//! A look at a fixed rate costs the same for every second of a run of hours, and in virtual time, where waiting is free,
//! it is all that a run costs. A look whose distance grows with the time that is being measured keeps the *relative*
//! error the same and makes the number of looks grow with the logarithm of the time. Pure.

use std::time::Duration;

/// Time between two looks: a share of the time that has passed, between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    least: Duration,
    most: Duration,
    share: u32,
}

impl Pace {
    /// At least `least` between two looks; beyond that `1/share` of the time passed.
    #[must_use]
    pub const fn new(least: Duration, share: u32) -> Self {
        Self { least, most: Duration::MAX, share }
    }

    /// Never longer than `most`.
    #[must_use]
    pub const fn at_most(self, most: Duration) -> Self {
        Self { most, ..self }
    }

    /// How long to wait when `passed` has passed since whatever the looking is about.
    #[must_use]
    pub fn after(self, passed: Duration) -> Duration {
        (passed / self.share.max(1)).clamp(self.least, self.most.max(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace::new(Duration::from_millis(50), 50);

    #[test]
    fn it_is_constant_first_and_then_a_share_of_the_time_passed() {
        let after = |s: f64| PACE.after(Duration::from_secs_f64(s)).as_secs_f64();
        assert_eq!([after(0.0), after(2.5), after(5.0), after(7200.0)], [0.05, 0.05, 0.1, 144.0]);
        assert_eq!(PACE.at_most(Duration::from_secs(10)).after(Duration::from_secs(7200)), Duration::from_secs(10));
    }

    #[test]
    fn two_hours_take_a_few_hundred_looks_and_each_is_within_its_share() {
        let end = Duration::from_secs(7200);
        let (mut now, mut looks) = (Duration::ZERO, 0);
        while now < end {
            let next = now + PACE.after(now);
            assert!(next - now <= Duration::from_millis(50).max(next / 50));
            now = next;
            looks += 1;
        }
        assert!((400..500).contains(&looks), "{looks}");
    }

    #[test]
    fn bounds_that_contradict_each_other_do_not_panic() {
        assert_eq!(PACE.at_most(Duration::ZERO).after(Duration::MAX), Duration::from_millis(50));
        assert_eq!(Pace::new(Duration::ZERO, 0).after(Duration::from_secs(3)), Duration::from_secs(3));
    }
}

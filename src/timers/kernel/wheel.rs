//! The timer wheel of Linux since 4.8: why every timer is late, and by how much.
//!
//! Source: `calc_index` and `calc_wheel_index` in the kernel's `kernel/time/timer.c` (`LVL_CLK_SHIFT` 3, `LVL_SIZE`
//! 64). Left out: deferrable timers, and the edge where the wheel's clock runs one jiffy ahead of a delay that
//! is exactly `63 · 8^l`.

use std::time::Duration;

/// Levels of the wheel (`LVL_DEPTH`): 9 for HZ above 100; the ninth is out of reach of any setting here.
pub const LEVELS: usize = 9;

/// The timer wheel of a kernel that was built for `hz` ticks a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wheel {
    hz: u32,
}

impl Wheel {
    /// A wheel for `CONFIG_HZ`; zero counts as one.
    #[must_use]
    pub fn new(hz: u32) -> Self {
        Self { hz: hz.max(1) }
    }

    /// Ticks a second.
    #[must_use]
    pub fn hz(self) -> u32 {
        self.hz
    }

    /// Seconds of `jiffies` ticks.
    #[must_use]
    pub fn seconds(self, jiffies: u64) -> f64 {
        jiffies as f64 / f64::from(self.hz)
    }

    /// Whole ticks that cover a duration (`msecs_to_jiffies` and `usecs_to_jiffies` round up).
    #[must_use]
    pub fn jiffies(self, duration: Duration) -> u64 {
        let ticks = duration.as_nanos().saturating_mul(u128::from(self.hz)).div_ceil(1_000_000_000);
        u64::try_from(ticks).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }

    /// Milliseconds of `jiffies` ticks, rounded down as the kernel's millisecond clock does.
    #[must_use]
    pub fn millis(self, jiffies: u64) -> u64 {
        jiffies.saturating_mul(1000) / u64::from(self.hz)
    }

    /// The step, in jiffies, to which a timer of `delay` jiffies is rounded: `8^l`, `l` the smallest level for which
    /// `delay < 63 · 8^l`.
    #[must_use]
    pub fn granularity(self, delay: u64) -> u64 {
        let mut step = 1u64;
        for _ in 1..LEVELS {
            if delay < 63 * step {
                break;
            }
            step *= 8;
        }
        step
    }

    /// The jiffy at which a timer of `delay` jiffies fires that is armed at jiffy `now`: always late, never early.
    #[must_use]
    pub fn fires_at(self, now: u64, delay: u64) -> u64 {
        let step = self.granularity(delay);
        ((now + delay) / step + 1) * step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_at_250_hz_are_those_that_were_measured() {
        let wheel = Wheel::new(250);
        let step_s = |ms: u64| wheel.seconds(wheel.granularity(wheel.jiffies(Duration::from_millis(ms))));
        for (ms, expected) in [
            (248, 0.004),
            (252, 0.032),
            (2_012, 0.032),
            (2_016, 0.256),
            (16_124, 0.256),
            (16_128, 2.048),
            (129_020, 2.048),
            (129_024, 16.384),
            (1_032_188, 16.384),
            (1_032_192, 131.072),
            (7_200_000, 131.072),
        ] {
            assert!((step_s(ms) - expected).abs() < 1e-9, "{ms} ms: {} for {expected}", step_s(ms));
        }
    }

    #[test]
    fn a_timer_is_late_by_at_most_its_step() {
        let wheel = Wheel::new(1000);
        for delay in [1u64, 62, 63, 503, 504, 5000, 40_000] {
            for now in 0..600 {
                let late = wheel.fires_at(now, delay) - now - delay;
                assert!(late >= 1 && late <= wheel.granularity(delay));
            }
        }
    }
}

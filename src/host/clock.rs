//! The run's clock: `CLOCK_MONOTONIC`, shared by every process and namespace of a run, counted from one zero.

use crate::units::Offset;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// The one clock of a run. Copy it freely; hand its zero to child processes so that they stamp on the same scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    zero_ns: i64,
}

fn monotonic_ns() -> i64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

fn read_ns(id: ClockId) -> i64 {
    // Both clocks that are read here exist on every Linux, so the call has no way to fail.
    clock_gettime(id).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

impl Clock {
    /// A clock whose zero is now.
    #[must_use]
    pub fn start() -> Self {
        Self { zero_ns: monotonic_ns() }
    }

    /// The clock of another process of the run, by its zero in nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn from_zero(zero_ns: i64) -> Self {
        Self { zero_ns }
    }

    /// The zero in nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn zero_ns(self) -> i64 {
        self.zero_ns
    }

    /// The time now.
    #[must_use]
    pub fn now(self) -> Offset {
        Offset(monotonic_ns() - self.zero_ns)
    }

    /// An absolute monotonic reading (for example of a trace event) on this run's scale.
    #[must_use]
    pub fn offset_of_monotonic(self, monotonic_ns: i64) -> Offset {
        Offset(monotonic_ns - self.zero_ns)
    }

    /// A wall-clock reading in nanoseconds since 1970 (for example of a broker's log) on this run's scale.
    ///
    /// Uses the present difference of the two clocks; a wall clock that steps meanwhile shifts the result.
    #[must_use]
    pub fn offset_of_wall(self, unix_ns: i64) -> Offset {
        let difference = read_ns(ClockId::CLOCK_REALTIME) - monotonic_ns();
        self.offset_of_monotonic(unix_ns - difference)
    }

    /// The wall clock at an instant of this run, in nanoseconds since 1970, by the present difference of the two clocks.
    #[must_use]
    pub fn wall_of(self, at: Offset) -> i64 {
        at.0 + self.zero_ns + read_ns(ClockId::CLOCK_REALTIME) - monotonic_ns()
    }

    /// Blocks the thread until `at`, by an absolute sleep that signals do not shorten.
    pub fn sleep_until(self, at: Offset) {
        let due = at.0 + self.zero_ns;
        let request = nix::sys::time::TimeSpec::new(due.div_euclid(1_000_000_000), due.rem_euclid(1_000_000_000));
        while monotonic_ns() < due {
            let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &request);
        }
    }
}

/// Seconds since 1970, for names and for `run.json` only: nothing is ever measured with it.
#[must_use]
pub fn unix_seconds() -> i64 {
    read_ns(ClockId::CLOCK_REALTIME) / 1_000_000_000
}

//! Timeouts of blocking calls, and of programs that poll instead.

use super::super::span::{Span, Window};
use super::wheel::Wheel;
use std::time::Duration;

/// `SO_RCVTIMEO` and `SO_SNDTIMEO`: from the call, rounded by the wheel; nothing at all on a non-blocking socket.
///
/// Source: `sock_set_timeout` in `net/core/sock.c` and `schedule_timeout` in `kernel/time/timer.c`.
#[must_use]
pub fn socket_timeout(wheel: Wheel, timeout: Duration) -> Window {
    let delay = wheel.jiffies(timeout).max(1);
    let step = wheel.granularity(delay);
    let span = super::sub_jiffy(wheel, delay + 1, delay + step);
    Window { span, last_chance: span, slack_s: wheel.seconds(step + 1) }
}

/// The same for one phase: seconds from a call at jiffy `now` plus `fraction` of a jiffy.
#[must_use]
pub fn socket_timeout_at(wheel: Wheel, timeout: Duration, now: u64, fraction: f64) -> f64 {
    let fires = wheel.fires_at(now, wheel.jiffies(timeout).max(1));
    wheel.seconds(fires - now) - fraction / f64::from(wheel.hz())
}

/// A `poll` or `select` with a deadline (Python's `settimeout`, asynchronous runtimes): precise, up to the slack of
/// 0.1 % and at most 100 ms that the kernel allows itself (`select_estimate_accuracy` in `fs/select.c`).
#[must_use]
pub fn poll_timeout(timeout: Duration) -> Span {
    let seconds = timeout.as_secs_f64();
    Span::new(seconds, seconds + (seconds * 0.001).min(0.1) + 0.001)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_timeouts_are_late_by_a_step_and_polls_are_not() {
        let wheel = Wheel::new(250);
        for (seconds, measured) in [(2, [2.0248, 2.0327]), (10, [10.0609, 10.2544]), (60, [60.2677, 60.972])] {
            let w = socket_timeout(wheel, Duration::from_secs(seconds));
            assert!(measured.iter().all(|&m| w.span.holds(m, 0.002)), "{w:?}");
        }
        assert!(poll_timeout(Duration::from_secs(60)).holds(60.0596, 0.0));
    }
}

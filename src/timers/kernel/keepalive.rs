//! Keepalive: `tcp_keepalive_timer` in the kernel's `net/ipv4/tcp_timer.c`.
//!
//! The timer is not touched by traffic. It fires, compares the time since the last segment received (data *or*
//! acknowledgement) with the idle time, and either re-arms itself for the remainder or sends a probe. Death is decided
//! at a probe tick: with `TCP_USER_TIMEOUT` when at least one probe is out and the silence has reached it
//! (`TCP_KEEPCNT` is then ignored), else when `probes` probes are out. Bytes in the write queue make the timer re-arm
//! without a look: data in flight suspends keepalive.

use super::super::span::{Span, Window};
use super::wheel::Wheel;
use std::time::Duration;

/// `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes before the end.
    pub probes: u32,
}

impl Keepalive {
    /// From seconds, as the socket options take them.
    #[must_use]
    pub const fn from_secs(idle: u64, interval: u64, probes: u32) -> Self {
        Self { idle: Duration::from_secs(idle), interval: Duration::from_secs(interval), probes }
    }
}

/// The keepalive timer of one socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeepaliveTimer {
    wheel: Wheel,
    idle: u64,
    interval: u64,
    probes: u64,
    user_timeout: Option<u64>,
    /// The last segment received was the answer to a keepalive probe: with an interval longer than the idle time the
    /// next probe then follows after the interval.
    answers_only: bool,
    /// It never was: the healthy link is not silent for long enough.
    data_only: bool,
}

impl KeepaliveTimer {
    /// The timer for these options. `answers_only`: nothing but keepalive crosses the link.
    #[must_use]
    pub fn new(wheel: Wheel, options: Keepalive, user_timeout: Option<Duration>, answers_only: bool) -> Self {
        Self {
            wheel,
            idle: wheel.jiffies(options.idle).max(1),
            interval: wheel.jiffies(options.interval).max(1),
            probes: u64::from(options.probes.max(1)),
            user_timeout: user_timeout.filter(|d| !d.is_zero()).map(|d| wheel.jiffies(d)),
            answers_only,
            data_only: false,
        }
    }

    /// The timer of a link on which no probe has been sent: the last segment received is data or an acknowledgement of
    /// data, so the first probe follows after the idle time, whatever the interval.
    #[must_use]
    pub fn after_data(mut self) -> Self {
        (self.answers_only, self.data_only) = (false, true);
        self
    }

    /// The timer of a link on which probes have been sent and other segments have been heard since: where the interval is
    /// longer than the idle time, the first probe follows after anything from one to the other.
    #[must_use]
    pub fn after_probes(mut self) -> Self {
        (self.answers_only, self.data_only) = (false, false);
        self
    }

    /// From the last segment received to the first probe, in jiffies: shortest and longest.
    fn first_probe(&self) -> (u64, u64) {
        let step = self.wheel.granularity(self.idle);
        if self.interval <= self.idle || self.data_only {
            return (self.idle + 1, self.idle + step);
        }
        let after_probe = self.interval + self.wheel.granularity(self.interval);
        if self.answers_only {
            (self.interval + 1, after_probe)
        } else {
            (self.idle + 1, after_probe.max(self.idle + step))
        }
    }

    /// Whether the first unanswered probe follows an answered one after the interval, on the interval's own grid.
    fn on_grid(&self) -> bool {
        self.answers_only && self.interval > self.idle
    }

    /// From the last segment received to the end, over all phases.
    ///
    /// Closed form: after the first probe every further tick is `⌊interval / G⌋ · G + G` later, since each tick lies
    /// on the interval's grid; only the first two steps vary.
    #[must_use]
    pub fn window(&self) -> Window {
        let step = self.wheel.granularity(self.interval);
        let stride = (self.interval / step + 1) * step;
        let (first_lo, first_hi) = self.first_probe();
        let coarse = self.wheel.granularity(self.idle) >= step;
        // The tick after the first probe: any phase when the probe came from a re-armed remainder (fine steps).
        let tick_lo = |k: u64| match self.on_grid() {
            true => first_lo + k * stride,
            false => first_lo + self.interval + 1 + (k - 1) * stride,
        };
        let tick_hi = |k: u64| {
            if self.on_grid() {
                return first_hi + k * stride;
            }
            let fine = self.idle + 1 + self.interval + step;
            let second = if coarse { first_hi + stride } else { first_hi + self.interval + step };
            fine.max(second) + (k - 1) * stride
        };
        let (lo, hi, first, last) = match self.user_timeout {
            None => (tick_lo(self.probes), tick_hi(self.probes), self.probes, self.probes),
            Some(limit) => {
                let mut k = limit.saturating_sub(tick_hi(1)).div_ceil(stride) + 1;
                while tick_hi(k) < limit {
                    k += 1;
                }
                let (lo, first) = (tick_lo(k).max(limit), k);
                while tick_lo(k) < limit {
                    k += 1;
                }
                (lo, tick_hi(k), first, k)
            }
        };
        let spread = first_hi - first_lo + 1;
        let slack = spread + step * last + (last - first) * stride;
        // The last probe that could have been answered went out one tick earlier.
        let chance = |at: u64, k: u64| if k <= 1 { first_lo } else { at.saturating_sub(stride + 1) };
        Window {
            span: super::sub_jiffy(self.wheel, lo, hi),
            last_chance: super::sub_jiffy(self.wheel, chance(lo, first), hi.saturating_sub(self.interval + 1)),
            slack_s: self.wheel.seconds(slack),
        }
    }

    /// From the last segment received to the first probe, over all phases: the longest silence of a healthy link.
    #[must_use]
    pub fn probe_window(&self) -> Span {
        let (lo, hi) = self.first_probe();
        super::sub_jiffy(self.wheel, lo, hi)
    }

    /// The end for one phase: jiffies from the last segment received (at jiffy `last`) to the last probe and to the end.
    ///
    /// `arm` in `[0, 1)` says how much of the idle time the timer had still to run when it was last armed.
    #[must_use]
    pub fn end_at(&self, last: u64, arm: f64) -> (u64, u64) {
        let remainder = ((self.idle as f64 * arm) as u64).clamp(1, self.idle);
        let mut tick = if self.on_grid() {
            self.wheel.fires_at(last, self.interval)
        } else {
            let step = self.wheel.granularity(remainder);
            ((last + self.idle) / step + 1) * step
        };
        let (mut sent, mut probe) = (0u64, tick);
        loop {
            let dead = match self.user_timeout {
                Some(limit) => sent > 0 && tick - last >= limit,
                None => sent >= self.probes,
            };
            if dead {
                return (probe - last, tick - last);
            }
            sent += 1;
            probe = tick;
            tick = self.wheel.fires_at(tick, self.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(idle: u64, interval: u64, probes: u32, ut_ms: Option<u64>) -> KeepaliveTimer {
        KeepaliveTimer::new(
            Wheel::new(250),
            Keepalive::from_secs(idle, interval, probes),
            ut_ms.map(Duration::from_millis),
            true,
        )
    }

    #[test]
    fn the_closed_form_is_the_hull_of_the_simulation() {
        for (idle, interval, probes, ut) in [
            (5, 1, 3, None),
            (60, 10, 9, None),
            (2, 3, 4, None),
            (5, 1, 3, Some(6100)),
            (5, 1, 3, Some(30_000)),
            (60, 10, 9, Some(1000)),
            (1, 1, 1, None),
            (7, 2, 4, Some(9500)),
            (1, 40, 2, None),
            (300, 100, 3, None),
        ] {
            let t = timer(idle, interval, probes, ut);
            let window = t.window();
            let (mut lo, mut hi) = (u64::MAX, 0);
            for last in (1 << 20)..(1 << 20) + 8192 {
                for arm in [0.0, 0.01, 0.1, 0.3, 0.6, 1.0] {
                    let (_, end) = t.end_at(last, arm);
                    lo = lo.min(end);
                    hi = hi.max(end);
                }
            }
            let hull = super::super::sub_jiffy(Wheel::new(250), lo, hi);
            let case = format!("{idle}/{interval}/{probes} ut {ut:?}: {window:?} against {hull:?}");
            assert!(hull.lo_s >= window.span.lo_s - 1e-9 && hull.hi_s <= window.span.hi_s + 1e-9, "{case}");
            assert!(window.span.width_s() - hull.width_s() < 0.3, "too loose: {case}");
        }
    }
}

//! A handshake into a black hole: `tcp_syn_retries`, `TCP_SYNCNT`, `TCP_USER_TIMEOUT`.
//!
//! Source: `tcp_write_timeout` and the tail of `tcp_retransmit_timer` in `net/ipv4/tcp_timer.c`. Since 6.5 the first
//! `tcp_syn_linear_timeouts` repeats come a second apart (131 s in all for 127 s before); since 4.19 a user timeout
//! bounds the handshake to the tick. The kernel's time limit counts from the first SYN.

use super::super::environment::Environment;
use super::super::span::Window;
use super::retransmit::model_timeout;
use super::wheel::Wheel;
use std::time::Duration;

/// The SYN timer of one connecting socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SynTimer {
    wheel: Wheel,
    retries: u32,
    linear: u32,
    cap: u64,
    user_timeout_ms: Option<u64>,
    limit_ms: u64,
}

impl SynTimer {
    /// The timer for a `connect`. `syn_count` is `TCP_SYNCNT`.
    #[must_use]
    pub fn new(env: &Environment, syn_count: Option<u32>, user_timeout: Option<Duration>) -> Self {
        let wheel = env.wheel();
        let retries = syn_count.filter(|&n| n > 0).unwrap_or(env.tcp_syn_retries);
        let cap = env.rto_max_jiffies(None);
        let user_timeout_ms = user_timeout.filter(|d| !d.is_zero()).map(|d| d.as_millis() as u64);
        let modelled = wheel.millis(model_timeout(retries, u64::from(wheel.hz()), cap));
        Self {
            wheel,
            retries,
            linear: env.syn_linear_timeouts(),
            cap,
            user_timeout_ms,
            limit_ms: user_timeout_ms.unwrap_or(modelled),
        }
    }

    /// Jiffies from the first tick, at jiffy `first`, to the end; `head` is the delay of that tick from the SYN.
    fn run(&self, first: u64, head: u64) -> (u64, u64) {
        let (mut tick, mut rto, mut sent) = (first, u64::from(self.wheel.hz()), 0u32);
        let mut slack = 0;
        loop {
            let elapsed = self.wheel.millis(tick - first + head);
            if sent >= self.retries + self.linear || (sent > 0 && elapsed >= self.limit_ms) {
                return (tick - first, slack);
            }
            sent += 1;
            if sent > self.linear {
                rto = (rto * 2).min(self.cap);
            }
            let delay = match self.user_timeout_ms {
                Some(limit) if elapsed >= limit => 1,
                Some(limit) => rto.min(self.wheel.jiffies(Duration::from_millis(limit - elapsed))),
                None => rto,
            };
            slack += self.wheel.granularity(delay);
            tick = self.wheel.fires_at(tick, delay);
        }
    }

    /// From `connect` to the end, over all phases.
    #[must_use]
    pub fn window(&self) -> Window {
        let base = u64::from(self.wheel.hz());
        let step = self.wheel.granularity(base);
        let period = self.wheel.granularity(self.cap.min(base << self.retries.min(10))).max(step);
        let (mut lo, mut hi, mut slack) = (u64::MAX, 0, 0);
        for k in 0..period / step {
            let first = (1 << 40) + k * step;
            let (early, s1) = self.run(first, base + 1);
            let (late, s2) = self.run(first, base + step);
            lo = lo.min(base + 1 + early).min(base + step + late);
            hi = hi.max(base + step + late).max(base + 1 + early);
            slack = slack.max(s1).max(s2);
        }
        let span = super::sub_jiffy(self.wheel, lo, hi);
        Window { span, last_chance: span, slack_s: self.wheel.seconds(slack + step + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::environment::KernelVersion;
    use super::*;

    #[test]
    fn the_kernels_version_decides_between_127_and_131_seconds() {
        let now = SynTimer::new(&Environment::default(), None, None).window();
        assert!(now.span.holds(133.987, 0.0) && now.span.holds(134.042, 0.0), "{now:?}");
        let old = Environment { kernel: KernelVersion { major: 6, minor: 1 }, ..Environment::default() };
        let then = SynTimer::new(&old, None, None).window();
        assert!(then.span.lo_s >= 127.0 && then.span.hi_s < 131.5, "{then:?}");
    }

    #[test]
    fn options_bound_it() {
        let env = Environment::default();
        let count = SynTimer::new(&env, Some(2), None).window();
        assert!(count.span.holds(7.1194, 0.0) && count.span.holds(7.1302, 0.005), "{count:?}");
        for (seconds, measured) in [(5, [5.0083, 5.0327]), (30, [30.0191, 30.0734])] {
            let w = SynTimer::new(&env, None, Some(Duration::from_secs(seconds))).window();
            assert!(measured.iter().all(|&m| w.span.holds(m, 0.005)), "{w:?}");
            assert!(w.span.width_s() <= w.slack_s);
        }
    }
}

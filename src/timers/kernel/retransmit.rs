//! Unacknowledged data: tail loss probe, retransmissions, `tcp_retries2` and `TCP_USER_TIMEOUT`.
//!
//! Source: `tcp_retransmit_timer`, `retransmits_timed_out`, `tcp_model_timeout` and `tcp_clamp_rto_to_user_timeout`
//! in `net/ipv4/tcp_timer.c`; `tcp_schedule_loss_probe` in `net/ipv4/tcp_output.c`. `tcp_retries2` is not a count:
//! it is turned into the time that so many doublings of 200 ms take, measured from the first *retransmission*.

use super::super::environment::Environment;
use super::super::span::{Span, Window};
use super::wheel::Wheel;
use std::time::Duration;

/// The retransmission timer of one socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retransmission {
    wheel: Wheel,
    rto: u64,
    rto_max: u64,
    /// The tail loss probe's delay; none where probes are off.
    probe: Option<u64>,
    user_timeout_ms: Option<u64>,
    limit_ms: u64,
}

/// One simulated end: ticks in jiffies after the first retransmission.
struct End {
    /// The last retransmission before the end.
    last: u64,
    /// The tick that gave up; two of them where a tie is decided by less than a millisecond.
    early: u64,
    late: u64,
    ticks: u64,
}

impl Retransmission {
    /// The timer of a socket with one segment in flight.
    ///
    /// `rto_max` is socket option 44 (6.15 and later), `user_timeout` is `TCP_USER_TIMEOUT`.
    #[must_use]
    pub fn new(env: &Environment, rto_max: Option<Duration>, user_timeout: Option<Duration>) -> Self {
        let wheel = env.wheel();
        let rto_max = env.rto_max_jiffies(rto_max);
        let rto = env.rto_jiffies().min(rto_max);
        // tcp_schedule_loss_probe: 2·srtt + rto_min for a single segment, never later than the RTO itself.
        let probe = (env.tcp_early_retrans == 3 || env.tcp_early_retrans == 4)
            .then(|| wheel.jiffies(env.smoothed_rtt() * 2 + env.tcp_rto_min).min(rto));
        let user_timeout_ms =
            user_timeout.filter(|d| !d.is_zero()).map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1));
        let base = wheel.jiffies(Duration::from_millis(200)).max(1);
        let limit_ms = user_timeout_ms.unwrap_or_else(|| wheel.millis(model_timeout(env.tcp_retries2, base, rto_max)));
        Self { wheel, rto, rto_max, probe, user_timeout_ms, limit_ms }
    }

    /// The delay of the tick after one at `since` jiffies from the first retransmission.
    fn next_delay(&self, rto: u64, since: u64) -> u64 {
        let Some(limit) = self.user_timeout_ms else { return rto };
        let elapsed = self.wheel.millis(since);
        if elapsed >= limit { 1 } else { rto.min(self.wheel.jiffies(Duration::from_millis(limit - elapsed))) }
    }

    /// Steps from the first retransmission at jiffy `first` to the end; `seen` gets each retransmission.
    fn run(&self, first: u64, mut seen: impl FnMut(u64)) -> End {
        let (mut tick, mut rto, mut ticks) = (first, self.rto, 0);
        let mut early = None;
        loop {
            let last = tick;
            rto = (rto * 2).min(self.rto_max);
            tick = self.wheel.fires_at(tick, self.next_delay(rto, tick - first));
            ticks += 1;
            let elapsed = self.wheel.millis(tick - first);
            // The kernel compares milliseconds of two soft interrupts: a tie can fall either way.
            if elapsed + 1 >= self.limit_ms {
                early.get_or_insert(tick - first);
            }
            if elapsed > self.limit_ms {
                return End { last: last - first, early: early.unwrap_or(tick - first), late: tick - first, ticks };
            }
            seen(tick - first);
        }
    }

    /// Runs `f` for each jiffy (modulo the coarsest step of the chain) at which the first retransmission can happen,
    /// with the shortest and the longest delay from the send to it.
    fn each_first(&self, mut f: impl FnMut(u64, u64, u64)) {
        let period = self.wheel.granularity(self.rto_max.min(self.longest_delay()));
        let head = self.probe.unwrap_or(self.rto);
        let (g1, g2) = (self.wheel.granularity(head), self.wheel.granularity(self.rto));
        let period = period.max(g1).max(g2);
        for k in 0..period / g1 {
            let fire = (1 << 40) + k * g1;
            let first = if self.probe.is_some() { self.wheel.fires_at(fire, self.rto) } else { fire };
            f(first, head + 1 + first - fire, head + g1 + first - fire);
        }
    }

    /// No delay of the chain is longer than this.
    fn longest_delay(&self) -> u64 {
        // The last delay is at most twice the one before it, and all before the last fit into the limit.
        (self.wheel.jiffies(Duration::from_millis(self.limit_ms)) + self.rto) * 2
    }

    /// From the send that was lost to the end, over all phases.
    #[must_use]
    pub fn window(&self) -> Window {
        let (mut lo, mut hi, mut chance_lo, mut chance_hi) = (u64::MAX, 0, u64::MAX, 0);
        let (mut least, mut most) = (u64::MAX, 0);
        self.each_first(|first, head_lo, head_hi| {
            let end = self.run(first, |_| ());
            lo = lo.min(head_lo + end.early);
            hi = hi.max(head_hi + end.late);
            chance_lo = chance_lo.min(head_lo + end.last);
            chance_hi = chance_hi.max(head_hi + end.last);
            least = least.min(end.ticks);
            most = most.max(end.ticks);
        });
        Window {
            span: super::sub_jiffy(self.wheel, lo, hi),
            last_chance: super::sub_jiffy(self.wheel, chance_lo, chance_hi),
            slack_s: self.wheel.seconds(self.slack(least, most)),
        }
    }

    /// The sum of the steps of `most` ticks, plus the whole ticks by which phases differ.
    fn slack(&self, least: u64, most: u64) -> u64 {
        let mut slack = 1 + self.wheel.granularity(self.probe.unwrap_or(0)) + self.wheel.granularity(self.rto);
        let mut rto = self.rto;
        for tick in 1..=most {
            rto = (rto * 2).min(self.rto_max);
            slack += self.wheel.granularity(rto);
            if tick > least {
                slack += rto;
            }
        }
        slack
    }

    /// When each copy of the segment leaves, from the send: the probe, then each retransmission until the end; with
    /// whether it does so in every phase (a bimodal setting sends one more in some).
    #[must_use]
    pub fn copies(&self) -> Vec<(Span, bool)> {
        let mut fewest = usize::MAX;
        let mut copies: Vec<(u64, u64)> = Vec::new();
        let mut see = |index: usize, lo: u64, hi: u64| match copies.get_mut(index) {
            Some(c) => *c = (c.0.min(lo), c.1.max(hi)),
            None => copies.push((lo, hi)),
        };
        self.each_first(|first, lo, hi| {
            let mut index = 0;
            if let Some(probe) = self.probe {
                see(index, probe + 1, probe + self.wheel.granularity(probe));
                index += 1;
            }
            see(index, lo, hi);
            self.run(first, |at| {
                index += 1;
                see(index, lo + at, hi + at);
            });
            fewest = fewest.min(index + 1);
        });
        let span = |(lo, hi)| super::sub_jiffy(self.wheel, lo, hi);
        copies.into_iter().enumerate().map(|(i, c)| (span(c), i < fewest)).collect()
    }

    /// The end for one phase: jiffies from a send at jiffy `now` to the last copy and to the end.
    #[must_use]
    pub fn end_at(&self, now: u64) -> (u64, u64) {
        let first = self.first_at(now);
        let end = self.run(first, |_| ());
        (first - now + end.last, first - now + end.early)
    }

    /// The copies for one phase, in jiffies from a send at jiffy `now`.
    #[must_use]
    pub fn copies_at(&self, now: u64) -> Vec<u64> {
        let mut copies: Vec<u64> = self.probe.map(|probe| self.wheel.fires_at(now, probe) - now).into_iter().collect();
        let first = self.first_at(now);
        copies.push(first - now);
        self.run(first, |at| copies.push(first - now + at));
        copies
    }

    fn first_at(&self, now: u64) -> u64 {
        let head = self.wheel.fires_at(now, self.probe.unwrap_or(self.rto));
        if self.probe.is_some() { self.wheel.fires_at(head, self.rto) } else { head }
    }
}

/// `tcp_model_timeout`: the time, in jiffies, that `boundary` doublings of `base` take under a cap.
#[must_use]
pub(crate) fn model_timeout(boundary: u32, base: u64, cap: u64) -> u64 {
    let linear_from = (cap / base).max(1).ilog2();
    let doublings = |n: u32| ((2u64 << n.min(40)) - 1) * base;
    if boundary <= linear_from {
        doublings(boundary)
    } else {
        doublings(linear_from) + u64::from(boundary - linear_from) * cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nominal_limit_is_the_documented_one() {
        assert_eq!(model_timeout(15, 50, 30_000) * 4, 924_600);
        assert_eq!(model_timeout(8, 50, 30_000) * 4, 102_200);
        assert_eq!(model_timeout(0, 50, 30_000) * 4, 200);
    }

    #[test]
    fn every_phase_lies_in_the_window() {
        for (retries2, rtt_ms, ut) in [(5, 0, None), (5, 200, None), (3, 50, None), (15, 0, Some(5000)), (8, 0, None)] {
            let env =
                Environment { tcp_retries2: retries2, rtt: Duration::from_millis(rtt_ms), ..Environment::default() };
            let timer = Retransmission::new(&env, None, ut.map(Duration::from_millis));
            let window = timer.window().span;
            for now in (1u64 << 30)..(1 << 30) + 1024 {
                let (_, end) = timer.end_at(now);
                assert!(window.holds(env.wheel().seconds(end), 0.004), "{window:?}");
            }
        }
    }

    #[test]
    fn a_long_round_trip_can_be_bimodal() {
        let env = Environment {
            tcp_retries2: 5,
            rto: Some(Duration::from_millis(404)),
            srtt: Some(Duration::from_millis(201)),
            ..Environment::default()
        };
        let window = Retransmission::new(&env, None, None).window();
        assert!(window.span.lo_s < 14.0 && window.span.hi_s > 26.0, "{window:?}");
        assert!(window.span.width_s() <= window.slack_s, "{window:?}");
    }
}

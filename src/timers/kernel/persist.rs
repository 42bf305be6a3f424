//! A closed window: the persist timer, alive or cut later.
//!
//! Source: `tcp_probe_timer` and `tcp_clamp_probe0_to_user_timeout` in `net/ipv4/tcp_timer.c`, `tcp_send_probe0` in
//! `net/ipv4/tcp_output.c`, `tcp_ack_probe` in `net/ipv4/tcp_input.c`. There is no limit while probes are answered,
//! but each answered one inflates the back-off; `TCP_USER_TIMEOUT` counts from the first probe and ends the
//! connection *even though the peer is alive*.
//!
//! A peer does not answer every probe either: a segment without data outside the window is answered at most once in
//! `tcp_invalid_ratelimit`, 500 ms (`tcp_oow_rate_limited` in `net/ipv4/tcp_input.c`). With `tcp_retries2` 1 the probes
//! stay closer together than that, and a connection whose peer is alive ends about a second after its window closed.

use super::super::environment::Environment;
use super::super::span::{Span, Window};
use super::wheel::Wheel;
use std::time::Duration;

/// `net.ipv4.tcp_invalid_ratelimit` of the peer, as it is by default.
const INVALID_RATELIMIT: Duration = Duration::from_millis(500);

/// The persist timer of one socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Persist {
    wheel: Wheel,
    base: u64,
    cap: u64,
    retries2: u64,
    user_timeout: Option<u64>,
    round_trip: u64,
    rate_limit: u64,
}

#[derive(Debug, Clone, Copy)]
struct Probing {
    first: u64,
    backoff: u64,
    /// Probes that went unanswered in a row.
    out: u64,
    /// The last probe that was answered.
    answered: Option<u64>,
}

impl Probing {
    fn new(first: u64) -> Self {
        Self { first, backoff: 0, out: 0, answered: None }
    }
}

impl Persist {
    /// The timer of a socket whose peer closed its window. `rto_max` is socket option 44.
    #[must_use]
    pub fn new(env: &Environment, rto_max: Option<Duration>, user_timeout: Option<Duration>) -> Self {
        let wheel = env.wheel();
        Self {
            wheel,
            base: env.rto_jiffies().max(wheel.jiffies(Duration::from_millis(200))),
            cap: env.rto_max_jiffies(rto_max),
            retries2: u64::from(env.tcp_retries2),
            user_timeout: user_timeout.filter(|d| !d.is_zero()).map(|d| wheel.jiffies(d)),
            round_trip: wheel.jiffies(env.srtt.unwrap_or(env.rtt)),
            rate_limit: wheel.jiffies(INVALID_RATELIMIT),
        }
    }

    fn delay(&self, probing: &Probing, now: u64) -> u64 {
        // TCP_RTO_MAX / TCP_RTO_MIN is 600, so the shift stops at 10.
        let when = (self.base << probing.backoff.min(10)).min(self.cap);
        match self.user_timeout {
            Some(limit) => when.min(limit.saturating_sub(now - probing.first).max(2)),
            None => when,
        }
    }

    fn timed_out(&self, probing: &Probing, tick: u64) -> bool {
        self.user_timeout.is_some_and(|limit| tick - probing.first >= limit)
    }

    /// A probe leaves: one more is out, and the back-off grows until `tcp_retries2`.
    fn send(&self, probing: &mut Probing) {
        probing.out += 1;
        if probing.backoff < self.retries2 {
            probing.backoff += 1;
        }
    }

    /// A probe leaves at `tick` and is answered, unless the peer has answered another too short a time ago; the next tick.
    fn probe(&self, probing: &mut Probing, tick: u64) -> u64 {
        self.send(probing);
        let answers = probing.answered.is_none_or(|last| tick - last >= self.rate_limit);
        let from = if answers {
            (probing.out, probing.answered) = (0, Some(tick));
            tick + self.round_trip
        } else {
            tick
        };
        self.wheel.fires_at(from, self.delay(probing, from))
    }

    /// Whether the tick ends the connection.
    fn is_over(&self, probing: &Probing, tick: u64) -> bool {
        self.timed_out(probing, tick) || probing.out >= self.retries2
    }

    /// From a tick at which the path is cut to the end: the last probe and the end.
    fn run_cut(&self, mut tick: u64, mut probing: Probing) -> (u64, u64) {
        let mut last = tick;
        loop {
            if self.is_over(&probing, tick) {
                return (last, tick);
            }
            last = tick;
            self.send(&mut probing);
            tick = self.wheel.fires_at(tick, self.delay(&probing, tick));
        }
    }

    /// The granularity of the longest delay: the number of phases that differ.
    fn phases(&self) -> u64 {
        let longest = (self.base << self.retries2.min(10)).min(self.cap);
        self.wheel.granularity(longest).max(self.wheel.granularity(self.base))
    }

    /// From the window's closing to the end while the peer answers; none where there is none.
    #[must_use]
    pub fn window_alive(&self) -> Option<Window> {
        let step = self.wheel.granularity(self.base);
        let (mut lo, mut hi, mut chance) = (u64::MAX, 0, u64::MAX);
        for k in 0..(self.phases() / step).max(1) {
            let first = (1 << 40) + k * step;
            let end = self.alive_end(first)?;
            lo = lo.min(self.base + 1 + end - first);
            hi = hi.max(self.base + step + end - first);
            chance = chance.min(end - first);
        }
        Some(Window {
            span: super::sub_jiffy(self.wheel, lo, hi),
            last_chance: super::sub_jiffy(self.wheel, chance, hi),
            slack_s: self.wheel.seconds(step + self.wheel.granularity(self.base << self.retries2.min(10)) + 1),
        })
    }

    /// The tick that ends a connection whose peer answers, given the first tick; none: it goes on for ever.
    fn alive_end(&self, first: u64) -> Option<u64> {
        let mut probing = Probing::new(first);
        let mut tick = first;
        while !self.is_over(&probing, tick) {
            tick = self.probe(&mut probing, tick);
            // Every later probe is answered like this one.
            let settled = probing.backoff >= self.retries2.min(10) && probing.out == 0;
            if self.user_timeout.is_none() && settled && tick >= probing.answered.unwrap_or(tick) + self.rate_limit {
                return None;
            }
        }
        Some(tick)
    }

    /// From the cut to the end, when the window had been closed for some time within `closed` (seconds).
    ///
    /// With a user timeout the end can come before the cut; it is then at zero.
    #[must_use]
    pub fn window_cut(&self, closed: Span) -> Window {
        let step = self.wheel.granularity(self.base);
        let (lo_j, hi_j) = (self.ticks(closed.lo_s), self.ticks(closed.hi_s));
        let mut span: Option<(Span, Span)> = None;
        let mut add = |end: f64, last: f64, from: f64, to: f64| {
            let s = Span::new(self.sec(end - to), self.sec(end - from)).not_before_zero();
            let c = Span::new(self.sec(last - to), self.sec(last - from)).not_before_zero();
            span = Some(span.map_or((s, c), |(a, b)| (a.hull(s), b.hull(c))));
        };
        for k in 0..(self.phases() / step).max(1) {
            let first = (1 << 40) + k * step;
            // The window closed between `base + 1` and `base + step` jiffies before the first tick.
            for head in [self.base as f64, (self.base + step) as f64] {
                let zero = first as f64 - head;
                self.each_gap(first, |from, to, end, last| {
                    let from = if from == first { zero } else { from as f64 } - zero;
                    let (from, to) = (from.max(lo_j), (to as f64 - zero).min(hi_j));
                    if from <= to {
                        add(end as f64 - zero, last as f64 - zero, from, to);
                    }
                    to < hi_j
                });
            }
        }
        let (span, last_chance) = span.unwrap_or((Span::point(0.0), Span::point(0.0)));
        let per_probe = self.wheel.granularity((self.base << self.retries2.min(10)).min(self.cap));
        let longest = (self.base << self.retries2.min(10)).min(self.cap);
        let slack = step + per_probe * (self.retries2 + 1) + longest;
        Window { span, last_chance, slack_s: self.wheel.seconds(slack) + closed.width_s() }
    }

    /// Walks the answered probes from the tick `first`; for each gap `(from, to]` in which a cut would leave the tick
    /// `to` as the first unanswered one, `f(from, to, end, last probe)`; stops when `f` says so or the back-off repeats.
    fn each_gap(&self, first: u64, mut f: impl FnMut(u64, u64, u64, u64) -> bool) {
        let mut probing = Probing::new(first);
        let (mut from, mut tick) = (first, first);
        for _ in 0..100_000 {
            let (last, end) = self.run_cut(tick, probing);
            if !f(from, tick, end, last) || self.is_over(&probing, tick) {
                return;
            }
            from = tick + 1;
            tick = self.probe(&mut probing, tick);
        }
    }

    /// The end for one phase, in seconds from the cut: the last probe and the end.
    ///
    /// `closed_at` is the jiffy at which the window closed, `cut_s` how many seconds later the path was cut.
    #[must_use]
    pub fn end_at(&self, closed_at: u64, cut_s: f64) -> (f64, f64) {
        let first = self.wheel.fires_at(closed_at, self.base);
        let cut = closed_at as f64 + self.ticks(cut_s);
        let mut answer = (0.0, 0.0);
        self.each_gap(first, |_, to, end, last| {
            answer = (self.sec(last as f64 - cut).max(0.0), self.sec(end as f64 - cut).max(0.0));
            (to as f64) < cut
        });
        answer
    }

    /// The end for one phase while the peer answers, in jiffies from the window's closing.
    #[must_use]
    pub fn alive_end_at(&self, closed_at: u64) -> Option<u64> {
        Some(self.alive_end(self.wheel.fires_at(closed_at, self.base))? - closed_at)
    }

    /// How long it takes until the back-off no longer grows, in seconds: beyond it the age of the window is all the same.
    #[must_use]
    pub fn settled_s(&self) -> f64 {
        let mut sum = 0;
        for k in 0..=self.retries2.min(11) {
            sum += (self.base << k.min(10)).min(self.cap);
        }
        self.wheel.seconds(sum) * 1.1
    }

    fn ticks(&self, seconds: f64) -> f64 {
        seconds * f64::from(self.wheel.hz())
    }

    fn sec(&self, jiffies: f64) -> f64 {
        jiffies / f64::from(self.wheel.hz())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn persist(retries2: u32, ut: Option<u64>) -> Persist {
        let env = Environment { tcp_retries2: retries2, rtt: Duration::from_millis(10), ..Environment::default() };
        Persist::new(&env, None, ut.map(Duration::from_secs))
    }

    #[test]
    fn a_window_that_closed_a_minute_before_the_cut() {
        for (retries2, measured) in [(5, 35.6), (5, 36.11), (8, 493.84), (15, 1851.67)] {
            let w = persist(retries2, None).window_cut(Span::new(60.0, 61.0));
            assert!(w.span.holds(measured, 0.05), "{retries2}: {measured} in {w:?}");
            assert!(w.span.width_s() <= w.slack_s);
        }
    }

    #[test]
    fn a_live_peer_is_given_up_only_with_a_user_timeout() {
        assert_eq!(persist(15, None).window_alive(), None);
        assert_eq!(persist(2, None).window_alive(), None);
        let ut = Some(Duration::from_secs(5));
        let w = Persist::new(&Environment::default(), None, ut).window_alive().unwrap();
        assert!(w.span.holds(5.33, 0.0), "{w:?}");
    }

    #[test]
    fn probes_that_follow_too_closely_are_not_answered() {
        // 12 of 12 connections whose peer was alive ended so, 1.1 to 1.3 s after their windows had closed.
        let env = Environment { tcp_retries2: 1, rto: Some(Duration::from_millis(216)), ..Environment::default() };
        let window = Persist::new(&env, None, None).window_alive().unwrap();
        assert!(window.span.holds(1.15, 0.1), "{window:?}");
        assert!(window.span.width_s() <= window.slack_s, "{window:?}");
    }

    #[test]
    fn every_phase_lies_in_the_window() {
        for ut in [None, Some(70)] {
            let timer = persist(6, ut);
            let window = timer.window_cut(Span::new(20.0, 30.0)).span;
            for k in 0..2000u64 {
                let (_, end) = timer.end_at((1 << 30) + 7 * k, 20.0 + (k % 100) as f64 / 10.0);
                assert!(window.holds(end, 0.005), "{end} in {window:?}");
            }
        }
    }
}

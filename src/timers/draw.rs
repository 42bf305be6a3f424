//! Phases: all of them at once (a window), or one drawn set (a point).
//!
//! The model's rules are written once; whether they yield a window or an instant depends on what they draw from. The
//! drawing itself (a seed, a generator) belongs to the caller: this room has no randomness.

use super::span::Span;

/// One drawn set of phases; each fraction is in `[0, 1)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phases {
    /// The client's jiffies at the fault, modulo the coarsest wheel level.
    pub client_jiffies: u64,
    /// How far into that jiffy.
    pub client_tick: f64,
    /// The broker's jiffies at the fault.
    pub broker_jiffies: u64,
    /// How far into that jiffy.
    pub broker_tick: f64,
    /// How long ago the last segment arrived, as a fraction of the longest silence.
    pub age: f64,
    /// When the client sends next, as a fraction of its period.
    pub client_send: f64,
    /// When the broker sends next, as a fraction of its period.
    pub broker_send: f64,
    /// Where the client's own periodic check stands.
    pub client_check: f64,
    /// Where the broker's periodic check stands.
    pub broker_check: f64,
    /// Where the reaper's sweep stands.
    pub reaper_check: f64,
    /// How much of its idle time the keepalive timer still had to run when it was last armed.
    pub keepalive_arm: f64,
}

impl Phases {
    /// Draws every phase from `next`, which yields independent uniform numbers in `[0, 1)`.
    pub fn from_uniform(mut next: impl FnMut() -> f64) -> Self {
        let coarsest = 8f64.powi(super::kernel::wheel::LEVELS as i32 - 1);
        Self {
            client_jiffies: (next() * coarsest) as u64,
            client_tick: next(),
            broker_jiffies: (next() * coarsest) as u64,
            broker_tick: next(),
            age: next(),
            client_send: next(),
            broker_send: next(),
            client_check: next(),
            broker_check: next(),
            reaper_check: next(),
            keepalive_arm: next(),
        }
    }
}

/// Which of the phases a rule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Age,
    ClientSend,
    BrokerSend,
    ClientCheck,
    BrokerCheck,
    ReaperCheck,
}

/// Where a kernel timer's wheel stands at a given time after the fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Clock {
    /// Jiffies at the fault, plus the fraction of the running one.
    pub at_fault: f64,
}

impl Clock {
    /// The jiffy counter and the fraction into it, `after_s` from the fault (negative: before).
    pub fn at(self, after_s: f64, hz: u32) -> (u64, f64) {
        // The counter starts high enough that no age reaches back past zero, and at a multiple of every level.
        const BASE: f64 = (1u64 << 40) as f64;
        let now = BASE + self.at_fault + after_s * f64::from(hz);
        (now.floor() as u64, now.fract())
    }
}

/// All phases, or one set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Draw<'a> {
    All,
    At(&'a Phases),
}

impl Draw<'_> {
    /// A quantity that is uniform between two bounds: the whole span, or the drawn point of it.
    pub fn within(self, which: Phase, span: Span) -> Span {
        match self {
            Self::All => span,
            Self::At(p) => {
                let fraction = match which {
                    Phase::Age => p.age,
                    Phase::ClientSend => p.client_send,
                    Phase::BrokerSend => p.broker_send,
                    Phase::ClientCheck => p.client_check,
                    Phase::BrokerCheck => p.broker_check,
                    Phase::ReaperCheck => p.reaper_check,
                };
                Span::point(span.lo_s + fraction * span.width_s())
            }
        }
    }

    /// The client's clock, when phases are drawn.
    pub fn client_clock(self) -> Option<Clock> {
        match self {
            Self::All => None,
            Self::At(p) => Some(Clock { at_fault: p.client_jiffies as f64 + p.client_tick }),
        }
    }

    /// The broker's clock, when phases are drawn.
    pub fn broker_clock(self) -> Option<Clock> {
        match self {
            Self::All => None,
            Self::At(p) => Some(Clock { at_fault: p.broker_jiffies as f64 + p.broker_tick }),
        }
    }

    /// How much of its idle time the keepalive timer had to run when it was last armed.
    pub fn keepalive_arm(self) -> f64 {
        match self {
            Self::All => 1.0,
            Self::At(p) => p.keepalive_arm,
        }
    }
}

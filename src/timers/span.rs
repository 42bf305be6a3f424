//! Windows: the arithmetic of "between … and …", in seconds.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// A closed interval in seconds; `lo_s ≤ hi_s`, both finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The earliest instant over all phases.
    pub lo_s: f64,
    /// The latest.
    pub hi_s: f64,
}

impl Span {
    /// From one bound to the other, in either order.
    #[must_use]
    pub fn new(a_s: f64, b_s: f64) -> Self {
        Self { lo_s: a_s.min(b_s), hi_s: a_s.max(b_s) }
    }

    /// One instant.
    #[must_use]
    pub fn point(at_s: f64) -> Self {
        Self { lo_s: at_s, hi_s: at_s }
    }

    /// The smallest span that holds both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { lo_s: self.lo_s.min(other.lo_s), hi_s: self.hi_s.max(other.hi_s) }
    }

    /// The earlier of two independent instants.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        Self { lo_s: self.lo_s.min(other.lo_s), hi_s: self.hi_s.min(other.hi_s) }
    }

    /// Nothing before the instant zero (the fault): a timer that was due earlier fires at once.
    #[must_use]
    pub fn not_before_zero(self) -> Self {
        Self { lo_s: self.lo_s.max(0.0), hi_s: self.hi_s.max(0.0) }
    }

    /// The width in seconds.
    #[must_use]
    pub fn width_s(self) -> f64 {
        self.hi_s - self.lo_s
    }

    /// Whether `at_s` lies inside, with `slack_s` on either side.
    #[must_use]
    pub fn holds(self, at_s: f64, slack_s: f64) -> bool {
        at_s >= self.lo_s - slack_s && at_s <= self.hi_s + slack_s
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self { lo_s: self.lo_s + rhs.lo_s, hi_s: self.hi_s + rhs.hi_s }
    }
}

impl Sub for Span {
    type Output = Self;
    /// All differences: the earliest minus the latest, up to the latest minus the earliest.
    fn sub(self, rhs: Self) -> Self {
        Self { lo_s: self.lo_s - rhs.hi_s, hi_s: self.hi_s - rhs.lo_s }
    }
}

/// A window of a chain of kernel timers, and how wide it is allowed to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// When the chain ends, from its reference point.
    pub span: Span,
    /// When the last segment that could have been answered was sent: a path that heals before it survives.
    pub last_chance: Span,
    /// The sum of the granularities of the wheel along the chain, plus a further step where phases decide between
    /// two of them (a bimodal setting). The window is never wider.
    pub slack_s: f64,
}

//! Intervals, and how two of them become one of a difference.

use serde::Serialize;

/// An interval. An infinite end is "not reached": the data do not bound it on that side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Serialize for Interval {
    /// `[lo, hi]`, an end that is not reached as `null`: JSON has no infinity.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let end = |value: f64| Some(value).filter(|v| v.is_finite());
        [end(self.lo), end(self.hi)].serialize(serializer)
    }
}

impl Interval {
    /// From `lo` to `hi`.
    #[must_use]
    pub fn new(lo: f64, hi: f64) -> Self {
        Self { lo, hi }
    }

    /// `value` ± `half`.
    #[must_use]
    pub fn around(value: f64, half: f64) -> Self {
        Self { lo: value - half, hi: value + half }
    }

    /// Everything is possible.
    #[must_use]
    pub fn unbounded() -> Self {
        Self { lo: f64::NEG_INFINITY, hi: f64::INFINITY }
    }

    /// The shortest interval that holds both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// Whether a value lies in it.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        self.lo <= value && value <= self.hi
    }
}

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounded {
    /// The estimate; infinite where it is not reached.
    pub value: f64,
    /// Its interval.
    pub interval: Interval,
}

/// The interval of a difference b − a from the two intervals of a and b (the method of variance estimates recovery, Zou
/// and Donner 2008). With score intervals of two shares this is Newcombe's method 10 (1998).
#[must_use]
pub fn difference(a: Bounded, b: Bounded) -> Bounded {
    let value = b.value - a.value;
    if !value.is_finite() {
        return Bounded { value, interval: Interval::unbounded() };
    }
    let below = (b.value - b.interval.lo).hypot(a.interval.hi - a.value);
    let above = (b.interval.hi - b.value).hypot(a.value - a.interval.lo);
    Bounded { value, interval: Interval::new(value - below, value + above) }
}

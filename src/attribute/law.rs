//! What the durations of one timer look like: a limit that ends somewhere in a window, and a look that comes at any phase.

/// The sum of a uniform end within `lo_s` … `hi_s` and a uniform wait of up to `check_s` for the next look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    /// The earliest end of the timer itself.
    pub lo_s: f64,
    /// The latest.
    pub hi_s: f64,
    /// The period of the look; zero where the timer acts by itself.
    pub check_s: f64,
}

impl Law {
    /// The earliest duration.
    pub fn first_s(&self) -> f64 {
        self.lo_s
    }

    /// The latest duration.
    pub fn last_s(&self) -> f64 {
        self.hi_s + self.check_s
    }

    /// Wider by the resolution of the clock that the durations were read from.
    pub fn widened(self, by_s: f64) -> Self {
        Self { lo_s: self.lo_s - by_s, hi_s: self.hi_s + by_s, ..self }
    }

    /// The density at `x`, per second; integrates to one.
    pub fn density(&self, x: f64) -> f64 {
        let (base, check) = (self.hi_s - self.lo_s, self.check_s);
        if x < self.first_s() || x > self.last_s() {
            return 0.0;
        }
        if base <= 0.0 || check <= 0.0 {
            return 1.0 / (base + check);
        }
        // The part of the window from which a wait of at most one period leads to x.
        let reach = x.min(self.hi_s) - (x - check).max(self.lo_s);
        reach.max(0.0) / (base * check)
    }

    /// The share of durations up to `x`.
    pub fn cumulative(&self, x: f64) -> f64 {
        let (base, check) = (self.hi_s - self.lo_s, self.check_s);
        if base <= 0.0 || check <= 0.0 {
            return ((x - self.first_s()) / (base + check)).clamp(0.0, 1.0);
        }
        let ramp = |t: f64| t.max(0.0).powi(2) / 2.0;
        let area =
            ramp(x - self.lo_s) - ramp(x - self.hi_s) - ramp(x - check - self.lo_s) + ramp(x - check - self.hi_s);
        (area / (base * check)).clamp(0.0, 1.0)
    }

    /// The mean of the durations, which is their median too: the law is symmetric.
    pub fn mean_s(&self) -> f64 {
        f64::midpoint(self.lo_s, self.hi_s) + self.check_s / 2.0
    }

    /// The duration by which a share `q` has ended.
    pub fn quantile(&self, q: f64) -> f64 {
        let (mut lo, mut hi) = (self.first_s(), self.last_s());
        if self.hi_s <= self.lo_s || self.check_s <= 0.0 {
            return lo + q * (hi - lo);
        }
        for _ in 0..60 {
            let middle = f64::midpoint(lo, hi);
            if self.cumulative(middle) < q { lo = middle } else { hi = middle }
        }
        f64::midpoint(lo, hi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_with_a_check_is_uniform_from_the_limit_on() {
        let law = Law { lo_s: 1200.0, hi_s: 1200.0, check_s: 120.0 };
        assert_eq!((law.first_s(), law.last_s(), law.mean_s()), (1200.0, 1320.0, 1260.0));
        assert_eq!((law.density(1199.9), law.density(1210.0), law.density(1320.1)), (0.0, 1.0 / 120.0, 0.0));
        assert!((law.cumulative(1230.0) - 0.25).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn the_density_is_the_slope_of_the_share(lo in 0f64..1000.0, base in 0f64..50.0, check in 0f64..200.0, q in 0.02f64..0.98) {
            prop_assume!(base + check > 1.0 && (base == 0.0 || base > 0.5) && (check == 0.0 || check > 0.5));
            let law = Law { lo_s: lo, hi_s: lo + base, check_s: check };
            prop_assert!(law.cumulative(law.first_s()) < 1e-9 && law.cumulative(law.last_s()) > 1.0 - 1e-9);
            let (x, h) = (law.quantile(q), 1e-5);
            let slope = (law.cumulative(x + h) - law.cumulative(x - h)) / (2.0 * h);
            prop_assert!((slope - law.density(x)).abs() < 1e-3 * law.density(x) + 1e-6, "{slope} is not {}", law.density(x));
        }
    }
}

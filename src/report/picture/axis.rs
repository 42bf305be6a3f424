//! The axis of time: from seconds to pixels, and which seconds to write down.

use crate::report::text::whole_seconds;

/// A scale from zero (or, where times differ by orders of magnitude, a logarithmic one).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::report) struct Axis {
    /// Pixels of the first and the last second.
    pub from_px: f64,
    pub to_px: f64,
    lo_s: f64,
    hi_s: f64,
    logarithmic: bool,
}

/// From this ratio between the smallest and the largest time on, a linear axis would press the small ones together.
const TOO_WIDE: f64 = 300.0;

impl Axis {
    /// From zero to `hi_s`; logarithmic where `least_s`, the smallest time that matters, would vanish.
    pub fn new(px: (f64, f64), least_s: Option<f64>, hi_s: f64) -> Self {
        let hi_s = if hi_s.is_finite() && hi_s > 0.0 { hi_s } else { 1.0 };
        let wide = least_s.filter(|least| *least > 0.0 && hi_s / least > TOO_WIDE);
        match wide {
            // A decade's mark at or below it.
            Some(least) => {
                let lo_s = 10f64.powf(least.max(1e-6).log10().floor());
                Self { from_px: px.0, to_px: px.1, lo_s, hi_s, logarithmic: true }
            }
            None => Self { from_px: px.0, to_px: px.1, lo_s: 0.0, hi_s, logarithmic: false },
        }
    }

    /// From a second to another, linear.
    pub fn between(px: (f64, f64), lo_s: f64, hi_s: f64) -> Self {
        let hi_s = if hi_s > lo_s { hi_s } else { lo_s + 1.0 };
        Self { from_px: px.0, to_px: px.1, lo_s, hi_s, logarithmic: false }
    }

    /// The pixel of a time; what lies outside is put on the edge.
    pub fn at(&self, seconds: f64) -> f64 {
        let part = if self.logarithmic {
            (seconds.max(self.lo_s) / self.lo_s).log10() / (self.hi_s / self.lo_s).log10()
        } else {
            (seconds - self.lo_s) / (self.hi_s - self.lo_s)
        };
        self.from_px + part.clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    /// Whether a time lies within.
    pub fn shows(&self, seconds: f64) -> bool {
        seconds >= self.lo_s && seconds <= self.hi_s
    }

    /// What to add to the title of the axis.
    pub fn kind(&self) -> &'static str {
        if self.logarithmic { ", logarithmic" } else { "" }
    }

    /// At most about `most` round times with their texts.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let times = if self.logarithmic { self.decades(most) } else { self.round(most) };
        times.into_iter().map(|s| (s, whole_seconds(s))).collect()
    }

    fn round(&self, most: usize) -> Vec<f64> {
        let raw = (self.hi_s - self.lo_s) / most.max(1) as f64;
        let decade = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * decade).into_iter().find(|s| *s >= raw * 0.999);
        let step = step.unwrap_or(decade * 10.0);
        let first = (self.lo_s / step).ceil() as i64;
        let last = (self.hi_s / step + 1e-9).floor() as i64;
        // Divided where the step is a fraction: 3 × 0.1 is not 0.3, 3 / 10 is.
        let time = |k: i64| if step < 1.0 { k as f64 / (1.0 / step).round() } else { k as f64 * step };
        (first..=last).map(time).collect()
    }

    fn decades(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.lo_s.log10().round() as i32, self.hi_s.log10().floor() as i32);
        let all = |factors: &[f64]| -> Vec<f64> {
            let times = (first..=last).flat_map(|k| factors.iter().map(move |f| f * 10f64.powi(k)));
            times.filter(|s| self.shows(*s)).collect()
        };
        let fine = all(&[1.0, 2.0, 5.0]);
        if fine.len() <= most { fine } else { all(&[1.0]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, most: usize) -> Vec<String> {
        axis.ticks(most).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(texts(&Axis::new((0.0, 100.0), Some(5.0), 55.0), 8), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(texts(&Axis::new((0.0, 100.0), None, 0.6), 4), ["0", "0.200", "0.400", "0.600"]);
        assert_eq!(texts(&Axis::new((0.0, 100.0), None, 0.0), 2), ["0", "0.500", "1"]);
        assert_eq!(texts(&Axis::between((0.0, 100.0), -4.0, 21.0), 5), ["0", "5", "10", "15", "20"]);
    }

    #[test]
    fn a_wide_range_is_logarithmic_and_its_ends_are_held() {
        let axis = Axis::new((0.0, 300.0), Some(3.0), 7_200.0);
        assert_eq!(texts(&axis, 12), ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000", "5000"]);
        assert_eq!(texts(&axis, 5), ["1", "10", "100", "1000"]);
        assert_eq!((axis.at(0.0), axis.at(1.0), axis.at(7_200.0), axis.at(1e9)), (0.0, 0.0, 300.0, 300.0));
    }
}

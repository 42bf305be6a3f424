//! Events counted in the field: how strong is "three expected, none seen"?

use super::words::{interval_times, p_value};
use crate::stats::{
    ALPHA, AgainstExpected, Events, Interval, RateRatio, against_expected, poisson_at_most, rate_ratio,
};
use serde::Serialize;

/// What two counts say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Field {
    /// Events and exposure before the change, or without it.
    pub before: Events,
    /// After it, or with it.
    pub after: Events,
    /// How many events the exposure after the change would have seen at the rate before it.
    pub expected: f64,
    /// If that rate is known and not itself a count.
    pub if_known: AgainstExpected,
    /// If it was counted, as it usually is.
    pub if_counted: RateRatio,
    /// The exposure that each side takes for such a change, if it ends the events altogether, to be told from none with a
    /// probability of at least 80 % in the exact test at 5 %; `None` without an event before.
    pub needed_each: Option<f64>,
    /// The exposure after the change that takes to say with 95 % that the rate is below a tenth of what it was, if no event
    /// comes.
    pub needed_for_a_tenth: Option<f64>,
}

impl Field {
    /// What the counts say.
    #[must_use]
    pub fn new(before: Events, after: Events) -> Self {
        let rate = before.rate();
        let expected = rate * after.exposure;
        Self {
            before,
            after,
            expected,
            if_known: against_expected(after.k, expected, ALPHA),
            if_counted: rate_ratio(before, after, ALPHA),
            needed_each: (before.k > 0).then(|| events_to_tell_apart() / rate),
            // e^(-0.1·rate·exposure) = 5 %.
            needed_for_a_tenth: (before.k > 0).then(|| -ALPHA.ln() / (0.1 * rate)),
        }
    }

    /// For the terminal; ends with a line feed.
    #[must_use]
    pub fn text(&self) -> String {
        let (b, a) = (self.before, self.after);
        let mut lines = vec![format!(
            "{} in {:.0} before, {} in {:.0} after; at the rate before, {:.3} were to be expected.",
            b.k, b.exposure, a.k, a.exposure, self.expected
        )];
        if b.k > 0 {
            lines.push(format!(
                "If that rate were known exactly: so few or fewer come by chance with p = {}; the rate after is {} the \
                 rate before (95 %, exact).",
                p_value(self.if_known.p_so_few),
                interval_times(self.if_known.ratio)
            ));
        }
        lines.push(format!(
            "As it is a count itself: p = {} (exact, conditional on the sum); the rate after is {} the rate before.",
            p_value(self.if_counted.p),
            interval_times(self.if_counted.interval)
        ));
        let Interval { lo, hi } = self.if_counted.interval;
        lines.push(match (lo > 1.0, hi < 1.0) {
            (true, _) => "There are more events than before, and that is no chance.".to_string(),
            (_, true) => "There are fewer events than before, and that is no chance.".to_string(),
            _ => "The counts allow fewer events, as many and more: by themselves they show nothing.".to_string(),
        });
        if let (Some(each), Some(tenth)) = (self.needed_each, self.needed_for_a_tenth) {
            lines.push(format!(
                "To show a change that ends the events altogether (80 % power, 5 % level): about {each:.0} on each side. To \
                 say that the rate is below a tenth of what it was, with none seen: {tenth:.0} after the change."
            ));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// How many events the first side must expect, so that with equal exposures and none on the second side the exact test
/// finds the difference with a probability of 80 %: it takes six events (2·½⁶ = 3 %), and a Poisson mean of which at
/// least six come in 80 % of cases.
fn events_to_tell_apart() -> f64 {
    let least = (1..64).find(|k| 2.0 * 0.5_f64.powi(*k) <= ALPHA).unwrap_or(6);
    let enough = |mean: f64| 1.0 - poisson_at_most(u64::try_from(least).unwrap_or(6) - 1, mean) >= 0.8;
    let (mut lo, mut hi) = (0.0, 100.0);
    for _ in 0..60 {
        let middle = f64::midpoint(lo, hi);
        if enough(middle) { hi = middle } else { lo = middle }
    }
    hi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_comparison_is_weak_and_it_is_said_what_would_be_strong() {
        let field = Field::new(Events { k: 3, exposure: 2e5 }, Events { k: 0, exposure: 2e5 });
        let text = field.text();
        for words in ["p = 0.050", "p = 0.25", "up to 1.23 times", "up to 2.42 times", "show nothing"] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        // At least six of a Poisson mean of 7.906 come in 80 % of cases.
        assert!((field.needed_each.unwrap() - 7.906 / 3.0 * 2e5).abs() < 200.0, "{field:?}");
        let never = Field::new(Events { k: 0, exposure: 1e3 }, Events { k: 2, exposure: 1e3 });
        assert!(never.needed_each.is_none() && never.text().contains("p = 0.50"), "{}", never.text());
    }
}

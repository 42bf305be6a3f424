//! Times to an event, some of them censored.

use serde::Serialize;

/// One trial's time to an event, or how long it was watched in vain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Seconds to the event, or to the end of the watch.
    pub seconds: f64,
    /// Whether the event happened.
    pub happened: bool,
}

impl Observation {
    /// The event happened after so many seconds.
    #[must_use]
    pub fn event(seconds: f64) -> Self {
        Self { seconds, happened: true }
    }

    /// Watched for so many seconds in vain.
    #[must_use]
    pub fn censored(seconds: f64) -> Self {
        Self { seconds, happened: false }
    }
}

/// A mean that can't lose its sample size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mean {
    /// The arithmetic mean, in seconds.
    pub value_s: f64,
    /// How many values it is taken over.
    pub n: usize,
}

/// The distribution in five numbers. A quantile of `None` with `n` above zero is "not reached": too many are censored.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// Trials, events and censored together.
    pub n: usize,
    /// Events.
    pub events: usize,
    /// The smallest time to an event.
    pub min_s: Option<f64>,
    /// The product-limit median.
    pub median_s: Option<f64>,
    /// The product-limit 90th percentile.
    pub p90_s: Option<f64>,
    /// The product-limit 99th percentile.
    pub p99_s: Option<f64>,
    /// The largest time; not reached as soon as one trial is censored.
    pub max_s: Option<f64>,
    /// The mean; only where nothing is censored, because a mean over the detected alone flatters.
    pub mean: Option<Mean>,
}

/// One point of a product-limit curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Which of the observations.
    pub index: usize,
    /// Its time.
    pub seconds: f64,
    /// Whether the event happened, so that the curve rises here; else it is censored here.
    pub happened: bool,
    /// The share that has had the event by then, 1 − S(t), from here on.
    pub share: f64,
}

/// The product-limit estimator (Kaplan and Meier 1958): S(t) = Π over event times ≤ t of (1 − dᵢ/nᵢ), one step an
/// observation in order of time. At equal times events come before censorings, as is usual. What is not a number is
/// left out.
#[must_use]
pub fn curve(observations: &[Observation]) -> Vec<Step> {
    let mut sorted: Vec<(usize, Observation)> =
        observations.iter().copied().enumerate().filter(|(_, o)| !o.seconds.is_nan()).collect();
    sorted.sort_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds).then(b.happened.cmp(&a.happened)));
    let n = sorted.len();
    let mut surviving = 1.0_f64;
    let step = |(before, (index, o)): (usize, (usize, Observation))| {
        if o.happened {
            surviving *= 1.0 - 1.0 / (n - before) as f64;
        }
        Step { index, seconds: o.seconds, happened: o.happened, share: 1.0 - surviving }
    };
    sorted.into_iter().enumerate().map(step).collect()
}

/// The smallest time by which at least a share `q` of all trials had the event: the first t of the product-limit
/// [`curve`] with 1 − S(t) ≥ q. `None` where the curve never gets there.
///
/// Without censoring this is the order statistic ⌈q·n⌉.
#[must_use]
pub fn quantile(observations: &[Observation], q: f64) -> Option<f64> {
    // The guard absorbs the rounding of up to some 10⁴ factors.
    curve(observations).into_iter().find(|s| s.happened && s.share >= q - 1e-9).map(|s| s.seconds)
}

/// The order statistic ⌈q·n⌉ of values none of which is censored; `None` of nothing.
#[must_use]
pub fn plain_quantile(values: &[f64], q: f64) -> Option<f64> {
    let events: Vec<Observation> = values.iter().map(|v| Observation::event(*v)).collect();
    quantile(&events, q)
}

/// The mean of some values; `None` of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Mean> {
    let n = values.len();
    (n > 0).then(|| Mean { value_s: values.iter().sum::<f64>() / n as f64, n })
}

/// The distribution of times to an event.
#[must_use]
pub fn spread(observations: &[Observation]) -> Spread {
    let mut events: Vec<f64> = observations.iter().filter(|o| o.happened).map(|o| o.seconds).collect();
    events.sort_by(f64::total_cmp);
    let complete = events.len() == observations.len();
    Spread {
        n: observations.len(),
        events: events.len(),
        min_s: events.first().copied(),
        median_s: quantile(observations, 0.5),
        p90_s: quantile(observations, 0.9),
        p99_s: quantile(observations, 0.99),
        max_s: events.last().copied().filter(|_| complete),
        mean: if complete { mean(&events) } else { None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(values: &[f64]) -> Vec<Observation> {
        values.iter().map(|v| Observation::event(*v)).collect()
    }

    #[test]
    fn without_censoring_quantiles_are_order_statistics() {
        let ten = events(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(quantile(&ten, 0.5), Some(5.0));
        assert_eq!(quantile(&ten, 0.9), Some(9.0));
        assert_eq!(quantile(&ten, 0.99), Some(10.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_textbook_curve() {
        // 6-MP arm of Freireich et al. 1963, the usual example: the product-limit median is 23 weeks.
        let with = [(6, 1), (6, 1), (6, 1), (6, 0), (7, 1), (9, 0), (10, 1), (10, 0), (11, 0), (13, 1), (16, 1)];
        let rest = [(17, 0), (19, 0), (20, 0), (22, 1), (23, 1), (25, 0), (32, 0), (32, 0), (34, 0), (35, 0)];
        let all: Vec<Observation> =
            with.iter().chain(&rest).map(|(t, e)| Observation { seconds: f64::from(*t), happened: *e == 1 }).collect();
        assert_eq!(quantile(&all, 0.5), Some(23.0));
        assert_eq!(quantile(&all, 0.9), None);
    }

    #[test]
    fn the_curve_rises_at_events_only_and_stays_below_one_with_a_censored_end() {
        let four =
            [Observation::censored(9.0), Observation::event(2.0), Observation::event(1.0), Observation::event(2.0)];
        let steps = curve(&four);
        assert_eq!(steps.iter().map(|s| s.index).collect::<Vec<_>>(), [2, 1, 3, 0]);
        let shares: Vec<f64> = steps.iter().map(|s| (s.share * 100.0).round()).collect();
        assert_eq!(shares, [25.0, 50.0, 75.0, 75.0]);
        assert_eq!(curve(&[Observation::event(f64::NAN)]), []);
    }

    #[test]
    fn a_censored_trial_takes_the_maximum_and_the_mean_away() {
        let mut some = events(&[1.0, 2.0, 3.0]);
        some.push(Observation::censored(100.0));
        let s = spread(&some);
        assert_eq!((s.n, s.events, s.min_s, s.median_s, s.p99_s, s.max_s), (4, 3, Some(1.0), Some(2.0), None, None));
        assert_eq!(s.mean, None);
        assert_eq!(spread(&events(&[1.0, 3.0])).mean, Some(Mean { value_s: 2.0, n: 2 }));
        assert_eq!(spread(&[]), Spread::default());
    }

    proptest! {
        #[test]
        fn the_quantile_of_complete_data_is_the_rank(mut values in prop::collection::vec(0u32..1000, 1..300), q in 0.01f64..1.0) {
            let observed: Vec<Observation> = values.iter().map(|v| Observation::event(f64::from(*v))).collect();
            values.sort_unstable();
            let rank = ((q * values.len() as f64 - 1e-6).ceil() as usize).clamp(1, values.len());
            let expected = f64::from(values[rank - 1]);
            prop_assert_eq!(quantile(&observed, q), Some(expected));
        }

        #[test]
        fn censoring_never_makes_a_quantile_earlier(values in prop::collection::vec((0u32..1000, any::<bool>()), 1..100)) {
            let full: Vec<Observation> = values.iter().map(|(v, _)| Observation::event(f64::from(*v))).collect();
            let some: Vec<Observation> =
                values.iter().map(|(v, e)| Observation { seconds: f64::from(*v), happened: *e }).collect();
            let censored = quantile(&some, 0.5).unwrap_or(f64::INFINITY);
            prop_assert!(censored >= quantile(&full, 0.5).unwrap());
        }
    }
}

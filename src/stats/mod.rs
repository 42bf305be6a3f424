//! Numbers over many trials: curves and quantiles that honour censoring, intervals, exact tests, differences, HDR histograms.
//!
//! Pure. A trial that was not detected within its horizon is censored: it counts in every denominator and in every
//! quantile, and in no plain mean; the mean that is compared is the restricted one, to which it contributes the whole limit.
//! No tail is ever trimmed. A mean is never alone: it carries its `n`. What is left out: where the numbers come from, and
//! attribution. The numbers of the tests are those of lifelines, SciPy and statsmodels (`tests/stats/reference.py`).

mod counts;
mod effect;
mod hlog;
mod interval;
mod kaplan;
mod kolmogorov;
mod logrank;
mod multiple;
mod runs;
mod share;
mod special;
mod survival;

pub use counts::{
    AgainstExpected, Events, RateRatio, against_expected, binomial_test, fisher, poisson_interval, rate_ratio,
};
pub use effect::{ALPHA, Direction, Effect, LEAST, POWER, Standing, needed_for, needed_to_bound};
pub use hlog::{HlogEntry, HlogError, merge_hlogs, read_hlog, tag_of, write_hlog};
pub use interval::{Bounded, Interval, difference};
pub use kaplan::{Kaplan, Point, RestrictedMean};
pub use kolmogorov::{KsTest, ks_p_value, ks_uniform};
pub use logrank::{LogRank, log_rank};
pub use multiple::holm;
pub use runs::{between_sets, over_runs};
pub use share::{Share, clopper_pearson, wilson};
pub use special::{normal_quantile, poisson_at_most, student_quantile};
pub use survival::{Mean, Observation, Spread, Step, curve, mean, plain_quantile, quantile, spread};

#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod reference_tests;

//! Numbers over many trials: quantiles that honour censoring, intervals for shares, a test of fit, HDR histograms.
//!
//! Pure. A trial that was not detected within its horizon is censored: it counts in every denominator and in every
//! quantile, and in no mean. A mean is never alone: it carries its `n`. What is left out: where the numbers come from,
//! and confidence bands, tests between arms and attribution.

mod hlog;
mod kolmogorov;
mod share;
mod survival;

pub use hlog::{HlogEntry, HlogError, read_hlog, tag_of, write_hlog};
pub use kolmogorov::{KsTest, ks_p_value, ks_uniform};
pub use share::{Share, clopper_pearson, wilson};
pub use survival::{Mean, Observation, Spread, Step, curve, mean, plain_quantile, quantile, spread};

//! Gates that ask how sure: one-sided intervals against bounds, and against another arm or a stored run.

use super::gate::{GateSample, Verdict};
use crate::scenario::{Gate, Measure, NoWorse};
use crate::stats::{
    Effect, Events, Interval, Kaplan, Observation, POWER, clopper_pearson, needed_for, needed_to_bound,
    normal_quantile, poisson_interval,
};

/// The level of a comparison that names none.
const LEVEL: f64 = 0.95;

/// What an interval says of a gate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assured {
    pub verdict: Verdict,
    /// Of the value, or of the difference.
    pub interval: Option<Interval>,
    /// Trials (on each side) that would decide.
    pub needed: Option<usize>,
    /// Why it is inconclusive, where the numbers don't say so themselves.
    pub why: String,
}

impl Assured {
    fn open(why: &str) -> Self {
        Self { verdict: Verdict::Inconclusive, interval: None, needed: None, why: why.to_string() }
    }
}

/// A bound that is to hold with confidence. Each unknown trial is taken at its best and at its worst.
pub(super) fn bounded(gate: &Gate, level: f64, sample: &GateSample, value: Option<f64>) -> Assured {
    let Some(interval) = interval(&gate.measure, sample, 2.0 * (1.0 - level)) else {
        return Assured::open("too few trials count for an interval");
    };
    let beyond = |min: Option<f64>, max: Option<f64>| {
        max.is_some_and(|max| interval.lo > max) || min.is_some_and(|min| interval.hi < min)
    };
    let within = gate.max.is_none_or(|max| interval.hi <= max) && gate.min.is_none_or(|min| interval.lo >= min);
    let verdict = match (beyond(gate.min, gate.max), within) {
        (true, _) => Verdict::Failed,
        (false, true) => Verdict::Held,
        (false, false) => Verdict::Inconclusive,
    };
    let open = verdict == Verdict::Inconclusive;
    let needed = value.filter(|_| open).and_then(|value| needed(gate, level, sample, interval, value));
    Assured { verdict, interval: Some(interval), needed, why: String::new() }
}

/// The interval of what a gate measures; `None` of too little.
fn interval(measure: &Measure, sample: &GateSample, alpha: f64) -> Option<Interval> {
    let (n, unknown) = (sample.known.len() + sample.beyond, sample.unknown);
    match measure {
        Measure::Quantile(q) if n > 0 => {
            let with = |unknown: Observation| {
                let mut all = sample.observations();
                all.resize(all.len() + sample.unknown, unknown);
                Kaplan::of(&all).quantile_interval(*q, alpha)
            };
            let (best, worst) = (with(Observation::event(0.0)), with(Observation::censored(f64::MAX)));
            Some(Interval::new(best.lo, worst.hi))
        }
        Measure::Fraction(_) | Measure::BeforeReaper if n > 0 => {
            let hits = sample.known.iter().filter(|v| **v > 0.5).count();
            let (lo, _) = clopper_pearson(hits, n + unknown, alpha);
            let (_, hi) = clopper_pearson(hits + unknown, n + unknown, alpha);
            Some(Interval::new(lo, hi))
        }
        Measure::Mean => {
            let with = |unknown: Observation| -> Option<Interval> {
                let mut all = sample.times();
                all.resize(all.len() + sample.unknown, unknown);
                let curve = Kaplan::of(&all);
                Some(Effect::of_means(&curve, &curve, sample.limit_s(&curve), alpha)?.a.interval)
            };
            let (best, worst) = (with(Observation::event(0.0))?, with(Observation::censored(sample.longest_s()))?);
            Some(Interval::new(best.lo, worst.hi))
        }
        Measure::Rate if sample.exposure_h > 0.0 => {
            let (least, most) = (sample.events, sample.events + unknown as u64);
            let lo = poisson_interval(least, alpha).lo / sample.exposure_h;
            Some(Interval::new(lo, poisson_interval(most, alpha).hi / sample.exposure_h))
        }
        _ => None,
    }
}

/// Trials that would part a value from the bound it is near, if they scatter as these do.
fn needed(gate: &Gate, level: f64, sample: &GateSample, interval: Interval, value: f64) -> Option<usize> {
    let alpha = 2.0 * (1.0 - level);
    let n = (sample.known.len() + sample.beyond).max(sample.times.len()).max(sample.exposed) as f64;
    let distance =
        [gate.min, gate.max].into_iter().flatten().map(|bound| (value - bound).abs()).fold(f64::INFINITY, f64::min);
    // An interval that has no end on the side of the bound needs one first.
    if let (Measure::Quantile(q), false) = (&gate.measure, interval.hi.is_finite()) {
        return needed_to_bound(*q, 1.0 - level).filter(|needed| *needed as f64 > n);
    }
    if let (Measure::Rate, Some(max), 0) = (&gate.measure, gate.max, sample.events) {
        // Nothing was seen: the upper limit falls with the exposure alone.
        return Some((n * interval.hi / max).ceil() as usize).filter(|_| interval.hi.is_finite() && max > 0.0);
    }
    let half = (interval.hi - interval.lo) / 2.0;
    let unit = (half / normal_quantile(level)).powi(2) * n;
    needed_for(unit, distance, alpha, POWER).filter(|needed| *needed as f64 > n)
}

/// A sample held to another one.
pub(super) fn no_worse(gate: &Gate, rule: &NoWorse, own: &GateSample, other: &GateSample) -> Assured {
    let level = gate.confidence.unwrap_or(LEVEL);
    let alpha = 2.0 * (1.0 - level);
    let Some(effect) = effect(&gate.measure, other, own, alpha) else {
        return Assured::open("too few trials count on one side, or on both");
    };
    let margin = if rule.relative { rule.margin * effect.a.value.abs() } else { rule.margin };
    let Interval { lo, hi } = effect.difference.interval;
    // How much worse it is, at the least and at the most.
    let more_is_better = matches!(gate.measure, Measure::Fraction(_) | Measure::BeforeReaper);
    let (least, most) = if more_is_better { (-hi, -lo) } else { (lo, hi) };
    let verdict = if most <= margin {
        Verdict::Held
    } else if least > 0.0 {
        Verdict::Failed
    } else {
        Verdict::Inconclusive
    };
    let needed = (verdict == Verdict::Inconclusive).then(|| effect.needed(margin, alpha, POWER)).flatten();
    Assured { verdict, interval: Some(effect.difference.interval), needed, why: String::new() }
}

fn effect(measure: &Measure, a: &GateSample, b: &GateSample, alpha: f64) -> Option<Effect> {
    match measure {
        Measure::Quantile(q) => {
            Effect::of_quantiles(&Kaplan::of(&a.observations()), &Kaplan::of(&b.observations()), *q, alpha)
        }
        Measure::Mean => {
            let (ka, kb) = (Kaplan::of(&a.times()), Kaplan::of(&b.times()));
            Effect::of_means(&ka, &kb, a.limit_s(&ka).min(b.limit_s(&kb)).max(shorter(&ka, &kb)), alpha)
        }
        Measure::Fraction(_) | Measure::BeforeReaper => {
            let of = |s: &GateSample| (s.known.iter().filter(|v| **v > 0.5).count(), s.known.len());
            Effect::of_shares(of(a), of(b), alpha)
        }
        Measure::Rate => {
            let of = |s: &GateSample| Events { k: s.events, exposure: s.exposure_h };
            Effect::of_rates(of(a), of(b), (a.exposed, b.exposed), alpha)
        }
        Measure::Count(_) | Measure::Uniform { .. } => None,
    }
}

/// Of two complete samples the longest time bounds both; a censored one bounds them where it ends.
fn shorter(a: &Kaplan, b: &Kaplan) -> f64 {
    a.limit_s().min(b.limit_s()).min(a.last_s().max(b.last_s()))
}

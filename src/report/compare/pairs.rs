//! Which arm against which, under which fault, and the numbers of each pair.

use super::lines::{MetricLine, PairLine, SideLine};
use super::{ReaperRule, Request, differences, price, race};
use crate::report::plain;
use crate::scenario::Arm;
use crate::stats::{ALPHA, Bounded, Effect, POWER, between_sets, log_rank, needed_to_bound, over_runs};
use crate::store::RunSamples;
use crate::verdict::gate::too_void;
use crate::verdict::metric::{Curves, Metric};
use crate::verdict::sample::Sample;

/// The samples of one side of a pair, run by run.
pub(super) struct Side<'r> {
    arm: String,
    /// The run's place in its side, and the sample.
    samples: Vec<(usize, &'r Sample)>,
    run: &'r RunSamples,
}

impl<'r> Side<'r> {
    /// The curves of each run, where there are several.
    fn each(&self) -> Vec<(usize, Curves<'r>)> {
        let several = self.samples.len() > 1;
        self.samples.iter().filter(|_| several).map(|(i, s)| (*i, Curves::of(s))).collect()
    }

    /// What was asked of the arm.
    fn settings(&self) -> Option<&'r Arm> {
        self.run.head.plan.scenario.arms.iter().find(|arm| arm.name == self.arm)
    }
}

/// A metric of a pair before the correction.
pub(super) struct Raw {
    pub metric: Metric,
    pub effect: Effect,
    pub margin: f64,
    pub judged: bool,
    pub decides: bool,
}

/// The arms to compare.
pub(super) fn arms(a: &[RunSamples], b: &[RunSamples], within: bool, request: &Request) -> Vec<(String, String)> {
    if !request.arms.is_empty() {
        return request.arms.clone();
    }
    let names = |runs: &[RunSamples]| -> Vec<String> {
        let scenario = runs.first().map(|r| &r.head.plan.scenario);
        scenario.into_iter().flat_map(|s| s.arms.iter().map(|arm| arm.name.clone())).collect()
    };
    let (na, nb) = (names(a), names(b));
    if within {
        let first = na.first().cloned().unwrap_or_default();
        return na.into_iter().skip(1).map(|other| (first.clone(), other)).collect();
    }
    if let ([one], [two]) = (&na[..], &nb[..]) {
        return vec![(one.clone(), two.clone())];
    }
    na.into_iter().filter(|name| nb.contains(name)).map(|name| (name.clone(), name)).collect()
}

/// Faults that both sides have, in the order of the first.
pub(super) fn faults(a: &[RunSamples], b: &[RunSamples]) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    for cell in a.iter().flat_map(|r| &r.cells) {
        let key = (cell.fault.clone(), cell.scope.clone());
        let common = b.iter().flat_map(|r| &r.cells).any(|c| (&c.fault, &c.scope) == (&key.0, &key.1));
        if common && !list.contains(&key) {
            list.push(key);
        }
    }
    list
}

pub(super) fn side<'r>(runs: &'r [RunSamples], arm: &str, fault: &str, scope: &str) -> Option<Side<'r>> {
    let mut samples = Vec::new();
    let mut first = None;
    for (index, run) in runs.iter().enumerate() {
        let cell = run.cells.iter().find(|c| c.arm == arm && c.fault == fault && c.scope == scope);
        if let Some(cell) = cell {
            first = first.or(Some(run));
            samples.push((index, &cell.sample));
        }
    }
    Some(Side { arm: arm.to_string(), samples, run: first? })
}

pub(super) fn pair(
    a: &Side<'_>,
    b: &Side<'_>,
    within: bool,
    (fault, scope): (&str, &str),
    request: &Request,
) -> (PairLine, Vec<Raw>) {
    let pooled = |side: &Side<'_>| {
        let mut all = Sample::default();
        side.samples.iter().for_each(|(_, s)| all.append(s));
        all
    };
    let (pa, pb) = (pooled(a), pooled(b));
    let (ca, cb) = (Curves::of(&pa), Curves::of(&pb));
    let (ea, eb) = (a.each(), b.each());
    let primary = if !pa.stuck.is_empty() && !pb.stuck.is_empty() { Metric::StuckMean } else { Metric::TtdMean };
    // Without a cut nothing decides: more false alarms fail the comparison, but few hours show no absence of them.
    let control = pa.certified == 0 && pb.certified == 0;
    let mut raw = Vec::new();
    for metric in Metric::ALL {
        let Some(effect) = metric.effect(&ca, &cb, ALPHA) else { continue };
        let effect = effect.with_runs(over(metric, &ea, &eb, within));
        let margin = request.margins.iter().find(|(m, _)| *m == metric).map_or(metric.margin(), |(_, m)| *m);
        let decides = (metric == primary && !control) || request.gates.contains(&metric);
        // Quantiles say where a difference lies; the mean over the whole curve says whether there is one.
        let judged = decides || !(metric.is_price() || metric.quantile().is_some());
        raw.push(Raw { metric, margin: margin.of(effect.a.value), effect, judged, decides });
    }
    let rule = request.reaper.or_else(|| {
        let of = a.run.head.plan.scenario.reaper.as_ref()?;
        Some(ReaperRule { timeout_s: of.timeout.as_secs_f64(), interval_s: of.interval.as_secs_f64() })
    });
    let line = |side: &Side<'_>, sample: &Sample| SideLine {
        arm: side.arm.clone(),
        runs: side.samples.len(),
        trials: sample.trials,
        void: sample.void,
        certified: sample.certified,
        healthy_h: sample.healthy_h,
        price: price::price(&side.run.head, &side.arm),
        race: race::race(sample, rule),
    };
    let changed = a.settings().zip(b.settings()).map(|(one, two)| differences::settings(one, two)).unwrap_or_default();
    let pair = PairLine {
        a: line(a, &pa),
        b: line(b, &pb),
        fault: fault.to_string(),
        scope: scope.to_string(),
        changed,
        interleaved: within,
        log_rank: log_rank(&[&pa.ttd, &pb.ttd]),
        metrics: Vec::new(),
        trouble: trouble(&[(&a.arm, &pa), (&b.arm, &pb)], !control && !raw.iter().any(|r| r.decides)),
    };
    (pair, raw)
}

fn trouble(sides: &[(&String, &Sample)], nothing: bool) -> Vec<String> {
    let mut list: Vec<String> = sides
        .iter()
        .filter(|(_, s)| too_void(s.void, s.trials))
        .map(|(arm, s)| format!("{}: {} of {} trials are void", plain(arm), s.void, s.trials))
        .collect();
    if list.is_empty() && nothing {
        list.push("there is nothing to compare: fewer than two trials that count on a side".to_string());
    }
    list
}

/// What the runs say of a metric: the differences within them where both sides are in each, else the runs of each side.
fn over(metric: Metric, a: &[(usize, Curves<'_>)], b: &[(usize, Curves<'_>)], within: bool) -> Option<Bounded> {
    let effect = |x: &Curves<'_>, y: &Curves<'_>| metric.effect(x, y, ALPHA);
    if within {
        let pairs = a.iter().filter_map(|(i, x)| Some((x, &b.iter().find(|(j, _)| i == j)?.1)));
        let each: Vec<f64> = pairs.filter_map(|(x, y)| Some(effect(x, y)?.difference.value)).collect();
        return over_runs(&each, ALPHA);
    }
    let values = |side: &[(usize, Curves<'_>)]| -> Vec<f64> {
        side.iter().filter_map(|(_, x)| Some(effect(x, x)?.a.value)).collect()
    };
    between_sets(&values(a), &values(b), ALPHA)
}

pub(super) fn line(r: &Raw, p_adjusted: Option<f64>) -> MetricLine {
    let e = &r.effect;
    let finite = |v: f64| Some(v).filter(|v| v.is_finite());
    let significant = p_adjusted.map(|p| p < ALPHA);
    let verdict = e.standing(r.metric.direction(), r.margin, significant);
    let bound = r.metric.quantile().and_then(|q| needed_to_bound(q, ALPHA / 2.0));
    let needed = e.needed(r.margin, ALPHA, POWER).or(bound.filter(|_| r.margin > 0.0));
    MetricLine {
        metric: r.metric,
        a: finite(e.a.value),
        a_interval: e.a.interval,
        a_n: e.n.0,
        b: finite(e.b.value),
        b_interval: e.b.interval,
        b_n: e.n.1,
        difference: finite(e.difference.value),
        interval: e.difference.interval,
        p: e.p,
        p_adjusted,
        margin: r.margin,
        verdict,
        judged: r.judged,
        decides: r.decides,
        needed,
        method: e.method,
    }
}

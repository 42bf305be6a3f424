//! The question as a whole: who made these durations, who certainly did not, and how sure that is.

use super::evidence::{Hypothesis, Weighed, alone, price, shares, weigh};
use super::law::Law;
use super::layers::{self, LayerWord};
use super::ordinary::{self, NARROW, ORDINARY};
use super::sample::{Point, Sample, Summary};
use super::shape::{EffectiveCheck, Fit, Shape, between, shape};
use super::tell::durations_to_tell;
use super::timer::Timer;
use crate::stats::{Share, mean, wilson};
use serde::Serialize;

/// A likelihood ratio that one of 20 samples without a timer reaches at most.
const ENOUGH: f64 = 20.0;
/// What is named explains at least this share.
const LEAST: f64 = 0.5;
/// One of two timers explains at least this share.
const LEAST_OF_TWO: f64 = 0.1;
/// A timer that could have made nearly all of what another one explains.
const NEARLY_ALL: f64 = 0.95;
/// A timer that was not named is worth a word where this share lies in its window.
const WORTH_A_WORD: f64 = 0.9;
/// Beyond this an exact interval of a share takes longer than it is worth; the score interval is the same to three digits.
const EXACT: usize = 10_000;

/// What the sample says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// One timer, or two, and nobody else in the list.
    Named,
    /// A timer, but another one in the list would have made the same durations.
    Indistinguishable,
    /// No timer in the list made them, or it can't be told.
    Unexplained,
}

/// A timer that explains a share of the sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Component {
    /// Which.
    pub timer: Timer,
    /// How many of the durations it explains.
    pub share: Share,
    /// The window in which they lie: with the effective check where the set one does not fit.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Their mean.
    pub mean_s: f64,
    /// The mean that the timer gives with the check that is set.
    pub nominal_mean_s: f64,
    /// How often it effectively looked.
    pub check: Option<EffectiveCheck>,
    /// How well the spread in its window fits; `None` where the spread is not predicted.
    pub fit: Option<Fit>,
    /// Timers in the list that would have made the same durations.
    pub alternatives: Vec<Timer>,
    /// A smooth law as narrow as this cluster, and at the same place, is ruled out too.
    pub cluster_ruled_out: bool,
    /// The coefficient of variation of such a cluster.
    pub cluster_cv: f64,
    /// Otherwise: how many durations would rule it out; `None`: more than a million.
    pub durations_to_tell: Option<u64>,
}

/// A timer that could have made the sample, but is not shown to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Consistent {
    /// Which.
    pub timer: Timer,
    /// The share in its window.
    pub share: Share,
    /// Why it is not named.
    pub why: String,
    /// How many durations would tell, were it this one; `None`: more than a million, or it is refused.
    pub durations_to_tell: Option<u64>,
}

/// A timer that made none of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Silent {
    /// Which.
    pub timer: Timer,
    /// The largest share of stalls that it can make with none in this sample (95 %, one-sided).
    pub at_most: f64,
}

/// What no named timer explains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rest {
    /// How many.
    pub n: usize,
    /// The shortest, the median and the longest of them.
    pub min_s: f64,
    /// Their median.
    pub median_s: f64,
    /// The longest.
    pub max_s: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The sample; `None` of nothing.
    pub sample: Option<Summary>,
    /// What it says.
    pub verdict: Verdict,
    /// Who made it, the larger share first. Empty when unexplained.
    pub named: Vec<Component>,
    /// ln of how much likelier what is named (or else the best of the list) is than the best ordinary law, after what was
    /// believed beforehand: 3 and more is enough.
    pub log_odds: f64,
    /// The best ordinary law.
    pub ordinary: String,
    /// What is left.
    pub rest: Option<Rest>,
    /// Who could have made it, without being shown to.
    pub consistent: Vec<Consistent>,
    /// Who made none of it.
    pub silent: Vec<Silent>,
    /// Who would have come later, so that nothing is known of it.
    pub later: Vec<Timer>,
    /// What that says of the layers.
    pub layers: Vec<LayerWord>,
}

/// A hypothesis whose shape was looked at.
struct Accepted {
    weighed: Weighed,
    shapes: Vec<(usize, Shape)>,
}

/// Attributes a sample to the timers of a list.
#[must_use]
pub fn attribute(sample: &Sample, timers: &[Timer]) -> Answer {
    let Some(summary) = sample.summary() else {
        return Answer {
            sample: None,
            verdict: Verdict::Unexplained,
            named: Vec::new(),
            log_odds: f64::NEG_INFINITY,
            ordinary: String::new(),
            rest: None,
            consistent: Vec::new(),
            silent: Vec::new(),
            later: Vec::new(),
            layers: Vec::new(),
        };
    };
    let case = Case { sample, timers, summary, points: sample.points() };
    let ordinary = ordinary::best(&case.points, ORDINARY);
    let weighed = weigh(&case.points, timers, summary.resolution_s);
    let odds = |w: &Weighed| w.log_evidence - ordinary.log_likelihood;
    let enough: Vec<Weighed> = weighed.iter().copied().filter(|w| odds(w) >= ENOUGH.ln()).collect();
    let accepted = case.accept(&enough);
    let named = accepted.as_ref().map(|a| case.components(a, &enough)).unwrap_or_default();
    let strongest = accepted.as_ref().map(|a| a.weighed).or(weighed.first().copied());
    let verdict = match named.as_slice() {
        [] => Verdict::Unexplained,
        some if some.iter().any(|c| !c.alternatives.is_empty()) => Verdict::Indistinguishable,
        _ => Verdict::Named,
    };
    let laws: Vec<Law> = accepted.iter().flat_map(|a| a.shapes.iter().map(|(_, s)| s.law)).collect();
    let consistent = if named.is_empty() { case.consistent(&weighed, ordinary.log_likelihood) } else { Vec::new() };
    let (silent, later) = case.others(&named, &laws);
    let layers = layers::words(&named, &silent, &later, summary.n);
    Answer {
        sample: Some(summary),
        verdict,
        log_odds: strongest.map_or(f64::NEG_INFINITY, |w| odds(&w)),
        ordinary: format!("{}, coefficient of variation {:.2}", ordinary.family, ordinary.cv),
        rest: rest(sample.sorted(), &laws),
        named,
        consistent,
        silent,
        later,
        layers,
    }
}

/// A sample with its list.
struct Case<'a> {
    sample: &'a Sample,
    timers: &'a [Timer],
    summary: Summary,
    points: Vec<Point>,
}

impl Case<'_> {
    /// The strongest hypothesis whose timers would have spread the durations as they are; of one timer and the same one
    /// with a second, the simpler where the evidence hardly differs.
    fn accept(&self, enough: &[Weighed]) -> Option<Accepted> {
        let first = enough.iter().find_map(|w| self.judged(w))?;
        if first.weighed.hypothesis.second.is_none() {
            return Some(first);
        }
        let simpler = enough
            .iter()
            .filter(|w| w.hypothesis.second.is_none() && w.log_weight >= first.weighed.log_weight - ENOUGH.ln())
            .find_map(|w| self.judged(w));
        Some(simpler.unwrap_or(first))
    }

    /// The shapes of a hypothesis; `None` where one of its timers can't have made its part, or explains too little.
    fn judged(&self, weighed: &Weighed) -> Option<Accepted> {
        let shapes = self.shapes(weighed.hypothesis);
        let laws: Vec<Law> = shapes.iter().map(|(_, s)| s.law).collect();
        let shares = self.shares(&laws);
        let each = if laws.len() > 1 { LEAST_OF_TWO } else { LEAST };
        let holds = shapes.iter().all(|(_, s)| s.holds)
            && shares.iter().all(|s| *s >= each)
            && shares.iter().sum::<f64>() >= LEAST
            && self.each_is_seen(&shapes);
        holds.then_some(Accepted { weighed: *weighed, shapes })
    }

    /// Of two timers, each has to stand out from ordinary work among the durations that the other one leaves: what is left
    /// beside a true timer always lies in the window of some other one.
    fn each_is_seen(&self, shapes: &[(usize, Shape)]) -> bool {
        let [a, b] = shapes else { return true };
        [(a, b), (b, a)].iter().all(|((i, _), (_, other))| {
            let (from, to) = (other.law.first_s(), other.law.last_s());
            let left: Vec<Point> = self.points.iter().copied().filter(|p| p.x < from || p.x > to).collect();
            if left.is_empty() {
                return false;
            }
            let evidence = alone(&left, &self.timers[*i], self.timers, self.summary.resolution_s);
            evidence - ordinary::best(&left, ORDINARY).log_likelihood >= ENOUGH.ln()
        })
    }

    fn shapes(&self, hypothesis: Hypothesis) -> Vec<(usize, Shape)> {
        let all: Vec<usize> = hypothesis.timers().collect();
        let one = |i: &usize| {
            let others = all.iter().filter(|j| *j != i).map(|j| self.timers[*j].law());
            // What another one of the hypothesis could have made says nothing of this one's spread.
            let blocked: Vec<Law> = others.map(|l| l.widened(self.summary.resolution_s)).collect();
            (*i, self.shape_beside(&self.timers[*i], &blocked))
        };
        all.iter().map(one).collect()
    }

    fn shape_beside(&self, timer: &Timer, blocked: &[Law]) -> Shape {
        let values = self.sample.sorted();
        let law = timer.law();
        let hit = |b: &Law| b.first_s() <= law.last_s() && law.first_s() <= b.last_s();
        if !blocked.iter().any(hit) {
            return shape(timer, values, self.summary.resolution_s);
        }
        // Two that overlap: the shape of either is not to be seen, the share of both is.
        Shape { holds: true, law: law.widened(self.summary.resolution_s), fit: None, check: None }
    }

    /// The share of each law: counted, or where two overlap estimated.
    fn shares(&self, laws: &[Law]) -> Vec<f64> {
        let n = self.summary.n as f64;
        match laws {
            [a, b] if a.first_s() <= b.last_s() && b.first_s() <= a.last_s() => {
                shares(&self.points, laws)[..2].to_vec()
            }
            _ => laws.iter().map(|l| self.sample.within(l.first_s(), l.last_s()).len() as f64 / n).collect(),
        }
    }

    fn components(&self, accepted: &Accepted, enough: &[Weighed]) -> Vec<Component> {
        let laws: Vec<Law> = accepted.shapes.iter().map(|(_, s)| s.law).collect();
        let shares = self.shares(&laws);
        let mut all: Vec<Component> = accepted
            .shapes
            .iter()
            .zip(&shares)
            .map(|((i, shape), share)| self.component(accepted, enough, *i, shape, *share))
            .collect();
        all.sort_by_key(|c| std::cmp::Reverse(c.share.k));
        all
    }

    fn component(&self, accepted: &Accepted, enough: &[Weighed], i: usize, shape: &Shape, part: f64) -> Component {
        let timer = &self.timers[i];
        let values = self.sample.within(shape.law.first_s(), shape.law.last_s());
        let k = ((part * self.summary.n as f64).round() as usize).min(self.summary.n);
        let points = Sample::new(values.to_vec()).points();
        let smooth = ordinary::best(&points, NARROW);
        let first = values.first().copied().unwrap_or_default();
        let last = values.last().copied().unwrap_or_default();
        // Where the spread is not predicted, an even one over what is there is the most that it can be held to.
        let law = if timer.has_shape() { shape.law } else { Law { lo_s: first, hi_s: last, check_s: 0.0 } };
        let width = law.last_s() - law.first_s();
        let log_likelihood: f64 = points.iter().map(|p| p.weight * law.density(p.x).max(1e-30).ln()).sum();
        // An end that was fitted to the data has to pay for it.
        let paid = if width > 0.0 { log_likelihood - (values.len().max(1) as f64).ln() } else { f64::INFINITY };
        let cluster_ruled_out = timer.has_shape() && paid - smooth.log_likelihood >= ENOUGH.ln();
        let tell = || durations_to_tell(law, NARROW, ENOUGH.ln() + (values.len().max(1) as f64).ln());
        Component {
            timer: timer.clone(),
            share: share_of(k, self.summary.n),
            from_s: shape.law.first_s(),
            to_s: shape.law.last_s(),
            mean_s: mean(values).map_or(f64::NAN, |m| m.value_s),
            nominal_mean_s: timer.law().mean_s(),
            check: shape.check,
            fit: shape.fit,
            alternatives: self.alternatives(accepted, enough, i, values),
            cluster_ruled_out,
            cluster_cv: smooth.cv,
            durations_to_tell: if cluster_ruled_out || width <= 0.0 { None } else { tell() },
        }
    }

    /// Timers that could stand in the place of timer `i`.
    fn alternatives(&self, accepted: &Accepted, enough: &[Weighed], i: usize, values: &[f64]) -> Vec<Timer> {
        let hypothesis = accepted.weighed.hypothesis;
        let others: Vec<usize> = hypothesis.timers().filter(|j| *j != i).collect();
        let in_place = |w: &Weighed| -> Option<usize> {
            let all: Vec<usize> = w.hypothesis.timers().collect();
            let rest: Vec<usize> = all.iter().copied().filter(|j| !others.contains(j)).collect();
            (all.len() == others.len() + 1 && rest.len() == 1 && rest[0] != i).then(|| rest[0])
        };
        let close = enough.iter().filter(|w| w.log_weight >= accepted.weighed.log_weight - ENOUGH.ln());
        let mut found: Vec<usize> = close.filter_map(|w| in_place(w).filter(|_| self.judged(w).is_some())).collect();
        // A narrow window that comes from settings and kernels: a sample may lie in any part of it.
        let this = &self.timers[i];
        if !this.spreads() {
            for (j, other) in self.timers.iter().enumerate() {
                let law = other.law().widened(self.summary.resolution_s);
                let held = between(values, law.first_s(), law.last_s()).len() as f64;
                if j != i && !other.spreads() && held >= NEARLY_ALL * values.len() as f64 && !found.contains(&j) {
                    found.push(j);
                }
            }
        }
        found.retain(|j| !others.contains(j));
        found.into_iter().map(|j| self.timers[j].clone()).collect()
    }

    /// Single timers in whose window nearly everything lies, and why they are not named.
    fn consistent(&self, weighed: &[Weighed], ordinary: f64) -> Vec<Consistent> {
        let one = |w: &Weighed| {
            let timer = &self.timers[w.hypothesis.first];
            let law = timer.law().widened(self.summary.resolution_s);
            let k = self.sample.within(law.first_s(), law.last_s()).len();
            if w.hypothesis.second.is_some() || (k as f64) < WORTH_A_WORD * self.summary.n as f64 {
                return None;
            }
            let shape = shape(timer, self.sample.sorted(), self.summary.resolution_s);
            let (why, tell) = if shape.holds && w.log_evidence - ordinary < ENOUGH.ln() {
                let tell = durations_to_tell(law, ORDINARY, ENOUGH.ln() + price(timer, self.timers))
                    .map(|n| n.max(self.summary.n as u64 + 1));
                ("ordinary work that varies by 30 % or more would look the same".to_string(), tell)
            } else {
                let spread = timer.law().check_s;
                (format!("its look would spread them over {} s, and they are not", super::timer::short(spread)), None)
            };
            Some(Consistent { timer: timer.clone(), share: share_of(k, self.summary.n), why, durations_to_tell: tell })
        };
        weighed.iter().filter_map(one).collect()
    }

    /// Who made none of them, and who would have come later.
    fn others(&self, named: &[Component], laws: &[Law]) -> (Vec<Silent>, Vec<Timer>) {
        let known = |t: &Timer| named.iter().any(|c| c.timer == *t || c.alternatives.contains(t));
        let last = laws.iter().map(|l| l.last_s()).fold(f64::NEG_INFINITY, f64::max);
        let end = if named.is_empty() { self.summary.max_s } else { last };
        let at_most = 1.0 - 0.05_f64.powf(1.0 / self.summary.n as f64);
        let (mut silent, mut later) = (Vec::new(), Vec::new());
        for timer in self.timers.iter().filter(|t| !known(t)) {
            let law = timer.law().widened(self.summary.resolution_s);
            if law.first_s() > end {
                later.push(timer.clone());
            } else if self.sample.within(law.first_s(), law.last_s()).is_empty() {
                silent.push(Silent { timer: timer.clone(), at_most });
            }
        }
        (silent, later)
    }
}

fn share_of(k: usize, n: usize) -> Share {
    if n <= EXACT {
        return Share::of(k, n);
    }
    let (lo, hi) = wilson(k, n, 1.959_964);
    Share { k, n, lo, hi }
}

fn rest(sorted: &[f64], laws: &[Law]) -> Option<Rest> {
    let explained = |x: &f64| laws.iter().any(|l| (l.first_s()..=l.last_s()).contains(x));
    let left: Vec<f64> = sorted.iter().copied().filter(|x| !explained(x)).collect();
    let n = left.len();
    (n > 0).then(|| Rest { n, min_s: left[0], median_s: left[(n - 1) / 2], max_s: left[n - 1] })
}

#[cfg(test)]
mod tests {
    use super::super::library::library;
    use super::*;

    fn even(from: f64, to: f64, n: usize) -> impl Iterator<Item = f64> {
        (0..n).map(move |i| from + (to - from) * (i as f64 + 0.5) / n as f64)
    }

    fn ids(answer: &Answer) -> Vec<&str> {
        answer.named.iter().map(|c| c.timer.id.as_str()).collect()
    }

    #[test]
    fn three_manual_restarts_are_unexplained() {
        let answer = attribute(&Sample::new(vec![225.7, 270.0, 897.0]), &library());
        assert_eq!((answer.verdict, ids(&answer)), (Verdict::Unexplained, vec![]));
        assert!(answer.silent.iter().any(|s| s.timer.id == "retries2-8"));
        assert!(answer.later.iter().any(|t| t.id == "keepalive-7200-75-9"));
    }

    #[test]
    fn the_stall_of_1283_9_s_is_the_queued_timeout_with_a_slow_check() {
        // 1200 s + U(0, 168): the mean of the report, and strangers beside it as it has them.
        let mut values: Vec<f64> = even(1200.0, 1367.8, 90).collect();
        values.extend([640.0, 905.0, 1050.0, 1490.0, 1630.0, 1777.0, 2100.0, 333.0, 1093.0, 2500.0]);
        let answer = attribute(&Sample::new(values), &library());
        assert_eq!(ids(&answer), ["airflow-queued-1200"]);
        let component = &answer.named[0];
        let check = component.check.unwrap();
        assert!(!check.as_set && (check.check_s - 168.0).abs() < 3.0, "{check:?}");
        assert!((component.mean_s - 1283.9).abs() < 1.0 && component.nominal_mean_s == 1260.0);
        assert_eq!(answer.rest.unwrap().n, 10);
        let silent: Vec<&str> = answer.silent.iter().map(|s| s.timer.id.as_str()).collect();
        assert!(silent.contains(&"retries2-8") && silent.contains(&"airflow-heartbeat-300"), "{silent:?}");
    }

    #[test]
    fn two_timers_in_one_sample_are_both_named() {
        let values: Vec<f64> = even(930.0, 1040.0, 14).chain(even(1801.0, 1859.0, 16)).collect();
        let answer = attribute(&Sample::new(values), &library());
        assert_eq!(ids(&answer), ["consumer-timeout-1800", "retries2-15"]);
        assert_eq!((answer.named[0].share.k, answer.named[1].share.k), (16, 14));
    }

    #[test]
    fn timers_of_one_length_are_not_told_apart() {
        let answer = attribute(&Sample::new(even(600.5, 611.5, 30).collect()), &library());
        assert_eq!(answer.verdict, Verdict::Indistinguishable);
        let mut all: Vec<&str> = answer.named[0].alternatives.iter().map(|t| t.id.as_str()).collect();
        all.push(&answer.named[0].timer.id);
        all.sort_unstable();
        assert_eq!(all, ["gcp-vpc", "redis-tcp-keepalive"]);
    }

    #[test]
    fn a_cluster_in_a_window_that_a_look_would_have_filled_is_unexplained() {
        let answer = attribute(&Sample::new(even(1250.0, 1256.0, 40).collect()), &library());
        assert_eq!((answer.verdict, ids(&answer)), (Verdict::Unexplained, vec![]));
        let said = answer.consistent.iter().find(|c| c.timer.id == "airflow-queued-1200").unwrap();
        assert!(said.why.contains("spread them over 120 s"), "{}", said.why);
    }

    #[test]
    fn a_narrow_cluster_says_how_many_durations_it_takes() {
        // A bell over the window of the queued timeout, which 25 durations can't tell from it.
        let bell: Vec<f64> = (0..25).map(|i| 1260.0 + 33.0 * (f64::from(i - 12) / 9.0)).collect();
        let answer = attribute(&Sample::new(bell), &library());
        assert_eq!(ids(&answer), ["airflow-queued-1200"]);
        let component = &answer.named[0];
        assert!(!component.cluster_ruled_out && component.durations_to_tell.unwrap() > 25, "{component:?}");
    }

    #[test]
    fn a_wide_timer_is_consistent_and_says_how_many_it_takes() {
        let values: Vec<f64> = even(75.0, 375.0, 30).collect();
        let answer = attribute(&Sample::new(values), &library());
        assert_eq!(answer.verdict, Verdict::Unexplained);
        let said = answer.consistent.iter().find(|c| c.timer.id == "liveness-90").unwrap();
        assert!(said.durations_to_tell.unwrap() > 30, "{said:?}");
    }

    #[test]
    fn nothing_is_unexplained() {
        assert_eq!(attribute(&Sample::new(vec![]), &library()).verdict, Verdict::Unexplained);
        assert_eq!(attribute(&Sample::new(vec![45.5]), &library()).verdict, Verdict::Unexplained);
    }
}

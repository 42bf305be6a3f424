//! The evidence for timers against ordinary work: likelihoods of one timer and of two, with whatever they do not explain.
//!
//! For each hypothesis a *fixed* mixture over the shares that it explains and over how much longer its check takes than it
//! should: a proper density of the whole sample that looks at no data. Weighted by what was believed beforehand and
//! divided by the *maximum* over all ordinary laws, it has an expectation of at most one under each of them, so that it
//! reaches 20 in at most one of 20 samples without a timer, whatever the number of timers and of durations
//! (Markov's inequality; "universal inference", Wasserman, Ramdas and Balakrishnan 2020).

use super::law::Law;
use super::sample::Point;
use super::timer::Timer;

/// Shares of a sample that one timer explains, and what each is believed beforehand: all of it is the plainest.
const SHARES: [(f64, f64); 7] =
    [(1.0, 0.5), (0.97, 0.1), (0.93, 0.1), (0.87, 0.1), (0.8, 0.1), (0.7, 0.06), (0.55, 0.04)];
/// How much longer a check takes than it should, and what that is believed.
const LONGER: [(f64, f64); 4] = [(1.0, 0.6), (1.25, 0.15), (1.5, 0.15), (2.0, 0.1)];
/// The shares of two timers together, and of the first one of the two.
const BOTH: [f64; 4] = [1.0, 0.95, 0.85, 0.7];
const FIRST: [f64; 5] = [0.15, 0.3, 0.5, 0.7, 0.85];
/// What two timers in one sample are believed beforehand.
const PAIRS: f64 = 0.2;
/// The checks of two timers.
const LONGER_OF_TWO: [(f64, f64); 2] = [(1.0, 0.6), (1.5, 0.4)];
/// A second timer is looked at only where it covers this much more of the sample: others could not win.
const LEAST_MORE: f64 = 0.08;
/// A timer that somebody names for this question, beside one of the library.
const OWN: f64 = 4.0;
/// A pair is looked at where each of the two has at least this share of the sample in its window: others could not win.
const LEAST_OF_A_PAIR: f64 = 0.1;
/// What is explained by nothing lies anywhere between these, evenly on a scale of factors: a proper law without a choice.
const REST: (f64, f64) = (1e-3, 1e7);
/// How much further than the longest timer its company may reach.
const BEYOND: f64 = 1.2;

/// One or two timers, by their places in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hypothesis {
    pub first: usize,
    pub second: Option<usize>,
}

impl Hypothesis {
    /// Its timers.
    pub fn timers(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.first).chain(self.second)
    }
}

/// A hypothesis with its evidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weighed {
    pub hypothesis: Hypothesis,
    /// ln(what was believed beforehand × likelihood of the sample): what hypotheses are compared by.
    pub log_weight: f64,
    /// ln(share of the error that is allowed × likelihood): what ordinary work is compared with.
    pub log_evidence: f64,
}

/// The density of what no timer explains.
pub(super) fn rest_density(x: f64) -> f64 {
    if x < REST.0 || x > REST.1 { 1e-30 } else { 1.0 / (x * (REST.1 / REST.0).ln()) }
}

/// The same beside a timer that ends whatever is there at `last_s`: half of it anywhere, half of it evenly up to a little
/// after that.
fn rest_beside(x: f64, last_s: f64) -> f64 {
    let end = last_s * BEYOND;
    0.5 * rest_density(x) + if x <= end { 0.5 / end } else { 0.0 }
}

/// A sample with the running sums of its weights.
struct Field<'p> {
    points: &'p [Point],
    weight: Vec<f64>,
}

/// The density of the rest at each point, and running sums of its weighted logarithms.
struct Company {
    density: Vec<f64>,
    log_sums: Vec<f64>,
}

impl<'p> Field<'p> {
    fn new(points: &'p [Point]) -> Self {
        let mut weight = vec![0.0];
        for p in points {
            weight.push(weight.last().unwrap_or(&0.0) + p.weight);
        }
        Self { points, weight }
    }

    fn company(&self, last_s: f64) -> Company {
        let density: Vec<f64> = self.points.iter().map(|p| rest_beside(p.x, last_s)).collect();
        let mut log_sums = vec![0.0];
        for (p, r) in self.points.iter().zip(&density) {
            log_sums.push(log_sums.last().unwrap_or(&0.0) + p.weight * r.ln());
        }
        Company { density, log_sums }
    }

    fn total(&self) -> f64 {
        self.weight[self.points.len()]
    }

    /// The places of the points in a window.
    fn range(&self, from_s: f64, to_s: f64) -> (usize, usize) {
        let first = self.points.partition_point(|p| p.x < from_s);
        (first, self.points.partition_point(|p| p.x <= to_s).max(first))
    }

    fn share_within(&self, from_s: f64, to_s: f64) -> f64 {
        let (a, b) = self.range(from_s, to_s);
        (self.weight[b] - self.weight[a]) / self.total()
    }

    /// The share of the sample in either of two ranges.
    fn share_of_both(&self, a: (usize, usize), b: (usize, usize)) -> f64 {
        let weight = |(from, to): (usize, usize)| if to > from { self.weight[to] - self.weight[from] } else { 0.0 };
        (weight(a) + weight(b) - weight((a.0.max(b.0), a.1.min(b.1)))) / self.total()
    }

    /// The log-likelihood of a mixture of `laws` with `shares`; the rest has what is left.
    fn log_likelihood(&self, company: &Company, laws: &[Law], shares: &[f64]) -> f64 {
        let left = 1.0 - shares.iter().sum::<f64>();
        let from = laws.iter().map(|l| l.first_s()).fold(f64::INFINITY, f64::min);
        let to = laws.iter().map(|l| l.last_s()).fold(f64::NEG_INFINITY, f64::max);
        let (a, b) = self.range(from, to);
        let outside = self.total() - (self.weight[b] - self.weight[a]);
        let mut sum = company.log_sums[self.points.len()] - (company.log_sums[b] - company.log_sums[a]);
        if outside > 1e-9 {
            if left < 1e-9 {
                return f64::NEG_INFINITY;
            }
            sum += outside * left.ln();
        }
        for (p, r) in self.points[a..b].iter().zip(&company.density[a..b]) {
            let density: f64 = laws.iter().zip(shares).map(|(law, share)| share * law.density(p.x)).sum();
            sum += p.weight * (density + left.max(0.0) * r).ln();
        }
        sum
    }
}

/// ln Σ exp.
fn log_sum(terms: &[f64]) -> f64 {
    let most = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY { most } else { most + terms.iter().map(|t| (t - most).exp()).sum::<f64>().ln() }
}

/// A timer's laws with their weights: its own, and with a check that takes longer.
fn laws(timer: &Timer, resolution_s: f64, factors: &[(f64, f64)]) -> Vec<(Law, f64)> {
    let law = |factor: f64| Law { check_s: timer.check_s * factor, ..timer.law() }.widened(resolution_s);
    if timer.check_s > 0.0 { factors.iter().map(|(f, w)| (law(*f), *w)).collect() } else { vec![(law(1.0), 1.0)] }
}

/// How the error that is allowed is spread over the timers: a wide one, which is harder to tell from ordinary work, gets
/// more of it, a narrow one does with next to nothing. Any spread is as valid as another that sums to one.
fn budget(timer: &Timer) -> f64 {
    let law = timer.law();
    let deviation = ((law.hi_s - law.lo_s).powi(2) + law.check_s.powi(2)).sqrt() / 12f64.sqrt();
    let own = if timer.own { OWN } else { 1.0 };
    own * (deviation / law.mean_s()).clamp(0.01, 0.2).powi(2)
}

/// What a timer that explains a whole sample with its check as set pays for the list and the mixture that it is in.
pub(super) fn price(timer: &Timer, timers: &[Timer]) -> f64 {
    let allowed: f64 = timers.iter().map(budget).sum();
    let check = if timer.check_s > 0.0 { LONGER[0].1 } else { 1.0 };
    -((1.0 - PAIRS) * budget(timer) / allowed * SHARES[0].1 * check).ln()
}

/// The log-likelihood of one timer.
fn one_timer(field: &Field<'_>, timer: &Timer, laws: &[(Law, f64)]) -> f64 {
    let company = field.company(timer.law().last_s());
    let mut terms = Vec::new();
    for (law, w) in laws {
        terms.extend(SHARES.map(|(share, v)| (w * v).ln() + field.log_likelihood(&company, &[*law], &[share])));
    }
    log_sum(&terms)
}

/// The evidence for one timer in a part of a sample, as in [`weigh`].
pub(super) fn alone(points: &[Point], timer: &Timer, timers: &[Timer], resolution_s: f64) -> f64 {
    let allowed: f64 = timers.iter().map(budget).sum();
    let laws = laws(timer, resolution_s, &LONGER);
    (budget(timer) / allowed).ln() + one_timer(&Field::new(points), timer, &laws)
}

/// All hypotheses that have something to say, the strongest first.
pub(super) fn weigh(points: &[Point], timers: &[Timer], resolution_s: f64) -> Vec<Weighed> {
    let field = Field::new(points);
    let prior = |t: &Timer| if t.own { OWN } else { 1.0 };
    let all: f64 = timers.iter().map(prior).sum();
    let allowed: f64 = timers.iter().map(budget).sum();
    let mut found = Vec::new();
    let mut in_play = Vec::new();
    for (i, timer) in timers.iter().enumerate() {
        let laws = laws(timer, resolution_s, &LONGER);
        let (from, to) = (laws[0].0.first_s(), laws[laws.len() - 1].0.last_s());
        let share = field.share_within(from, to);
        if share >= LEAST_OF_A_PAIR {
            in_play.push((i, share, field.range(from, to)));
        }
        if share <= 0.0 {
            continue;
        }
        let log_likelihood = one_timer(&field, timer, &laws);
        found.push(Weighed {
            hypothesis: Hypothesis { first: i, second: None },
            log_weight: ((1.0 - PAIRS) * prior(timer) / all).ln() + log_likelihood,
            log_evidence: ((1.0 - PAIRS) * budget(timer) / allowed).ln() + log_likelihood,
        });
    }
    for (place, &(i, share_i, range_i)) in in_play.iter().enumerate() {
        for &(j, share_j, range_j) in &in_play[place + 1..] {
            if field.share_of_both(range_i, range_j) < share_i.max(share_j) + LEAST_MORE {
                continue;
            }
            let (first, second) = (&timers[i], &timers[j]);
            let company = field.company(first.law().last_s().max(second.law().last_s()));
            let even = (1.0 / (BOTH.len() * FIRST.len()) as f64).ln();
            let mut terms = Vec::new();
            for (a, w) in laws(first, resolution_s, &LONGER_OF_TWO) {
                for (b, v) in laws(second, resolution_s, &LONGER_OF_TWO) {
                    for both in BOTH {
                        let one = |f: f64| field.log_likelihood(&company, &[a, b], &[both * f, both * (1.0 - f)]);
                        terms.extend(FIRST.map(|f| even + (w * v).ln() + one(f)));
                    }
                }
            }
            let log_likelihood = log_sum(&terms);
            // Ordered pairs, of which each unordered one counts twice: the weights sum to less than one.
            let of_both =
                |part: &dyn Fn(&Timer) -> f64, all: f64| PAIRS * 2.0 * part(first) * part(second) / (all * all);
            found.push(Weighed {
                hypothesis: Hypothesis { first: i, second: Some(j) },
                log_weight: of_both(&prior, all).ln() + log_likelihood,
                // Of two, neither is asked to be wide.
                log_evidence: of_both(&prior, all).ln() + log_likelihood,
            });
        }
    }
    found.retain(|w| w.log_weight.is_finite());
    found.sort_by(|a, b| b.log_weight.total_cmp(&a.log_weight));
    found
}

/// The shares of a mixture by expectation and maximisation: of each law, then of the rest.
pub(super) fn shares(points: &[Point], laws: &[Law]) -> Vec<f64> {
    let total: f64 = points.iter().map(|p| p.weight).sum();
    let mut shares = vec![1.0 / (laws.len() + 1) as f64; laws.len() + 1];
    for _ in 0..200 {
        let mut sums = vec![0.0; shares.len()];
        for p in points {
            let densities = laws.iter().map(|l| l.density(p.x)).chain(std::iter::once(rest_density(p.x)));
            let parts: Vec<f64> = densities.zip(&shares).map(|(d, s)| d * s).collect();
            let all: f64 = parts.iter().sum();
            if all > 0.0 {
                sums.iter_mut().zip(&parts).for_each(|(sum, part)| *sum += p.weight * part / all);
            }
        }
        shares.iter_mut().zip(&sums).for_each(|(share, sum)| *share = sum / total);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::library::library;
    use super::*;

    fn points(values: impl IntoIterator<Item = f64>) -> Vec<Point> {
        values.into_iter().map(|x| Point { x, weight: 1.0 }).collect()
    }

    /// The evidence is a likelihood ratio only if every hypothesis integrates to one.
    #[test]
    fn the_weights_and_the_mixtures_are_proper() {
        let timers = library();
        let grid: Vec<f64> = (0..400_000).map(|i| (f64::from(i) / 400_000.0 * 23.0 - 6.9).exp()).collect();
        let log_weights = |x: f64| {
            let found = weigh(&points([x]), &timers, 0.0);
            found.iter().filter(|w| w.hypothesis.second.is_none()).map(|w| w.log_evidence.exp()).sum::<f64>()
        };
        // The sum over singles of weight × density, integrated over one duration by the trapezoid rule.
        let mut area = 0.0;
        for pair in grid.chunks(200).map(|c| c[0]).collect::<Vec<_>>().windows(2) {
            area += (pair[1] - pair[0]) * f64::midpoint(log_weights(pair[0]), log_weights(pair[1]));
        }
        assert!(area < 1.0 - PAIRS + 0.05, "{area}");
    }

    #[test]
    fn shares_of_two_timers_are_found() {
        let laws = [Law { lo_s: 100.0, hi_s: 110.0, check_s: 0.0 }, Law { lo_s: 1200.0, hi_s: 1200.0, check_s: 120.0 }];
        let mut values: Vec<f64> = (0..30).map(|i| 100.0 + f64::from(i) / 3.0).collect();
        values.extend((0..60).map(|i| 1200.0 + 2.0 * f64::from(i)));
        values.extend([7.0, 45_000.0]);
        let found = shares(&points(values), &laws);
        assert!((found[0] - 30.0 / 92.0).abs() < 1e-3 && (found[1] - 60.0 / 92.0).abs() < 1e-3, "{found:?}");
    }
}

//! The numbers of lifelines, SciPy and statsmodels: `tests/stats/reference.json`, written by `tests/stats/reference.py`.

use super::special::{beta_quantile, student_quantile};
use super::*;
use serde_json::Value;

const NEAR: f64 = 1e-6;

fn reference() -> Value {
    serde_json::from_str(include_str!("../../tests/stats/reference.json")).unwrap()
}

#[track_caller]
fn near(got: f64, want: &Value, what: &str) {
    let close = match want.as_f64() {
        Some(want) => (got - want).abs() <= NEAR * want.abs().max(1.0),
        // What has no number there is not reached.
        None => got.is_infinite() || got.is_nan(),
    };
    assert!(close, "{what}: {got} is not {want}");
}

fn f(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn k(value: &Value, key: &str) -> usize {
    usize::try_from(value[key].as_u64().unwrap()).unwrap()
}

fn list<'v>(all: &'v Value, key: &str) -> &'v [Value] {
    let list = all[key].as_array().unwrap();
    assert!(!list.is_empty(), "{key}");
    list
}

fn sample(all: &Value, name: &str) -> Vec<Observation> {
    let of = |key: &str| all["samples"][name][key].as_array().unwrap().clone();
    let pairs = of("seconds").into_iter().zip(of("happened"));
    pairs.map(|(s, e)| Observation { seconds: s.as_f64().unwrap(), happened: e.as_bool().unwrap() }).collect()
}

fn name(value: &Value) -> &str {
    value["sample"].as_str().unwrap()
}

#[test]
fn curves_their_bands_and_quantiles() {
    let all = reference();
    for row in list(&all, "curves") {
        let curve = Kaplan::of(&sample(&all, name(row)));
        let mut points = curve.points.iter().filter(|p| p.survival > 0.0);
        for want in list(row, "points") {
            let p = points.next().unwrap();
            let band = p.band(0.05).unwrap();
            for (got, key) in [(p.seconds, "t"), (p.survival, "survival"), (band.lo, "lo"), (band.hi, "hi")] {
                near(got, &want[key], &format!("{} at {}: {key}", name(row), p.seconds));
            }
        }
        assert_eq!(points.next(), None, "{}", name(row));
        for want in list(row, "quantiles") {
            let q = f(want, "q");
            let what = format!("{} q {q}", name(row));
            near(curve.quantile(q).unwrap_or(f64::INFINITY), &want["value"], &what);
            let by_band = curve.by_band(q, 0.05);
            near(by_band.hi, &want["hi"], &what);
            if !want["lo"].is_null() {
                near(by_band.lo, &want["lo"], &what);
            }
        }
    }
}

#[test]
fn quantiles_by_order_statistics() {
    let all = reference();
    for want in list(&all, "quantiles_exact") {
        let got = Kaplan::of(&sample(&all, name(want))).quantile_interval(f(want, "q"), 0.05);
        near(got.lo, &want["lo"], name(want));
        near(got.hi, &want["hi"], name(want));
    }
}

#[test]
fn restricted_means_and_their_errors() {
    let all = reference();
    for want in list(&all, "restricted_means") {
        let got = Kaplan::of(&sample(&all, name(want))).restricted_mean(f(want, "tau")).unwrap();
        near(got.mean_s, &want["mean"], name(want));
        near(got.se_s, &want["se"], name(want));
    }
}

#[test]
fn log_rank_tests() {
    let all = reference();
    for want in list(&all, "logrank") {
        let names = list(want, "samples");
        let samples: Vec<_> = names.iter().map(|n| sample(&all, n.as_str().unwrap())).collect();
        let groups: Vec<&[Observation]> = samples.iter().map(Vec::as_slice).collect();
        let got = log_rank(&groups).unwrap();
        assert_eq!(got.df, names.len() - 1);
        near(got.chi_squared, &want["chi2"], "chi-squared");
        near(got.p, &want["p"], "p");
    }
    assert_eq!(log_rank(&[&[Observation::event(1.0)]]), None);
    assert_eq!(log_rank(&[&[Observation::censored(1.0)], &[Observation::censored(2.0)]]), None);
}

#[test]
fn tables_of_two_by_two() {
    let all = reference();
    for want in list(&all, "two_by_two") {
        let (a, b) = ((k(want, "k1"), k(want, "n1")), (k(want, "k2"), k(want, "n2")));
        near(fisher(a.0, a.1, b.0, b.1), &want["p"], &want.to_string());
        // Theirs is first less second.
        let got = Effect::of_shares(b, a, 0.05).unwrap().difference.interval;
        near(got.lo, &want["difference_lo"], &want.to_string());
        near(got.hi, &want["difference_hi"], &want.to_string());
    }
}

#[test]
fn binomial_tests_and_intervals() {
    let all = reference();
    for want in list(&all, "binomial") {
        let (hits, n) = (k(want, "k"), k(want, "n"));
        if let Some(p0) = want["p0"].as_f64() {
            near(binomial_test(hits, n, p0), &want["p"], &want.to_string());
        }
        let (exact, score) = (clopper_pearson(hits, n, 0.05), wilson(hits, n, normal_quantile(0.975)));
        for (got, key) in [(exact.0, "lo"), (exact.1, "hi"), (score.0, "wilson_lo"), (score.1, "wilson_hi")] {
            near(got, &want[key], &want.to_string());
        }
    }
}

#[test]
fn poisson_counts_and_ratios() {
    let all = reference();
    for want in list(&all, "poisson") {
        let got = poisson_interval(k(want, "k") as u64, 0.05);
        near(got.lo, &want["lo"], &want.to_string());
        near(got.hi, &want["hi"], &want.to_string());
    }
    for want in list(&all, "poisson_ratio") {
        let of = |count: &str, exposure: &str| Events { k: k(want, count) as u64, exposure: f(want, exposure) };
        let got = rate_ratio(of("k2", "e2"), of("k1", "e1"), 0.05);
        near(got.p, &want["p"], &want.to_string());
        near(got.interval.lo, &want["lo"], &want.to_string());
        near(got.interval.hi, &want["hi"], &want.to_string());
    }
    for want in list(&all, "poisson_at_most") {
        near(poisson_at_most(k(want, "k") as u64, f(want, "mean")), &want["p"], &want.to_string());
    }
}

#[test]
fn three_expected_and_none_seen_is_weak_evidence() {
    let known = against_expected(0, 3.0, 0.05);
    assert!((known.p_so_few - (-3.0_f64).exp()).abs() < 1e-12);
    // Up to 1.23 times the expected rate is as possible as none at all.
    assert!(known.ratio.lo == 0.0 && (known.ratio.hi - 1.229_626_5).abs() < 1e-6, "{known:?}");
    let counted = rate_ratio(Events { k: 3, exposure: 2e5 }, Events { k: 0, exposure: 2e5 }, 0.05);
    assert!((counted.p - 0.25).abs() < 1e-12 && counted.interval.hi > 2.4, "{counted:?}");
}

#[test]
fn quantiles_of_laws_and_corrections() {
    let all = reference();
    for want in list(&all, "normal") {
        near(normal_quantile(f(want, "p")), &want["z"], &want.to_string());
    }
    for want in list(&all, "student") {
        near(student_quantile(f(want, "p"), f(want, "df")), &want["t"], &want.to_string());
    }
    for want in list(&all, "holm") {
        let p: Vec<f64> = list(want, "p").iter().map(|p| p.as_f64().unwrap()).collect();
        for (got, want) in holm(&p).into_iter().zip(list(want, "adjusted")) {
            near(got, want, "Holm");
        }
    }
    assert!((beta_quantile(2.0, 2.0, 0.5) - 0.5).abs() < 1e-12);
}

#[test]
fn intervals_over_runs() {
    let all = reference();
    let numbers =
        |value: &Value, key: &str| -> Vec<f64> { list(value, key).iter().map(|v| v.as_f64().unwrap()).collect() };
    let want = &all["between_runs"];
    let got = over_runs(&numbers(want, "means"), 0.05).unwrap().interval;
    near(got.lo, &want["lo"], "lo");
    near(got.hi, &want["hi"], "hi");
    let want = &all["between_runs_welch"];
    let got = between_sets(&numbers(want, "a"), &numbers(want, "b"), 0.05).unwrap().interval;
    near(got.lo, &want["lo"], "lo");
    near(got.hi, &want["hi"], "hi");
    assert_eq!((over_runs(&[1.0], 0.05), between_sets(&[1.0, 2.0], &[1.0], 0.05)), (None, None));
}

#[test]
fn what_is_needed() {
    // The textbook's two means a standard deviation apart: 2·(1.96 + 0.8416)² = 15.7.
    assert_eq!(needed_for(2.0, 1.0, 0.05, 0.8), Some(16));
    assert_eq!(needed_for(2.0, 0.0, 0.05, 0.8), None);
    assert_eq!(needed_to_bound(0.99, 0.05), Some(299));
    assert_eq!(needed_to_bound(0.5, 0.5), Some(1));
    assert_eq!(needed_to_bound(1.0, 0.05), None);
}

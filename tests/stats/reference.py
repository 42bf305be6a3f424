"""Writes reference.json: what lifelines, SciPy and statsmodels say about a few data sets, with the data themselves.

    python3 -m venv /tmp/stats && /tmp/stats/bin/pip install lifelines scipy statsmodels
    /tmp/stats/bin/python tests/stats/reference.py > tests/stats/reference.json

Written with lifelines 0.30.3, SciPy 1.17.1 and statsmodels 0.15.0. The variance of a restricted mean is not in any of
them (what lifelines calls so is the variance of the restricted time, not of its mean), so it is written out here, from
its definition, and held to SciPy's standard error of the mean where nothing is censored.
"""

import json
import math
import warnings

import numpy as np
from lifelines import KaplanMeierFitter
from lifelines.statistics import logrank_test, multivariate_logrank_test
from lifelines.utils import qth_survival_times, restricted_mean_survival_time
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep

warnings.simplefilter("ignore")

# Freireich et al. 1963, weeks of remission: 6-MP, and the control arm, where nothing is censored.
DATA = {
    "6-MP": (
        [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35],
        [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
    ),
    "control": ([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23], [1] * 21),
}


def drawn(seed, n, scale, horizon, digits):
    rng = np.random.default_rng(seed)
    times = np.round(rng.weibull(1.7, n) * scale + 0.5, digits)
    seen = times <= horizon
    return [float(min(t, horizon)) for t in times], [int(s) for s in seen]


# A horizon censors what was not seen by then; few digits make ties.
DATA["horizon-60"] = drawn(1, 60, 12.0, 15.0, 1)
DATA["horizon-200"] = drawn(2, 200, 15.0, 30.0, 2)
DATA["complete-120"] = drawn(3, 120, 14.0, 1e9, 3)
DATA["ties-80"] = drawn(4, 80, 8.0, 12.0, 0)


def finite(value):
    value = float(value)
    return value if math.isfinite(value) else None


def rmst_variance(times, seen, tau):
    times, seen = np.array(times, float), np.array(seen)
    events = sorted({t for t, s in zip(times, seen) if s and t <= tau})
    survival, steps = 1.0, []
    for t in events:
        n, d = int((times >= t).sum()), int(((times == t) & (seen == 1)).sum())
        survival *= 1 - d / n
        steps.append((t, survival, n, d))
    total = 0.0
    for i, (_, _, n, d) in enumerate(steps):
        area = 0.0
        for j in range(i, len(steps)):
            end = steps[j + 1][0] if j + 1 < len(steps) else tau
            area += steps[j][1] * (end - steps[j][0])
        if n > d:
            total += area**2 * d / (n * (n - d))
    return total


out = {"samples": {}, "curves": [], "restricted_means": [], "logrank": [], "quantiles_exact": []}
for name, (times, seen) in DATA.items():
    out["samples"][name] = {"seconds": [float(t) for t in times], "happened": [bool(s) for s in seen]}
    kmf = KaplanMeierFitter().fit(times, seen, alpha=0.05)
    band = kmf.confidence_interval_.copy()
    # Where the curve ends at 0, log(-log S) is not defined, and an upper limit of 0 would claim to know that nobody is
    # later: the limit stays where it was.
    end = (kmf.survival_function_.iloc[:, 0] <= 0).to_numpy()
    if end.any():
        band.iloc[end, 1] = band.iloc[~end, 1].iloc[-1]
    table = kmf.survival_function_.join(band)
    points = []
    for t in sorted({t for t, s in zip(times, seen) if s}):
        s, lo, hi = (float(v) for v in table.loc[float(t)])
        if 0 < s < 1:
            points.append({"t": float(t), "survival": s, "lo": lo, "hi": hi})
    quantiles = []
    for q in [0.25, 0.5, 0.75, 0.9, 0.99]:
        # A product such as 0.75 may come out a little above: that is rounding.
        left = 1 - q + 1e-9
        value = kmf.percentile(left)
        # The curve of the lower band reaches 1 - q first.
        limits = qth_survival_times(left, band)
        lo, hi = sorted(float(v) for v in limits.iloc[0])
        quantiles.append({"q": q, "value": finite(value), "lo": finite(lo), "hi": finite(hi)})
    out["curves"].append({"sample": name, "points": points, "quantiles": quantiles})
    for tau in [5.0, 10.0, 14.5]:
        if tau > max(times) and not all(seen):
            continue  # The curve is not known that far.
        mean = float(restricted_mean_survival_time(kmf, t=tau))
        out["restricted_means"].append(
            {"sample": name, "tau": tau, "mean": mean, "se": math.sqrt(rmst_variance(times, seen, tau))}
        )

whole = np.array(DATA["complete-120"][0])
assert abs(rmst_variance(*DATA["complete-120"], 1e4) ** 0.5 - stats.sem(whole, ddof=0)) < 1e-9

for a, b in [("6-MP", "control"), ("horizon-60", "horizon-200"), ("ties-80", "horizon-60"), ("complete-120", "horizon-200")]:
    test = logrank_test(DATA[a][0], DATA[b][0], DATA[a][1], DATA[b][1])
    out["logrank"].append({"samples": [a, b], "chi2": float(test.test_statistic), "p": float(test.p_value)})
names = ["horizon-60", "horizon-200", "ties-80", "complete-120"]
test = multivariate_logrank_test(
    np.concatenate([DATA[n][0] for n in names]),
    np.concatenate([[i] * len(DATA[n][0]) for i, n in enumerate(names)]),
    np.concatenate([DATA[n][1] for n in names]),
)
out["logrank"].append({"samples": names, "chi2": float(test.test_statistic), "p": float(test.p_value)})

# Order statistics: the exact interval of a quantile of a continuous law.
for name in ["control", "complete-120"]:
    for q in [0.25, 0.5, 0.75, 0.9]:
        values = DATA[name][0]
        interval = stats.quantile_test(values, p=q).confidence_interval(0.95)
        out["quantiles_exact"].append(
            {"sample": name, "q": q, "lo": finite(interval.low), "hi": finite(interval.high)}
        )

out["two_by_two"] = []
for k1, n1, k2, n2 in [
    (7, 10, 2, 12), (0, 25, 5, 25), (3, 3, 0, 4), (12, 200, 30, 210), (0, 40, 0, 50), (1, 1000, 9, 900),
    (480, 1000, 530, 1000), (2, 30000, 15, 29000),
]:
    table = [[k1, n1 - k1], [k2, n2 - k2]]
    low, high = confint_proportions_2indep(k1, n1, k2, n2, method="newcomb", compare="diff")
    out["two_by_two"].append({
        "k1": k1, "n1": n1, "k2": k2, "n2": n2,
        "p": float(stats.fisher_exact(table).pvalue),
        "difference_lo": float(low), "difference_hi": float(high),
    })

out["binomial"] = []
for k, n, p in [(0, 3, 0.5), (7, 20, 0.3), (0, 5, 0.2), (60, 100, 0.5), (4, 2000, 0.001), (3, 9, 0.75)]:
    test = stats.binomtest(k, n, p)
    ci = test.proportion_ci(0.95, method="exact")
    wilson = test.proportion_ci(0.95, method="wilson")
    out["binomial"].append({
        "k": k, "n": n, "p0": p, "p": float(test.pvalue),
        "lo": float(ci.low), "hi": float(ci.high), "wilson_lo": float(wilson.low), "wilson_hi": float(wilson.high),
    })
for k, n in [(99000, 100000), (17, 250000)]:
    ci = stats.binomtest(k, n, 0.5).proportion_ci(0.95, method="exact")
    wilson = stats.binomtest(k, n, 0.5).proportion_ci(0.95, method="wilson")
    out["binomial"].append({
        "k": k, "n": n, "p0": None, "p": None,
        "lo": float(ci.low), "hi": float(ci.high), "wilson_lo": float(wilson.low), "wilson_hi": float(wilson.high),
    })

# Poisson counts: Garwood's interval by chi-squared quantiles; the ratio conditionally on the sum, as a binomial share.
out["poisson"] = []
for k in [0, 1, 3, 10, 250]:
    lo = float(stats.chi2.ppf(0.025, 2 * k) / 2) if k else 0.0
    out["poisson"].append({"k": k, "lo": lo, "hi": float(stats.chi2.ppf(0.975, 2 * k + 2) / 2)})
out["poisson_ratio"] = []
for k1, e1, k2, e2 in [(0, 200000, 3, 200000), (12, 1000.5, 30, 990.0), (5, 10, 0, 40), (40, 8, 41, 8)]:
    share = e1 / (e1 + e2)
    test = stats.binomtest(k1, k1 + k2, share)
    ci = test.proportion_ci(0.95, method="exact")
    ratio = lambda s: (s / (1 - s)) * (e2 / e1) if s < 1 else math.inf
    out["poisson_ratio"].append({
        "k1": k1, "e1": e1, "k2": k2, "e2": e2, "p": float(test.pvalue),
        "lo": finite(ratio(ci.low)), "hi": finite(ratio(ci.high)),
    })
out["poisson_at_most"] = [
    {"k": k, "mean": m, "p": float(stats.poisson.cdf(k, m))} for k, m in [(0, 3.0), (2, 9.5), (40, 60.0), (0, 0.2)]
]

out["holm"] = []
for ps in [[0.01, 0.04, 0.03, 0.005], [0.2, 0.6, 0.9], [0.001, 0.0011, 0.5, 0.02, 0.02], [0.049]]:
    out["holm"].append({"p": ps, "adjusted": [float(v) for v in multipletests(ps, method="holm")[1]]})

out["student"] = [
    {"df": df, "p": p, "t": float(stats.t.ppf(p, df))} for df in [1, 2, 3, 4.6, 9, 100] for p in [0.95, 0.975, 0.995]
]
out["normal"] = [{"p": p, "z": float(stats.norm.ppf(p))} for p in [1e-9, 0.025, 0.3, 0.8, 0.9, 0.975, 0.9999]]
runs = [12.1, 12.9, 11.6, 12.4]
interval = stats.t.interval(0.95, 3, loc=np.mean(runs), scale=stats.sem(runs))
out["between_runs"] = {"means": runs, "lo": float(interval[0]), "hi": float(interval[1])}
other = [10.4, 11.9, 10.9]
welch = stats.ttest_ind(other, runs, equal_var=False).confidence_interval(0.95)
out["between_runs_welch"] = {"a": runs, "b": other, "lo": float(welch.low), "hi": float(welch.high)}

lines = []
for key, value in out.items():
    if isinstance(value, list):
        body = ",\n  ".join(json.dumps(item) for item in value)
        lines.append(f' "{key}": [\n  {body}\n ]')
    else:
        lines.append(f' "{key}": {json.dumps(value)}')
print("{\n" + ",\n".join(lines) + "\n}")

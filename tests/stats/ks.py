"""Writes ks.csv: p-values of the two-sided one-sample Kolmogorov-Smirnov test, by SciPy.

    python3 -m venv /tmp/ks && /tmp/ks/bin/pip install scipy && /tmp/ks/bin/python tests/stats/ks.py > tests/stats/ks.csv

Written with SciPy 1.17.1.
"""

from scipy.stats import kstest, kstwo

print("n,d,p")
for n in [1, 2, 3, 5, 10, 25, 60, 100, 240, 500, 1000, 2000, 2001, 5000, 30000]:
    for x in [0.3, 0.5, 0.7, 0.85, 1.0, 1.3, 1.63, 2.0, 3.0, 3.9]:
        d = x / n**0.5
        if 0.5 / n < d < 1:
            print(f"{n},{d!r},{float(kstwo.sf(d, n))!r}")

if __name__ == "__main__":
    import sys

    sample = kstest([10.1, 10.3, 10.35, 11.2, 11.9, 12.4], "uniform", (10, 2))
    print("the sample of the unit test:", sample.statistic, sample.pvalue, file=sys.stderr)

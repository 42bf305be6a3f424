//! Whether several survival curves are one.

use super::special::chi_squared_tail;
use super::survival::Observation;
use serde::Serialize;

/// A log-rank test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LogRank {
    /// The statistic, chi-squared under the null hypothesis.
    pub chi_squared: f64,
    /// Degrees of freedom: groups less one.
    pub df: usize,
    /// The probability of such a statistic, or a larger one, if the curves are one.
    pub p: f64,
}

/// The log-rank test of two or more groups (Mantel 1966; Peto and Peto 1972): observed less expected events, with the
/// hypergeometric variance. `None` where there is nothing to compare: fewer than two groups with somebody at risk at an
/// event.
#[must_use]
pub fn log_rank(groups: &[&[Observation]]) -> Option<LogRank> {
    let k = groups.len();
    let mut all: Vec<(Observation, usize)> = Vec::new();
    for (group, observations) in groups.iter().enumerate() {
        all.extend(observations.iter().filter(|o| !o.seconds.is_nan()).map(|o| (*o, group)));
    }
    all.sort_unstable_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds));
    let mut at_risk: Vec<f64> =
        groups.iter().map(|g| g.iter().filter(|o| !o.seconds.is_nan()).count() as f64).collect();
    let mut excess = vec![0.0; k];
    let mut variance = vec![vec![0.0; k]; k];
    let mut i = 0;
    while i < all.len() {
        let seconds = all[i].0.seconds;
        let same = all[i..].iter().take_while(|(o, _)| o.seconds.total_cmp(&seconds).is_eq()).count();
        let mut died = vec![0.0; k];
        for (o, group) in &all[i..i + same] {
            died[*group] += f64::from(u8::from(o.happened));
        }
        let (n, d): (f64, f64) = (at_risk.iter().sum(), died.iter().sum());
        if d > 0.0 {
            let spread = if n > 1.0 { d * (n - d) / (n - 1.0) } else { 0.0 };
            for a in 0..k {
                let share = at_risk[a] / n;
                excess[a] += died[a] - d * share;
                for b in 0..k {
                    let own = if a == b { share } else { 0.0 };
                    variance[a][b] += spread * (own - share * at_risk[b] / n);
                }
            }
        }
        for (_, group) in &all[i..i + same] {
            at_risk[*group] -= 1.0;
        }
        i += same;
    }
    // The last group follows from the others.
    let solved = solve(variance, excess.clone(), k.checked_sub(1)?)?;
    let chi_squared: f64 = solved.iter().zip(&excess).map(|(x, u)| x * u).sum();
    Some(LogRank { chi_squared, df: k - 1, p: chi_squared_tail(chi_squared, (k - 1) as f64) })
}

/// The solution of the first `n` rows and columns by elimination with pivots; `None` where they are singular.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>, n: usize) -> Option<Vec<f64>> {
    if n == 0 {
        return None;
    }
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-12 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..n {
            let factor = matrix[row][column] / matrix[column][column];
            let above = matrix[column].clone();
            matrix[row].iter_mut().zip(&above).skip(column).for_each(|(value, a)| *value -= factor * a);
            right[row] -= factor * right[column];
        }
    }
    let mut solution = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|c| matrix[row][c] * solution[c]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    Some(solution)
}

//! Several questions at once.

/// Holm's step-down correction (1979): adjusted p-values in the order of the given ones. Rejecting those below α keeps
/// the probability of even one false rejection at α, whatever the dependence.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut least = 0.0_f64;
    for (done, index) in order.into_iter().enumerate() {
        let left = (p_values.len() - done) as f64;
        least = least.max((p_values[index] * left).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}

//! The nearest valid name.

/// The candidate most like `name`, if it is at least `least` like it (0 to 1, normalised Damerau-Levenshtein).
pub(crate) fn nearest(name: &str, candidates: impl IntoIterator<Item = String>, least: f64) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(name, &candidate), candidate))
        .filter(|(likeness, _)| *likeness >= least)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

//! What the timers say of the layers: who acted, who certainly did not, of whom nothing is known.

use super::answer::{Component, Silent};
use super::timer::{Layer, Timer};
use serde::Serialize;

/// One layer in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerWord {
    /// Which.
    pub layer: Layer,
    /// `fired`, `silent`, `mixed` or `unknown`.
    pub state: &'static str,
    /// The sentence.
    pub words: String,
}

/// One sentence for each layer that has timers in the list.
pub(super) fn words(named: &[Component], silent: &[Silent], later: &[Timer], n: usize) -> Vec<LayerWord> {
    let one = |layer: Layer| {
        let fired: Vec<&Component> = named.iter().filter(|c| c.timer.layer == layer).collect();
        let quiet: Vec<&Silent> = silent.iter().filter(|s| s.timer.layer == layer).collect();
        let late: Vec<&Timer> = later.iter().filter(|t| t.layer == layer).collect();
        let mut said = Vec::new();
        for component in &fired {
            let perhaps = if component.alternatives.is_empty() { "" } else { "perhaps: " };
            said.push(format!("{perhaps}{}", component.timer.says));
        }
        if let Some(first) = quiet.first() {
            let ids: Vec<&str> = quiet.iter().map(|s| s.timer.id.as_str()).collect();
            said.push(format!(
                "{} ended none of these {n} (at most {} of such stalls)",
                names(&ids),
                percent(first.at_most)
            ));
        }
        if !late.is_empty() {
            let ids: Vec<&str> = late.iter().map(|t| t.id.as_str()).collect();
            said.push(format!("{} would have come later", names(&ids)));
        }
        let state = match (fired.is_empty(), quiet.is_empty(), late.is_empty()) {
            (false, ..) => "fired",
            (true, false, true) => "silent",
            (true, false, false) => "mixed",
            (true, true, false) => "unknown",
            (true, true, true) => return None,
        };
        Some(LayerWord { layer, state, words: said.join("; ") })
    };
    Layer::ALL.into_iter().filter_map(one).collect()
}

/// `0.0954` → `9.5 %`; a share below a thousandth keeps its digits.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 0.1 { format!("{percent:.1} %") } else { format!("{percent:.5} %") }
}

fn names(ids: &[&str]) -> String {
    match ids {
        [] => String::new(),
        [one] => (*one).to_string(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

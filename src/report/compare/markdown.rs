//! The comparison as a page for a CI summary.

use super::sentences::pair_name;
use super::terminal::{besides, header, lists, row};
use super::{Comparison, PairLine};
use crate::report::escape_markdown;

/// Pairs whose tables are shown before the page ends in a count of the rest.
const MOST_PAIRS: usize = 100;

/// The page.
pub(super) fn render(all: &Comparison) -> String {
    let mut out = String::from("# Comparison\n\n");
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    line(&escape_markdown(&all.question));
    line("");
    let answers = all.answers();
    answers.iter().take(MOST_PAIRS).for_each(|text| line(&format!("- {}", escape_markdown(text))));
    line("");
    gates(all, &mut line);
    for pair in all.pairs.iter().take(MOST_PAIRS) {
        table(pair, &mut line);
    }
    if all.pairs.len() > MOST_PAIRS {
        line(&format!("And {} more pairs; `compare.json` has them all.", all.pairs.len() - MOST_PAIRS));
        line("");
    }
    line("## How sure");
    line("");
    lists(all).iter().for_each(|text| line(&format!("- {}", escape_markdown(text))));
    line(
        "- Intervals hold 95 %. p is corrected for all questions that can fail the comparison (Holm); in brackets it is not. \
         What decides is marked with ◂: its doubt leaves the comparison open, \"worse\" in any corrected line fails it.",
    );
    out
}

fn gates(all: &Comparison, line: &mut impl FnMut(&str)) {
    let shown: Vec<_> = all.gates.iter().filter(|g| g.verdict != "held" || g.decides).take(2 * MOST_PAIRS).collect();
    if shown.is_empty() {
        return;
    }
    line("| verdict | gate | numbers |");
    line("|---|---|---|");
    for gate in shown {
        line(&format!("| **{}** | {} | {} |", gate.verdict, escape_markdown(&gate.text), escape_markdown(&gate.why)));
    }
    line("");
}

fn table(pair: &PairLine, line: &mut impl FnMut(&str)) {
    line(&format!("## {}", escape_markdown(&pair_name(pair))));
    line("");
    for text in &pair.changed {
        line(&format!("- {}", escape_markdown(text)));
    }
    line("");
    line(&format!("| {} |", header(pair).map(|cell| escape_markdown(&cell)).join(" | ")));
    line("|---|---|---|---|---|---|");
    for m in &pair.metrics {
        line(&format!("| {} |", row(m).map(|cell| escape_markdown(&cell)).join(" | ")));
    }
    line("");
    besides(pair).iter().for_each(|text| line(&format!("- {}", escape_markdown(text))));
    line("");
}

//! The table on the terminal.

use super::beside;
use super::cells;
use super::distortion;
use super::ledger;
use super::sentences;
use super::summary::Summary;
use super::text::{milliseconds, plain};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};

/// Plain text, no colours, ends with a line feed.
pub(super) fn render(summary: &Summary, width: Option<u16>) -> String {
    let name: sentences::Name<'_> = &|text| plain(text);
    let mut out = format!("{}: {}\n", plain(&summary.scenario.name), plain(&summary.scenario.question));
    let (header, rows) = cells::for_terminal(summary, name);
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header.iter().map(|title| Cell::new(*title)));
    if let Some(width) = width {
        table.set_width(width);
    }
    // What must not be torn apart, where the width allows it.
    for (title, least) in [(cells::OUTCOME, 13), (cells::TTD, 28), (cells::NOTICED_BY, 16)] {
        if let Some(column) = header.iter().position(|t| *t == title).and_then(|i| table.column_mut(i)) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
    }
    for row in rows {
        table.add_row(row.into_iter().map(|text| {
            let number = text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok();
            let cell = Cell::new(text);
            if number { cell.set_alignment(CellAlignment::Right) } else { cell }
        }));
    }
    out.push_str(&format!("{table}\n"));
    for reason in &summary.void_reasons {
        let details = if reason.example.is_empty() { String::new() } else { format!(": {}", plain(&reason.example)) };
        out.push_str(&format!("void {}× {}{details} (first: trial {})\n", reason.n, reason.reason, reason.first_trial));
    }
    for gate in &summary.gates {
        out.push_str(&format!("{}: {}: {}\n", gate.verdict, plain(&gate.text), sentences::gate_numbers(gate)));
    }
    for line in &summary.findings {
        out.push_str(&plain(line));
        out.push('\n');
    }
    for line in distortion::sentences(summary, name) {
        out.push_str(&line);
        out.push('\n');
    }
    for line in beside::lines(summary, name) {
        out.push_str(&line);
        out.push('\n');
    }
    for line in ledger::lines(summary, name) {
        out.push_str(&line);
        out.push('\n');
    }
    // What is simulated has no bracket to speak of.
    if let Some(b) = summary.brackets.filter(|b| b.max_s > 0.0) {
        out.push_str(&format!(
            "The instants of the cuts are known to {} (median), {} (p99).\n",
            milliseconds(b.median_s),
            milliseconds(b.p99_s)
        ));
    }
    out.push_str(&sentences::headline(summary));
    out.push('\n');
    out
}

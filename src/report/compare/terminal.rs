//! The comparison on the terminal.

use super::sentences::pair_name;
use super::words::{p_value, signed, span, value};
use super::{Comparison, MetricLine, PairLine, SideLine};
use crate::report::{plain, seconds};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, ContentArrangement, Table};

/// Plain text, no colours, ends with a line feed.
pub(super) fn render(all: &Comparison, width: Option<u16>) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    if !all.question.is_empty() {
        line(&all.question);
    }
    for pair in &all.pairs {
        line("");
        line(&pair_name(pair));
        pair.changed.iter().for_each(|text| line(&format!("  {text}")));
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = width {
            table.set_width(width);
        }
        table.set_header(header(pair).iter().map(Cell::new));
        for m in &pair.metrics {
            table.add_row(row(m).iter().map(Cell::new));
        }
        line(&table.to_string());
        besides(pair).iter().for_each(|text| line(text));
    }
    line("");
    lists(all).iter().for_each(|text| line(text));
    for gate in all.gates.iter().filter(|g| g.verdict != "held" && (g.decides || g.verdict != "inconclusive")) {
        line(&format!("{}: {}: {}", gate.verdict, gate.text, gate.why));
    }
    all.answers().iter().for_each(|text| line(text));
    out
}

/// The titles of the columns.
pub(super) fn header(pair: &PairLine) -> [String; 6] {
    let name = |side: &SideLine, letter: &str| {
        if pair.a.arm == pair.b.arm { format!("{letter} ({})", plain(&side.arm)) } else { plain(&side.arm) }
    };
    [
        "metric".to_string(),
        format!("{}, n = {}", name(&pair.a, "A"), pair.a.trials - pair.a.void),
        format!("{}, n = {}", name(&pair.b, "B"), pair.b.trials - pair.b.void),
        "difference (95 %)".to_string(),
        "p".to_string(),
        "verdict".to_string(),
    ]
}

/// A metric as a row.
pub(super) fn row(m: &MetricLine) -> [String; 6] {
    let shown = |v: Option<f64>| value(m.metric, v.unwrap_or(f64::INFINITY));
    let difference = signed(m.metric, m.difference.unwrap_or(f64::INFINITY));
    let p = match (m.p_adjusted, m.p) {
        (Some(adjusted), _) => p_value(adjusted),
        // A question that cannot fail the comparison takes no part in the correction.
        (None, Some(p)) => format!("({})", p_value(p)),
        (None, None) => "–".to_string(),
    };
    let verdict = if m.decides { format!("{} ◂", m.verdict.name()) } else { m.verdict.name().to_string() };
    [
        m.metric.words().to_string(),
        shown(m.a),
        shown(m.b),
        format!("{difference} ({})", span(m.metric, m.interval)),
        p,
        verdict,
    ]
}

/// The price and the race, beside the gain.
pub(super) fn besides(pair: &PairLine) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(test) = pair.log_rank {
        lines.push(format!("Curves of the time to detect: log-rank p {}.", equals(test.p)));
    }
    let both = |of: &dyn Fn(&SideLine) -> Option<f64>| (of(&pair.a), of(&pair.b));
    let rates = [
        ("heartbeat frames", both(&|s| s.price.heartbeats_per_s)),
        ("keepalive probes", both(&|s| s.price.keepalive_probes_per_s)),
    ];
    for (what, (a, b)) in rates {
        if a.is_some() || b.is_some() {
            let shown = |v: Option<f64>| v.map_or("0".to_string(), seconds);
            lines.push(format!("Price: {what} a second on a quiet connection: {} → {} (nominal).", shown(a), shown(b)));
        }
    }
    for (side, letter) in [(&pair.a, "A"), (&pair.b, "B")] {
        let Some(race) = side.race else { continue };
        let mut text = format!("Reaper's race, {letter}:");
        if let (Some(share), Some(i)) = (race.share, race.interval) {
            text.push_str(&format!(
                " first in {} of {} ({:.1} %, {:.1} to {:.1} %);",
                race.reaper_first,
                race.n,
                share * 100.0,
                i.lo * 100.0,
                i.hi * 100.0
            ));
        }
        if let (Some(p), Some(i)) = (race.probability, race.probability_interval) {
            let p = if (p.hi - p.lo).abs() < 5e-4 {
                format!("{:.1} %", p.lo * 100.0)
            } else {
                format!("{:.1} to {:.1} %, as some were never detected", p.lo * 100.0, p.hi * 100.0)
            };
            let (lo, hi) = (i.lo * 100.0, i.hi * 100.0);
            text.push_str(&format!(" over all phases of its sweep it is first in {p} ({lo:.1} to {hi:.1} %);"));
        }
        text.push_str(&match (race.window_max_s, race.window_open) {
            (None, 0) => " no window of duplicate execution.".to_string(),
            (max, open) => {
                let ended = max.map(|max| {
                    let median =
                        race.window_median_s.map_or("not reached".to_string(), |m| format!("{} s", seconds(m)));
                    format!("median {median}, longest that ended {} s", seconds(max))
                });
                let open = (open > 0).then(|| format!("{open} still open when the watch ended"));
                let parts: Vec<String> = [ended, open].into_iter().flatten().collect();
                format!(" window of duplicate execution: {}.", parts.join(", "))
            }
        });
        lines.push(text);
    }
    lines
}

fn equals(p: f64) -> String {
    match p_value(p) {
        text if text.starts_with('<') => text,
        text => format!("= {text}"),
    }
}

/// Differences and remarks.
pub(super) fn lists(all: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    for d in &all.doubts {
        lines
            .push(format!("Nothing is decided, because the sides differ in {d}. If that is meant: --allow {}", d.what));
    }
    for d in &all.allowed {
        lines.push(format!("Allowed: the sides differ in {d}."));
    }
    lines.extend(all.notes.iter().cloned());
    lines
}

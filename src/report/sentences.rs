//! The sentences that a report leads with, in plain text. Markdown escapes the names in them, the terminal only strips
//! control characters.

use super::summary::{CellSummary, Counts, GateSummary, Summary};
use super::text::{seconds, whole_seconds};
use crate::scenario::{Gate, Measure, NoWorse, Reference};
use crate::timers::{Side, Watcher};

/// A name from outside, as the form at hand wants it.
pub(super) type Name<'n> = &'n dyn Fn(&str) -> String;

/// What became of the run: trials by outcome, gates by verdict.
pub(super) fn headline(summary: &Summary) -> String {
    let mut text = format!("{}: {}.", plural(summary.totals.trials, "trial"), outcomes(&summary.totals));
    if !summary.gates.is_empty() {
        let n = |verdict: &str| summary.gates.iter().filter(|g| g.verdict == verdict).count();
        let verdicts: Vec<String> =
            ["held", "failed", "inconclusive"].iter().filter(|v| n(v) > 0).map(|v| format!("{} {v}", n(v))).collect();
        text.push_str(&format!(" Gates: {}.", verdicts.join(", ")));
    }
    if !summary.complete {
        text.push_str(" The run did not reach its end.");
    }
    text
}

/// The answer in a sentence or two: who is quickest, who is slowest, who never notices. Empty where nothing was cut.
pub(super) fn answer(summary: &Summary) -> String {
    let horizon = whole_seconds(summary.scenario.horizon_s);
    let cut: Vec<&CellSummary> =
        summary.cells.iter().filter(|c| !c.control && c.counts.detected + c.counts.censored > 0).collect();
    let several_faults = cut.iter().any(|c| (&c.fault, &c.scope) != (&cut[0].fault, &cut[0].scope));
    let name = |c: &CellSummary| {
        let plain = |text: &str| super::text::plain(text);
        if several_faults { format!("{} under {}", plain(&c.arm), fault(c, &plain)) } else { plain(&c.arm) }
    };
    let mut timed: Vec<(f64, &CellSummary)> = cut.iter().filter_map(|c| Some((c.ttd.median_s?, *c))).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let told = |(median, c): &(f64, &CellSummary)| {
        format!("{} s at the median, by {}", seconds(*median), watchers(c, &|text| text.to_string()))
    };
    let mut said = Vec::new();
    match timed.as_slice() {
        [] => {}
        [only] => said.push(format!("{} notices after {}.", name(only.1), told(only))),
        [first, .., last] => {
            said.push(format!("Quickest is {}: {}.", name(first.1), told(first)));
            said.push(format!("Slowest is {}: {}.", name(last.1), told(last)));
        }
    }
    let never: Vec<String> = cut.iter().filter(|c| c.counts.detected == 0).map(|c| name(c)).collect();
    let partly = cut.iter().filter(|c| c.counts.detected > 0 && c.counts.censored > 0).count();
    match never.as_slice() {
        [] => {}
        [one] => said.push(format!("{one} never notices within {horizon} s.")),
        few if few.len() <= 3 => said.push(format!("Within {horizon} s these never notice: {}.", few.join(", "))),
        many => said.push(format!("In {} of {} settings nobody notices within {horizon} s.", many.len(), cut.len())),
    }
    if partly > 0 {
        said.push(format!("In {partly} of {} some trials notice and others do not.", plural(cut.len(), "setting")));
    }
    let by_reaper = |o: &&super::WatcherSummary| o.watcher.parse::<Watcher>().is_ok_and(|w| w.side() == Side::Reaper);
    let reaped: usize = cut.iter().flat_map(|c| &c.outlooks).filter(by_reaper).map(|o| o.fired).sum();
    if reaped > 0 {
        let all: usize = cut.iter().map(|c| c.counts.detected + c.counts.censored).sum();
        said.push(format!("A reaper ended the stall in {reaped} of {}.", plural(all, "trial")));
    }
    let alarms = summary.totals.false_alarm;
    if alarms > 0 {
        said.push(format!("{} fired without a fault or before it.", plural(alarms, "watcher")));
    } else if cut.is_empty() && summary.cells.iter().any(|c| c.control && c.counts.survived > 0) {
        said.push("No watcher fired without a fault.".to_string());
    }
    if said.is_empty() { "Nothing was measured.".to_string() } else { said.join(" ") }
}

/// `20 detected, 3 censored, 1 void`: what there is.
pub(super) fn outcomes(counts: &Counts) -> String {
    let parts = [
        (counts.detected, "detected"),
        (counts.censored, "censored"),
        (counts.survived, "survived"),
        (counts.false_alarm, "false alarm"),
        (counts.subject_exited, "exited"),
        (counts.void, "void"),
    ];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { "nothing to count".to_string() } else { parts.join(", ") }
}

/// One cell in a sentence that needs no table.
pub(super) fn cell(cell: &CellSummary, horizon_s: f64, name: Name<'_>) -> String {
    let lead = format!("{} under {}", name(&cell.arm), fault(cell, name));
    let c = &cell.counts;
    if c.trials == c.void {
        return format!("{lead}: nothing measured, {} void.", all_of(c.void));
    }
    let mut said = Vec::new();
    if cell.control {
        let lead = format!("{} without a fault", name(&cell.arm));
        let n = c.survived + c.false_alarm;
        let alarms =
            if c.false_alarm == 0 { "no false alarm".to_string() } else { plural(c.false_alarm, "false alarm") };
        return format!("{lead}: {alarms} in {}.", plural(n, "trial"));
    }
    let certified = c.detected + c.censored;
    let horizon = whole_seconds(horizon_s);
    if certified > 0 && c.detected == 0 {
        said.push(format!("nobody noticed within {horizon} s (0 of {certified})"));
    } else if certified > 0 {
        said.push(format!("{} of {certified} noticed within {horizon} s{}", c.detected, times(cell)));
        said.push(format!("by {}", watchers(cell, name)));
        if let Some(median) = cell.ttr.median_s {
            said.push(format!("consuming again after {} s (median)", seconds(median)));
        } else if cell.ttr.events > 0 {
            said.push(format!("{} of {certified} consumed again", cell.ttr.events));
        } else {
            said.push("none consumed again".to_string());
        }
    }
    let rest = [
        (c.survived, "survived: healed in time"),
        (c.false_alarm, "fired before the cut"),
        (c.subject_exited, "ended with the client's own death"),
        (cell.kernel_ended_unnoticed, "given up by the kernel, and nobody acted on it"),
    ];
    said.extend(rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    format!("{lead}: {}.", said.join(", "))
}

fn times(cell: &CellSummary) -> String {
    let least = cell.ttd.min_s.map(seconds).unwrap_or_default();
    match (cell.ttd.median_s, cell.ttd.max_s) {
        (Some(median), Some(max)) => format!(", median {} s ({least} to {} s)", seconds(median), seconds(max)),
        (Some(median), None) => format!(", median {} s (from {least} s)", seconds(median)),
        (None, _) => format!(" (from {least} s, median not reached)"),
    }
}

/// `blackhole (flow)`.
pub(super) fn fault(cell: &CellSummary, name: Name<'_>) -> String {
    if cell.control { "no fault".to_string() } else { format!("{} ({})", name(&cell.fault), cell.scope) }
}

/// `keepalive`, or `keepalive 18, retransmit 2`; `unknown` for a watcher that the evidence does not tell.
pub(super) fn watchers(cell: &CellSummary, name: Name<'_>) -> String {
    let fired: Vec<_> = cell.watchers.iter().filter(|w| w.name != crate::verdict::watcher::NONE).collect();
    let shown = |text: &str| if text.is_empty() { "unknown".to_string() } else { name(text) };
    match fired.as_slice() {
        [] => "nobody".to_string(),
        [only] => shown(&only.name),
        several => {
            let each: Vec<String> = several.iter().map(|w| format!("{} {}", shown(&w.name), w.n)).collect();
            each.join(", ")
        }
    }
}

/// A watcher's name; `unknown` where the evidence does not tell.
pub(super) fn known(name: &str) -> String {
    if name.is_empty() { "unknown".to_string() } else { super::text::plain(name) }
}

/// The predicted window: `15.0 to 25.0`, `from 8.00`, `never`.
pub(super) fn window(cell: &CellSummary) -> String {
    match cell.predicted.map(|p| (p.lo_s, p.hi_s)) {
        None => super::text::NOTHING.to_string(),
        Some((Some(lo), Some(hi))) => format!("{} to {}", seconds(lo), seconds(hi)),
        Some((None, Some(hi))) => format!("up to {}", seconds(hi)),
        Some((Some(lo), None)) => format!("from {}, perhaps never", seconds(lo)),
        Some((None, None)) => "never".to_string(),
    }
}

/// A gate as a sentence without its numbers: `p99 of ttd_s ≤ 30, arm proposed`.
pub(super) fn gate(gate: &Gate) -> String {
    let what = match &gate.measure {
        Measure::Quantile(q) => format!("p{} of {}", (q * 1e6).round() / 1e4, gate.metric),
        Measure::Fraction(value) => format!("share of trials with {} = {value}", gate.metric),
        Measure::Uniform { from, to } => {
            format!("p of the Kolmogorov–Smirnov test of {} against uniform {from} to {to}", gate.metric)
        }
        Measure::Count(Some(value)) => format!("number of trials with {} = {value}", gate.metric),
        Measure::Count(None) => format!("number of trials with {}", gate.metric),
        Measure::Mean => format!("mean of {}", gate.metric),
        Measure::Rate => format!("{} an hour", gate.metric),
        Measure::BeforeReaper => "share of trials detected before the reaper".to_string(),
    };
    let bounds = match (gate.min, gate.max) {
        (Some(min), Some(max)) => format!(" from {min} to {max}"),
        (Some(min), None) => format!(" ≥ {min}"),
        (None, Some(max)) => format!(" ≤ {max}"),
        (None, None) => String::new(),
    };
    let bounds = gate.no_worse.as_ref().map_or(bounds, no_worse);
    let arm = gate.arm.as_ref().map(|a| format!(", arm {a}")).unwrap_or_default();
    let fault = gate.fault.as_ref().map(|f| format!(", fault {f}")).unwrap_or_default();
    let sure = gate.confidence.map(|level| format!(", sure to {} %", percent(level))).unwrap_or_default();
    format!("{what}{bounds}{arm}{fault}{sure}")
}

/// ` no worse than current by 2`.
fn no_worse(rule: &NoWorse) -> String {
    let than = match &rule.than {
        Reference::Arm(name) => name.as_str(),
        Reference::Baseline => "the baseline",
    };
    let margin = if rule.relative { format!("{} %", percent(rule.margin)) } else { rule.margin.to_string() };
    format!(" no worse than {than} by {margin}")
}

fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// What a gate measured: `21.2 over 25 trials`, and how sure that is where the gate asks.
pub(super) fn gate_numbers(gate: &GateSummary) -> String {
    let value = match (gate.value, gate.reached) {
        (Some(value), _) => seconds_or_count(value),
        (None, false) => "not reached".to_string(),
        (None, true) => "nothing".to_string(),
    };
    let unknown = if gate.unknown > 0 { format!(", {} unknown", gate.unknown) } else { String::new() };
    format!("{value} over {}{unknown}{}", plural(gate.n, "trial"), sureness(gate))
}

/// `, difference -57.1 to -53.0 with 95 % on each side; about 120 trials a side would do`.
fn sureness(gate: &GateSummary) -> String {
    let mut text = String::new();
    if let (Some(interval), Some(level)) = (gate.interval, gate.level) {
        let end = |value: f64| {
            if value.is_finite() && value.abs() < 1e300 { seconds_or_count(value) } else { "open".to_string() }
        };
        let of = if gate.of_difference { "difference " } else { "" };
        let (lo, hi) = (end(interval.lo), end(interval.hi));
        text.push_str(&format!(", {of}{lo} to {hi} with {} % on each side", percent(level)));
    }
    if let Some(needed) = gate.needed {
        text.push_str(&format!("; about {} would decide", plural(needed, "trial")));
    }
    if !gate.why.is_empty() {
        text.push_str("; ");
        text.push_str(&super::text::plain(&gate.why));
    }
    text
}

fn seconds_or_count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 { format!("{value:.0}") } else { seconds(value) }
}

/// `1 trial`, `2 trials`.
pub(super) fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn all_of(n: usize) -> String {
    if n == 1 { "the only trial is".to_string() } else { format!("all {n} trials are") }
}

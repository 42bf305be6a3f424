//! The answer for a terminal.

use super::answer::{Answer, Component, Verdict};
use super::layers::percent;
use super::published::PublishedAnswer;
use super::timer::{Timer, short};
use std::fmt::Write;

/// More than this many names of the same kind are not read by anybody.
const MOST: usize = 6;

/// The answer in words. `told` says how the durations were read.
#[must_use]
pub fn render(answer: &Answer, told: &[String]) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for line in told {
        let _ = writeln!(out, "{line}");
    }
    let Some(s) = answer.sample else {
        out.push_str("No durations, no answer.\n");
        return out;
    };
    let _ = writeln!(
        out,
        "{}: mean {} s, median {} s, {} to {} s.{}",
        if s.n == 1 { "1 duration".to_string() } else { format!("{} durations", s.n) },
        short(s.mean_s),
        short(s.median_s),
        short(s.min_s),
        short(s.max_s),
        match s.resolution_s {
            0.0 => String::new(),
            unit => format!(" All are multiples of {} s: windows are taken that much wider.", short(unit)),
        }
    );
    if s.unresolved > 0 {
        let _ = writeln!(out, "{} more had no end while they were watched; they are in no count below.", s.unresolved);
    }
    let _ = writeln!(out, "\n{}", verdict(answer));
    for component in &answer.named {
        part(&mut out, component);
    }
    if !answer.named.is_empty() {
        let _ = writeln!(
            out,
            "  Ordinary work (at best {}) is {} times less likely.",
            answer.ordinary,
            times(answer.log_odds)
        );
    }
    if let Some(rest) = answer.rest.as_ref().filter(|_| !answer.named.is_empty()) {
        let _ = writeln!(
            out,
            "  Unexplained: {} of {} ({} to {} s, median {} s).",
            rest.n,
            s.n,
            short(rest.min_s),
            short(rest.max_s),
            short(rest.median_s)
        );
    }
    for c in answer.consistent.iter().take(MOST) {
        let tell = match c.durations_to_tell {
            Some(n) => format!("; about {n} durations would tell, were it this one"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "  Not {} ({}), though {} of {} lie in {}: {}{tell}.",
            c.timer.id,
            c.timer.name,
            c.share.k,
            c.share.n,
            c.timer.window(),
            c.why
        );
    }
    if !answer.layers.is_empty() {
        out.push_str("\nWhat that says of the layers:\n");
    }
    for line in &answer.layers {
        wrapped(&mut out, &format!("  {:<12} {}.", line.layer.name(), line.words), 15);
    }
    if !answer.silent.is_empty() {
        let words = "  Who ended none was off, not triggered, or watching something else (95 %, one-sided). Of those that would \
                     have come later nothing is known.";
        wrapped(&mut out, words, 2);
    }
    out
}

/// A line, continued with an indent.
fn wrapped(out: &mut String, line: &str, indent: usize) {
    const WIDTH: usize = 110;
    let mut column = 0;
    for (i, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if column + 1 + length > WIDTH && column > indent {
            let _ = write!(out, "\n{:indent$}{word}", "");
            column = indent + length;
        } else {
            out.push_str(if i == 0 { "" } else { " " });
            out.push_str(word);
            column += length + usize::from(i > 0);
        }
    }
    out.push('\n');
}

fn verdict(answer: &Answer) -> String {
    let names: Vec<&str> = answer.named.iter().map(|c| c.timer.id.as_str()).collect();
    match answer.verdict {
        Verdict::Named => format!("Fired: {}.", names.join(" and ")),
        Verdict::Indistinguishable => {
            let all = answer.named.iter().map(|c| {
                let ids = std::iter::once(&c.timer).chain(&c.alternatives).map(|t| t.id.as_str());
                ids.collect::<Vec<_>>().join(" or ")
            });
            format!("Indistinguishable: {}.", all.collect::<Vec<_>>().join("; and "))
        }
        Verdict::Unexplained => "Unexplained: no timer of the list is shown to have made these durations.".to_string(),
    }
}

fn part(out: &mut String, c: &Component) {
    let _ = writeln!(out, "  {}: {}, {}.", c.timer.id, c.timer.name, c.timer.layer);
    let _ = writeln!(
        out,
        "    It explains {} of {} ({}, 95 % interval {} to {}), from {} to {} s.",
        c.share.k,
        c.share.n,
        percent(c.share.k as f64 / c.share.n as f64),
        percent(c.share.lo),
        percent(c.share.hi),
        short(c.from_s),
        short(c.to_s)
    );
    if c.timer.check_s > 0.0 {
        let off = c.mean_s - c.nominal_mean_s;
        let side = if off < 0.0 { "below" } else { "above" };
        let _ = writeln!(
            out,
            "    Their mean is {} s, {} s {side} the {} s of the timer with its check as set.",
            short(c.mean_s),
            short(off.abs()),
            short(c.nominal_mean_s)
        );
    }
    if let Some(check) = &c.check {
        let as_set = if check.as_set { "as set" } else { "NOT as set" };
        let _ = writeln!(
            out,
            "    Effective check: {} s (95 % interval {} to {}), {as_set}: {} s.",
            short(check.check_s),
            short(check.lo_s),
            short(check.hi_s),
            short(check.nominal_s)
        );
    }
    match &c.fit {
        Some(fit) => {
            let _ = writeln!(
                out,
                "    Fit: Kolmogorov–Smirnov distance {:.3}, p = {:.3}, n = {}.",
                fit.distance, fit.p, fit.n
            );
        }
        None => out
            .push_str("    Fit: how this timer spreads within its window is not predicted; only the window counts.\n"),
    }
    for other in c.alternatives.iter().take(MOST) {
        let _ = writeln!(out, "    The same durations would come from {}: {} ({}).", other.id, other.name, other.layer);
    }
    if c.cluster_ruled_out {
        out.push_str("    A smooth cluster at the same place is ruled out as well.\n");
    } else if let Some(n) = c.durations_to_tell {
        let least = if c.timer.check_s > 0.0 { "about" } else { "at least" };
        let _ = writeln!(
            out,
            "    A smooth cluster that happens to lie there (coefficient of variation {:.3}) is not ruled out; {least} {n} \
             durations would do that. So does changing the setting: a timer moves with it.",
            c.cluster_cv
        );
    }
}

/// e^x as people read it.
fn times(log: f64) -> String {
    if log < 14.0 { format!("{:.0}", log.exp()) } else { format!("10^{:.0}", log / std::f64::consts::LN_10) }
}

/// What figures of a report say, in words.
#[must_use]
pub fn render_published(answer: &PublishedAnswer) -> String {
    let mut out = String::new();
    if answer.lines.is_empty() {
        out.push_str("Unexplained: no timer of the list gives these figures.\n");
    }
    for line in &answer.lines {
        let _ = writeln!(out, "{}", line.words);
    }
    let _ = writeln!(out, "{}", answer.caution);
    out
}

/// The list of timers as a table.
#[must_use]
pub fn list(timers: &[Timer]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["timer", "layer", "seconds", "what", "source"]);
    for t in timers {
        let window = t.window();
        table.add_row([t.id.as_str(), t.layer.name(), window.trim_end_matches(" s"), &t.name, &t.source]);
    }
    table.to_string()
}

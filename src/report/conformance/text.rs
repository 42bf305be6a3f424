//! The comparison on the terminal.

use super::samples::window_words;
use super::{Conformance, LabCell, MODEL, Pair, PairCell, SettingLine};
use crate::report::{plain, seconds};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, ContentArrangement, Table};

/// Plain text, no colours, ends with a line feed.
pub(super) fn render(all: &Conformance, width: Option<u16>) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = width {
        table.set_width(width);
    }
    let mut header = vec!["setting".to_string(), "fault".to_string(), "model s".to_string()];
    header.extend(all.labs.iter().map(|lab| format!("{} s", lab.name)));
    header.extend(all.pairs.iter().map(|p| format!("{} × {}", p.a, p.b)));
    table.set_header(header.iter().map(Cell::new));
    for setting in &all.settings {
        table.add_row(row(all, setting).iter().map(Cell::new));
    }
    line(table.to_string());
    for lab in &all.labs {
        let hz = lab.hz.map_or("HZ not known".to_string(), |hz| format!("HZ {hz}"));
        let rest: Vec<String> =
            lab.not_compared.iter().map(|(why, n)| format!("; not compared: {n} × {why}")).collect();
        line(format!("{}: Linux {}, {hz}, {} trials{}", lab.name, plain(&lab.kernel), lab.trials, rest.concat()));
    }
    for (lab, why) in &all.left_out {
        line(format!("{lab}: LEFT OUT: {}", plain(why)));
    }
    if !all.known_differences.is_empty() {
        line("The kernels differ here, and the model says so:".to_string());
        all.known_differences.iter().for_each(|words| line(format!("  {}", plain(words))));
    }
    for pair in all.pairs.iter().filter(|p| !p.misses.is_empty()) {
        line(format!("{} × {}: not alike:", pair.a, pair.b));
        pair.misses.iter().for_each(|words| line(format!("  {}", plain(words))));
        let more = pair.n - pair.agree - pair.misses.len();
        if more > 0 {
            line(format!("  and {more} more"));
        }
    }
    for pair in &all.pairs {
        line(sentence(pair, all.bound));
    }
    out
}

fn row(all: &Conformance, setting: &SettingLine) -> Vec<String> {
    let name = if setting.timed == "detection" {
        plain(&setting.arm)
    } else {
        format!("{}: {}", plain(&setting.arm), setting.timed)
    };
    let mut cells = vec![name, plain(&setting.fault), model(all, setting)];
    cells.extend(setting.labs.iter().map(detections));
    cells.extend(setting.pairs.iter().map(verdict));
    cells
}

/// One window, or one a lab where they differ.
fn model(all: &Conformance, setting: &SettingLine) -> String {
    let windows: Vec<(&str, String)> = setting
        .labs
        .iter()
        .zip(&all.labs)
        .filter(|(cell, _)| cell.left_out.is_empty() && cell.timed + cell.silent > 0)
        .map(|(cell, lab)| (lab.name.as_str(), window_words(cell.window)))
        .collect();
    match windows.as_slice() {
        [] => "–".to_string(),
        [(_, first), rest @ ..] if rest.iter().all(|(_, w)| w == first) => first.clone(),
        several => several.iter().map(|(lab, w)| format!("{lab} {w}")).collect::<Vec<_>>().join(", "),
    }
}

fn detections(cell: &LabCell) -> String {
    let timed = cell.min_s.zip(cell.max_s).map(|(lo, hi)| {
        let (lo, hi) = (seconds(lo), seconds(hi));
        let times = if lo == hi { lo } else { format!("{lo}–{hi}") };
        format!("{times} ({})", cell.timed)
    });
    match (timed, cell.silent) {
        (None, 0) => "–".to_string(),
        (None, n) => format!("nobody ({n})"),
        (Some(timed), 0) => timed,
        (Some(timed), n) => format!("{timed}, nobody ({n})"),
    }
}

fn verdict(pair: &PairCell) -> String {
    match (pair.agree, pair.n) {
        (_, 0) => "–".to_string(),
        (k, n) if k == n => format!("{k} of {n}"),
        (k, n) => format!("{k} of {n} DIFFER"),
    }
}

fn sentence(pair: &Pair, bound: f64) -> String {
    let name = format!("{} × {}", pair.a, pair.b);
    let Some(share) = pair.share else { return format!("{name}: nothing to compare") };
    let mut words = format!("{name}: {} of {} agree, {:.1} %", pair.agree, pair.n, share * 100.0);
    if let Some((k, n)) = pair.watchers {
        words.push_str(&format!("; the watcher too in {k} of {n}"));
    }
    if let Some(difference) = pair.median_difference_s.filter(|_| pair.a != MODEL) {
        words.push_str(&format!("; counterparts are {difference:.3} s apart at the median"));
    }
    let holds = if pair.holds { "holds" } else { "FAILS" };
    format!("{words}; the bound of {:.0} % {holds}", bound * 100.0)
}

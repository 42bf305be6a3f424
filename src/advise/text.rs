//! The answer as a person reads it: the verdict first, then faults, watchers, findings and assumptions.

use super::answer::{Answer, ArmLine, LintLine, Predicted};
use super::keys::key_lines;
use super::table::{Cell, layout, left_width, paint, wrap};
use super::words::{contenders, window};
use crate::config::{Origin, Severity};
use crate::timers::{Side, Watcher, WatcherPrediction, WatcherState};
use crate::units::print_duration;
use std::time::Duration;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// Colours: on a terminal only.
    pub colours: bool,
    /// Every watcher of every situation, where each setting comes from, and the price.
    pub explain: bool,
}

const GOOD: &str = "32";
const BAD: &str = "31";
const DIM: &str = "2";
const BOLD: &str = "1";
/// More arms than this are summed up in one verdict.
const VERDICT_LINES: usize = 12;

/// More arms than this are rows instead of columns.
const MATRIX_ARMS: usize = 4;

/// The whole text; ends with a line feed.
#[must_use]
pub fn render(answer: &Answer, style: &Style) -> String {
    let mut out = verdicts(answer, style);
    not_predicted(&mut out, answer, style);
    if answer.arms.is_empty() {
        return out;
    }
    out.push('\n');
    if answer.arms.len() <= MATRIX_ARMS {
        for arm in &answer.arms {
            paragraph(&mut out, &summary(arm, answer.arms.len() > 1), "", style);
        }
        out.push('\n');
    }
    if !answer.predictions.is_empty() {
        out.push_str(&faults(answer, style));
    }
    if style.explain {
        for p in &answer.predictions {
            let Some(arm) = answer.arms.iter().find(|a| a.name == p.arm) else { continue };
            out.push_str(&watchers(arm, p, answer.arms.len() > 1, style));
            price(&mut out, p, style);
        }
        answer.arms.iter().for_each(|arm| out.push_str(&settings(arm, style)));
    } else if let [arm] = &answer.arms[..] {
        for p in focus(&answer.predictions) {
            out.push_str(&watchers(arm, p, false, style));
        }
    }
    findings(&mut out, answer, style);
    if !answer.predictions.is_empty() {
        footer(&mut out, answer, style);
    }
    out
}

/// The keys of `--set` as a table.
#[must_use]
pub fn keys_text(style: &Style) -> String {
    let mut rows = vec![vec![Cell::plain("--set"), Cell::plain("what it is")]];
    rows.extend(key_lines().map(|k| vec![Cell::plain(format!("{}={}", k.name, k.example)), Cell::plain(k.doc)]));
    layout(&rows, style.width, style.colours)
}

fn verdicts(answer: &Answer, style: &Style) -> String {
    let mut out = String::new();
    if answer.verdicts.len() > VERDICT_LINES {
        out.push_str(&paint(&summed_up(answer), Some(BOLD), style.colours));
        out.push('\n');
        return out;
    }
    // Of an arm without a prediction the reason is said instead.
    for verdict in answer.verdicts.iter().filter(|verdict| !verdict.parts.is_empty()) {
        let text = match answer.verdicts.len() {
            1 => verdict.text.clone(),
            _ => format!("{}: {}", verdict.arm, verdict.text),
        };
        out.push_str(&paint(&text, Some(BOLD), style.colours));
        out.push('\n');
    }
    out
}

/// A line each for what there is no prediction for; what goes for every arm is said once.
fn not_predicted(out: &mut String, answer: &Answer, style: &Style) {
    let mut said: Vec<(&Option<String>, &str)> = Vec::new();
    for one in &answer.not_predicted {
        if said.contains(&(&one.fault, &one.why)) {
            continue;
        }
        said.push((&one.fault, &one.why));
        let like = answer.not_predicted.iter().filter(|other| (&other.fault, &other.why) == (&one.fault, &one.why));
        let arms: Vec<&str> = like.map(|other| other.arm.as_str()).collect();
        let whose = if one.fault.is_some() && arms.len() == answer.arms.len() {
            String::new()
        } else {
            format!("{}: ", arms.join(", "))
        };
        let fault = one.fault.as_ref().map_or(String::new(), |fault| format!("{fault}: "));
        paragraph(out, &format!("{whose}{fault}no prediction: {}", one.why), "", style);
    }
}

/// The quickest and the slowest of many arms in the first situation.
fn summed_up(answer: &Answer) -> String {
    let Some(first) = answer.predictions.first() else { return String::new() };
    let latest = |p: &&Predicted| p.detection.hi_s.unwrap_or(f64::INFINITY);
    let same: Vec<&Predicted> = answer.predictions.iter().filter(|p| p.situation == first.situation).collect();
    let by = |a: &&&Predicted, b: &&&Predicted| latest(a).total_cmp(&latest(b));
    let (Some(quick), Some(slow)) = (same.iter().min_by(by), same.iter().max_by(by)) else { return String::new() };
    let told = |p: &Predicted| format!("{} ({})", p.arm, who_and_window(p));
    format!("{} arms, {}: from {} to {}", answer.arms.len(), first.situation, told(quick), told(slow))
}

fn who(p: &Predicted) -> String {
    let names: Vec<&str> = contenders(p).iter().map(|w| w.name()).collect();
    if names.is_empty() { "nobody".to_string() } else { names.join(" or ") }
}

fn who_and_window(p: &Predicted) -> String {
    match p.detection.watcher {
        None => "nobody, ever".to_string(),
        Some(_) => format!("{} {}", who(p), window(p.detection.lo_s, p.detection.hi_s)),
    }
}

/// The same as a heading: where nobody on the connection notices, who is left.
fn verdict(p: &Predicted) -> String {
    match (p.detection.watcher, others(p).as_str()) {
        (None, "nobody") => "nobody, ever, on either side".to_string(),
        (None, others) => format!("nobody on the connection, ever; only {others}"),
        _ => who_and_window(p),
    }
}

fn colour_of(p: &Predicted) -> &'static str {
    if p.detection.hi_s.is_some() { GOOD } else { BAD }
}

/// Who frees the work if the client never does: the earliest of broker and reapers.
fn others(p: &Predicted) -> String {
    let fires = p.watchers.iter().filter(|w| w.side != Side::Subject && w.lo_s.is_some());
    let first = fires.min_by(|a, b| a.lo_s.unwrap_or(0.0).total_cmp(&b.lo_s.unwrap_or(0.0)));
    first.map_or("nobody".to_string(), |w| format!("{} {}", w.watcher, window(w.lo_s, w.hi_s)))
}

fn summary(arm: &ArmLine, several: bool) -> String {
    let of = |option: &str| arm.settings.iter().find(|s| s.option == option).map(|s| s.value.as_str());
    let mut parts = vec![format!("read_timeout {}", of("read_timeout").unwrap_or("none"))];
    if let Some(asked) = of("heartbeat") {
        let agreed =
            arm.heartbeat_in_force_s.map_or("none".to_string(), |s| print_duration(Duration::from_secs_f64(s)));
        let broker = of("broker_heartbeat").map_or(String::new(), |b| format!(", the broker's {b}"));
        parts.push(format!("heartbeat {agreed} (asked {asked}{broker})"));
    }
    parts.push(match (of("keepalive.idle"), of("keepalive.interval"), of("keepalive.probes")) {
        (Some(idle), Some(interval), Some(probes)) => format!("keepalive {idle} + {probes} × {interval}"),
        _ => "keepalive off".to_string(),
    });
    parts.push(format!("tcp_user_timeout {}", of("tcp_user_timeout").unwrap_or("none")));
    parts.push(format!("tcp_retries2 {}", arm.tcp_retries2));
    for option in ["health_check_interval", "consumer_timeout", "visibility_timeout", "queued_timeout"] {
        if let Some(value) = of(option) {
            parts.push(format!("{option} {value}"));
        }
    }
    let name = if several && arm.name != arm.subject { format!("{}: ", arm.name) } else { String::new() };
    format!("{name}{} on {}: {}", arm.subject, broker_spoken(arm.broker), parts.join(" · "))
}

fn broker_spoken(broker: &str) -> &str {
    if broker == "none" { "bare TCP" } else { broker }
}

fn faults(answer: &Answer, style: &Style) -> String {
    let single = answer.arms.len() == 1;
    if !single && let Some(text) = matrix(answer, style) {
        return text;
    }
    let mut header = vec![Cell::plain("fault"), Cell::plain("first to notice"), Cell::plain("after the fault")];
    if !single {
        header.insert(1, Cell::plain("arm"));
    }
    header.push(Cell::plain("broker or reaper"));
    let mut rows = vec![header];
    // By fault, so that the arms stand below one another.
    for situation in situations(answer) {
        for (i, p) in answer.predictions.iter().filter(|p| p.situation == situation).enumerate() {
            let beyond = match (p.horizon_s, p.detection.lo_s) {
                (Some(horizon), Some(lo)) if lo > horizon => format!(" (beyond the horizon of {horizon:.0} s)"),
                _ => String::new(),
            };
            let mut row = vec![
                Cell::plain(if i == 0 { situation.clone() } else { String::new() }),
                Cell::coloured(who(p), colour_of(p)),
                Cell::coloured(format!("{}{beyond}", window(p.detection.lo_s, p.detection.hi_s)), colour_of(p)),
                Cell::plain(others(p)),
            ];
            if !single {
                row.insert(1, Cell::plain(p.arm.clone()));
            }
            rows.push(row);
        }
    }
    layout(&rows, style.width, style.colours)
}

fn situations(answer: &Answer) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for p in &answer.predictions {
        if !all.contains(&p.situation) {
            all.push(p.situation.clone());
        }
    }
    all
}

/// Faults × arms, where that fits the width.
fn matrix(answer: &Answer, style: &Style) -> Option<String> {
    if answer.arms.len() > MATRIX_ARMS {
        return None;
    }
    let mut rows = vec![vec![Cell::plain("fault")]];
    rows[0].extend(answer.arms.iter().map(|a| Cell::plain(a.name.clone())));
    for situation in situations(answer) {
        let mut row = vec![Cell::plain(situation.clone())];
        for arm in &answer.arms {
            let found = answer.predictions.iter().find(|p| p.situation == situation && p.arm == arm.name);
            row.push(found.map_or(Cell::plain("–"), |p| Cell::coloured(who_and_window(p), colour_of(p))));
        }
        rows.push(row);
    }
    let last = rows.iter().filter_map(|r| r.last()).map(|c| c.text.chars().count()).max().unwrap_or(0);
    (left_width(&rows) + 2 + last <= style.width).then(|| layout(&rows, style.width, style.colours))
}

/// The first situation, and the one that is worst for the connection.
fn focus(all: &[Predicted]) -> Vec<&Predicted> {
    let latest = |p: &Predicted| p.detection.hi_s.unwrap_or(f64::INFINITY);
    let Some(first) = all.first() else { return Vec::new() };
    // The last of equals: a frozen peer in a call says more than one without.
    let worst = all.iter().max_by(|a, b| latest(a).total_cmp(&latest(b))).unwrap_or(first);
    if worst.situation == first.situation { vec![first] } else { vec![first, worst] }
}

fn row(w: &WatcherPrediction, first: bool) -> Vec<Cell> {
    let name = match w.side {
        Side::Reaper => format!("{} (reaper)", w.watcher),
        _ => w.watcher.to_string(),
    };
    let armed = if w.state == WatcherState::NeverArmed { "off" } else { "yes" };
    let fires = w.lo_s.is_some();
    let colour = match w.state {
        _ if first => Some(GOOD),
        WatcherState::NeverArmed => Some(DIM),
        WatcherState::Defeated | WatcherState::Suspended | WatcherState::FiredNotActedOn => Some(BAD),
        _ => None,
    };
    let prefix = match w.state {
        _ if first => "first: ",
        WatcherState::Later => "later: ",
        WatcherState::Suspended => "suspended: ",
        WatcherState::Defeated => "defeated: ",
        WatcherState::FiredNotActedOn => "not acted on: ",
        _ => "",
    };
    let window = if fires { window(w.lo_s, w.hi_s) } else { "never".to_string() };
    let cell = |text: String| Cell { text, colour };
    vec![cell(name), cell(armed.to_string()), cell(window), cell(format!("{prefix}{}", w.why))]
}

/// Whether a line says something about this stack; `--explain` shows all.
fn telling(w: &WatcherPrediction, arm: &ArmLine) -> bool {
    if w.lo_s.is_some() {
        return true;
    }
    match w.watcher {
        Watcher::ConnectTimeout | Watcher::SynRetries | Watcher::Fin | Watcher::Unreachable => false,
        Watcher::Persist | Watcher::SendTimeout | Watcher::Reset => false,
        Watcher::AmqpHeartbeat => arm.settings.iter().any(|s| s.option == "heartbeat"),
        Watcher::BrokerHeartbeat => arm.heartbeat_in_force_s.is_some(),
        Watcher::HealthCheck => arm.broker == "redis" && arm.subject == "celery",
        _ => w.side == Side::Subject || w.state != WatcherState::NeverArmed,
    }
}

fn watchers(arm: &ArmLine, p: &Predicted, several: bool, style: &Style) -> String {
    let first = contenders(p);
    let mut lines: Vec<&WatcherPrediction> = p.watchers.iter().filter(|w| style.explain || telling(w, arm)).collect();
    // Who fires, by time; then who could and does not; then who is off.
    let rank = |w: &WatcherPrediction| match (w.lo_s, w.state) {
        (Some(lo), _) => (0, lo),
        (None, WatcherState::NeverArmed) => (2, 0.0),
        _ => (1, 0.0),
    };
    lines.sort_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut rows = vec![["watcher", "armed?", "window", "why"].map(Cell::plain).to_vec()];
    rows.extend(lines.into_iter().map(|w| row(w, first.contains(&w.watcher) && w.lo_s.is_some())));
    let name = if several { format!("{}: ", p.arm) } else { String::new() };
    let heading = format!("{name}{}: {}", p.situation, verdict(p));
    format!("\n{}\n{}", paint(&heading, Some(BOLD), style.colours), layout(&rows, style.width, style.colours))
}

fn price(out: &mut String, p: &Predicted, style: &Style) {
    let price = &p.false_alarm;
    let text = match (price.survives_s, price.killer) {
        (Some(s), Some(killer)) => {
            format!("a fault of this kind that heals within {s:.1} s is survived; then {killer}")
        }
        _ => "any fault of this kind that heals is survived".to_string(),
    };
    paragraph(out, &format!("price: {text}"), "  ", style);
}

fn settings(arm: &ArmLine, style: &Style) -> String {
    let mut rows = vec![["setting", "value", "from"].map(Cell::plain).to_vec()];
    rows.extend(arm.settings.iter().map(|s| {
        let colour = (s.origin == Origin::Default).then_some(DIM);
        [&s.option, &s.value, &s.place].map(|text| Cell { text: text.clone(), colour }).to_vec()
    }));
    format!(
        "\n{}\n{}",
        paint(&format!("{}: settings in effect", arm.name), Some(BOLD), style.colours),
        layout(&rows, style.width, style.colours)
    )
}

fn findings(out: &mut String, answer: &Answer, style: &Style) {
    let shown: Vec<&LintLine> =
        answer.lints.iter().filter(|l| style.explain || l.lint.severity > Severity::Note).collect();
    if !shown.is_empty() {
        out.push_str(&format!("\n{}\n", paint("findings", Some(BOLD), style.colours)));
    }
    for line in &shown {
        let lint = &line.lint;
        let (word, colour) = match lint.severity {
            Severity::Error => ("error", BAD),
            Severity::Warning => ("warning", "33"),
            Severity::Note => ("note", DIM),
        };
        let place = lint.place.to_string();
        let whose = match (answer.arms.len(), line.arms.len()) {
            (1, _) => String::new(),
            (all, n) if all == n => " (every arm)".to_string(),
            (_, n) if n > 3 => format!(" ({n} arms)"),
            _ => format!(" ({})", line.arms.join(", ")),
        };
        out.push_str(&format!("  {} {}{whose}\n", paint(word, Some(colour), style.colours), place.trim_end()));
        paragraph(out, &lint.text, "    ", style);
        paragraph(out, &format!("→ {}", lint.mend), "    ", style);
    }
    let notes = answer.lints.len() - shown.len();
    if notes > 0 {
        out.push_str(&format!("\n  {notes} note{} more with --explain\n", if notes == 1 { "" } else { "s" }));
    }
    for not in &answer.not_understood {
        paragraph(out, &format!("not read: {}: {}", not.place, not.why), "  ", style);
    }
}

fn footer(out: &mut String, answer: &Answer, style: &Style) {
    let mut machines: Vec<String> = answer.arms.iter().map(|a| format!("Linux {}, HZ {}", a.kernel, a.hz)).collect();
    machines.dedup();
    let mut assumed = machines;
    assumed.extend(answer.assumed.iter().cloned());
    out.push('\n');
    paragraph(out, &format!("Assumed: {}.", assumed.join("; ")), "", style);
    if !style.explain {
        out.push_str("Every watcher and where each setting comes from: --explain. Other conditions: --keys.\n");
    }
}

fn paragraph(out: &mut String, text: &str, indent: &str, style: &Style) {
    let limit = style.width.saturating_sub(indent.len()).max(24);
    for (i, line) in wrap(text, limit).into_iter().enumerate() {
        out.push_str(indent);
        if i > 0 && indent.is_empty() {
            out.push_str("  ");
        }
        out.push_str(&line);
        out.push('\n');
    }
}

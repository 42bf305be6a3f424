//! The table and the explanation, as text. Pure.

use super::judge::{Answer, Class, Knowledge};
use super::rows::{Inspection, Risk, Row};
use super::suspect::Looks;
use crate::advise::{Cell, layout, window};
use crate::timers::{Watcher, WatcherPrediction, WatcherState};

/// How it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether risks have colours.
    pub colours: bool,
    /// Every watcher with its reason.
    pub explain: bool,
}

/// The whole text.
#[must_use]
pub fn render(inspection: &Inspection, shown: &Shown) -> String {
    let mut out = headline(inspection);
    out.push('\n');
    if !inspection.rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&inspection.rows, shown));
    }
    for row in inspection.rows.iter().filter(|row| row.looks >= Looks::Suspicious) {
        for suspicion in &row.suspicions {
            let (sign, sure) = (suspicion.sign.name(), suspicion.sure.name());
            out.push_str(&format!("  {}→{}: {sign}, {sure}: {}\n", row.local, row.peer, suspicion.why));
        }
    }
    for ended in &inspection.ended {
        out.push_str(&format!("  process {} {} ended while it was looked at\n", ended.pid, ended.name));
    }
    let answers = || inspection.rows.iter().flat_map(|row| &row.answers);
    if answers().any(|a| a.knowledge == Knowledge::AtMost) {
        out.push_str("\n* as far as can be seen from outside: a timer of the application's own may be sooner\n");
    }
    if answers().any(|a| a.knowledge == Knowledge::Unknown) {
        out.push_str("\n? what decides it could not be read: see what is missing with --explain\n");
    }
    for note in &inspection.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    if inspection.hz.is_none() {
        out.push_str("note: this kernel's HZ is not known; 250 is assumed\n");
    }
    if shown.explain {
        for row in &inspection.rows {
            out.push('\n');
            out.push_str(&explained(row, shown));
        }
    }
    out
}

fn headline(inspection: &Inspection) -> String {
    let rows = &inspection.rows;
    if rows.is_empty() {
        return format!("{}: no TCP connections", inspection.target);
    }
    let count = |risk: Risk| rows.iter().filter(|row| row.risk == risk).count();
    let parts = [
        (count(Risk::Open), "with a cut that nobody ever notices"),
        (count(Risk::Unknown), "of which it can't be told"),
        (count(Risk::Slow), "noticed only after more than a minute"),
        (count(Risk::Covered), "covered"),
    ];
    let told: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let plural = if rows.len() == 1 { "connection" } else { "connections" };
    format!("{}: {} TCP {plural}: {}", inspection.target, rows.len(), told.join(", "))
}

fn colour(risk: Risk) -> Option<&'static str> {
    match risk {
        Risk::Covered => Some("32"),
        Risk::Slow => Some("33"),
        Risk::Unknown => Some("35"),
        Risk::Open => Some("31"),
    }
}

fn looks_colour(looks: Looks) -> Option<&'static str> {
    match looks {
        Looks::Alive | Looks::Untested => None,
        Looks::Suspicious => Some("33"),
        Looks::HalfOpen => Some("31"),
    }
}

/// The answer for some classes: the worst of them.
fn worst<'a>(row: &'a Row, classes: &[Class]) -> Option<&'a Answer> {
    let rank = |a: &Answer| match (a.knowledge, a.hi_s) {
        (_, None) if a.knowledge != Knowledge::Unknown => f64::INFINITY,
        (Knowledge::Unknown, _) => f64::MAX,
        (_, hi) => hi.unwrap_or(0.0),
    };
    row.answers.iter().filter(|a| classes.contains(&a.class)).max_by(|a, b| rank(a).total_cmp(&rank(b)))
}

/// A window as the table has it: `70–72.4 s`, `never*`, `?`.
pub(super) fn told(answer: Option<&Answer>) -> String {
    match answer {
        None => "–".to_string(),
        Some(a) if a.knowledge == Knowledge::Unknown => "?".to_string(),
        Some(a) => {
            let mark = if a.knowledge == Knowledge::AtMost { "*" } else { "" };
            format!("{}{mark}", window(a.lo_s, a.hi_s))
        }
    }
}

fn table(rows: &[Row], shown: &Shown) -> String {
    let head =
        ["process", "connection", "speaks", "looks", "quiet", "idle", "in flight", "one way", "frozen", "protected by"];
    let mut cells = vec![head.map(Cell::plain).to_vec()];
    for row in rows {
        let process = row.owner.as_ref().map_or("?".to_string(), |owner| format!("{} {}", owner.pid, owner.name));
        let speaks = match row.client {
            Some(client) if client != row.protocol.name() => format!("{} ({client})", row.protocol.name()),
            _ => row.protocol.name().to_string(),
        };
        let classes: [&[Class]; 4] =
            [&[Class::Idle], &[Class::InFlight], &[Class::ToPeer, Class::FromPeer], &[Class::Frozen]];
        let windows = classes.map(|classes| told(worst(row, classes)));
        let state = if row.state == "ESTABLISHED" { String::new() } else { format!(" {}", row.state) };
        let mut line = vec![
            Cell::plain(process),
            Cell { text: format!("{}→{}{state}", row.local, row.peer), colour: colour(row.risk) },
            Cell::plain(speaks),
            Cell { text: row.looks.name().to_string(), colour: looks_colour(row.looks) },
            Cell::plain(format!("{:.0} s", row.last_data_received_s)),
        ];
        line.extend(windows.map(Cell::plain));
        line.push(Cell::plain(protection(row)));
        cells.push(line);
    }
    layout(&cells, shown.width, shown.colours)
}

/// The options that bear on who notices, in short.
pub(super) fn protection(row: &Row) -> String {
    let Some(options) = &row.options else { return "? (options could not be read)".to_string() };
    let mut parts = Vec::new();
    if options.keepalive {
        parts.push(format!(
            "keepalive {}/{}/{}",
            options.keepalive_idle_s, options.keepalive_interval_s, options.keepalive_probes
        ));
    }
    if options.user_timeout_ms > 0 {
        parts.push(format!("user timeout {} s", f64::from(options.user_timeout_ms) / 1000.0));
    }
    match row.heartbeat_s {
        Some(0) => parts.push("heartbeat off".to_string()),
        Some(seconds) => parts.push(format!("heartbeat {seconds} s")),
        None => {}
    }
    if options.rcvtimeo_ms > 0 && !options.nonblocking {
        parts.push(format!("SO_RCVTIMEO {} s", options.rcvtimeo_ms as f64 / 1000.0));
    }
    if let super::look::Wait::Poll { deadline_ms: Some(ms), alone: true } = row.wait {
        parts.push(format!("poll {} s", ms as f64 / 1000.0));
    }
    if parts.is_empty() { "nothing".to_string() } else { parts.join(", ") }
}

/// Of a silent cut nobody asks about FIN, ICMP or handshakes; of the rest, what is off has no reason to tell.
fn is_telling(line: &WatcherPrediction) -> bool {
    let never = [Watcher::SynRetries, Watcher::ConnectTimeout, Watcher::Fin, Watcher::Unreachable];
    let only_if_it_fires = [Watcher::Persist, Watcher::Reset];
    line.state != WatcherState::NeverArmed
        && !never.contains(&line.watcher)
        && (line.lo_s.is_some() || !only_if_it_fires.contains(&line.watcher))
}

fn explained(row: &Row, shown: &Shown) -> String {
    let who = row.owner.as_ref().map_or("nobody that may be looked at".to_string(), |owner| {
        let shared = match owner.shared_with {
            0 => String::new(),
            n => format!(", open in {n} more processes"),
        };
        format!("process {} {} (descriptor {}{shared})", owner.pid, owner.name, owner.fd)
    });
    let mut out = format!("{}→{} of {who}\n", row.local, row.peer);
    let timer = match row.timer_expires_s {
        Some(expires) => format!("{} timer, expires in {expires:.1} s", row.timer),
        None => "no timer runs".to_string(),
    };
    let channel = row.wait_channel.as_ref().map_or(String::new(), |channel| format!(" (in {channel})"));
    out.push_str(&format!("  {}; {timer}; {}{channel}\n", row.state, row.wait));
    out.push_str(&format!(
        "  data received {:.1} s ago, sent {:.1} s ago; {} bytes unread, {} not acknowledged\n",
        row.last_data_received_s, row.last_data_sent_s, row.unread, row.unacknowledged
    ));
    out.push_str(&format!("  protected by {}\n", protection(row)));
    out.push_str(&format!("  looks {}: the peer's kernel was heard {:.1} s ago", row.looks.name(), row.heard_s));
    out.push_str(match row.looks {
        Looks::Alive => "; whether anybody above it is alive can't be seen from this end\n",
        Looks::Untested => "; a half-open connection would look the same\n",
        Looks::Suspicious | Looks::HalfOpen => "\n",
    });
    for suspicion in &row.suspicions {
        out.push_str(&format!("  {}: {}, {}\n", suspicion.sure.name(), suspicion.sign.name(), suspicion.why));
    }
    for advice in &row.advice {
        out.push_str(&format!("  to close {}: {}\n", advice.closes.name(), advice.setting));
        out.push_str(&format!("    then {}; cost: {}\n", advice.then, advice.cost));
    }
    for missing in &row.missing {
        out.push_str(&format!("  missing: {missing}\n"));
    }
    for (index, answer) in row.answers.iter().enumerate() {
        let alike = |a: &&Answer| a.lines == answer.lines && (a.lo_s, a.hi_s) == (answer.lo_s, answer.hi_s);
        if let Some(before) = row.answers[..index].iter().find(alike) {
            out.push_str(&format!("  {}: as {}\n", answer.class.name(), before.class.name()));
            continue;
        }
        let who: Vec<&str> = answer.watchers.iter().map(|w| w.name()).collect();
        let who = if who.is_empty() { "nobody".to_string() } else { who.join(" or ") };
        let freed = answer
            .freed
            .and_then(|f| Some((f.watcher?, f)))
            .map_or(String::new(), |(watcher, f)| format!("; work given on by {watcher} {}", window(f.lo_s, f.hi_s)));
        out.push_str(&format!("  {}: {who}, {}{freed}\n", answer.class.name(), told(Some(answer))));
        if answer.knowledge == Knowledge::Unknown {
            continue;
        }
        let mut cells = vec![["", "watcher", "window", "why"].map(Cell::plain).to_vec()];
        for line in answer.lines.iter().filter(|line| is_telling(line)) {
            let cell = [String::new(), line.watcher.to_string(), window(line.lo_s, line.hi_s), line.why.clone()];
            cells.push(cell.map(Cell::plain).to_vec());
        }
        if cells.len() > 1 {
            out.push_str(&layout(&cells, shown.width, shown.colours));
        }
    }
    out
}

//! `report.md`.

use super::beside;
use super::cells;
use super::sentences;
use super::summary::Summary;
use super::text::{NOTHING, bytes, escape_markdown, milliseconds, quantile};
use crate::events::EffectiveOptions;
use crate::scenario::Settings;
use crate::store::ArmOptions;
use crate::units::utc_date_time;

/// The whole report.
pub(super) fn render(summary: &Summary) -> String {
    let mut out = Lines::default();
    let name: sentences::Name<'_> = &|text| escape_markdown(text);
    out.line(&format!("# {}", escape_markdown(&summary.scenario.name)));
    out.paragraph(&escape_markdown(&summary.scenario.question));
    out.paragraph(&format!("**{}**", sentences::headline(summary)));
    for cell in &summary.cells {
        out.line(&format!("- {}", sentences::cell(cell, summary.scenario.horizon_s, name)));
    }
    for line in &summary.findings {
        out.line(&format!("- {}", escape_markdown(line)));
    }
    for line in beside::lines(summary, name) {
        out.line(&format!("- {line}"));
    }
    gates(&mut out, summary);
    out.section("Time to detect and to recover");
    let (header, rows) = cells::for_page(summary, name);
    out.table(&header, &rows);
    out.paragraph(
        "Seconds from the cut. *Censored* is not noticed within the horizon; a quantile is *not reached* where too many \
         trials are censored. Void trials count nowhere.",
    );
    far_ends(&mut out, summary, name);
    messages(&mut out, summary, name);
    void(&mut out, summary);
    exactness(&mut out, summary);
    options(&mut out, &summary.arms);
    environment(&mut out, summary);
    out.text
}

fn gates(out: &mut Lines, summary: &Summary) {
    if summary.gates.is_empty() {
        return;
    }
    out.section("Gates");
    let rows: Vec<Vec<String>> = summary
        .gates
        .iter()
        .map(|g| vec![format!("**{}**", g.verdict), escape_markdown(&g.text), sentences::gate_numbers(g)])
        .collect();
    out.table(&["verdict", "gate", "measured"], &rows);
}

/// What the broker noticed, where it did: the other half of the answer.
fn far_ends(out: &mut Lines, summary: &Summary, name: sentences::Name<'_>) {
    let cells: Vec<_> = summary.cells.iter().filter(|c| c.broker_notice.events > 0).collect();
    if cells.is_empty() {
        return;
    }
    out.section("When the broker noticed");
    let rows: Vec<Vec<String>> = cells
        .iter()
        .map(|c| {
            let b = &c.broker_notice;
            let mut row = vec![name(&c.arm), sentences::fault(c, name), format!("{} of {}", b.events, b.n)];
            row.extend([b.min_s, b.median_s, b.max_s].map(|value| quantile(b, value)));
            row
        })
        .collect();
    out.table(&["arm", "fault", "noticed", "min s", "median", "max"], &rows);
}

fn messages(out: &mut Lines, summary: &Summary, name: sentences::Name<'_>) {
    let rows: Vec<Vec<String>> = summary
        .cells
        .iter()
        .filter_map(|c| {
            let m = c.messages?;
            let mut row = vec![name(&c.arm), sentences::fault(c, name)];
            row.extend([m.published, m.delivered, m.duplicated, m.unresolved].map(|n| n.to_string()));
            let stuck = c.stuck.unwrap_or_default();
            row.extend([stuck.median_s, stuck.p99_s, stuck.max_s].map(|value| quantile(&stuck, value)));
            Some(row)
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    out.section("Messages");
    let header =
        ["arm", "fault", "published", "delivered", "twice or more", "unresolved", "stuck median s", "p99", "max"];
    out.table(&header, &rows);
    out.paragraph("*Stuck* is the oldest message that waited at the cut or was published after it, of each trial.");
}

fn void(out: &mut Lines, summary: &Summary) {
    if summary.void_reasons.is_empty() {
        return;
    }
    out.section("Void trials");
    let rows: Vec<Vec<String>> = summary
        .void_reasons
        .iter()
        .map(|v| vec![v.reason.clone(), v.n.to_string(), v.first_trial.to_string(), escape_markdown(&v.example)])
        .collect();
    out.table(&["reason", "n", "first trial", "its details"], &rows);
}

fn exactness(out: &mut Lines, summary: &Summary) {
    out.section("How exact");
    match summary.brackets {
        Some(b) => out.line(&format!(
            "- The instants of {} are known to {} at the median, {} at p99, {} at most.",
            sentences::plural(b.n, "cut"),
            milliseconds(b.median_s),
            milliseconds(b.p99_s),
            milliseconds(b.max_s)
        )),
        None => out.line("- Nothing was cut."),
    }
    for cell in &summary.cells {
        let certified = cell.counts.detected + cell.counts.censored;
        let sides = [(cell.unexercised_to_broker, "broker"), (cell.unexercised_to_client, "client")];
        for (n, side) in sides.iter().filter(|(n, _)| *n > 0) {
            out.line(&format!(
                "- {} under {}: nobody sent anything towards the {side} during the cut in {n} of {certified}.",
                escape_markdown(&cell.arm),
                sentences::fault(cell, &|text| escape_markdown(text)),
            ));
        }
    }
    if !summary.sources.is_empty() {
        out.line(&format!("- Observed through {}.", escape_markdown(&summary.sources.join(", "))));
    }
    for note in &summary.notes {
        out.line(&format!("- {}", escape_markdown(note)));
    }
}

fn options(out: &mut Lines, arms: &[ArmOptions]) {
    out.section("Options asked for and effective");
    let mut rows = Vec::new();
    for arm in arms {
        let effective: Vec<String> = arm
            .effective
            .iter()
            .map(|set| {
                if arm.effective.len() == 1 {
                    shown(&set.options)
                } else {
                    format!("{}×: {}", set.n, shown(&set.options))
                }
            })
            .collect();
        let effective = if effective.is_empty() { NOTHING.to_string() } else { effective.join("; ") };
        rows.push(vec![escape_markdown(&arm.arm), escape_markdown(&asked(&arm.asked)), effective]);
    }
    out.table(&["arm", "asked for", "effective"], &rows);
}

/// Options as the scenario names them.
fn asked(s: &Settings) -> String {
    let mut parts = vec![
        s.subject.name().to_string(),
        format!("connect_timeout {}", s.connect_timeout),
        format!("read_timeout {}", s.read_timeout),
        match s.keepalive {
            Some(k) => format!("keepalive {}/{}/{}", k.idle.as_secs(), k.interval.as_secs(), k.probes),
            None => "keepalive off".to_string(),
        },
        format!("tcp_user_timeout {}", s.tcp_user_timeout),
    ];
    parts.extend(s.heartbeat.map(|h| format!("heartbeat {h}")));
    parts.extend(s.prefetch.map(|p| format!("prefetch {p}")));
    parts.extend(s.frame_max.map(|f| format!("frame_max {f}")));
    parts.extend(s.sysctl.iter().map(|(key, value)| format!("sysctl.{key} {value}")));
    parts.join(", ")
}

/// Options as the kernel and the broker say they are.
fn shown(o: &EffectiveOptions) -> String {
    let timeout = |ms: u64| if ms == 0 { "none".to_string() } else { format!("{ms} ms") };
    let mut parts = Vec::new();
    parts.extend(o.so_rcvtimeo_ms.map(|ms| format!("SO_RCVTIMEO {}", timeout(ms))));
    parts.extend(o.keepalive.map(|on| match (on, o.keepalive_idle_s, o.keepalive_interval_s, o.keepalive_probes) {
        (false, ..) => "keepalive off".to_string(),
        (true, Some(idle), Some(interval), Some(probes)) => format!("keepalive {idle}/{interval}/{probes}"),
        (true, ..) => "keepalive on".to_string(),
    }));
    parts.extend(o.tcp_user_timeout_ms.map(|ms| format!("TCP_USER_TIMEOUT {}", timeout(u64::from(ms)))));
    parts.extend(o.nonblocking.map(|on| if on { "non-blocking" } else { "blocking" }.to_string()));
    parts.extend(o.heartbeat_s.map(|s| format!("heartbeat {s} s")));
    parts.extend(o.frame_max.map(|f| format!("frame_max {f}")));
    parts.extend(o.prefetch.map(|p| format!("prefetch {p}")));
    if parts.is_empty() { NOTHING.to_string() } else { parts.join(", ") }
}

fn environment(out: &mut Lines, summary: &Summary) {
    out.section("Where and with what");
    let m = &summary.machine;
    let known = |text: &str| if text.is_empty() { "not known".to_string() } else { escape_markdown(text) };
    let mut machine = format!("- Kernel {} {}", known(&m.kernel), escape_markdown(&m.arch));
    let hz = m.hz.map(|hz| format!(", HZ {hz}")).unwrap_or_default();
    let cpus = m.cpus.map(|n| format!(", {}", sentences::plural(n as usize, "processor"))).unwrap_or_default();
    let memory = m.memory_bytes.map(|n| format!(", {} of memory", bytes(n))).unwrap_or_default();
    machine.push_str(&format!("{hz}{cpus}{memory}."));
    out.line(&machine);
    for (what, versions) in [("Brokers", &summary.brokers), ("Clients", &summary.clients)] {
        if !versions.is_empty() {
            let each: Vec<String> = versions.iter().map(|(name, v)| escape_markdown(&format!("{name} {v}"))).collect();
            out.line(&format!("- {what}: {}.", each.join(", ")));
        }
    }
    if !summary.memory.is_empty() {
        let each: Vec<String> = summary
            .memory
            .iter()
            .map(|m| {
                let processes =
                    if m.processes == 1 { "1 process".to_string() } else { format!("{} processes", m.processes) };
                format!("{} {} in {processes}", escape_markdown(&m.role), bytes(m.peak_rss_bytes))
            })
            .collect();
        out.line(&format!("- Peak memory: {}.", each.join(", ")));
    }
    let s = &summary.scenario;
    out.line(&format!(
        "- halfopen {}, engine {}, lab {}; started {}; seed {}; scenario {} (SHA-256 {}).",
        escape_markdown(&summary.tool.version),
        escape_markdown(&summary.engine),
        escape_markdown(&summary.lab),
        utc_date_time(summary.started_unix_s),
        s.seed,
        escape_markdown(&s.path),
        s.sha256.get(..12).unwrap_or(&s.sha256),
    ));
}

/// Lines with the blank ones that Markdown needs.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            self.blank();
            self.line(text);
            self.blank();
        }
    }

    fn section(&mut self, title: &str) {
        self.blank();
        self.line(&format!("## {title}"));
        self.blank();
    }

    fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        self.line(&format!("| {} |", header.join(" | ")));
        self.line(&format!("|{}", "---|".repeat(header.len())));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.blank();
    }
}

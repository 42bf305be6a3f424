//! What a report says below its first lines, as data: sections of paragraphs, lists and tables in plain text. Markdown
//! and HTML are both made of it, so their numbers can't differ.

use super::beside;
use super::cells;
use super::distortion;
use super::ledger;
use super::made;
use super::options;
use super::price;
use super::sentences;
use super::silence;
use super::summary::Summary;
use super::text::{NOT_REACHED, NOTHING, bytes, milliseconds, plain, quantile};
use crate::units::utc_date_time;

/// One section.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    /// A name for links and styles.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Its content, in order.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Block {
    /// Lines.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// A table for those who want to know more, with its heading.
    More(&'static str, Table),
    /// Words between tables; every second piece is a term.
    Note(&'static [&'static str]),
}

/// A table in plain text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    /// The titles of the columns.
    pub header: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell, and what it means where that has a look of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// The text.
    pub text: String,
    /// `held`, `failed`, `inconclusive`; `fired`, `silent`, `defeated`, `off`; or nothing.
    pub tone: &'static str,
}

impl Cell {
    /// A cell with a look.
    pub fn new(text: String, tone: &'static str) -> Self {
        Self { text, tone }
    }

    /// Whether it is a number, or stands in the place of one.
    pub fn is_number(&self) -> bool {
        self.tone.is_empty()
            && (self.text.parse::<f64>().is_ok() || [NOTHING, NOT_REACHED].contains(&self.text.as_str()))
    }

    /// Whether it is a verdict, which stands out in every form.
    pub fn is_verdict(&self) -> bool {
        ["held", "failed", "inconclusive"].contains(&self.tone)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: "" }
    }
}

impl Table {
    /// A table without any looks.
    pub fn new(header: &[&'static str], rows: Vec<Vec<String>>) -> Self {
        let rows = rows.into_iter().map(|row| row.into_iter().map(Cell::from).collect()).collect();
        Self { header: header.to_vec(), rows }
    }

    /// Whether a column holds numbers, by its first row.
    pub fn is_numeric(&self, column: &usize) -> bool {
        self.rows.first().and_then(|row| row.get(*column)).is_some_and(Cell::is_number)
    }
}

/// Names as they are: the form at hand escapes the whole text.
pub(super) const AS_IT_IS: sentences::Name<'static> = &|text| plain(text);

/// One sentence an arm and fault, what was found of the clients, then the tasks and what was published.
pub(super) fn findings(summary: &Summary) -> Vec<String> {
    let cells = summary.cells.iter().map(|c| sentences::cell(c, summary.scenario.horizon_s, AS_IT_IS));
    cells.chain(summary.findings.iter().map(|text| plain(text))).chain(beside::lines(summary, AS_IT_IS)).collect()
}

/// All sections that have something to say, in order.
pub(super) fn sections(summary: &Summary) -> Vec<Section> {
    let all = [
        gates(summary),
        Some(times(summary)),
        silence::section(summary),
        distortion::section(summary),
        far_ends(summary),
        messages(summary),
        made::section(summary),
        price::section(summary),
        ledger::section(summary),
        void(summary),
        Some(exactness(summary)),
        Some(options::section(summary)),
        Some(environment(summary)),
    ];
    all.into_iter().flatten().collect()
}

fn gates(summary: &Summary) -> Option<Section> {
    let row = |g: &super::GateSummary| {
        let verdict = Cell::new(g.verdict.clone(), tone(&g.verdict));
        vec![verdict, plain(&g.text).into(), sentences::gate_numbers(g).into()]
    };
    let table = Table { header: vec!["verdict", "gate", "measured"], rows: summary.gates.iter().map(row).collect() };
    (!summary.gates.is_empty()).then(|| Section { id: "gates", title: "Gates", blocks: vec![Block::Table(table)] })
}

/// The look of a verdict.
pub(super) fn tone(verdict: &str) -> &'static str {
    match verdict {
        "held" => "held",
        "failed" => "failed",
        _ => "inconclusive",
    }
}

fn times(summary: &Summary) -> Section {
    let (header, rows) = cells::for_page(summary, AS_IT_IS);
    let note: &[&str] = &[
        "Seconds from the cut. ",
        "Censored",
        " is not noticed within the horizon; a quantile is ",
        "not reached",
        " where too many trials are censored. Void trials count nowhere.",
    ];
    let blocks = vec![Block::Table(Table::new(&header, rows)), Block::Note(note)];
    Section { id: "times", title: "Time to detect and to recover", blocks }
}

/// What the broker noticed, where it did: the other half of the answer.
fn far_ends(summary: &Summary) -> Option<Section> {
    let again = summary.cells.iter().any(|c| c.redelivery.is_some());
    let row = |c: &super::CellSummary| {
        let b = &c.broker_notice;
        let mut row = vec![plain(&c.arm), sentences::fault(c, AS_IT_IS), format!("{} of {}", b.events, b.n)];
        row.extend([b.min_s, b.median_s, b.max_s].map(|value| quantile(b, value)));
        if again {
            let r = c.redelivery.unwrap_or_default();
            row.extend([r.min_s, r.median_s, r.max_s].map(|value| quantile(&r, value)));
            row.push(c.ghosts.map_or(NOTHING.to_string(), |n| n.to_string()));
        }
        row
    };
    let shown = |c: &&super::CellSummary| c.broker_notice.events > 0 || c.redelivery.is_some();
    let rows: Vec<_> = summary.cells.iter().filter(shown).map(row).collect();
    let mut header = vec!["arm", "fault", "noticed", "min s", "median", "max"];
    let mut blocks = Vec::new();
    if again {
        header.extend(["given to another min s", "median", "max", "messages"]);
    }
    let some = !rows.is_empty();
    blocks.push(Block::Table(Table::new(&header, rows)));
    if again {
        blocks.push(Block::Note(&[
            "",
            "Given to another",
            " is when the broker first gave a consumer what it had handed to the cut connection, and ",
            "messages",
            " are those, with the ones that waited in vain.",
        ]));
    }
    some.then_some(Section { id: "broker", title: "When the broker noticed", blocks })
}

fn messages(summary: &Summary) -> Option<Section> {
    let row = |c: &super::CellSummary| {
        let m = c.messages?;
        let mut row = vec![plain(&c.arm), sentences::fault(c, AS_IT_IS)];
        row.extend([m.published, m.delivered, m.duplicated, m.unresolved].map(|n| n.to_string()));
        let stuck = c.stuck.unwrap_or_default();
        row.extend([stuck.median_s, stuck.p99_s, stuck.max_s].map(|value| quantile(&stuck, value)));
        let latency = c.latency.unwrap_or_default();
        row.extend([latency.median_s, latency.p99_s].map(|value| quantile(&latency, value)));
        let by: Vec<String> = c.resolved_by.iter().map(|by| format!("{} {}", plain(&by.name), by.n)).collect();
        row.push(if by.is_empty() { NOTHING.to_string() } else { by.join(", ") });
        Some(row)
    };
    let rows: Vec<_> = summary.cells.iter().filter_map(row).collect();
    let counts = ["arm", "fault", "published", "delivered", "twice or more", "unresolved"];
    let header = [counts.as_slice(), &["stuck median s", "p99", "max", "each: median s", "p99", "ended by"]].concat();
    let note: &[&str] = &[
        "",
        "Stuck",
        " is the oldest message that waited at the cut or was published after it, of each trial, without those that the cut \
         connection still brought; a consumer (",
        "recovery",
        ") or a reaper's rule ended its wait. ",
        "Each",
        " is every message, from its publication to its end.",
    ];
    let some = !rows.is_empty();
    let blocks = vec![Block::Table(Table::new(&header, rows)), Block::Note(note)];
    some.then_some(Section { id: "messages", title: "Messages", blocks })
}

fn void(summary: &Summary) -> Option<Section> {
    let row =
        |v: &super::VoidCount| vec![v.reason.clone(), v.n.to_string(), v.first_trial.to_string(), plain(&v.example)];
    let rows: Vec<_> = summary.void_reasons.iter().map(row).collect();
    let some = !rows.is_empty();
    let blocks = vec![Block::Table(Table::new(&["reason", "n", "first trial", "its details"], rows))];
    some.then_some(Section { id: "void", title: "Void trials", blocks })
}

fn exactness(summary: &Summary) -> Section {
    let mut lines = vec![match summary.brackets {
        Some(b) => format!(
            "The instants of {} are known to {} at the median, {} at p99, {} at most.",
            sentences::plural(b.n, "cut"),
            milliseconds(b.median_s),
            milliseconds(b.p99_s),
            milliseconds(b.max_s)
        ),
        None => "Nothing was cut.".to_string(),
    }];
    for cell in &summary.cells {
        let certified = cell.counts.detected + cell.counts.censored;
        let sides = [(cell.unexercised_to_broker, "broker"), (cell.unexercised_to_client, "client")];
        for (n, side) in sides.iter().filter(|(n, _)| *n > 0) {
            lines.push(format!(
                "{} under {}: nobody sent anything towards the {side} during the cut in {n} of {certified}.",
                plain(&cell.arm),
                sentences::fault(cell, AS_IT_IS),
            ));
        }
    }
    if !summary.sources.is_empty() {
        lines.push(format!("Observed through {}.", plain(&summary.sources.join(", "))));
    }
    lines.extend(summary.notes.iter().map(|note| plain(note)));
    Section { id: "exact", title: "How exact", blocks: vec![Block::List(lines)] }
}

fn environment(summary: &Summary) -> Section {
    let m = &summary.machine;
    let known = |text: &str| if text.is_empty() { "not known".to_string() } else { plain(text) };
    let hz = m.hz.map(|hz| format!(", HZ {hz}")).unwrap_or_default();
    let cpus = m.cpus.map(|n| format!(", {}", sentences::plural(n as usize, "processor"))).unwrap_or_default();
    let memory = m.memory_bytes.map(|n| format!(", {} of memory", bytes(n))).unwrap_or_default();
    let mut lines = vec![format!("Kernel {} {}{hz}{cpus}{memory}.", known(&m.kernel), plain(&m.arch))];
    for (what, versions) in [("Brokers", &summary.brokers), ("Clients", &summary.clients)] {
        if !versions.is_empty() {
            let each: Vec<String> = versions.iter().map(|(name, v)| plain(&format!("{name} {v}"))).collect();
            lines.push(format!("{what}: {}.", each.join(", ")));
        }
    }
    if !summary.memory.is_empty() {
        let one = |m: &crate::store::MemoryUse| {
            let processes =
                if m.processes == 1 { "1 process".to_string() } else { format!("{} processes", m.processes) };
            format!("{} {} in {processes}", plain(&m.role), bytes(m.peak_rss_bytes))
        };
        let each: Vec<String> = summary.memory.iter().map(one).collect();
        lines.push(format!("Peak memory: {}.", each.join(", ")));
    }
    let s = &summary.scenario;
    lines.push(format!(
        "halfopen {}, engine {}, lab {}; started {}; seed {}; scenario {} (SHA-256 {}).",
        plain(&summary.tool.version),
        plain(&summary.engine),
        plain(&summary.lab),
        utc_date_time(summary.started_unix_s),
        s.seed,
        plain(&s.path),
        s.sha256.get(..12).unwrap_or(&s.sha256),
    ));
    Section { id: "where", title: "Where and with what", blocks: vec![Block::List(lines)] }
}

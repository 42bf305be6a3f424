//! `report.html`: one file that needs nothing else, no script, no font, no net.
//!
//! The first screen has the question, the answer and the picture; what follows is the document that `report.md` is made
//! of, with pictures in it. Every text from outside is escaped by the template engine; only pictures and the style sheet,
//! which are made here, are put in as they are. What is left out: a script. Everything can be read, printed and reached
//! by keyboard without one.

mod figures;

pub(super) use figures::pictures;

use super::Report;
use super::distortion;
use super::document::{self, Block, Cell, Section};
use super::lives::{self, Life};
use super::picture::{Picture, palette};
use super::sentences;
use super::text::{plain, plain_lines};
use crate::timers::Watcher;
use crate::units::utc_date_time;
use askama::Template;

/// A picture in both of its widths.
struct Figure {
    wide: String,
    narrow: String,
    caption: String,
    /// Its file in the run directory.
    file: String,
}

impl Figure {
    fn new(wide: &Picture, narrow: &Picture, caption: &str) -> Self {
        let file = format!("plots/{}.svg", wide.id);
        Self { wide: wide.inline(), narrow: narrow.inline(), caption: caption.to_string(), file }
    }
}

/// A word or two at the top of the page.
struct Chip {
    text: String,
    tone: &'static str,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'r> {
    style: String,
    name: String,
    question: String,
    answer: String,
    headline: String,
    verdict: Chip,
    chips: Vec<Chip>,
    ttd: Option<Figure>,
    stuck: Option<Figure>,
    /// Where a reaper cleans up, how long the work was stuck is half of the answer.
    stuck_first: bool,
    trials: Option<Figure>,
    lives: &'r [Life],
    all_trials: usize,
    findings: Vec<String>,
    sections: Vec<Section>,
    source: String,
}

impl Page<'_> {
    /// The class of a column that belongs to a watcher, for its colour.
    fn column(&self, header: &str) -> String {
        if header.parse::<Watcher>().is_ok() { palette::class(header) } else { String::new() }
    }

    fn cell_class(&self, cell: &Cell, header: &str) -> String {
        match cell.tone {
            "fired" => format!("fired {}", self.column(header)),
            "" if cell.is_number() => "num".to_string(),
            tone => tone.to_string(),
        }
    }

    fn signed(&self, at_s: &f64) -> String {
        lives::signed(*at_s)
    }

    fn is_term(&self, index: &usize) -> bool {
        index % 2 == 1
    }
}

/// The whole page. The same report gives the same bytes.
pub(super) fn render(report: &Report) -> String {
    let summary = &report.summary;
    let lives = &report.lives;
    let trials = (!lives.is_empty()).then(|| {
        let (wide, narrow) = figures::lives(lives);
        Figure::new(
            &wide,
            &narrow,
            "Seconds from the cut, which is the red line. The list below has every moment in words.",
        )
    });
    let page = Page {
        style: palette::page_style(),
        name: plain(&summary.scenario.name),
        question: plain(&summary.scenario.question),
        answer: sentences::answer(summary),
        headline: match distortion::label(summary, &|text| plain(text)) {
            Some(label) => format!("{} {label}", sentences::headline(summary)),
            None => sentences::headline(summary),
        },
        verdict: verdict(report),
        chips: chips(report),
        ttd: figures::ttd(report).map(|f| figure(&f, figures::TTD_CAPTION)),
        stuck: figures::stuck(report).map(|f| figure(&f, figures::STUCK_CAPTION)),
        stuck_first: report.reaper.is_some(),
        trials,
        lives,
        all_trials: summary.totals.trials,
        findings: document::findings(summary),
        sections: document::sections(summary),
        source: plain_lines(&report.source),
    };
    // Writing to memory can't fail, and the template is checked by the compiler.
    page.render().unwrap_or_default()
}

fn figure(curves: &super::picture::curves::Curves, caption: &str) -> Figure {
    Figure::new(&curves.draw(false), &curves.draw(true), caption)
}

/// What the exit code says, in words.
fn verdict(report: &Report) -> Chip {
    let summary = &report.summary;
    let n = summary.gates.len();
    let (text, tone) = match (summary.exit_code, n) {
        (0, 0) => ("complete, no gates".to_string(), "held"),
        (0, _) => (format!("every gate held: {n} of {n}"), "held"),
        (1, _) => {
            let failed = summary.gates.iter().filter(|g| g.verdict == "failed").count();
            (format!("{failed} of {n} gates failed"), "failed")
        }
        _ if !summary.complete => ("the run did not reach its end".to_string(), "inconclusive"),
        _ => ("inconclusive".to_string(), "inconclusive"),
    };
    Chip { text, tone }
}

/// Where the numbers come from, at a glance.
fn chips(report: &Report) -> Vec<Chip> {
    let s = &report.summary;
    let mut texts = vec![format!("engine {}", plain(&s.engine)), format!("lab {}", plain(&s.lab))];
    if !s.machine.kernel.is_empty() {
        texts.push(format!("Linux {}", plain(&s.machine.kernel)));
    }
    texts.extend((!s.distorted.is_empty()).then(|| "distorted".to_string()));
    texts.extend(s.machine.hz.map(|hz| format!("HZ {hz}")));
    texts.extend(s.brokers.iter().map(|(name, version)| plain(&format!("{name} {version}"))));
    texts.push(format!("halfopen {}", plain(&s.tool.version)));
    texts.push(format!("seed {}", s.scenario.seed));
    texts.push(utc_date_time(s.started_unix_s));
    texts.into_iter().map(|text| Chip { text, tone: "" }).collect()
}

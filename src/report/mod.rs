//! What a run says: one [`Summary`], computed once, and every form that it is shown in.
//!
//! Pure: `run.json` and events in, bytes out; the same bytes whenever a recorded run is rendered again. A number that
//! stands in two forms comes from the same field, and what `report.md` and `report.html` say in words is one document. What
//! is left out: writing files (`store`).

mod asked;
mod beside;
mod build;
mod cells;
pub mod compare;
pub mod conformance;
mod distortion;
mod document;
mod html;
mod junit;
mod ledger;
mod lives;
mod looks;
mod made;
mod markdown;
mod options;
mod picture;
mod price;
mod sentences;
mod silence;
mod summary;
mod sweeps;
mod tables;
mod terminal;
mod text;

pub use made::{MadeBy, MadeSummary};
pub use silence::WatcherSummary;
pub use summary::{
    AnomalyCount, CellSummary, Counts, DistortionLine, GateSummary, LedgerSummary, MessageCounts, NamedCount,
    Predicted, PublishedSummary, ScenarioSummary, StuckBeside, Summary, TaskSummary, VoidCount,
};
pub use tables::{connections_csv, messages_csv, trials_csv};
pub use text::{escape_markdown, plain, seconds};

use crate::events::Event;
use crate::scenario::ReaperSettings;
use crate::stats::{HlogError, write_hlog};
use crate::store::RunInfo;
use crate::units::hide_secrets;
use crate::verdict::{Judged, judge};

/// One arm under one fault, and its trials.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CellRows {
    /// Index into the scenario's arms.
    arm: usize,
    /// Index into the scenario's faults.
    fault: usize,
    /// Indices into the judged trials, in their order.
    rows: Vec<usize>,
}

/// A judged run with its summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The rows.
    pub judged: Judged,
    /// The numbers.
    pub summary: Summary,
    /// The rows of each cell of the summary.
    cells: Vec<CellRows>,
    /// Single trials, moment by moment.
    lives: Vec<lives::Life>,
    /// The scenario file.
    source: String,
    /// The fallback that cleans up.
    reaper: Option<ReaperSettings>,
}

impl Report {
    /// Judges the run and sums it up.
    #[must_use]
    pub fn new(run: &RunInfo, events: &[Event]) -> Self {
        let judged = judge(&run.plan, events).in_lab(&run.lab);
        let cells = build::cell_rows(&run.plan, &judged);
        let summary = build::summary(run, events, &judged, &cells);
        let (source, reaper) = (hide_secrets(&run.scenario.text).into_owned(), run.plan.scenario.reaper.clone());
        let mut report = Self { judged, summary, cells, lives: Vec::new(), source, reaper };
        report.lives = lives::chosen(&report, events);
        report
    }

    /// The exit code that the gates ask for: 0, 1 or 4.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.summary.exit_code
    }

    /// What `run.json` learns at the end from the events: effective options and the exactness of the cuts.
    pub fn complete(&self, run: &mut RunInfo) {
        run.arms.clone_from(&self.summary.arms);
        run.brackets = self.summary.brackets;
    }

    /// The summary as JSON, for `summary.json` and `--json`.
    #[must_use]
    pub fn json(&self) -> String {
        // The summary has no maps with keys that aren't text, the one thing that JSON refuses.
        let mut text = serde_json::to_string_pretty(&self.summary).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The report as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        markdown::render(&self.summary)
    }

    /// The report as one page that needs nothing else.
    #[must_use]
    pub fn html(&self) -> String {
        html::render(self)
    }

    /// The gates, and the run itself, as JUnit's XML.
    #[must_use]
    pub fn junit(&self) -> String {
        junit::render(&self.summary)
    }

    /// The pictures of the page, each as a file that stands alone.
    #[must_use]
    pub fn plots(&self) -> Vec<(String, String)> {
        html::pictures(self).into_iter().map(|p| (format!("plots/{}.svg", p.id), p.standalone())).collect()
    }

    /// The table for the terminal; `width` in columns, `None` for as wide as it gets.
    #[must_use]
    pub fn terminal(&self, width: Option<u16>) -> String {
        terminal::render(&self.summary, width)
    }

    /// The files of the run directory beside `run.json` and `events.jsonl`, by name. `messages.csv` and `stuck.hlog`
    /// only where messages flowed.
    ///
    /// # Errors
    /// [`HlogError`] if a time can't be held by a histogram.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, HlogError> {
        let mut files = vec![
            ("trials.csv".to_string(), trials_csv(&self.judged.trials)),
            ("connections.csv".to_string(), connections_csv(&self.judged.connections)),
        ];
        if !self.judged.messages.is_empty() {
            files.push(("messages.csv".to_string(), messages_csv(&self.judged.messages)));
            files.push(("stuck.hlog".to_string(), self.hlog("time that the oldest message was stuck", |r| r.stuck_s)?));
        }
        files.push(("summary.json".to_string(), self.json().into_bytes()));
        files.push(("ttd.hlog".to_string(), self.hlog("time to detect", |r| r.ttd_s)?));
        files.push(("report.md".to_string(), self.markdown().into_bytes()));
        files.push(("report.html".to_string(), self.html().into_bytes()));
        files.push(("junit.xml".to_string(), self.junit().into_bytes()));
        files.extend(self.plots().into_iter().map(|(name, svg)| (name, svg.into_bytes())));
        Ok(files)
    }

    fn hlog(
        &self,
        what: &str,
        value: impl Fn(&crate::verdict::TrialRow) -> Option<crate::verdict::Span>,
    ) -> Result<Vec<u8>, HlogError> {
        let comment = format!("{what}, microseconds; the tag is the arm; censored trials are not in it");
        let sample = |arm: &str| -> Vec<f64> {
            let rows = self.judged.trials.iter().filter(|r| r.arm == arm);
            // A clock that ran backwards is no time; it shows in trials.csv.
            rows.filter_map(&value).map(|s| s.as_secs()).filter(|s| *s >= 0.0).collect()
        };
        let samples: Vec<_> = self.summary.arms.iter().map(|a| (a.arm.clone(), sample(&a.arm))).collect();
        write_hlog(&comment, &samples, self.summary.length_s)
    }
}

//! What a run says: one [`Summary`], computed once, and every form that it is shown in.
//!
//! Pure: `run.json` and events in, bytes out; the same bytes whenever a recorded run is rendered again. A number that
//! stands in two forms comes from the same field. What is left out: pictures (HTML, SVG) and JUnit, which will read the
//! same summary; and writing files (`store`).

mod asked;
mod beside;
mod build;
mod cells;
mod markdown;
mod sentences;
mod summary;
mod tables;
mod terminal;
mod text;

pub use summary::{
    CellSummary, Counts, GateSummary, MessageCounts, NamedCount, Predicted, PublishedSummary, ScenarioSummary,
    StuckBeside, Summary, TaskSummary, VoidCount,
};
pub use tables::{connections_csv, messages_csv, trials_csv};
pub use text::{escape_markdown, plain, seconds};

use crate::events::Event;
use crate::stats::{HlogError, write_hlog};
use crate::store::RunInfo;
use crate::verdict::{Judged, judge};

/// A judged run with its summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The rows.
    pub judged: Judged,
    /// The numbers.
    pub summary: Summary,
}

impl Report {
    /// Judges the run and sums it up.
    #[must_use]
    pub fn new(run: &RunInfo, events: &[Event]) -> Self {
        let judged = judge(&run.plan, events).in_lab(&run.lab);
        let summary = build::summary(run, events, &judged);
        Self { judged, summary }
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

//! `halfopen compare`: two sides, each of one or more recorded runs, metric by metric: the difference, how sure it is, and
//! what it costs.
//!
//! Pure. What is left out: reading the runs (`store`), and gates of a scenario (`verdict`), which judge by the same
//! numbers. A side is an arm in some runs. Where each run holds both arms, they ran interleaved in one lab, and what differs
//! from run to run is taken from the differences within the runs; else from the runs themselves.

mod differences;
mod field;
mod junit;
mod lines;
mod markdown;
mod pairs;
mod price;
mod race;
mod sentences;
mod terminal;
mod words;

pub use differences::{Difference, What, between};
pub use field::Field;
pub use lines::{GateLine, MetricLine, PairLine, SideLine};
pub use price::Price;
pub use race::{Race, ReaperRule};

use crate::report::plain;
use crate::stats::{Standing, holm};
use crate::store::RunSamples;
use crate::verdict::metric::{Margin, Metric};
use pairs::{Raw, arms, faults, line, pair, side};
use sentences::{answer, pair_name, sentence};
use serde::Serialize;
use std::collections::BTreeSet;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// Which arm of the first side against which of the second; empty: those of one name, or in one run the first against
    /// each other.
    pub arms: Vec<(String, String)>,
    /// Margins that somebody named.
    pub margins: Vec<(Metric, Margin)>,
    /// Metrics whose doubt counts as well as their verdict.
    pub gates: Vec<Metric>,
    /// Differences that are meant.
    pub allowed: Vec<What>,
    /// A reaper to race against; else that of the scenario.
    pub reaper: Option<ReaperRule>,
}

/// The whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The first side's runs.
    pub a: Vec<String>,
    /// The second side's.
    pub b: Vec<String>,
    /// The question that the runs answer.
    pub question: String,
    /// Differences that forbid a comparison and were not allowed: with any of them there are no pairs.
    pub refused: Vec<Difference>,
    /// Differences that take the power to decide away.
    pub doubts: Vec<Difference>,
    /// Differences that were meant.
    pub allowed: Vec<Difference>,
    /// What else a reader should know.
    pub notes: Vec<String>,
    /// Arms × faults.
    pub pairs: Vec<PairLine>,
    /// The cases.
    pub gates: Vec<GateLine>,
    /// 0, 1 or 4.
    pub exit_code: u8,
}

impl Comparison {
    /// Compares; an empty `b` compares arms within the runs of `a`.
    #[must_use]
    pub fn new(a: &[RunSamples], b: &[RunSamples], request: &Request) -> Self {
        let within = b.is_empty();
        let other = if within { a } else { b };
        let paths = |runs: &[RunSamples]| runs.iter().map(|r| plain(&r.path.display().to_string())).collect::<Vec<_>>();
        let mut all = Self {
            a: paths(a),
            b: paths(other),
            question: a.first().map(|r| plain(&r.head.plan.scenario.question)).unwrap_or_default(),
            refused: Vec::new(),
            doubts: Vec::new(),
            allowed: Vec::new(),
            notes: Vec::new(),
            pairs: Vec::new(),
            gates: Vec::new(),
            exit_code: 4,
        };
        all.differences(a, other, request);
        if !all.refused.is_empty() {
            return all;
        }
        all.remarks(a, other, within);
        let mut pairs: Vec<(PairLine, Vec<Raw>)> = Vec::new();
        for (one, two) in arms(a, other, within, request) {
            for (fault, scope) in faults(a, other) {
                let sides = (side(a, &one, &fault, &scope), side(other, &two, &fault, &scope));
                if let (Some(sa), Some(sb)) = sides {
                    pairs.push(pair(&sa, &sb, within, (&fault, &scope), request));
                }
            }
        }
        all.correct(pairs);
        all.judge();
        all
    }

    fn differences(&mut self, a: &[RunSamples], b: &[RunSamples], request: &Request) {
        let Some(first) = a.first() else { return };
        let mut seen: BTreeSet<(What, String, String)> = BTreeSet::new();
        for run in a.iter().skip(1).chain(b) {
            for d in differences::between(&first.head, &run.head) {
                if !seen.insert((d.what, d.a.clone(), d.b.clone())) {
                    continue;
                }
                let place = match (request.allowed.contains(&d.what), d.what.forbids()) {
                    (true, _) => &mut self.allowed,
                    (false, true) => &mut self.refused,
                    (false, false) => &mut self.doubts,
                };
                place.push(d);
            }
        }
    }

    fn remarks(&mut self, a: &[RunSamples], b: &[RunSamples], within: bool) {
        let all: Vec<&RunSamples> = if within { a.iter().collect() } else { a.iter().chain(b).collect() };
        for run in all.iter().filter(|r| !r.head.complete) {
            self.notes.push(format!("{} did not reach its end.", plain(&run.path.display().to_string())));
        }
        let distorted: BTreeSet<String> = all
            .iter()
            .flat_map(|r| &r.head.plan.scenario.faults)
            .filter(|fault| !fault.injection.is_faithful())
            .map(|fault| fault.name().to_string())
            .collect();
        for fault in distorted {
            self.notes.push(format!(
                "The cut of {} is not in the path but on the subject's own side, or it answers: both sides are distorted \
                 alike there, and say nothing about half-open connections.",
                plain(&fault)
            ));
        }
        let fewest = if within { a.len() } else { a.len().min(b.len()) };
        self.notes.push(match fewest {
            1 => "One run a side: the intervals know how trials scatter within a run, not how runs differ from one \
                  another. Several runs a side would say."
                .to_string(),
            n => format!(
                "{n} runs a side: where a metric scatters more between runs than within, its interval is Student's over \
                 the runs."
            ),
        });
        if !within {
            self.notes.push(
                "The sides ran one after the other, not interleaved in one run: what changed on the machine in between is \
                 in the difference. Two arms of one scenario run side by side."
                    .to_string(),
            );
        }
    }

    /// Holm's correction over every question that can fail the comparison, then what each difference means.
    fn correct(&mut self, pairs: Vec<(PairLine, Vec<Raw>)>) {
        let judged = pairs.iter().flat_map(|(_, raw)| raw).filter(|r| r.judged);
        let p: Vec<f64> = judged.filter_map(|r| r.effect.p).collect();
        let mut adjusted = holm(&p).into_iter();
        for (mut pair, raw) in pairs {
            for r in raw {
                let p_adjusted = r.effect.p.filter(|_| r.judged).and_then(|_| adjusted.next());
                pair.metrics.push(line(&r, p_adjusted));
            }
            self.pairs.push(pair);
        }
    }

    fn judge(&mut self) {
        let mut gates = Vec::new();
        let doubts: Vec<String> =
            self.doubts.iter().map(|d| d.what.name().to_string()).collect::<BTreeSet<_>>().into_iter().collect();
        for pair in &self.pairs {
            let of = pair_name(pair);
            for trouble in &pair.trouble {
                let text = format!("{of}: enough trials are measurements");
                gates.push(GateLine { text, verdict: "error", decides: true, why: trouble.clone() });
            }
            for m in pair.metrics.iter().filter(|m| m.judged) {
                let text =
                    format!("{of}: {} no worse by more than {}", m.metric.words(), words::margin(m.metric, m.margin));
                let numbers = sentence(m);
                let (verdict, why) = match m.verdict {
                    Standing::Better | Standing::Equal => ("held", numbers),
                    Standing::Worse if doubts.is_empty() => ("failed", numbers),
                    Standing::Worse => (
                        "inconclusive",
                        format!(
                            "{numbers}; but the sides differ in {} too, and that may be the cause",
                            doubts.join(", ")
                        ),
                    ),
                    Standing::Inconclusive => ("inconclusive", numbers),
                };
                // Across kernels, versions or machines nothing is decided, neither way.
                let (verdict, why) = if verdict == "held" && m.decides && !doubts.is_empty() {
                    let too =
                        format!("{why}; but the sides differ in {} too, which decides nothing", doubts.join(", "));
                    ("inconclusive", too)
                } else {
                    (verdict, why)
                };
                let decides = m.decides || (m.verdict == Standing::Worse && !doubts.is_empty());
                gates.push(GateLine { text, verdict, decides, why });
            }
        }
        if self.pairs.is_empty() {
            let text = "the runs have an arm and a fault in common".to_string();
            gates.push(GateLine {
                text,
                verdict: "error",
                decides: true,
                why: "they have none; name them with --arms".to_string(),
            });
        }
        if self.notes.iter().any(|n| n.ends_with("did not reach its end.")) {
            let text = "the runs reached their end".to_string();
            gates.push(GateLine { text, verdict: "error", decides: true, why: "at least one did not".to_string() });
        }
        let any = |verdict: &str| gates.iter().any(|g| g.verdict == verdict && g.decides);
        self.exit_code = if gates.iter().any(|g| g.verdict == "failed") {
            1
        } else if any("inconclusive") || any("error") {
            4
        } else {
            0
        };
        self.gates = gates;
    }

    /// As JSON, for `--json` and `compare.json`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        // Every key is a text.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The tables for the terminal; `width` in columns, `None` for as wide as it gets.
    #[must_use]
    pub fn terminal(&self, width: Option<u16>) -> String {
        terminal::render(self, width)
    }

    /// A page for a CI summary, below [`Comparison::MOST_MARKDOWN`].
    #[must_use]
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// The largest page: what GitHub takes as a step's summary.
    pub const MOST_MARKDOWN: usize = 1 << 20;

    /// A case a gate.
    #[must_use]
    pub fn junit(&self) -> String {
        junit::render(self)
    }

    /// The answer in a line a pair.
    #[must_use]
    pub fn answers(&self) -> Vec<String> {
        self.pairs.iter().map(answer).collect()
    }
}

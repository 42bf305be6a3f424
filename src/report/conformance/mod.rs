//! One set of settings in several labs: where the model and the labs agree, pair by pair.
//!
//! Each lab ran the same scenarios with the same seed, so that a trial of one has its counterpart in the other: same
//! setting, same phase of the cut. The model stands beside each lab with the window that it gave for that lab's kernel.
//!
//! - **model × lab**: the trial lies in the window that the model gave it beforehand.
//! - **lab × lab**: the difference of the two counterparts is one that the two windows allow. On equal kernels that is
//!   the window's own width; where the kernels differ it is the difference that the model expects of them.
//!
//! Pure. What is left out: running anything.

mod samples;
mod text;

use crate::plan::Window;
use crate::store::RunInfo;
use crate::verdict::Judged;
use samples::{Sample, Setting};
use serde::Serialize;
use std::collections::BTreeMap;

/// The word for the model among the labs.
pub const MODEL: &str = "model";

/// What each pair must reach; the reference simulator, over all phases, agreed with 690 of 695 detections.
pub const BOUND: f64 = 0.97;

/// Misses that are listed for a pair.
const SHOWN: usize = 12;

/// One lab's run of one scenario.
#[derive(Debug, Clone)]
pub struct LabRun {
    /// `run.json`.
    pub run: RunInfo,
    /// Its events, judged.
    pub judged: Judged,
}

/// What all runs say together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conformance {
    /// What each pair must reach.
    pub bound: f64,
    /// The labs, in the order of the columns.
    pub labs: Vec<Lab>,
    /// Labs that were left out, with the reason.
    pub left_out: BTreeMap<String, String>,
    /// One line a setting and fault.
    pub settings: Vec<SettingLine>,
    /// Differences between the labs that must be, because their kernels differ.
    pub known_differences: Vec<String>,
    /// Each pair over all settings.
    pub pairs: Vec<Pair>,
    /// 0 every pair agrees at the bound, 1 one does not, 4 one has nothing to compare.
    pub exit_code: u8,
}

/// A lab and its kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lab {
    /// `vm`, `netns`, `docker`.
    pub name: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Its tick.
    pub hz: Option<u32>,
    /// Trials that were carried out.
    pub trials: usize,
    /// Trials that were void or ended otherwise, by what they were.
    pub not_compared: BTreeMap<String, usize>,
}

/// One setting under one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingLine {
    /// The scenario.
    pub scenario: String,
    /// The arm.
    pub arm: String,
    /// The fault.
    pub fault: String,
    /// What is timed: `detection`, or `unanswered SYN`.
    pub timed: &'static str,
    /// Each lab's part, in the order of the labs.
    pub labs: Vec<LabCell>,
    /// Each pair's part, in the order of the pairs.
    pub pairs: Vec<PairCell>,
}

/// What one lab says about one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabCell {
    /// Why the lab has it not; empty where it has.
    pub left_out: String,
    /// The hull of the windows that the model gave for this lab; none: not predicted.
    pub window: Option<Window>,
    /// How many were timed.
    pub timed: usize,
    /// How many saw nothing until the horizon.
    pub silent: usize,
    /// The earliest, in seconds.
    pub min_s: Option<f64>,
    /// The latest, in seconds.
    pub max_s: Option<f64>,
}

/// How two of them agree about one setting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairCell {
    /// Trials that agree.
    pub agree: usize,
    /// Of how many.
    pub n: usize,
}

/// How two of them agree about all settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// One.
    pub a: String,
    /// The other.
    pub b: String,
    /// Trials that agree.
    pub agree: usize,
    /// Of how many.
    pub n: usize,
    /// The share that agrees; none of nothing.
    pub share: Option<f64>,
    /// Whether the share reaches the bound.
    pub holds: bool,
    /// Median of the differences between counterparts, without their sign, in seconds; only between two labs.
    pub median_difference_s: Option<f64>,
    /// Trials whose watcher is one of those that the model named, and of how many; only beside the model.
    pub watchers: Option<(usize, usize)>,
    /// The first trials that do not agree, both sides.
    pub misses: Vec<String>,
}

impl Conformance {
    /// Compares. `names` are the columns, in order; `model` says whether the model is one of them.
    #[must_use]
    pub fn new(runs: &[LabRun], names: &[String], model: bool, left_out: BTreeMap<String, String>) -> Self {
        let labs: Vec<Lab> = names.iter().map(|name| lab(name, runs)).collect();
        let settings: Vec<Setting> = samples::settings(runs, names);
        let sides = sides(names, model);
        let lines: Vec<SettingLine> = settings.iter().map(|s| line(s, &sides)).collect();
        let pairs: Vec<Pair> = sides.iter().enumerate().map(|(i, side)| pair(side, i, &settings, &lines)).collect();
        let exit_code = if pairs.iter().any(|p| p.share.is_some() && !p.holds) {
            1
        } else if pairs.is_empty() || pairs.iter().any(|p| p.share.is_none()) {
            4
        } else {
            0
        };
        let mut known_differences: Vec<String> = Vec::new();
        for words in settings.iter().flat_map(|s| known(s, &labs)) {
            // An arm that is not there is not there under any fault.
            if !known_differences.contains(&words) {
                known_differences.push(words);
            }
        }
        Self { bound: BOUND, labs, left_out, settings: lines, known_differences, pairs, exit_code }
    }

    /// The table for the terminal; `width` in columns, `None` for as wide as it gets.
    #[must_use]
    pub fn terminal(&self, width: Option<u16>) -> String {
        text::render(self, width)
    }
}

/// A pair to compare.
#[derive(Debug, Clone)]
enum Side {
    /// The model and a lab, by its column.
    Model(String, usize),
    /// Two labs, by their columns.
    Labs((String, usize), (String, usize)),
}

fn sides(names: &[String], model: bool) -> Vec<Side> {
    let mut sides = Vec::new();
    if model {
        sides.extend(names.iter().enumerate().map(|(i, name)| Side::Model(name.clone(), i)));
    }
    for (i, a) in names.iter().enumerate() {
        for (j, b) in names.iter().enumerate().skip(i + 1) {
            sides.push(Side::Labs((a.clone(), i), (b.clone(), j)));
        }
    }
    sides
}

fn lab(name: &str, all: &[LabRun]) -> Lab {
    let runs: Vec<&LabRun> = all.iter().filter(|r| r.run.lab == *name).collect();
    let machine = runs.first().map(|r| &r.run.machine);
    let mut not_compared: BTreeMap<String, usize> = BTreeMap::new();
    for row in runs.iter().flat_map(|r| &r.judged.trials) {
        if !samples::counts(row) {
            let why = row.void_reason.as_ref().map(|why| format!(": {}", why.code())).unwrap_or_default();
            *not_compared.entry(format!("{}{why}", row.outcome)).or_default() += 1;
        }
    }
    Lab {
        name: name.to_string(),
        kernel: machine.map(|m| m.kernel.clone()).unwrap_or_default(),
        hz: machine.and_then(|m| m.hz),
        trials: runs.iter().map(|r| r.judged.trials.len()).sum(),
        not_compared,
    }
}

fn line(setting: &Setting, sides: &[Side]) -> SettingLine {
    let cell = |lab: &samples::LabSamples| {
        let times = || lab.samples.iter().filter_map(|s| s.seconds);
        LabCell {
            left_out: lab.left_out.clone(),
            window: lab.window(),
            timed: times().count(),
            silent: lab.samples.iter().filter(|s| s.seconds.is_none()).count(),
            min_s: times().min_by(f64::total_cmp),
            max_s: times().max_by(f64::total_cmp),
        }
    };
    let of_pair = |side: &Side| {
        let verdicts: Vec<bool> = compared(setting, side).into_iter().map(|c| c.agrees).collect();
        PairCell { agree: verdicts.iter().filter(|v| **v).count(), n: verdicts.len() }
    };
    SettingLine {
        scenario: setting.scenario.clone(),
        arm: setting.arm.clone(),
        fault: setting.fault.clone(),
        timed: setting.timed,
        labs: setting.labs.iter().map(cell).collect(),
        pairs: sides.iter().map(of_pair).collect(),
    }
}

/// One comparison: of a trial with its window, or of two counterparts.
struct Compared {
    agrees: bool,
    difference_s: Option<f64>,
    words: String,
}

fn compared(setting: &Setting, side: &Side) -> Vec<Compared> {
    let head = |sample: &Sample| format!("{} under {}, trial {}", setting.arm, setting.fault, sample.nth + 1);
    match side {
        Side::Model(name, i) => {
            let of = |s: &Sample| {
                let words = format!("{}: {name} {}, predicted {}", head(s), s.words(), samples::window_words(s.window));
                Some(Compared { agrees: s.agrees?, difference_s: None, words })
            };
            setting.labs[*i].samples.iter().filter_map(of).collect()
        }
        Side::Labs((a, i), (b, j)) => {
            let others: BTreeMap<_, _> = setting.labs[*j].samples.iter().map(|s| ((s.nth, s.attempt), s)).collect();
            let of = |one: &Sample| {
                let other = others.get(&(one.nth, one.attempt))?;
                let words = format!("{}: {a} {}, {b} {}", head(one), one.words(), other.words());
                let difference_s = one.seconds.zip(other.seconds).map(|(x, y)| (x - y).abs());
                Some(Compared { agrees: samples::alike(one, other)?, difference_s, words })
            };
            setting.labs[*i].samples.iter().filter_map(of).collect()
        }
    }
}

fn pair(side: &Side, index: usize, settings: &[Setting], lines: &[SettingLine]) -> Pair {
    let (agree, n) = lines.iter().fold((0, 0), |(k, n), l| (k + l.pairs[index].agree, n + l.pairs[index].n));
    let all: Vec<Compared> = settings.iter().flat_map(|s| compared(s, side)).collect();
    let mut differences: Vec<f64> = all.iter().filter_map(|c| c.difference_s).collect();
    differences.sort_by(f64::total_cmp);
    let (a, b, watchers) = match side {
        Side::Model(name, i) => {
            let told: Vec<bool> =
                settings.iter().flat_map(|s| &s.labs[*i].samples).filter_map(|s| s.watcher_agrees).collect();
            (MODEL.to_string(), name.clone(), Some((told.iter().filter(|yes| **yes).count(), told.len())))
        }
        Side::Labs((a, _), (b, _)) => (a.clone(), b.clone(), None),
    };
    let share = (n > 0).then(|| agree as f64 / n as f64);
    Pair {
        a,
        b,
        agree,
        n,
        share,
        holds: share.is_some_and(|share| share >= BOUND),
        median_difference_s: differences.get(differences.len() / 2).copied(),
        watchers,
        misses: all.into_iter().filter(|c| !c.agrees).map(|c| c.words).take(SHOWN).collect(),
    }
}

/// What differs because the kernels do: a setting that one of them has not, and windows that do not even overlap.
fn known(setting: &Setting, labs: &[Lab]) -> Vec<String> {
    let mut words = Vec::new();
    let name = format!("{} under {}", setting.arm, setting.fault);
    for (samples, lab) in setting.labs.iter().zip(labs) {
        if !samples.left_out.is_empty() {
            words.push(format!("{}: not in {}: {}", setting.arm, lab.name, samples.left_out));
        }
    }
    for (i, one) in setting.labs.iter().enumerate() {
        for (j, other) in setting.labs.iter().enumerate().skip(i + 1) {
            let (Some(x), Some(y)) = (one.window(), other.window()) else { continue };
            if apart(x, y) || apart(y, x) {
                let side = |k: usize, w| {
                    let Lab { name, kernel, .. } = &labs[k];
                    format!("{} s in {name} (Linux {kernel})", samples::window_words(Some(w)))
                };
                words.push(format!("{name}: {} {}, {}", setting.timed, side(i, x), side(j, y)));
            }
        }
    }
    words
}

/// Whether all of `a` is before all of `b`.
fn apart(a: Window, b: Window) -> bool {
    a.hi_s.zip(b.lo_s).is_some_and(|(hi, lo)| hi < lo)
}

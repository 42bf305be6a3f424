//! What a comparison needs of a recorded run, and no more: the head of `run.json` without its trials, and `trials.csv` and
//! `messages.csv` in one pass each. A run of a hundred thousand trials is read in a moment.

use super::dir::{MESSAGES, RUN, TRIALS};
use super::model::{ArmOptions, Machine, RunInfo, ScenarioSource, Tool};
use super::{RUN_FORMAT, StoreError};
use crate::events::EVENTS_VERSION;
use crate::scenario::Scenario;
use crate::verdict::Outcome;
use crate::verdict::sample::{Facts, Sample, is_reaper};
use csv::ByteRecord;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// `run.json` without its trials.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RunHead {
    /// Version of the run directory.
    format: u64,
    /// Version of the events.
    events_version: u64,
    /// Who wrote it.
    pub tool: Tool,
    /// Start of the run in seconds since 1970.
    pub started_unix_s: i64,
    /// `kernel` or `model`.
    pub engine: String,
    /// Where it ran.
    pub lab: String,
    /// The scenario as it was read.
    pub scenario: ScenarioSource,
    /// The seed.
    pub seed: u64,
    /// The machine.
    pub machine: Machine,
    /// Versions of the brokers.
    #[serde(default)]
    pub brokers: BTreeMap<String, String>,
    /// Versions of the clients.
    #[serde(default)]
    pub clients: BTreeMap<String, String>,
    /// Where the observations came from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Options asked for and effective.
    #[serde(default)]
    pub arms: Vec<ArmOptions>,
    /// Whether it reached its end.
    #[serde(default)]
    pub complete: bool,
    /// The plan's scenario.
    pub plan: PlanHead,
}

/// The part of a plan that a comparison looks at.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PlanHead {
    /// The scenario as read, overrides applied.
    pub scenario: Scenario,
}

impl From<&RunInfo> for RunHead {
    fn from(run: &RunInfo) -> Self {
        Self {
            format: u64::from(run.format),
            events_version: u64::from(run.events_version),
            tool: run.tool.clone(),
            started_unix_s: run.started_unix_s,
            engine: run.engine.clone(),
            lab: run.lab.clone(),
            scenario: run.scenario.clone(),
            seed: run.seed,
            machine: run.machine.clone(),
            brokers: run.brokers.clone(),
            clients: run.clients.clone(),
            sources: run.sources.clone(),
            arms: run.arms.clone(),
            complete: run.complete,
            plan: PlanHead { scenario: run.plan.scenario.clone() },
        }
    }
}

/// The trials of one arm under one fault in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSample {
    /// The arm.
    pub arm: String,
    /// The fault, by name.
    pub fault: String,
    /// Its scope.
    pub scope: String,
    /// What happened.
    pub sample: Sample,
}

/// A run as comparisons see it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSamples {
    /// Where it is.
    pub path: PathBuf,
    /// What was run, where and with what.
    pub head: RunHead,
    /// The cells, in the order in which they appear.
    pub cells: Vec<CellSample>,
}

/// Reads what a comparison needs.
///
/// # Errors
/// [`StoreError::NotARun`], [`StoreError::Newer`], [`StoreError::Malformed`] with file and line.
pub fn read_samples(path: &Path) -> Result<RunSamples, StoreError> {
    let head = read_head(path)?;
    let (cells, of_trial) = read_trials(path)?;
    let mut run = RunSamples { path: path.to_path_buf(), head, cells };
    read_messages(path, &of_trial, &mut run.cells)?;
    Ok(run)
}

fn read_head(path: &Path) -> Result<RunHead, StoreError> {
    let file = path.join(RUN);
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(StoreError::NotARun { path: path.to_path_buf(), missing: RUN });
        }
        Err(error) => return Err(StoreError::io("read", file)(error)),
    };
    let malformed = |why: String| StoreError::Malformed { path: file.clone(), line: None, why };
    #[derive(Deserialize)]
    struct Versions {
        format: u64,
        events_version: u64,
    }
    let newer = |what: &'static str, found: u64, known: u32| {
        (found > u64::from(known)).then(|| StoreError::Newer { path: file.clone(), what, found, known })
    };
    let head: Result<RunHead, _> = serde_json::from_slice(&bytes);
    // A later format may differ in everything but its versions.
    let versions = match &head {
        Ok(head) => Versions { format: head.format, events_version: head.events_version },
        Err(_) => serde_json::from_slice(&bytes).map_err(|e| malformed(e.to_string()))?,
    };
    let later = newer("format", versions.format, RUN_FORMAT)
        .or_else(|| newer("events_version", versions.events_version, EVENTS_VERSION));
    match later {
        Some(error) => Err(error),
        None => head.map_err(|e| malformed(e.to_string())),
    }
}

/// A CSV file with the places of the columns that are asked for.
struct Columns<const N: usize> {
    path: PathBuf,
    reader: csv::Reader<File>,
    at: [Option<usize>; N],
}

impl<const N: usize> Columns<N> {
    /// `None` where there is no such file.
    fn open(path: PathBuf, names: [&str; N]) -> Result<Option<Self>, StoreError> {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("read", path)(error)),
        };
        let mut reader = csv::ReaderBuilder::new().buffer_capacity(1 << 20).from_reader(file);
        let header = match reader.byte_headers() {
            Ok(header) => header.clone(),
            Err(error) => return Err(malformed(&path, &error)),
        };
        let at = names.map(|name| header.iter().position(|h| h == name.as_bytes()));
        Ok(Some(Self { path, reader, at }))
    }

    fn next(&mut self, record: &mut ByteRecord) -> Result<bool, StoreError> {
        self.reader.read_byte_record(record).map_err(|e| malformed(&self.path, &e))
    }

    fn cell<'r>(&self, record: &'r ByteRecord, column: usize) -> &'r [u8] {
        self.at[column].and_then(|i| record.get(i)).unwrap_or_default()
    }

    /// An empty cell is `None`; one that is no number is an error with its line.
    fn number(&self, record: &ByteRecord, column: usize) -> Result<Option<f64>, StoreError> {
        let cell = self.cell(record, column);
        if cell.is_empty() {
            return Ok(None);
        }
        let parsed = std::str::from_utf8(cell).ok().and_then(|text| text.parse::<f64>().ok());
        parsed.map(Some).ok_or_else(|| self.wrong(record, &format!("`{}` is no number", String::from_utf8_lossy(cell))))
    }

    fn wrong(&self, record: &ByteRecord, why: &str) -> StoreError {
        let line = record.position().map(|p| usize::try_from(p.line()).unwrap_or(usize::MAX));
        StoreError::Malformed { path: self.path.clone(), line, why: why.to_string() }
    }
}

fn malformed(path: &Path, error: &csv::Error) -> StoreError {
    let line = error.position().map(|p| usize::try_from(p.line()).unwrap_or(usize::MAX));
    StoreError::Malformed { path: path.to_path_buf(), line, why: error.to_string() }
}

/// The cells, and for each trial that is not void its cell.
type Read = (Vec<CellSample>, Vec<Option<usize>>);

fn read_trials(path: &Path) -> Result<Read, StoreError> {
    const NAMES: [&str; 16] = [
        "trial",
        "arm",
        "fault",
        "scope",
        "outcome",
        "fault_applied_s",
        "ttd_s",
        "ttr_s",
        "queued_s",
        "resolved_s",
        "resolved_by",
        "ended_s",
        "horizon_s",
        "healthy_s",
        "attempts",
        "void_reason",
    ];
    let Some(mut csv) = Columns::open(path.join(TRIALS), NAMES)? else {
        return Err(StoreError::NotARun { path: path.to_path_buf(), missing: TRIALS });
    };
    let mut cells: Vec<CellSample> = Vec::new();
    let mut of_trial: Vec<Option<usize>> = Vec::new();
    let mut record = ByteRecord::new();
    let mut last = 0;
    while csv.next(&mut record)? {
        let name = csv.cell(&record, 4);
        let Some(outcome) = Outcome::ALL.into_iter().find(|o| o.name().as_bytes() == name) else {
            return Err(csv.wrong(&record, &format!("`{}` is no outcome", String::from_utf8_lossy(name))));
        };
        let facts = Facts {
            outcome,
            fault_applied_s: csv.number(&record, 5)?,
            ttd_s: csv.number(&record, 6)?,
            ttr_s: csv.number(&record, 7)?,
            queued_s: csv.number(&record, 8)?,
            resolved_s: csv.number(&record, 9)?,
            by_reaper: std::str::from_utf8(csv.cell(&record, 10)).is_ok_and(is_reaper),
            ended_s: csv.number(&record, 11)?,
            horizon_s: csv.number(&record, 12)?.unwrap_or_default(),
            healthy_s: csv.number(&record, 13)?,
            attempts: csv.number(&record, 14)?.unwrap_or_default() as u64,
        };
        let key = [1, 2, 3].map(|column| csv.cell(&record, column));
        let same = |c: &CellSample| [&c.arm, &c.fault, &c.scope].iter().zip(key).all(|(a, b)| a.as_bytes() == b);
        // Arms take turns: the next cell is most often the one after the last.
        let guess = (last + 1) % cells.len().max(1);
        let found = if cells.get(guess).is_some_and(same) { Some(guess) } else { cells.iter().position(same) };
        last = found.unwrap_or_else(|| {
            let [arm, fault, scope] = key.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            cells.push(CellSample { arm, fault, scope, sample: Sample::default() });
            cells.len() - 1
        });
        cells[last].sample.add(&facts);
        let trial = csv.number(&record, 0)?.unwrap_or_default() as usize;
        if trial >= of_trial.len() && trial < 100_000_000 {
            of_trial.resize(trial + 1, None);
        }
        if let Some(slot) = of_trial.get_mut(trial).filter(|_| outcome != Outcome::Void) {
            *slot = Some(last);
        }
    }
    Ok((cells, of_trial))
}

fn read_messages(path: &Path, of_trial: &[Option<usize>], cells: &mut [CellSample]) -> Result<(), StoreError> {
    let names = ["trial", "published_s", "delivered_n", "resolved_s"];
    let Some(mut csv) = Columns::open(path.join(MESSAGES), names)? else { return Ok(()) };
    let mut record = ByteRecord::new();
    while csv.next(&mut record)? {
        let trial = csv.number(&record, 0)?.unwrap_or(-1.0) as usize;
        let Some(cell) = of_trial.get(trial).copied().flatten() else { continue };
        let deliveries = csv.number(&record, 2)?.unwrap_or_default() as u64;
        let (published, resolved) = (!csv.cell(&record, 1).is_empty(), !csv.cell(&record, 3).is_empty());
        cells[cell].sample.add_message(published, deliveries, resolved);
    }
    Ok(())
}

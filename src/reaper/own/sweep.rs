//! One sweep: read, ask, decide, brake, act.

use super::config::{Liveness, OwnConfig};
use super::database::{ActiveRow, Database, StoreError};
use super::workers;
use crate::reaper::rule::guard::{Stop, guard};
use crate::reaper::rule::liveness::{Stage, Why, Worker, judge};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A reaper with its stores. Connects when it first sweeps, and again after a sweep that failed.
pub struct Reaper {
    config: OwnConfig,
    act: bool,
    database: Option<Database>,
}

/// What was done with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Nothing: it was a dry run.
    WouldFail,
    /// It was failed.
    Failed,
    /// It was no longer as it was read: somebody finished it, touched it, or failed it first.
    ChangedMeanwhile,
    /// Nothing: the brake was on.
    HeldBack,
    /// The store did not say: here the sweep broke off. It may have been failed, or be failed yet.
    NotKnown,
    /// Nothing: the sweep broke off before it.
    NotDone,
}

/// A row that the rule fails.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Doomed {
    /// Its name.
    pub id: String,
    /// Its state in the table's own word.
    pub status: String,
    /// Its worker.
    pub worker_id: Option<String>,
    /// Since its last change.
    pub age_s: f64,
    /// The rule: `pending_timeout`, `processing_timeout`, `liveness_ttl`.
    pub rule: &'static str,
    /// The reason in words.
    pub why: String,
    /// What was done.
    pub deed: Deed,
}

/// What a sweep saw and did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepReport {
    /// The database's clock, in seconds since 1970.
    pub at_unix_s: f64,
    /// Rows in which nobody has begun.
    pub pending: usize,
    /// Rows in which somebody works.
    pub processing: usize,
    /// The oldest of either, in seconds.
    pub oldest_pending_s: Option<f64>,
    /// As above.
    pub oldest_processing_s: Option<f64>,
    /// Workers with tasks whose sign of life is there.
    pub workers_alive: usize,
    /// … and is not.
    pub workers_gone: usize,
    /// … and could not be asked for.
    pub workers_unknown: usize,
    /// The rows that the rule fails, the oldest first.
    pub doomed: Vec<Doomed>,
    /// Why nothing was failed although the rule says so.
    pub stopped: Option<String>,
    /// A word for it: `max_fail`, `max_share`, `every_worker_gone`.
    pub stopped_by: Option<&'static str>,
    /// What could not be known, in words.
    pub doubts: Vec<String>,
    /// Where and why it broke off among the rows that it was to fail; what it had done until then stays done.
    pub broke_off: Option<String>,
}

impl Reaper {
    /// A reaper that fails rows only where it is told to `act`.
    #[must_use]
    pub fn new(config: OwnConfig, act: bool) -> Self {
        Self { config, act, database: None }
    }

    /// One sweep.
    ///
    /// # Errors
    /// The database's, before anything was changed. A sweep that breaks off after that says so in its report.
    pub async fn sweep(&mut self) -> Result<SweepReport, StoreError> {
        let swept = self.sweep_once().await;
        if swept.as_ref().map_or(true, |report| report.broke_off.is_some()) {
            self.database = None;
        }
        swept
    }

    async fn sweep_once(&mut self) -> Result<SweepReport, StoreError> {
        let database = match self.database.take() {
            Some(open) => self.database.insert(open),
            None => self.database.insert(Database::open(&self.config.tasks, &self.config.liveness).await?),
        };
        let (rows, at_unix_s) = database.active().await?;
        let mut report = seen(&rows, at_unix_s);
        let workers = ask(database, &self.config.liveness, &rows, &mut report).await?;
        let worker_of = |row: &ActiveRow| match &row.worker_id {
            None => Worker::Unnamed,
            Some(name) => workers.get(name).copied().unwrap_or(Worker::Unknown),
        };
        let doomed: Vec<(&ActiveRow, Why)> = rows
            .iter()
            .filter_map(|row| Some((row, judge(row.stage, worker_of(row), row.age, &self.config.limits)?)))
            .collect();
        let named = workers.iter().map(|(name, worker)| (name.as_str(), *worker)).collect();
        let stop: Option<Stop> = guard(doomed.len(), rows.len(), &named, &self.config.brake);
        report.stopped = stop.map(|stop| stop.to_string());
        report.stopped_by = stop.map(|stop| stop.name());
        for (row, why) in doomed {
            let deed = match (stop, self.act) {
                (Some(_), _) => Deed::HeldBack,
                (None, false) => Deed::WouldFail,
                (None, true) if report.broke_off.is_some() => Deed::NotDone,
                (None, true) => match database.fail(row).await {
                    Ok(true) => Deed::Failed,
                    Ok(false) => Deed::ChangedMeanwhile,
                    Err(error) => {
                        report.broke_off = Some(format!("row {}: {error}", row.id));
                        Deed::NotKnown
                    }
                },
            };
            report.doomed.push(Doomed {
                id: row.id.clone(),
                status: row.status.clone(),
                worker_id: row.worker_id.clone(),
                age_s: row.age.as_secs_f64(),
                rule: why.name(),
                why: words(row, why, &self.config),
                deed,
            });
        }
        Ok(report)
    }
}

fn seen(rows: &[ActiveRow], at_unix_s: f64) -> SweepReport {
    let of = |stage| rows.iter().filter(move |row| row.stage == stage);
    let oldest = |stage| of(stage).map(|row| row.age.as_secs_f64()).max_by(f64::total_cmp);
    SweepReport {
        at_unix_s,
        pending: of(Stage::Pending).count(),
        processing: of(Stage::Processing).count(),
        oldest_pending_s: oldest(Stage::Pending),
        oldest_processing_s: oldest(Stage::Processing),
        workers_alive: 0,
        workers_gone: 0,
        workers_unknown: 0,
        doomed: Vec::new(),
        stopped: None,
        stopped_by: None,
        doubts: Vec::new(),
        broke_off: None,
    }
}

/// What is known of each worker that a PROCESSING row names. A liveness store that can't be asked is a doubt, no error.
async fn ask(
    database: &Database,
    liveness: &Liveness,
    rows: &[ActiveRow],
    report: &mut SweepReport,
) -> Result<BTreeMap<String, Worker>, StoreError> {
    let names = rows.iter().filter(|row| row.stage == Stage::Processing).filter_map(|row| row.worker_id.clone());
    let names: Vec<String> = names.collect::<BTreeSet<_>>().into_iter().collect();
    let answer = match liveness {
        Liveness::None => return Ok(BTreeMap::new()),
        _ if names.is_empty() => return Ok(BTreeMap::new()),
        Liveness::Postgres { .. } => database.alive(&names.iter().map(String::as_str).collect::<Vec<_>>()).await,
        Liveness::Redis { address, ca, key } => {
            let (address, ca, key, names) = (address.clone(), ca.clone(), key.clone(), names.clone());
            let asked =
                tokio::task::spawn_blocking(move || workers::alive(&address, ca.as_deref(), &key, &names)).await;
            asked.unwrap_or_else(|error| {
                Err(StoreError::Failed { what: "ask for the workers", text: error.to_string() })
            })
        }
    };
    let known = match answer {
        Ok(known) => known,
        Err(error @ StoreError::Config(_)) => return Err(error),
        Err(error) => {
            report.doubts.push(format!("liveness is not known, age alone decides: {error}"));
            BTreeMap::new()
        }
    };
    let of = |name: &String| match known.get(name) {
        Some(true) => Worker::Alive,
        Some(false) => Worker::Gone,
        None => Worker::Unknown,
    };
    let workers: BTreeMap<String, Worker> = names.iter().map(|name| (name.clone(), of(name))).collect();
    let count = |wanted| workers.values().filter(|worker| **worker == wanted).count();
    report.workers_alive = count(Worker::Alive);
    report.workers_gone = count(Worker::Gone);
    report.workers_unknown = count(Worker::Unknown);
    Ok(workers)
}

fn words(row: &ActiveRow, why: Why, config: &OwnConfig) -> String {
    let worker = row.worker_id.as_deref().unwrap_or_default();
    match why {
        Why::PendingTimeout => format!("nobody has begun it for {:.0} s", row.age.as_secs_f64()),
        Why::ProcessingTimeout if row.worker_id.is_none() => {
            format!("no change for {:.0} s, and no worker is written down", row.age.as_secs_f64())
        }
        Why::ProcessingTimeout => {
            format!("no change for {:.0} s: worker {worker} hangs with it", row.age.as_secs_f64())
        }
        Why::LivenessTtl => match &config.liveness {
            Liveness::Redis { key, .. } => format!("worker {worker} is gone: no key {}", key.replace("{id}", worker)),
            _ => format!("worker {worker} is gone: no heartbeat within its time to live"),
        },
    }
}

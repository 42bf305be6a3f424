//! `halfopen merge`: the parts of one plan, run on several machines, as one run.

use super::args::MergeArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::host::clock::{self, Clock};
use crate::store::{self, LOGS, Recorded, RunDir, StoreError};
use crate::units::utc_date_time;
use std::path::{Path, PathBuf};

/// Joins runs.
pub fn merge(args: &MergeArgs) -> Result<Exit, Failure> {
    let usage = |e: &dyn std::fmt::Display| Failure::new(Exit::Usage, e.to_string());
    let read = |path: &PathBuf| store::read(path).map_err(|e| usage(&e));
    let parts: Vec<Recorded> = args.runs.iter().map(read).collect::<Result<_, _>>()?;
    let name = parts.first().map(|p| p.run.plan.scenario.name.clone()).unwrap_or_default();
    let joined = store::merge(parts).map_err(|e| usage(&e))?;
    let out = args.out.clone().unwrap_or_else(|| {
        let now: String = utc_date_time(clock::unix_seconds()).chars().filter(char::is_ascii_digit).collect();
        PathBuf::from("runs").join(format!("{name}-merged-{now}"))
    });
    if args.runs.iter().any(|run| same(run, &out)) {
        return Err(Failure::new(Exit::Usage, "--out is one of the runs to join; name another directory"));
    }
    let dir = RunDir::create(&out).map_err(|e| usage(&e))?;
    write(&dir, &joined.recorded, &args.runs).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?;
    if joined.missing > 0 {
        say!("halfopen: {} trials of the plan are in none of these runs: a part is missing", joined.missing);
    }
    let (exit, summary) = super::report::render(&dir, !args.json)?;
    if args.json {
        print(&pretty(&summary))?;
    } else {
        super::report::point_to(&dir);
    }
    Ok(exit)
}

fn same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(a).is_some_and(|a| Some(a) == real(b))
}

pub(super) fn write(dir: &RunDir, recorded: &Recorded, runs: &[PathBuf]) -> Result<(), StoreError> {
    dir.write_run(&recorded.run)?;
    let mut log = dir.event_log(Clock::start())?;
    recorded.events.iter().try_for_each(|event| log.append(event))?;
    log.flush()?;
    // What clients from outside wrote; their names are those of the trials.
    for entry in runs.iter().flat_map(|run| std::fs::read_dir(run.join(LOGS))).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Ok(bytes) = std::fs::read(entry.path()) {
            dir.write(&format!("{LOGS}/{name}"), &bytes)?;
        }
    }
    Ok(())
}

//! `halfopen clean`.

use super::args::CleanArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::host::journal::{self, CleanReport, Finding};
use crate::lab::docker;

/// Removes what a killed run could have left.
pub fn clean(args: &CleanArgs) -> Result<Exit, Failure> {
    let report = journal::clean(&journal::state_dir(), args.dry_run, &docker::remove_outside);
    if args.json {
        let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
        let runs = serde_json::to_value(&report.runs).unwrap_or_default();
        print(&pretty(&serde_json::json!({ "dry_run": report.dry_run, "runs": runs, "errors": errors })))?;
    } else {
        print(&text(&report))?;
    }
    match report.errors.first() {
        None => Ok(Exit::Held),
        Some(error) => Err(Failure::new(Exit::Harness, error.to_string())),
    }
}

fn text(report: &CleanReport) -> String {
    let would = if report.dry_run { "would be " } else { "" };
    let lines: Vec<String> = report
        .runs
        .iter()
        .map(|run| {
            let (id, out) = (&run.run_id, run.out_dir.display());
            match run.finding {
                Finding::Running => format!("run {id} ({out}) is still going; nothing of it is touched"),
                Finding::OnlyEntry => {
                    format!("run {id} ({out}) was killed and left nothing; its journal entry {would}struck")
                }
                Finding::InitKilled if run.removed.is_empty() => {
                    format!("run {id} ({out}) was killed; its processes and namespaces {would}ended")
                }
                Finding::InitKilled => {
                    format!(
                        "run {id} ({out}) was killed; its engine {would}ended, and {would}removed: {}",
                        run.removed.join(", ")
                    )
                }
                Finding::OutsideRemoved => {
                    format!("run {id} ({out}) was killed; {would}removed: {}", run.removed.join(", "))
                }
            }
        })
        .collect();
    if lines.is_empty() { "nothing to clean: no run was killed".to_string() } else { lines.join("\n") }
}

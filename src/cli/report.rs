//! `halfopen report`, and the end of every `run`: judge the events, write the files, show the table.

use super::args::ReportArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::report::Report;
use crate::store::{self, RunDir};
use comfy_table::Table;

/// Renders a recorded run again.
pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let (exit, summary) = render(&RunDir::existing(&args.run), !args.json)?;
    if args.json {
        print(&pretty(&summary))?;
    }
    Ok(exit)
}

/// Judges what is recorded in the directory, writes everything that follows from it, and prints the table if asked to.
/// Returns the exit code that the gates ask for and the summary.
pub fn render(dir: &RunDir, table: bool) -> Result<(Exit, serde_json::Value), Failure> {
    let recorded = store::read(dir.path()).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    let report = Report::new(&recorded.run, &recorded.events);
    let mut run = recorded.run;
    report.complete(&mut run);
    dir.write_run(&run).map_err(|e| harness(&e))?;
    dir.write_all(&report.files().map_err(|e| harness(&e))?).map_err(|e| harness(&e))?;
    if table {
        // The width of the terminal, where there is one.
        print(&report.terminal(Table::new().width()))?;
    }
    let exit = match report.exit_code() {
        0 => Exit::Held,
        1 => Exit::GateFailed,
        _ => Exit::Inconclusive,
    };
    let summary = serde_json::from_str(&report.json()).map_err(|e| harness(&e))?;
    Ok((exit, summary))
}

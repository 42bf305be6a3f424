//! `halfopen report`, and the end of every `run`: judge the events, write the files, show the table.

use super::args::ReportArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::report::Report;
use crate::store::{self, RunDir, RunInfo};
use comfy_table::Table;

/// Renders a recorded run again.
pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let dir = RunDir::existing(&args.run);
    let Rendered { exit, summary, report, run } = judge(&dir)?;
    if !args.json {
        show(&report)?;
    }
    // Somebody else's run, or a read-only disk: what it says can be read all the same.
    match write(&dir, &report, run) {
        Err(error) => say!("halfopen: the files of the run were left as they are: {}", error.text),
        Ok(()) if !args.json => point_to(&dir),
        Ok(()) => {}
    }
    if args.json {
        print(&pretty(&summary))?;
    }
    Ok(exit)
}

/// The last lines of a run: what to open.
pub fn point_to(dir: &RunDir) {
    say!("halfopen: the run directory is {}", dir.path().display());
    say!("halfopen: to read it: {}", dir.path().join("report.html").display());
}

/// A judged run.
struct Rendered {
    exit: Exit,
    summary: serde_json::Value,
    report: Report,
    run: RunInfo,
}

/// The end of a run: judges what is recorded in the directory, prints the table if asked to, writes everything that
/// follows. Returns the exit code that the gates ask for and the summary.
pub fn render(dir: &RunDir, table: bool) -> Result<(Exit, serde_json::Value), Failure> {
    let Rendered { exit, summary, report, run } = judge(dir)?;
    // First what a person waits for: a disk that is full at the end must not hide it.
    if table {
        show(&report)?;
    }
    write(dir, &report, run)?;
    Ok((exit, summary))
}

fn harness(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Harness, error.to_string())
}

fn judge(dir: &RunDir) -> Result<Rendered, Failure> {
    let recorded = store::read(dir.path()).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    let report = Report::new(&recorded.run, &recorded.events);
    let exit = match report.exit_code() {
        0 => Exit::Held,
        1 => Exit::GateFailed,
        _ => Exit::Inconclusive,
    };
    let summary = serde_json::from_str(&report.json()).map_err(|e| harness(&e))?;
    Ok(Rendered { exit, summary, report, run: recorded.run })
}

fn show(report: &Report) -> Result<Exit, Failure> {
    // The width of the terminal, where there is one.
    print(&report.terminal(Table::new().width()))
}

fn write(dir: &RunDir, report: &Report, mut run: RunInfo) -> Result<(), Failure> {
    report.complete(&mut run);
    dir.write_run(&run).map_err(|e| harness(&e))?;
    dir.write_all(&report.files().map_err(|e| harness(&e))?).map_err(|e| harness(&e))
}

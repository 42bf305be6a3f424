//! `halfopen list`.

use super::args::ListArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::plan::{self, Overrides};
use crate::units::print_duration;
use comfy_table::{ContentArrangement, Table};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prints each scenario with its question and length.
pub fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        collect(path, &mut files).map_err(|e| Failure::new(Exit::Usage, format!("{}: {e}", path.display())))?;
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "no scenario here; name a folder or a file, for example `halfopen list scenarios`",
        ));
    }
    let mut rows = Vec::new();
    let mut exit = Exit::Held;
    for file in &files {
        match entry(file) {
            Ok(row) => rows.push(row),
            // One broken file must not hide the others.
            Err(failure) => {
                say!("halfopen: {}", failure.text);
                exit = exit.and(failure.exit);
            }
        }
    }
    if args.json {
        return print(&pretty(&rows.into())).map(|done| done.and(exit));
    }
    let mut table = Table::new();
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["scenario", "question", "trials", "length", "CI"]);
    for row in &rows {
        let text = |key: &str| row[key].as_str().map_or_else(|| row[key].to_string(), str::to_string);
        let ci = if row["ci"] == true { "yes" } else { "" };
        table.add_row([text("file"), text("question"), text("trials"), text("length"), ci.to_string()]);
    }
    print(&table.to_string()).map(|done| done.and(exit))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        std::fs::metadata(path)?;
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let path = entry.path();
        // Of the entry itself: a link to a folder could lead round in a circle.
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

fn entry(file: &Path) -> Result<serde_json::Value, Failure> {
    let scenario = super::run::read_scenario(file)?.1;
    let (name, question, ci) = (scenario.name.clone(), scenario.question.clone(), scenario.ci);
    let plan = plan::build(scenario, &Overrides::default())
        .map_err(|e| Failure::new(Exit::Usage, format!("{}: {e}", file.display())))?;
    let length = Duration::from_secs(plan.estimate.as_secs());
    Ok(serde_json::json!({
        "file": file.display().to_string(), "name": name, "question": question, "trials": plan.trials.len(),
        "estimate_s": plan.estimate.as_secs_f64(), "length": print_duration(length), "ci": ci,
    }))
}

//! `halfopen clean`.

use super::args::CleanArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::host::journal;

/// Removes what a killed run could have left.
pub fn clean(args: &CleanArgs) -> Result<Exit, Failure> {
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    let state = journal::state_dir().map_err(|e| harness(&e))?;
    let report = journal::clean(&state, args.dry_run).map_err(|e| harness(&e))?;
    if args.json {
        return print(&pretty(&serde_json::to_value(&report).map_err(|e| harness(&e))?));
    }
    print(&report.to_string())
}

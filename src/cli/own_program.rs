//! The programs that a scenario's commands name: looked for before anything is made, since a run in which none of them starts
//! would say of a timeout what is true of a path.

use super::exit::{Exit, Failure};
use crate::host::programs::find;
use crate::plan::Plan;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Looks for the program of each arm that is a command line of this machine; one with braces is only known when it is started.
///
/// # Errors
/// The first that is not there or may not be executed, and a working directory that is none.
pub(super) fn are_there(file: &Path, plan: &Plan) -> Result<(), Failure> {
    for arm in &plan.scenario.arms {
        let Some(line) = arm.settings.command.as_ref().filter(|line| line.image.is_none() && line.target.is_none())
        else {
            continue;
        };
        let refuse =
            |text: String| Err(Failure::new(Exit::Cannot, format!("{}: arm `{}`: {text}", file.display(), arm.name)));
        let cwd = PathBuf::from(line.cwd.clone().unwrap_or_else(|| ".".to_string()));
        let known = |text: &str| !text.contains('{');
        if known(&cwd.to_string_lossy()) && !cwd.is_dir() {
            return refuse(format!(
                "there is no directory {} to start its command in; make it, or write another `cwd`",
                cwd.display()
            ));
        }
        let Some(program) = line.argv.first().filter(|program| known(program) && known(&cwd.to_string_lossy())) else {
            continue;
        };
        let path =
            line.env.get("PATH").filter(|path| known(path)).map(OsString::from).or_else(|| std::env::var_os("PATH"));
        if find(program, &cwd, &path.unwrap_or_default()).is_none() {
            return refuse(format!(
                "its command's program `{program}` is not there or may not be executed; write its whole path, or install it"
            ));
        }
    }
    Ok(())
}

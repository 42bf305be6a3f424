//! The stored run that gates are held to.

use super::exit::{Exit, Failure};
use crate::report::compare::between;
use crate::scenario::{NoWorse, Reference, Scenario};
use crate::store::{self, Recorded, RunHead, RunInfo};
use crate::verdict::gate::Baseline;
use crate::verdict::judge;
use std::path::{Path, PathBuf};

/// Where baselines live when nobody says.
const FOLDER: &str = "baselines";

/// Reads the baseline of a scenario whose gates ask for one, before anything is run: one that can't be read is found out
/// now and not after the run. `None` where no gate asks, or where there is none, which its gates will say.
pub fn read(scenario: &Scenario, given: Option<&Path>) -> Result<Option<(PathBuf, Recorded)>, Failure> {
    let asked = scenario.gates.iter().any(|g| matches!(&g.no_worse, Some(NoWorse { than: Reference::Baseline, .. })));
    let usual = || Some(Path::new(FOLDER).join(&scenario.name)).filter(|path| path.is_dir());
    let Some(path) = given.map(Path::to_path_buf).or_else(usual).filter(|_| asked) else { return Ok(None) };
    match store::read(&path) {
        Ok(recorded) => Ok(Some((path, recorded))),
        Err(error) => Err(Failure::new(Exit::Usage, format!("the baseline: {error}"))),
    }
}

/// What the baseline says to the gates of a run that has ended.
pub fn attach(info: &mut RunInfo, baseline: Option<&(PathBuf, Recorded)>) {
    let Some((path, recorded)) = baseline else { return };
    let differences = between(&RunHead::from(&recorded.run), &RunHead::from(&*info));
    let differences = differences.iter().map(ToString::to_string).collect();
    let rows = judge(&recorded.run.plan, &recorded.events).trials;
    let gates = &info.plan.scenario.gates;
    info.baseline = Some(Baseline::new(&path.display().to_string(), differences, gates, &rows));
}

//! A plan of more trials than may run at once: one wave after the other, each as a run of its own, then all of them as one.
//!
//! What is left out: a wave that could not be carried out ends the run; what was measured until then is kept.

use super::args::RunArgs;
use super::exit::{Exit, Failure};
use super::merge;
use super::run::{self, Ready};
use crate::plan::Plan;
use crate::store::{self, Recorded, RunDir};
use std::path::{Path, PathBuf};

/// What each wave of a run took, in the run's phases.
const TOTAL: &str = "total";

/// Carries the waves of a plan out and joins them in `out`: how they ended, and the directory where anything was measured.
///
/// # Errors
/// When not even the first wave could be begun, or the files could not be written.
pub(super) fn measure(
    ready: &Ready,
    waves: Vec<Plan>,
    out: &Path,
    args: &RunArgs,
) -> Result<(Exit, Option<RunDir>), Failure> {
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    let dir = RunDir::create(out).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    let (count, whole) = (waves.len(), ready.plan.trials.len());
    let mut done: Vec<PathBuf> = Vec::new();
    let mut exit = Exit::Held;
    for (n, plan) in waves.into_iter().enumerate() {
        say!("halfopen: wave {} of {count}: {} of {whole} trials", n + 1, plan.trials.len());
        let place = out.join(format!("wave-{}", n + 1));
        let mut wave = ready.clone();
        wave.plan = plan;
        match run::measure(&wave, &place, args) {
            Ok((one, part)) => {
                exit = exit.and(one);
                done.extend(part.is_some().then_some(place));
            }
            Err(failure) if done.is_empty() => {
                dir.discard().map_err(|e| harness(&e))?;
                return Err(failure);
            }
            // What the other waves measured is not lost with it.
            Err(failure) => {
                say!("halfopen: {}", super::redact::redact(&failure.text));
                exit = exit.and(failure.exit);
            }
        }
        if exit != Exit::Held {
            break;
        }
    }
    if done.is_empty() {
        dir.discard().map_err(|e| harness(&e))?;
        return Ok((exit, None));
    }
    join(&dir, &done, ready, count).map_err(|e| harness(&e))?;
    done.iter().try_for_each(|part| RunDir::existing(part).discard()).map_err(|e| harness(&e))?;
    Ok((exit, Some(dir)))
}

/// Writes the waves as one run.
fn join(dir: &RunDir, done: &[PathBuf], ready: &Ready, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let parts: Vec<Recorded> = done.iter().map(|part| store::read(part)).collect::<Result<_, _>>()?;
    // They ran one after the other.
    let took: f64 = parts.iter().filter_map(|part| part.run.phases_s.get(TOTAL)).sum();
    let most = parts.iter().map(|part| part.run.plan.trials.len()).max().unwrap_or_default();
    let mut joined = store::merge(parts)?.recorded;
    joined.run.phases_s.insert(TOTAL.to_string(), took);
    joined.run.plan.estimate = ready.plan.estimate;
    let began = if done.len() == count { count.to_string() } else { format!("{} of {count}", done.len()) };
    let text =
        format!("waves: {began}, one after the other, of at most {most} trials at once; each has a broker of its own");
    joined.run.sources.push(text);
    merge::write(dir, &joined, done)?;
    Ok(())
}

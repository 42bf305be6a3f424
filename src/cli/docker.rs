//! `run --lab docker`: its images before anything is made, and the run beside the engine of the machine.

use super::exit::{Exit, Failure};
use crate::clients;
use crate::engine::job::Job;
use crate::host::attend::{Attend, attend};
use crate::host::journal;
use crate::host::supervise::{Ended, InitError};
use crate::lab::docker::{self, DockerSpec};
use crate::plan::Plan;
use crate::scenario::{Act, SubjectKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The subjects of a plan that are programs of somebody else's, each once.
fn others(plan: &Plan) -> Vec<SubjectKind> {
    let mut kinds: Vec<SubjectKind> = plan.scenario.arms.iter().map(|arm| arm.settings.subject).collect();
    kinds.retain(|kind| clients::adapter(*kind).is_some());
    kinds.sort_by_key(ToString::to_string);
    kinds.dedup();
    kinds
}

/// Finds the images, and with them whether this machine can run the docker lab at all.
pub(super) fn prepare(plan: &Plan) -> Result<DockerSpec, Failure> {
    let files: Vec<(SubjectKind, Vec<&str>)> = others(plan)
        .into_iter()
        .filter_map(|kind| {
            let adapter = clients::adapter(kind)?;
            let texts = adapter.scripts.iter().map(|(_, text)| *text);
            Some((kind, std::iter::once(adapter.lock).chain(texts).collect()))
        })
        .collect();
    let files: Vec<(SubjectKind, &[&str])> = files.iter().map(|(kind, texts)| (*kind, &texts[..])).collect();
    let broker = &plan.scenario.broker;
    docker::ensure_images(&broker.kinds, broker.image.first().map(String::as_str), &files, &mut |text| {
        say!("halfopen: {text}")
    })
    .map_err(|e| Failure::new(Exit::Cannot, e.to_string()))
}

/// Where the clients of others are in the subject image.
pub(super) fn environments(plan: &Plan) -> BTreeMap<SubjectKind, PathBuf> {
    others(plan).into_iter().map(|kind| (kind, docker::environment_of(kind))).collect()
}

/// Carries the job out and waits; whatever became of it, nothing is left on the Docker engine afterwards.
pub(super) fn attended(job: &Job, file: &Path) -> Result<Ended, Failure> {
    let scenario = &job.plan.scenario;
    let proxied = scenario.faults.iter().any(|fault| fault.act == Some(Act::FreezeProxy));
    let spec = Attend {
        run_id: job.run_id.clone(),
        args: vec!["__engine".into(), file.into()],
        out_dir: job.out.clone(),
        work_dir: docker::work_dir(&job.run_id),
        outside: docker::outside(&job.run_id, scenario.arms.len(), &scenario.broker.kinds, proxied),
        state_dir: journal::state_dir(),
    };
    attend(&spec, &|entry| docker::remove_outside(entry, false)).map_err(|e| match e {
        InitError::Journal(e) => {
            Failure::new(Exit::Cannot, format!("{e}; name a directory of your own in HALFOPEN_STATE_DIR"))
        }
        other => Failure::new(Exit::Harness, other.to_string()),
    })
}

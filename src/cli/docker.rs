//! `run --lab docker`: its images before anything is made, and the run beside the engine of the machine.

use super::exit::{Exit, Failure};
use crate::engine::job::Job;
use crate::host::attend::{Attend, attend};
use crate::host::journal;
use crate::host::supervise::{Ended, InitError};
use crate::lab::docker::{self, DockerSpec};
use crate::plan::Plan;
use crate::scenario::Act;
use std::path::Path;

/// Finds the images, and with them whether this machine can run the docker lab at all.
pub(super) fn prepare(plan: &Plan) -> Result<DockerSpec, Failure> {
    let broker = &plan.scenario.broker;
    if let Some(arm) = plan.scenario.arms.iter().find(|arm| arm.settings.tls) {
        let text = format!(
            "{}: arm `{}`: tls: the brokers of the docker lab are images as they are, without a listener that has a certificate; \
             run it with --lab netns or vm",
            plan.scenario.name, arm.name
        );
        return Err(Failure::new(Exit::Cannot, text));
    }
    if let Some(fault) = plan.scenario.faults.iter().find(|fault| !fault.injection.is_faithful()) {
        let text = format!(
            "fault `{}`: `{}` is done to the subject's own network or by a router, and this lab leaves its containers alone and \
             has a bridge; run it with --lab netns or vm",
            fault.name(),
            fault.injection
        );
        return Err(Failure::new(Exit::Cannot, text));
    }
    let others = plan.scenario.arms.iter().any(|arm| arm.settings.subject.is_command());
    let image = broker.image.first().map(String::as_str);
    docker::ensure_images(&broker.kinds, image, others, &mut |text| say!("halfopen: {text}"))
        .map_err(|e| Failure::new(Exit::Cannot, e.to_string()))
}

/// Carries the job out and waits; whatever became of it, nothing is left on the Docker engine afterwards.
pub(super) fn attended(job: &Job, file: &Path) -> Result<Ended, Failure> {
    let scenario = &job.plan.scenario;
    let proxied = scenario.faults.iter().any(|fault| fault.act.is_some_and(Act::in_proxy));
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

//! `run --lab docker`: its images before anything is made, and the run beside the engine of the machine.

use super::args::{LabName, RunArgs};
use super::exit::{Exit, Failure};
use crate::engine::job::Job;
use crate::host::attend::{Attend, attend};
use crate::host::journal::{self, Outside};
use crate::host::supervise::{Ended, InitError};
use crate::lab::docker::{self, Aim, DockerSpec};
use crate::plan::Plan;
use crate::scenario::{Arm, Fault, TaskStoreKind, time_cut, too_long};
use crate::units::print_duration;
use std::path::Path;

/// Whether the scenario's subjects are other people's services, and then whether it was allowed to cut them.
pub(super) fn allowed(file: &Path, plan: &Plan, args: &RunArgs) -> Result<bool, Failure> {
    let imaged = |arm: &&Arm| arm.settings.command.as_ref().is_some_and(|line| line.image.is_some());
    if let Some(arm) = plan.scenario.arms.iter().find(imaged).filter(|_| args.lab != LabName::Docker) {
        let file = file.display();
        let text = format!("{file}: arm `{}`: `image` is a container's; run it with --lab docker", arm.name);
        return Err(Failure::new(Exit::Cannot, text));
    }
    if !docker::has_targets(plan) {
        if args.target_is_disposable {
            let text = format!("{}: --target-is-disposable, and no arm has a `target`; leave it out", file.display());
            return Err(Failure::new(Exit::Usage, text));
        }
        return Ok(false);
    }
    let file = file.display();
    if args.lab != LabName::Docker {
        let text = format!("{file}: `target` names containers of the Docker engine; run it with --lab docker");
        return Err(Failure::new(Exit::Cannot, text));
    }
    let scenario = &plan.scenario;
    if let Some(why) = scenario.faults.iter().find_map(|fault| too_long(fault, scenario.horizon, args.target_max)) {
        return Err(Failure::new(Exit::Usage, format!("{file}: {why}")));
    }
    if !args.target_is_disposable && !args.dry_run {
        let text = format!(
            "{file}: {}; say --target-is-disposable if that may happen, or see it with --dry-run",
            intent(plan).join("; ")
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(true)
}

/// What the file alone says will be cut, a line an arm.
pub(super) fn intent(plan: &Plan) -> Vec<String> {
    let scenario = &plan.scenario;
    let line = |arm: &Arm| {
        let target = arm.settings.command.as_ref()?.target.as_ref()?;
        let broker = arm.settings.subject.broker();
        Some(format!(
            "this cuts service `{}` of compose project `{}` from its {broker}: {}",
            target.service,
            target.project,
            how(plan)
        ))
    };
    scenario.arms.iter().filter_map(line).collect()
}

/// What is done, and for how long.
fn how(plan: &Plan) -> String {
    let scenario = &plan.scenario;
    let one = |fault: &Fault| {
        let time = print_duration(time_cut(fault, scenario.horizon));
        format!("{} (scope {}) for {time}", fault.name(), fault.scope.name())
    };
    scenario.faults.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Finds the containers of a plan's services, gives the trials their addresses, and says what will be cut.
pub(super) fn aim(plan: &mut Plan) -> Result<DockerSpec, Failure> {
    let aims = docker::aim(plan).map_err(|e| Failure::new(Exit::Cannot, e.to_string()))?;
    for Aim { container, broker, client, server, connections, .. } in &aims {
        let open = if *connections == 1 { "1 connection".to_string() } else { format!("{connections} connections") };
        say!(
            "halfopen: target: {} ({client}) to {} ({server}), {open}: {}; it stays as it is",
            container.name,
            broker.name,
            how(plan)
        );
    }
    Ok(DockerSpec { aims, others: true, ..DockerSpec::default() })
}

/// Finds the images, and with them whether this machine can run the docker lab at all.
pub(super) fn prepare(plan: &Plan) -> Result<DockerSpec, Failure> {
    let broker = &plan.scenario.broker;
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
    let say = &mut |text: &str| say!("halfopen: {text}");
    let cannot = |e: crate::lab::LabError| Failure::new(Exit::Cannot, e.to_string());
    let stored = plan.scenario.reaper.as_ref().is_some_and(|reaper| reaper.store == TaskStoreKind::Postgres);
    let mut spec = docker::ensure_images(&broker.kinds, image, others, stored, say).map_err(cannot)?;
    spec.arms = docker::arm_images(&plan.scenario, say).map_err(cannot)?;
    Ok(spec)
}

/// Carries the job out and waits; whatever became of it, nothing is left on the Docker engine afterwards.
pub(super) fn attended(job: &Job, file: &Path) -> Result<Ended, Failure> {
    let aims = job.docker.as_ref().map(|docker| &docker.aims[..]).unwrap_or_default();
    let outside = if aims.is_empty() {
        docker::outside(&job.run_id, &job.plan.scenario)
    } else {
        // Of other people's containers nothing is anybody's to remove.
        vec![Outside::Directory(docker::work_dir(&job.run_id))]
    };
    let spec = Attend {
        run_id: job.run_id.clone(),
        args: vec!["__engine".into(), file.into()],
        out_dir: job.out.clone(),
        work_dir: docker::work_dir(&job.run_id),
        outside,
        state_dir: journal::state_dir(),
    };
    attend(&spec, &|entry| docker::remove_outside(entry, false)).map_err(|e| match e {
        InitError::Journal(e) => {
            Failure::new(Exit::Cannot, format!("{e}; name a directory of your own in HALFOPEN_STATE_DIR"))
        }
        other => Failure::new(Exit::Harness, other.to_string()),
    })
}

/// Whether the containers of a plan's services are as they were, for the run's record.
pub(super) fn afterwards(docker: Option<&DockerSpec>) -> Vec<String> {
    let aims = docker.map(|docker| &docker.aims[..]).unwrap_or_default();
    if aims.is_empty() {
        return Vec::new();
    }
    let lines = docker::afterwards(aims);
    let lines = lines.unwrap_or_else(|e| vec![format!("target: whether it is as it was is not known: {e}")]);
    for line in lines.iter().filter(|line| !line.contains("is as it was:")) {
        say!("halfopen: {line}");
    }
    lines
}

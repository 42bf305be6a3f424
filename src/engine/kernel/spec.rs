//! What a plan asks of the lab and of the fault table.

use super::*;
use crate::fault::{Layout, NAT_OUTSIDE};
use crate::lab::{ArmNet, BoxNet, LabSpec, RouterNs, docker};
use crate::scenario::{Injection, StorePath, TaskStoreKind};

/// The lab of a job.
pub(super) fn lab_spec(job: &Job) -> LabSpec<'_> {
    let scenario = &job.plan.scenario;
    // Of one arm those under a certain injection.
    let under = |index: usize, injection: Injection| {
        let trials = job.plan.trials.iter().filter(move |t| t.arm == index);
        trials.filter(move |t| scenario.faults.get(t.fault).is_some_and(|f| f.injection == injection))
    };
    let arms = scenario.arms.iter().enumerate().map(|(index, arm)| ArmNet {
        name: arm.name.clone(),
        sysctl: arm.settings.sysctl.clone(),
        link: arm.settings.link,
        own_links: under(index, Injection::ClientLink).map(|t| (t.client, t.server)).collect(),
        own_addresses: under(index, Injection::ClientAddress).map(|t| t.client).collect(),
        pairs: job.plan.trials.iter().filter(|t| t.arm == index).map(|t| (t.client, t.server)).collect(),
    });
    LabSpec {
        run_id: job.run_id.clone(),
        work_dir: work_dir(),
        arms: arms.collect(),
        brokers: &scenario.broker,
        nofile: NOFILE,
        router: RouterNs::Current,
        proxied: job.plan.trials.iter().filter(|t| proxied(&job.plan, t.fault)).map(|t| t.server).collect(),
        routed: docker::is_routed(scenario),
        standby: does(&job.plan, |act| act == Act::FailOver),
        middlebox: middlebox(&job.plan),
        // A virtual host each: clients of one virtual host talk to each other.
        vhosts: job.plan.trials.iter().filter(|t| is_command(&job.plan, t.arm)).map(|t| vhost(t.id)).collect(),
        databases: job.plan.trials.iter().map(|t| database(&job.plan, t.id, t.arm)).max().unwrap_or(0) + 1,
        names: does(&job.plan, |act| act == Act::WithholdAnswer),
        tls: job.plan.trials.iter().filter(|t| scenario.arms[t.arm].settings.tls).map(|t| t.server).collect(),
        database: scenario.reaper.as_ref().is_some_and(|reaper| reaper.store == TaskStoreKind::Postgres),
        // One to write about the work and one for each kind of sign of life.
        database_clients: match &scenario.reaper {
            Some(reaper) if reaper.store_path == StorePath::Network => job.plan.trials.len() * 3,
            _ => 0,
        },
    }
}

/// Whether a proxy stands before the broker for those under a fault.
pub(super) fn proxied(plan: &Plan, fault: usize) -> bool {
    plan.scenario.faults.get(fault).is_some_and(|fault| fault.act.is_some_and(Act::in_proxy))
}

/// What the table has to have for the plan's faults.
pub(super) fn layout(plan: &Plan) -> Layout {
    Layout::of(&plan.scenario.faults)
}

fn middlebox(plan: &Plan) -> Option<BoxNet> {
    let layout = layout(plan);
    let idle = plan.scenario.faults.iter().find_map(|fault| fault.idle);
    let outside = layout.nat().then_some((NAT_OUTSIDE.address, NAT_OUTSIDE.prefix));
    layout.middlebox.map(|middlebox| BoxNet { loose: middlebox.loose, idle, outside })
}

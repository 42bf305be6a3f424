//! The containers of a run's hosts, each held by the harness' own program.

use super::api::{Api, cannot};
use super::contained::Input;
use super::container::{Made, Started, own_program};
use super::loader::Loader;
use super::wire::Host;
use super::{DockerSpec, HOLD, PROGRAM, prefix_of};
use crate::host::names::files;
use crate::lab::{ADMIN, LabError, LabSpec};
use futures::future::join_all;
use std::path::Path;

/// The hosts of the lab.
pub(super) struct Seats {
    pub server: Host,
    pub producer: Host,
    pub proxy: Option<Host>,
    pub arms: Vec<Host>,
    /// The container between all others, where the scenario needs one.
    pub router: Option<Host>,
    /// The host that takes the servers' addresses over, where there is one.
    pub standby: Option<Host>,
}

/// The place of the arm whose container has this role.
fn arm_of(role: &str) -> Option<usize> {
    role.strip_prefix("arm")?.parse().ok()
}

/// Starts the containers of the hosts, and with each what holds it.
pub(super) fn seats(
    api: &Api,
    spec: &LabSpec<'_>,
    docker: &DockerSpec,
    network: &str,
) -> Result<(Seats, Vec<Input>), LabError> {
    let program = own_program()?;
    let bind = |path: &Path, ro: &str| format!("{0}:{0}{ro}", path.display());
    let mut binds = vec![format!("{}:{PROGRAM}:ro", program.display()), bind(&spec.work_dir, "")];
    binds.extend(docker.shared.iter().map(|path| bind(path, "")));
    binds.extend(docker.read_only.iter().map(|path| bind(path, ":ro")));
    if spec.names {
        let covers = files(ADMIN, &spec.work_dir).map_err(|e| cannot(format!("the name server's files: {e}")))?;
        binds.extend(covers.iter().map(|(file, place)| format!("{}:{}:ro", file.display(), place.display())));
    }
    // Looking at another process's sockets from beside it takes the right to trace it.
    let capabilities = if docker.others { vec!["SYS_PTRACE".to_string()] } else { Vec::new() };
    let plain = |role: String| Made {
        run_id: spec.run_id.clone(),
        role,
        image: docker.subject_image.clone(),
        entrypoint: Some(vec![PROGRAM.into(), HOLD.into()]),
        command: Some(Vec::new()),
        binds: binds.clone(),
        network: network.to_string(),
        capabilities: capabilities.clone(),
        ..Made::default()
    };
    let loader = if docker.arms.iter().any(Option::is_some) { Some(Loader::of_this_program()?) } else { None };
    let made = |role: String| {
        let own = arm_of(&role).and_then(|k| docker.arms.get(k)?.as_ref());
        match (own, &loader) {
            (Some(image), Some(loader)) => Made {
                image: image.name.clone(),
                entrypoint: Some([loader.argv(), vec![PROGRAM.into(), HOLD.into()]].concat()),
                binds: [binds.clone(), loader.binds()].concat(),
                user: Some("0:0".into()),
                ..plain(role)
            },
            _ => plain(role),
        }
    };
    let mut roles = vec!["server".to_string(), "producer".to_string()];
    roles.extend(spec.routed.then(|| "router".to_string()));
    roles.extend(spec.standby.then(|| "standby".to_string()));
    roles.extend((!spec.proxied.is_empty()).then(|| "proxy".to_string()));
    roles.extend((0..spec.arms.len()).map(|k| format!("arm{k}")));
    let all: Vec<Made> = roles.iter().map(|role| made(role.clone())).collect();
    let started: Vec<Started> =
        api.wait(join_all(all.iter().map(|made| made.start(api)))).into_iter().collect::<Result<_, _>>()?;
    let prefix = prefix_of(&spec.run_id);
    let mut lifelines = Vec::with_capacity(started.len());
    let mut hosts = Vec::with_capacity(started.len());
    for (index, (role, started)) in roles.iter().zip(started).enumerate() {
        let name = arm_of(role).and_then(|k| spec.arms.get(k));
        let name = name.map_or(role.as_str(), |arm| arm.name.as_str());
        hosts.push(match spec.routed {
            true => Host::apart(&started, name)?,
            false => Host::of(&started, name, prefix, index)?,
        });
        lifelines.push(started.input);
    }
    let mut hosts = hosts.into_iter();
    let missing = || cannot("a container of the lab is missing");
    let server = hosts.next().ok_or_else(missing)?;
    let producer = hosts.next().ok_or_else(missing)?;
    let router = if spec.routed { hosts.next() } else { None };
    let standby = if spec.standby { hosts.next() } else { None };
    let proxy = if spec.proxied.is_empty() { None } else { hosts.next() };
    Ok((Seats { server, producer, proxy, router, standby, arms: hosts.collect() }, lifelines))
}

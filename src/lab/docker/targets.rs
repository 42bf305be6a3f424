//! Services of an existing compose project: their containers, their brokers, and the connections between them.
//!
//! Everything here only looks. What is found before the run is looked at again after it, so that the run can say that the
//! containers are as they were. What is left out: the cut, which is the engine's and sits at the machine's bridge, and
//! whatever would change a container.

use super::api::{Api, cannot, failed};
use crate::host::procfs;
use crate::lab::LabError;
use crate::plan::Plan;
use crate::scenario::{BrokerKind, ComposeTarget};
use crate::units::TrialId;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptionsBuilder, LogsOptionsBuilder};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};

const PROJECT: &str = "com.docker.compose.project";
const SERVICE: &str = "com.docker.compose.service";
const ESTABLISHED: &str = "01";

/// A container as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its main process, as the machine counts.
    pub pid: u32,
    /// When it was started last, in the engine's words.
    pub started_at: String,
    /// Its networks' ids with its address in each.
    pub networks: BTreeMap<String, Option<Ipv4Addr>>,
}

/// What one trial cuts: the path between a container of the service and its broker's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aim {
    /// The trial.
    pub trial: TrialId,
    /// The container of the service.
    pub container: Seen,
    /// The container of its broker.
    pub broker: Seen,
    /// The service's address on the network that both are on.
    pub client: Ipv4Addr,
    /// The broker's.
    pub server: SocketAddrV4,
    /// How many connections there were when it was looked.
    pub connections: usize,
}

/// A connection of a process tree: the client's end and the broker's.
pub type Ends = (SocketAddrV4, SocketAddrV4);

/// Whether a plan's subjects are services of compose projects.
#[must_use]
pub fn has_targets(plan: &Plan) -> bool {
    plan.scenario.arms.iter().any(|arm| target_of(plan, &arm.name).is_some())
}

fn target_of<'a>(plan: &'a Plan, arm: &str) -> Option<&'a ComposeTarget> {
    plan.scenario.arms.iter().find(|one| one.name == arm)?.settings.command.as_ref()?.target.as_ref()
}

/// Finds what each trial of the plan cuts, and gives the trials their real addresses.
///
/// # Errors
/// [`LabError::Cannot`] with the mend: no usable engine, no such service, no connection that could be cut.
pub fn aim(plan: &mut Plan) -> Result<Vec<Aim>, LabError> {
    let api = Api::usable()?;
    let running = running(&api)?;
    let mut aims: Vec<Aim> = Vec::new();
    for (k, arm) in plan.scenario.arms.iter().enumerate() {
        let Some(target) = target_of(plan, &arm.name) else { continue };
        let found = of_service(&running, target);
        let trials: Vec<TrialId> = plan.trials.iter().filter(|trial| trial.arm == k).map(|trial| trial.id).collect();
        if found.is_empty() || found.len() < trials.len() {
            return Err(cannot(too_few(&running, target, found.len(), trials.len())));
        }
        for (trial, container) in trials.into_iter().zip(found) {
            let container = seen(&api, container)?;
            let kind = arm.settings.subject.broker();
            let (broker, client, server, connections) = path(&api, &running, &container, kind)?;
            aims.push(Aim { trial, container, broker, client, server, connections });
        }
    }
    if let Some(other) = aims.iter().find(|aim| aim.broker.id != aims[0].broker.id) {
        return Err(cannot(format!(
            "{} speaks to {} and {} to {}; make a scenario for each broker",
            aims[0].container.name, aims[0].broker.name, other.container.name, other.broker.name
        )));
    }
    if let Some((one, two)) = aims.iter().enumerate().find_map(|(i, one)| {
        let same = |two: &&Aim| one.container.id == two.container.id;
        Some((one, aims[i + 1..].iter().find(same)?))
    }) {
        return Err(cannot(format!(
            "{} would be cut by trial {} and by trial {} at once; name each service in one arm",
            one.container.name, one.trial, two.trial
        )));
    }
    for trial in &mut plan.trials {
        if let Some(aim) = aims.iter().find(|aim| aim.trial == trial.id) {
            (trial.client, trial.server) = (aim.client, *aim.server.ip());
        }
    }
    Ok(aims)
}

/// Whether the containers are as they were, a line each.
///
/// # Errors
/// When the engine does not answer.
pub fn afterwards(aims: &[Aim]) -> Result<Vec<String>, LabError> {
    let api = Api::connect()?;
    let mut before: Vec<&Seen> = Vec::new();
    for one in aims.iter().flat_map(|aim| [&aim.container, &aim.broker]) {
        if !before.iter().any(|known| known.id == one.id) {
            before.push(one);
        }
    }
    let line = |before: &Seen| -> String {
        let what = match inspect(&api, &before.id) {
            Err(_) => "is gone".to_string(),
            Ok(now) if now == *before => "is as it was: running, the same start, the same networks".to_string(),
            Ok(now) if now.pid == 0 => "has ended by itself".to_string(),
            Ok(now) if now.started_at != before.started_at => "has ended by itself and was started again".to_string(),
            Ok(_) => "was changed by somebody else".to_string(),
        };
        format!("target: {} ({}) {what}", before.name, short(&before.id))
    };
    Ok(before.into_iter().map(line).collect())
}

/// An id as people read it.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn too_few(running: &[ContainerSummary], target: &ComposeTarget, found: usize, wanted: usize) -> String {
    let ComposeTarget { project, service } = target;
    let of_project: Vec<&ContainerSummary> =
        running.iter().filter(|one| label(one, PROJECT) == Some(project.as_str())).collect();
    if of_project.is_empty() {
        return format!(
            "no container of a compose project `{project}` runs on this engine; `docker compose ls` names those that do"
        );
    }
    if found == 0 {
        let mut services: Vec<&str> = of_project.iter().filter_map(|one| label(one, SERVICE)).collect();
        services.sort_unstable();
        services.dedup();
        return format!("project `{project}` runs no service `{service}`; it runs {}", services.join(", "));
    }
    format!(
        "service `{service}` of project `{project}` has {found} running containers and {wanted} trials need one each; lower \
         `trials`, or docker compose -p {project} up -d --scale {service}={wanted}"
    )
}

fn label<'a>(container: &'a ContainerSummary, name: &str) -> Option<&'a str> {
    container.labels.as_ref()?.get(name).map(String::as_str)
}

fn running(api: &Api) -> Result<Vec<ContainerSummary>, LabError> {
    let options = ListContainersOptionsBuilder::default().build();
    api.wait(api.docker().list_containers(Some(options))).map_err(failed("list containers"))
}

/// The containers of a service, by name: which trial gets which does not depend on the engine's order.
fn of_service<'a>(running: &'a [ContainerSummary], target: &ComposeTarget) -> Vec<&'a ContainerSummary> {
    let is = |one: &&ContainerSummary| {
        label(one, PROJECT) == Some(target.project.as_str()) && label(one, SERVICE) == Some(target.service.as_str())
    };
    let mut found: Vec<&ContainerSummary> = running.iter().filter(is).collect();
    found.sort_by(|a, b| a.names.cmp(&b.names));
    found
}

fn seen(api: &Api, container: &ContainerSummary) -> Result<Seen, LabError> {
    let id = container.id.as_deref().unwrap_or_default();
    inspect(api, id)
}

fn inspect(api: &Api, id: &str) -> Result<Seen, LabError> {
    let found = api
        .wait(api.docker().inspect_container(id, None::<InspectContainerOptions>))
        .map_err(failed(format!("look at the container {}", short(id))))?;
    let state = found.state.unwrap_or_default();
    let networks = found.network_settings.and_then(|settings| settings.networks).unwrap_or_default();
    let of = |end: bollard::models::EndpointSettings| {
        let address = end.ip_address.as_deref().and_then(|text| text.parse().ok());
        end.network_id.map(|id| (id, address))
    };
    Ok(Seen {
        id: found.id.unwrap_or_else(|| id.to_string()),
        name: found.name.unwrap_or_default().trim_start_matches('/').to_string(),
        pid: state.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
        started_at: state.started_at.unwrap_or_default(),
        networks: networks.into_values().filter_map(of).collect(),
    })
}

/// The one path from a container to its broker: the broker's container, both addresses, and how many connections there are.
fn path(
    api: &Api,
    running: &[ContainerSummary],
    container: &Seen,
    kind: BrokerKind,
) -> Result<(Seen, Ipv4Addr, SocketAddrV4, usize), LabError> {
    let (name, port) = (&container.name, kind.port());
    let ends = ends_of(container.pid, port).map_err(|e| {
        cannot(format!(
            "the processes of {name} are not to be seen from here ({e}): run halfopen on the engine's own machine, outside of \
             containers"
        ))
    })?;
    let mut paths: Vec<(Ipv4Addr, Ipv4Addr)> = ends.iter().map(|(near, far)| (*near.ip(), *far.ip())).collect();
    paths.sort_unstable();
    paths.dedup();
    let (client, server) = match paths[..] {
        [one] => one,
        [] => {
            return Err(cannot(format!(
                "{name} has no connection to port {port} over IPv4 at the moment; is it running, is `broker` right, and does it \
                 find its broker by an IPv4 address?"
            )));
        }
        _ => {
            let all: Vec<String> = paths.iter().map(|(near, far)| format!("{near} to {far}:{port}")).collect();
            return Err(cannot(format!(
                "{name} speaks to more than one broker ({}); one path can be cut",
                all.join(", ")
            )));
        }
    };
    let shared: HashMap<&str, Ipv4Addr> = container
        .networks
        .iter()
        .filter(|(_, address)| **address == Some(client))
        .map(|(network, _)| (network.as_str(), client))
        .collect();
    let on_it = |one: &&ContainerSummary| {
        let networks = one.network_settings.as_ref().and_then(|settings| settings.networks.as_ref());
        networks.into_iter().flatten().any(|(_, end)| {
            let same = end.network_id.as_deref().is_some_and(|id| shared.contains_key(id));
            same && end.ip_address.as_deref().and_then(|text| text.parse().ok()) == Some(server)
        })
    };
    let Some(broker) = running.iter().find(on_it) else {
        return Err(cannot(format!(
            "the broker of {name} at {server} is no container on a docker network that it shares with it, and only there the cut \
             sits between the two; connect both to one network"
        )));
    };
    let broker = seen(api, broker)?;
    let network = broker.networks.iter().find(|(_, address)| **address == Some(server)).map(|(id, _)| id.clone());
    let driver = network.as_deref().map(|id| api.wait(api.docker().inspect_network(id, None))).transpose();
    let driver = driver.map_err(failed("look at the network"))?.and_then(|network| network.driver);
    if driver.as_deref() != Some("bridge") {
        return Err(cannot(format!(
            "the network of {name} and {} has the driver `{}`, and the cut sits at a bridge of this machine",
            broker.name,
            driver.unwrap_or_default()
        )));
    }
    Ok((broker, client, SocketAddrV4::new(server, port), ends.len()))
}

/// The established IPv4 connections of a container's processes to a port, the oldest descriptors of the first processes
/// first: a client opens the connection that it consumes on before the others.
///
/// # Errors
/// When the process can't be looked at.
pub fn ends_of(pid: u32, port: u16) -> std::io::Result<Vec<Ends>> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    let mut by_inode: HashMap<u64, Ends> =
        table.lines().filter_map(row).filter(|(_, (_, far))| far.port() == port).collect();
    let mut all = Vec::new();
    for process in procfs::tree(pid) {
        // One that has ended meanwhile has no sockets.
        for (_, inode) in procfs::sockets(process.pid).unwrap_or_default() {
            all.extend(by_inode.remove(&inode));
        }
    }
    // Of processes beside the tree, such as an exec's.
    let mut others: Vec<Ends> = by_inode.into_values().collect();
    others.sort_unstable();
    all.extend(others);
    Ok(all)
}

/// A line of `/proc/net/tcp`: the inode and both ends, where it is an established connection.
fn row(line: &str) -> Option<(u64, Ends)> {
    let mut words = line.split_whitespace();
    let (near, far, state) = (words.nth(1)?, words.next()?, words.next()?);
    if state != ESTABLISHED {
        return None;
    }
    let inode = words.nth(5)?.parse().ok().filter(|inode| *inode > 0)?;
    Some((inode, (end(near)?, end(far)?)))
}

/// An address as the table writes it: the word in the machine's order, the port as a number.
fn end(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?;
    Some(SocketAddrV4::new(Ipv4Addr::from(address.to_ne_bytes()), u16::from_str_radix(port, 16).ok()?))
}

/// Hands each piece of what a container writes from now on to `each`, until the engine ends.
pub(in crate::lab) fn follow(api: &Api, id: &str, mut each: impl FnMut(&[u8]) + Send + 'static) {
    let options = LogsOptionsBuilder::default().follow(true).stdout(true).stderr(true).tail("0").build();
    let (docker, id) = (api.docker().clone(), id.to_string());
    api.spawn(async move {
        let mut pieces = Box::pin(docker.logs(&id, Some(options)));
        while let Some(Ok(piece)) = pieces.next().await {
            each(&piece.into_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 00000000:1628 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 1001 1 0 100 0 0 10 0\n   1: 040012AC:A001 030012AC:1628 01 00000000:00000000 02:000005DC 00000000  1000        0 2002 2 0 20 4 30 10 -1\n   2: 040012AC:A002 030012AC:1628 06 00000000:00000000 03:000005DC 00000000     0        0 0 3 0\n";

    #[test]
    fn established_connections_are_read_from_the_kernels_table() {
        let rows: Vec<(u64, Ends)> = TABLE.lines().filter_map(row).collect();
        let (near, far) = ("172.18.0.4:40961".parse().unwrap(), "172.18.0.3:5672".parse().unwrap());
        assert_eq!(rows, [(2002, (near, far))]);
    }

    #[test]
    fn a_connection_of_this_process_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(at) = listener.local_addr().unwrap() else { panic!("IPv4 was asked for") };
        let near = std::net::TcpStream::connect(at).unwrap();
        let found = ends_of(std::process::id(), at.port()).unwrap();
        assert_eq!(found.iter().map(|(near, _)| near.port()).collect::<Vec<_>>(), [near.local_addr().unwrap().port()]);
    }

    fn container(project: &str, service: &str, name: &str) -> ContainerSummary {
        let labels = [(PROJECT, project), (SERVICE, service)].map(|(k, v)| (k.to_string(), v.to_string()));
        ContainerSummary { labels: Some(labels.into()), names: Some(vec![name.into()]), ..ContainerSummary::default() }
    }

    #[test]
    fn what_is_missing_of_a_service_is_said_with_the_mend() {
        let running =
            [container("demo", "worker", "/w2"), container("demo", "worker", "/w1"), container("demo", "redis", "/r")];
        let target = |project: &str, service: &str| ComposeTarget { project: project.into(), service: service.into() };
        let names = |target: &ComposeTarget| -> Vec<String> {
            of_service(&running, target).iter().filter_map(|one| one.names.as_ref()?.first().cloned()).collect()
        };
        assert_eq!(names(&target("demo", "worker")), ["/w1", "/w2"]);
        assert!(too_few(&running, &target("else", "worker"), 0, 1).contains("`docker compose ls`"));
        assert!(too_few(&running, &target("demo", "wroker"), 0, 1).ends_with("it runs redis, worker"));
        assert!(too_few(&running, &target("demo", "worker"), 2, 3).contains("--scale worker=3"));
    }
}

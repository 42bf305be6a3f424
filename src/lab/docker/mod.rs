//! A run on a docker network of this machine: brokers and subjects as containers, the cut at the bridge between them.
//!
//! ```text
//! halfopen-RUN-arm0 ─┐
//! halfopen-RUN-arm1 ─┤
//! …                  ├─ the run's own bridge (nftables, family bridge) ─ halfopen-RUN-server
//! halfopen-RUN-producer ─┤                                               ├─ halfopen-RUN-rabbitmq
//! halfopen-RUN-proxy ─┘                                                  └─ halfopen-RUN-redis
//! ```
//! The engine stays in the machine's own namespaces, since bridge and containers are there. It changes nothing of the
//! machine but for one table of its own; addresses and routes are laid into the run's own containers, so that the plan's
//! address pairs, and with them the cut and its proof, are those of the namespaces lab. Each container's main process is
//! `halfopen __hold`, which ends with its standard input, that is with the harness; the brokers share the PID namespace of
//! one of them and are killed with it by the kernel. Only the network is left then, and `halfopen clean` removes it.
//!
//! A scenario that needs a router (a link, a middlebox, an address that vanishes or moves) has its containers without a docker network: one
//! more of them is the router, and the wiring is that of the namespaces lab, from container to container.
//!
//! What is left out: engines elsewhere, and brokers that are started again.

mod api;
mod attached;
mod brokers;
mod contained;
mod container;
mod database;
mod images;
mod loader;
mod remade;
mod remains;
mod seats;
mod targets;
mod wire;

pub use attached::{Attached, attach};
pub use contained::Contained;
pub use images::{ArmImage, arm_images, ensure_images, look, names_of_images};
pub use remade::Remade;
pub use remains::remove_outside;
pub use targets::{Aim, Ends, Seen, afterwards, aim, has_targets};

use super::running::{Running, Seat};
use super::{Lab, LabError, LabSpec, Patience, Place, netns};
use crate::host::journal::Outside;
use crate::host::netns::NetNs;
use crate::host::nft::{Chain, ChainType, Family, Hook};
use crate::scenario::{Act, BrokerKind, Fault, Scenario, TaskStoreKind};
use api::{Api, cannot, failed};
use bollard::models::NetworkCreateRequest;
use container::{labels, name_of};
use loader::Loader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The hidden subcommand that a container of the harness runs.
pub const HOLD: &str = "__hold";
/// A container that gets its links from the harness alone.
const NO_NETWORK: &str = "none";
/// Where the harness' program is in its containers.
const PROGRAM: &str = "/usr/local/bin/halfopen";

/// As much as tells whether the kernel takes what a cut needs.
pub(super) static PROBE_CHAINS: [Chain; 3] = [
    Chain { name: "before", kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 },
    Chain { name: "between", kind: ChainType::Filter, hook: Hook::Forward, priority: -300 },
    Chain { name: "after", kind: ChainType::Filter, hook: Hook::Postrouting, priority: 300 },
];

/// What a docker lab needs to know beyond a [`LabSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerSpec {
    /// The image of each broker.
    pub images: BTreeMap<BrokerKind, String>,
    /// The image of the task store's PostgreSQL, where there is one.
    #[serde(default)]
    pub database: Option<String>,
    /// The image of the subjects.
    pub subject_image: String,
    /// Directories that containers of subjects see and write, at the same path.
    pub shared: Vec<PathBuf>,
    /// Directories that they see and can't change, at the same path: the clients of others.
    pub read_only: Vec<PathBuf>,
    /// Whether a subject is a program of somebody else's, whose sockets are looked at from beside it.
    pub others: bool,
    /// The images of the user's own, one an arm that has one, in the plan's order.
    #[serde(default)]
    pub arms: Vec<Option<ArmImage>>,
    /// The paths of an existing compose project that are cut; then nothing is made at all.
    #[serde(default)]
    pub aims: Vec<Aim>,
}

/// Everything that a run of a scenario may make, for the journal: known before anything is made.
#[must_use]
pub fn outside(run_id: &str, scenario: &Scenario) -> Vec<Outside> {
    let proxied = scenario.faults.iter().any(|fault| fault.act.is_some_and(Act::in_proxy));
    let standby = scenario.faults.iter().any(|fault| fault.act == Some(Act::FailOver));
    let stored = scenario.reaper.as_ref().is_some_and(|reaper| reaper.store == TaskStoreKind::Postgres);
    let database = stored.then(|| Outside::Container(name_of(run_id, database::ROLE)));
    let all = made(run_id, scenario.arms.len(), &scenario.broker.kinds, (proxied, is_routed(scenario), standby));
    database.into_iter().chain(all).collect()
}

fn made(
    run_id: &str,
    arms: usize,
    kinds: &[BrokerKind],
    (proxied, routed, standby): (bool, bool, bool),
) -> Vec<Outside> {
    let mut roles = vec!["server".to_string(), "producer".to_string()];
    roles.extend(routed.then(|| "router".to_string()));
    roles.extend((0..arms).map(|k| format!("arm{k}")));
    roles.extend(proxied.then(|| "proxy".to_string()));
    let servers = || kinds.iter().filter(|kind| **kind != BrokerKind::None);
    roles.extend(servers().map(|kind| kind.name().to_string()));
    if standby {
        roles.push("standby".to_string());
        roles.extend(servers().map(|kind| format!("standby-{kind}")));
    }
    let containers = roles.iter().map(|role| Outside::Container(name_of(run_id, role)));
    containers.chain([Outside::Network(network_of(run_id)), Outside::Directory(work_dir(run_id))]).collect()
}

/// The run's private directory, on a filesystem in memory.
#[must_use]
pub fn work_dir(run_id: &str) -> PathBuf {
    Path::new("/run").join(format!("halfopen-{run_id}"))
}

fn network_of(run_id: &str) -> String {
    format!("halfopen-{run_id}")
}

/// The containers that hold the lab, for the time of a run. Dropped, they and their network are removed: nobody else may be
/// there any more who would do it.
#[derive(Debug)]
pub struct Containers {
    api: Api,
    run_id: String,
    work_dir: PathBuf,
    arms: Vec<String>,
    server: String,
    producer: String,
    proxy: Option<String>,
    standby: Option<String>,
    /// What goes before the harness' program in an arm's container whose image is the user's own.
    before: Vec<Vec<String>>,
    /// Whether a container of the run is the router between the others.
    routed: bool,
    /// While they are open, their containers' main processes run.
    lifelines: Vec<contained::Input>,
    closed: bool,
}

impl Drop for Containers {
    fn drop(&mut self) {
        if !self.closed {
            // Whoever drops it has an error of its own to tell.
            let _ = self.remove();
        }
    }
}

/// The four bytes with which the hardware addresses of a run begin: the cut minds frames to those alone.
fn prefix_of(run_id: &str) -> [u8; 4] {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(run_id.as_bytes());
    // Locally administered, not multicast; another one than Docker's own 02:42.
    [0x06, hash[0], hash[1], hash[2]]
}

/// Whether a scenario needs a router between its containers, which a docker network has not: a link shapes the path of an arm
/// alone, a middlebox is a router, and an address that vanishes or moves is a route of it.
#[must_use]
pub fn is_routed(scenario: &Scenario) -> bool {
    let vanishes = |fault: &Fault| fault.middlebox.is_some() || fault.act.is_some_and(Act::moves_the_address);
    scenario.arms.iter().any(|arm| arm.settings.link.is_some()) || scenario.faults.iter().any(vanishes)
}

/// The run's own docker network.
fn bridge(api: &Api, run_id: &str) -> Result<String, LabError> {
    let network = network_of(run_id);
    let request = NetworkCreateRequest {
        name: network.clone(),
        driver: Some("bridge".into()),
        labels: Some(labels(run_id, "network")),
        ..NetworkCreateRequest::default()
    };
    api.wait(api.docker().create_network(request)).map_err(failed(format!("create the network {network}")))?;
    Ok(network)
}

/// Builds the network, its containers and the brokers, and waits until each broker has answered a login.
///
/// # Errors
/// The first [`LabError`]; what was made until then is removed.
pub fn build(spec: &LabSpec<'_>, docker: &DockerSpec, patience: &Patience) -> Result<Lab, LabError> {
    netns::validate(&spec.arms)?;
    let api = Api::usable()?;
    // From here on whatever fails takes with it what was made until then.
    let mut containers = Containers {
        api: api.clone(),
        run_id: spec.run_id.clone(),
        work_dir: spec.work_dir.clone(),
        arms: Vec::new(),
        server: String::new(),
        producer: String::new(),
        proxy: None,
        standby: None,
        before: Vec::new(),
        routed: spec.routed,
        lifelines: Vec::new(),
        closed: false,
    };
    let network = if spec.routed { NO_NETWORK.to_string() } else { bridge(&api, &spec.run_id)? };
    let (seats, lifelines) = seats::seats(&api, spec, docker, &network)?;
    containers.lifelines = lifelines;
    if patience.interrupted.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    let links = wire::apply_all(spec, &seats, patience.clock)?;
    let hosts = (&seats.server, seats.standby.as_ref());
    let certificates = super::certificates(spec)?;
    // Side by side: each takes seconds.
    let (started, stored) = std::thread::scope(|scope| {
        let stored = spec.database.then(|| scope.spawn(|| database::start(&api, spec, docker, hosts.0, patience)));
        let started = brokers::start_all(&api, spec, docker, hosts, certificates.as_ref(), patience);
        let joined = stored.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (started, joined.transpose())
    });
    let ((brokers, standby_brokers), database) = (started?, stored?);
    let router = match &seats.router {
        Some(router) => router.ns.clone(),
        None => NetNs::current("the machine").map_err(LabError::Network)?,
    };
    containers.arms = seats.arms.iter().map(|seat| seat.container.clone()).collect();
    let loader = Loader::of_this_program()?.argv();
    containers.before =
        docker.arms.iter().map(|own| own.as_ref().map(|_| loader.clone()).unwrap_or_default()).collect();
    containers.server.clone_from(&seats.server.container);
    containers.producer.clone_from(&seats.producer.container);
    containers.proxy = seats.proxy.as_ref().map(|seat| seat.container.clone());
    containers.standby = seats.standby.as_ref().map(|seat| seat.container.clone());
    Ok(Lab {
        router,
        server: seats.server.ns,
        producer: seats.producer.ns,
        proxy: seats.proxy.map(|seat| seat.ns),
        standby: seats.standby.map(|seat| seat.ns),
        standby_brokers,
        clients: seats.arms.into_iter().map(|seat| seat.ns).collect(),
        brokers,
        database,
        certificates,
        links,
        place: Place::Docker(containers),
    })
}

impl Containers {
    /// Which packets the cut minds, and the name of the run's table where others have tables beside it.
    pub(super) fn path(&self) -> (Family, Option<String>) {
        match self.routed {
            true => (Family::Ip, None),
            false => (Family::Bridge { to: Some(prefix_of(&self.run_id)) }, Some(format!("halfopen-{}", self.run_id))),
        }
    }

    /// Starts this program in a container.
    pub(super) fn start(&self, seat: Seat, argv: &[String], nofile: u64) -> Result<Running, LabError> {
        let container = match seat {
            Seat::Arm(index) => self.arms.get(index),
            Seat::Server => Some(&self.server),
            Seat::Producer => Some(&self.producer),
            Seat::Proxy => self.proxy.as_ref(),
            Seat::Standby => self.standby.as_ref(),
            Seat::Nowhere => None,
        };
        let container = container.ok_or_else(|| cannot(format!("there is no container for {seat:?}")))?;
        let before = match seat {
            Seat::Arm(index) => self.before.get(index).cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        let argv = before.into_iter().chain([PROGRAM.to_string()]).chain(argv.iter().cloned()).collect();
        let work_dir = format!("{}={}", crate::host::init::WORK_DIR_VARIABLE, self.work_dir.display());
        let process = Contained::exec(&self.api, container, argv, vec![work_dir])?;
        process.raise_nofile(nofile);
        Ok(Running::Contained(process))
    }

    /// Removes everything; goes on past errors.
    pub(super) fn close(mut self) -> Vec<LabError> {
        self.closed = true;
        self.remove()
    }

    fn remove(&mut self) -> Vec<LabError> {
        self.lifelines.clear();
        remains::remove(&self.api, &self.run_id, Some(&self.work_dir), false).1
    }
}

/// The hidden `__hold`: the main process of a container of the harness. It lives as long as its standard input is open, and
/// everything in its PID namespace ends with it.
#[must_use]
pub fn hold_main() -> i32 {
    // SAFETY: a signal number and a constant. Orphans are then reaped by the kernel: nobody here waits for them.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_run_may_make_is_known_beforehand() {
        let all = made("1-2", 2, &[BrokerKind::None, BrokerKind::Redis], (true, true, true));
        let containers: Vec<&str> = all
            .iter()
            .filter_map(|thing| match thing {
                Outside::Container(name) => name.strip_prefix("halfopen-1-2-"),
                _ => None,
            })
            .collect();
        assert_eq!(
            containers,
            ["server", "producer", "router", "arm0", "arm1", "proxy", "redis", "standby", "standby-redis"]
        );
        assert!(all.contains(&Outside::Network("halfopen-1-2".into())));
        assert!(all.contains(&Outside::Directory("/run/halfopen-1-2".into())));
    }

    #[test]
    fn the_frames_of_two_runs_can_be_told_apart() {
        let (one, other) = (prefix_of("1-2"), prefix_of("1-3"));
        assert_ne!(one, other);
        assert_eq!(one[0] & 3, 2, "locally administered, not multicast");
    }
}

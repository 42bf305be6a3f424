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
//! What is left out: links that shape traffic, and engines elsewhere.

mod api;
mod brokers;
mod contained;
mod container;
mod images;
mod remains;
mod wire;

pub use contained::Contained;
pub use images::{ensure_images, look};
pub use remains::remove_outside;

use super::running::{Running, Seat};
use super::{Lab, LabError, LabSpec, Patience, Place, netns};
use crate::host::journal::Outside;
use crate::host::netns::NetNs;
use crate::host::nft::{Chain, ChainType, Family, Hook};
use crate::scenario::BrokerKind;
use api::{Api, cannot, failed};
use bollard::models::NetworkCreateRequest;
use container::{Made, Started, labels, name_of, own_program};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use wire::Host;

/// The hidden subcommand that a container of the harness runs.
pub const HOLD: &str = "__hold";
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
    /// The image of the subjects.
    pub subject_image: String,
    /// Directories that containers of subjects see and write, at the same path.
    pub shared: Vec<PathBuf>,
    /// Directories that they see and can't change, at the same path: the clients of others.
    pub read_only: Vec<PathBuf>,
    /// Whether a subject is a program of somebody else's, whose sockets are looked at from beside it.
    pub others: bool,
}

/// Everything that a run of so many arms may make, for the journal: known before anything is made.
#[must_use]
pub fn outside(run_id: &str, arms: usize, kinds: &[BrokerKind], proxied: bool) -> Vec<Outside> {
    let mut roles = vec!["server".to_string(), "producer".to_string()];
    roles.extend((0..arms).map(|k| format!("arm{k}")));
    roles.extend(proxied.then(|| "proxy".to_string()));
    roles.extend(kinds.iter().filter(|kind| **kind != BrokerKind::None).map(|kind| kind.name().to_string()));
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

/// Builds the network, its containers and the brokers, and waits until each broker has answered a login.
///
/// # Errors
/// The first [`LabError`]; what was made until then is removed.
pub fn build(spec: &LabSpec<'_>, docker: &DockerSpec, patience: &Patience) -> Result<Lab, LabError> {
    netns::validate(&spec.arms)?;
    if let Some(arm) = spec.arms.iter().find(|arm| arm.link.is_some()) {
        let text =
            "`link` shapes the path of each arm alone, and containers share one bridge; run it with --lab netns or vm";
        return Err(cannot(format!("arm `{}`: {text}", arm.name)));
    }
    if spec.middlebox.is_some() {
        return Err(cannot(
            "a middlebox is the router of its lab, and a docker network has none; run it with --lab netns or vm",
        ));
    }
    if spec.database {
        return Err(cannot(
            "the PostgreSQL of `[reaper] store` is started on this machine alone; run it with --lab netns",
        ));
    }
    if spec.namespaces_only {
        return Err(cannot(
            "a host that vanishes or moves, a broker that is started again or told to raise its alarm, and a name server need \
             namespaces of the run's own; run it with --lab netns or vm",
        ));
    }
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
        lifelines: Vec::new(),
        closed: false,
    };
    let network = network_of(&spec.run_id);
    api.wait(api.docker().create_network(NetworkCreateRequest {
        name: network.clone(),
        driver: Some("bridge".into()),
        labels: Some(labels(&spec.run_id, "network")),
        ..NetworkCreateRequest::default()
    }))
    .map_err(failed(format!("create the network {network}")))?;
    let (seats, lifelines) = seats(&api, spec, docker, &network)?;
    containers.lifelines = lifelines;
    if patience.interrupted.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    wire::apply_all(spec, &seats)?;
    let brokers = brokers::start_all(&api, spec, docker, &seats.server, patience)?;
    let router = NetNs::current("the machine").map_err(LabError::Network)?;
    containers.arms = seats.arms.iter().map(|seat| seat.container.clone()).collect();
    containers.server.clone_from(&seats.server.container);
    containers.producer.clone_from(&seats.producer.container);
    containers.proxy = seats.proxy.as_ref().map(|seat| seat.container.clone());
    Ok(Lab {
        router,
        server: seats.server.ns,
        producer: seats.producer.ns,
        proxy: seats.proxy.map(|seat| seat.ns),
        standby: None,
        standby_brokers: Vec::new(),
        clients: seats.arms.into_iter().map(|seat| seat.ns).collect(),
        brokers,
        database: None,
        certificates: None,
        links: super::links::Links::default(),
        place: Place::Docker(containers),
    })
}

/// The hosts of the lab.
struct Seats {
    server: Host,
    producer: Host,
    proxy: Option<Host>,
    arms: Vec<Host>,
}

fn seats(
    api: &Api,
    spec: &LabSpec<'_>,
    docker: &DockerSpec,
    network: &str,
) -> Result<(Seats, Vec<contained::Input>), LabError> {
    let program = own_program()?;
    let bind = |path: &Path, ro: &str| format!("{0}:{0}{ro}", path.display());
    let mut binds = vec![format!("{}:{PROGRAM}:ro", program.display()), bind(&spec.work_dir, "")];
    binds.extend(docker.shared.iter().map(|path| bind(path, "")));
    binds.extend(docker.read_only.iter().map(|path| bind(path, ":ro")));
    // Looking at another process's sockets from beside it takes the right to trace it.
    let capabilities = if docker.others { vec!["SYS_PTRACE".to_string()] } else { Vec::new() };
    let made = |role: String| Made {
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
    let mut roles = vec!["server".to_string(), "producer".to_string()];
    roles.extend(spec.proxied.then(|| "proxy".to_string()));
    roles.extend((0..spec.arms.len()).map(|k| format!("arm{k}")));
    let all: Vec<Made> = roles.iter().map(|role| made(role.clone())).collect();
    let started: Vec<Started> =
        api.wait(join_all(all.iter().map(|made| made.start(api)))).into_iter().collect::<Result<_, _>>()?;
    let prefix = prefix_of(&spec.run_id);
    let mut lifelines = Vec::with_capacity(started.len());
    let mut hosts = Vec::with_capacity(started.len());
    for (index, (role, started)) in roles.iter().zip(started).enumerate() {
        let name = role.strip_prefix("arm").and_then(|k| spec.arms.get(k.parse::<usize>().ok()?));
        let name = name.map_or(role.as_str(), |arm| arm.name.as_str());
        hosts.push(Host::of(&started, name, prefix, index)?);
        lifelines.push(started.input);
    }
    let mut hosts = hosts.into_iter();
    let missing = || cannot("a container of the lab is missing");
    let server = hosts.next().ok_or_else(missing)?;
    let producer = hosts.next().ok_or_else(missing)?;
    let proxy = if spec.proxied { hosts.next() } else { None };
    Ok((Seats { server, producer, proxy, arms: hosts.collect() }, lifelines))
}

impl Containers {
    /// Which frames the cut minds.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::Bridge { to: Some(prefix_of(&self.run_id)) }
    }

    /// The name of the run's table, beside which others may be.
    #[must_use]
    pub fn table(&self) -> String {
        format!("halfopen-{}", self.run_id)
    }

    /// Starts this program in a container.
    pub(super) fn start(&self, seat: Seat, argv: &[String], nofile: u64) -> Result<Running, LabError> {
        let container = match seat {
            Seat::Arm(index) => self.arms.get(index),
            Seat::Server => Some(&self.server),
            Seat::Producer => Some(&self.producer),
            Seat::Proxy => self.proxy.as_ref(),
            Seat::Standby => None,
            Seat::Nowhere => None,
        };
        let container = container.ok_or_else(|| cannot(format!("there is no container for {seat:?}")))?;
        let argv = std::iter::once(PROGRAM.to_string()).chain(argv.iter().cloned()).collect();
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
        let all = outside("1-2", 2, &[BrokerKind::None, BrokerKind::Redis], true);
        let containers: Vec<&str> = all
            .iter()
            .filter_map(|thing| match thing {
                Outside::Container(name) => name.strip_prefix("halfopen-1-2-"),
                _ => None,
            })
            .collect();
        assert_eq!(containers, ["server", "producer", "arm0", "arm1", "proxy", "redis"]);
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

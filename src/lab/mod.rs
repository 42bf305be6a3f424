//! Where a run takes place: client namespaces, a router between, and real brokers in a server namespace.
//!
//! ```text
//! client of arm k ──10.251.k.0/30──┐
//! client of arm …                  ├── router ──10.252.0.0/30── server: brokers on 0.0.0.0
//! producer ───────10.250.0.0/30────┤
//! proxy ──────────10.249.0.0/30────┤
//! standby ────────10.248.0.0/30────┘
//! ```
//! Arm `k` owns the client addresses 10.(64+k).0.0/16 and the server addresses 10.(128+k).0.0/16, a pair for each
//! trial: a client that connects to its own server address gets its own source address from the route, without
//! binding. Neighbours are permanent entries, so ARP is never part of what is measured. Namespaces are held by
//! descriptors alone and end with them. What is left out: faults, clients and observation.

mod alarm;
mod amqp;
mod broker;
mod certificates;
mod code_path;
pub mod docker;
mod error;
mod links;
mod netns;
mod postgres;
mod rabbitmq;
mod redis;
mod running;
mod tables;
pub mod vm;

pub use alarm::{Alarm, Resource};
pub use broker::{Broker, Patience, Waiter};
pub use certificates::Certificates;
pub use error::LabError;
pub use netns::{ADMIN, ArmNet, BoxNet, MAX_OWN_LINKS, PRODUCER, RouterNs, STANDBY, TO_SERVERS, own_link_of};
pub use postgres::{POSTGRES_PORT, Postgres};
pub use running::{Running, Seat, Status};
pub use tables::{Consumer, Tables};

use crate::host::netns::NetNs;
use crate::host::nft::Family;
use crate::host::process::{Launch, Stream};
use crate::host::programs::Program;
use crate::host::secret::password;
use crate::scenario::{BrokerKind, BrokerSettings};
use crate::units::TrialId;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The most arms: second octets 64 to 127 are clients, 128 to 191 are servers.
pub const MAX_ARMS: usize = 64;

/// The most trials of an arm: 120 third octets from 128 on, 250 addresses each.
pub const MAX_TRIALS_OF_ARM: usize = 30_000;

/// What to build.
#[derive(Debug)]
pub struct LabSpec<'a> {
    /// The run's id; it stands in the brokers' command lines.
    pub run_id: String,
    /// A private, writable directory for the brokers' files.
    pub work_dir: PathBuf,
    /// The arms, in the plan's order.
    pub arms: Vec<ArmNet>,
    /// The brokers.
    pub brokers: &'a BrokerSettings,
    /// `RLIMIT_NOFILE` of the brokers.
    pub nofile: u64,
    /// Which namespace becomes the router.
    pub router: RouterNs,
    /// The trials' server addresses that belong to a namespace for proxies; the brokers are behind it.
    pub proxied: Vec<Ipv4Addr>,
    /// With containers: whether one of them is the router between the others, as the namespaces lab always has one.
    pub routed: bool,
    /// Whether there is a second host with the same brokers, for the servers' addresses to move to.
    pub standby: bool,
    /// The middlebox that the router is.
    pub middlebox: Option<BoxNet>,
    /// Virtual hosts of RabbitMQ beside `/`.
    pub vhosts: Vec<String>,
    /// How many databases Redis has; 16 where it has more than that anyway.
    pub databases: u32,
    /// Whether the tasks are in a PostgreSQL.
    pub database: bool,
    /// How many connections it is reached by over the network; without any it listens on none.
    pub database_clients: usize,
    /// The addresses at which clients find a broker whose listener has a certificate; empty: no broker has such a listener.
    pub tls: Vec<Ipv4Addr>,
    /// Whether clients ask a name server, at [`ADMIN`].
    pub names: bool,
}

/// The zone of the names of the trials' brokers.
pub const ZONE: &str = "halfopen.test";

/// A lab that stands: every broker answered a login.
#[derive(Debug)]
pub struct Lab {
    /// Between all others; the only place for faults.
    pub router: NetNs,
    /// Where the brokers are.
    pub server: NetNs,
    /// Where the publisher of the numbered messages runs.
    pub producer: NetNs,
    /// Where the proxies run: the trials' server addresses are here, and the broker is at [`ADMIN`].
    pub proxy: Option<NetNs>,
    /// The host that takes the trials' server addresses over, behind the gateway [`STANDBY`].
    pub standby: Option<NetNs>,
    /// The brokers there, which nobody watches; logins are those of the first ones.
    pub standby_brokers: Vec<Broker>,
    /// Where the subjects run, one an arm, in the plan's order.
    pub clients: Vec<NetNs>,
    /// The brokers, in the order of the settings; `BrokerKind::None` has none.
    pub brokers: Vec<Broker>,
    /// The database of the task store, where one was asked for.
    pub database: Option<Postgres>,
    /// The brokers' certificates, where some clients ask for them.
    pub certificates: Option<Certificates>,
    links: links::Links,
    /// What holds the hosts.
    place: Place,
}

/// What a lab is made of.
#[derive(Debug)]
enum Place {
    /// Namespaces that its own descriptors hold.
    Namespaces,
    /// Containers on a docker network.
    Docker(docker::Containers),
    /// Containers of other people's services.
    Attached(docker::Attached),
}

impl Lab {
    /// Builds the network, then starts all brokers at once and waits until each has answered a login.
    ///
    /// Programs, counts, addresses and the emptiness of the router are checked before anything is created.
    ///
    /// # Errors
    /// The first [`LabError`]; what was already built is gone when it returns.
    pub fn build(spec: &LabSpec<'_>, patience: &Patience) -> Result<Self, LabError> {
        let programs = Programs::locate(&spec.brokers.kinds)?;
        netns::validate(&spec.arms)?;
        let certificates = certificates(spec)?;
        let network = netns::build(spec, patience.clock)?;
        let mut sites = Vec::new();
        for kind in spec.brokers.kinds.iter().copied().filter(|kind| *kind != BrokerKind::None) {
            let password = password().map_err(|source| LabError::Io { kind, what: "make a password", source })?;
            let tls = certificates.as_ref();
            let dir = spec.work_dir.join(kind.name());
            sites.push(Site { kind, ns: &network.server, dir, password: password.clone(), tls });
            if let Some(ns) = &network.standby {
                let dir = spec.work_dir.join("standby").join(kind.name());
                sites.push(Site { kind, ns, dir, password, tls });
            }
        }
        let started = &|site: &Site<'_>| match site.kind {
            BrokerKind::Rabbitmq => rabbitmq::start(spec, &programs, site, patience),
            _ => redis::start(spec, &programs, site, patience),
        };
        let (mut brokers, mut standby_brokers) = (Vec::new(), Vec::new());
        let mut database = None;
        std::thread::scope(|scope| {
            let starting = spec.database.then(|| scope.spawn(|| Postgres::start(spec, &network.server, patience)));
            let starts: Vec<_> = sites.iter().map(|site| scope.spawn(move || (site, started(site)))).collect();
            let mut first_error = None;
            for start in starts {
                match start.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                    (site, Ok(broker)) if std::ptr::eq(site.ns, &network.server) => brokers.push(broker),
                    (_, Ok(broker)) => standby_brokers.push(broker),
                    (_, Err(e)) => first_error = first_error.or(Some(e)),
                }
            }
            match starting.map(|start| start.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))) {
                Some(Ok(started)) => database = Some(started),
                Some(Err(e)) => first_error = first_error.or(Some(e)),
                None => {}
            }
            first_error.map_or(Ok(()), Err)
        })?;
        drop(sites);
        let netns::Network { router, server, producer, proxy, standby, clients, links } = network;
        let place = Place::Namespaces;
        Ok(Self {
            router,
            server,
            producer,
            proxy,
            standby,
            standby_brokers,
            clients,
            brokers,
            database,
            certificates,
            links,
            place,
        })
    }

    /// Which packets pass between the hosts in the namespace [`Self::router`], and the name of the table for the cut where
    /// others have tables of their own.
    #[must_use]
    pub fn path(&self) -> (Family, Option<String>) {
        match &self.place {
            Place::Namespaces => (Family::Ip, None),
            Place::Docker(containers) => containers.path(),
            Place::Attached(attached) => attached.path(),
        }
    }

    /// Starts this program in a role, beside a host of the lab, with pipes to its standard streams.
    ///
    /// # Errors
    /// When it can't be started, or there is no such host.
    pub fn start(&self, seat: Seat, argv: &[String], nofile: u64) -> io::Result<Running> {
        let nowhere = NetNs::create("nowhere").ok().filter(|_| seat == Seat::Nowhere);
        let host = match seat {
            Seat::Arm(index) => self.clients.get(index),
            Seat::Server => Some(&self.server),
            Seat::Producer => Some(&self.producer),
            Seat::Proxy => self.proxy.as_ref(),
            Seat::Standby => self.standby.as_ref(),
            Seat::Nowhere => nowhere.as_ref(),
        };
        let host = host.ok_or_else(|| io::Error::other(format!("the lab has no place for {seat:?}")))?;
        match &self.place {
            Place::Docker(containers) if seat != Seat::Nowhere => {
                containers.start(seat, argv, nofile).map_err(|e| io::Error::other(e.to_string()))
            }
            _ => {
                let mut launch = Launch::new("/proc/self/exe").args(argv.iter().cloned());
                // Nobody goes into a container that was there before.
                launch.netns = Some(host.clone()).filter(|_| !matches!(self.place, Place::Attached(_)));
                (launch.stdin, launch.stdout, launch.stderr) = (Stream::Pipe, Stream::Pipe, Stream::Inherit);
                launch.nofile = Some(nofile);
                launch.spawn().map(Running::Own)
            }
        }
    }

    /// The containers of other people's services, where the lab is made of them.
    #[must_use]
    fn attached(&self) -> Option<&docker::Attached> {
        match &self.place {
            Place::Attached(attached) => Some(attached),
            Place::Namespaces | Place::Docker(_) => None,
        }
    }

    /// The connections to the broker that were there before the run, of a trial whose subject was.
    #[must_use]
    pub fn connections(&self, trial: TrialId) -> Vec<docker::Ends> {
        self.attached().map(|attached| attached.connections(trial)).unwrap_or_default()
    }

    /// The process of a trial whose subject was there before the run.
    #[must_use]
    pub fn attached_pid(&self, trial: TrialId) -> Option<u32> {
        self.attached()?.pid(trial)
    }

    /// Hands over what a trial's container writes from now on, where it was there before the run.
    pub fn follow(&self, trial: TrialId, each: impl FnMut(&[u8]) + Send + 'static) {
        if let Some(attached) = self.attached() {
            attached.follow(trial, each);
        }
    }

    /// The broker of a kind.
    #[must_use]
    pub fn broker(&self, kind: BrokerKind) -> Option<&Broker> {
        self.brokers.iter().find(|b| b.kind == kind)
    }

    /// What stands in for what this kernel lacks, a line each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.links.notes
    }

    /// Ends every broker and lets the namespaces go; goes on past errors.
    ///
    /// # Errors
    /// All that went wrong.
    pub fn close(self) -> Result<(), Vec<LabError>> {
        let all = self.brokers.into_iter().chain(self.standby_brokers);
        let mut errors: Vec<LabError> = all.flat_map(Broker::close).collect();
        errors.extend(self.database.into_iter().flat_map(Postgres::close));
        if let Place::Docker(containers) = self.place {
            errors.extend(containers.close());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// The certificates, where anybody asks for them.
fn certificates(spec: &LabSpec<'_>) -> Result<Option<Certificates>, LabError> {
    if spec.tls.is_empty() {
        return Ok(None);
    }
    let made = Certificates::make(&spec.work_dir, &spec.tls, ZONE);
    made.map(Some).map_err(|source| LabError::Certificates { source })
}

/// Where a broker of the run is.
struct Site<'a> {
    kind: BrokerKind,
    ns: &'a NetNs,
    /// Its files.
    dir: PathBuf,
    /// Of the run's own login there.
    password: String,
    /// What it shows to clients that ask for it.
    tls: Option<&'a Certificates>,
}

/// The programs that a lab needs, found beforehand.
struct Programs {
    rabbitmq: Option<PathBuf>,
    epmd: Option<PathBuf>,
    redis: Option<PathBuf>,
}

impl Programs {
    fn locate(kinds: &[BrokerKind]) -> Result<Self, LabError> {
        let need = |kind: BrokerKind, program: Program| {
            if !kinds.contains(&kind) {
                return Ok(None);
            }
            let missing = LabError::NoProgram { program: program.name(), mend: program.mend() };
            program.locate().map(Some).ok_or(missing)
        };
        Ok(Self {
            rabbitmq: need(BrokerKind::Rabbitmq, Program::RabbitmqServer)?,
            epmd: need(BrokerKind::Rabbitmq, Program::Epmd)?,
            redis: need(BrokerKind::Redis, Program::RedisServer)?,
        })
    }
}

//! Addresses and routes in the run's own containers: the plan's address pairs on one docker network.

use super::api::cannot;
use super::container::Started;
use super::seats::Seats;
use crate::host::clock::Clock;
use crate::host::netlink::{Mac, Op, apply, link_names};
use crate::host::netns::NetNs;
use crate::lab::links::Links;
use crate::lab::netns::{ADMIN, Network, SERVERS, base_ops, clients_of, join, set_sysctls, sysctl};
use crate::lab::{LabError, LabSpec};
use std::net::Ipv4Addr;
use std::path::Path;

const LINK: &str = "eth0";

fn far(started: &Started) -> LabError {
    cannot(format!(
        "the processes of {} are not to be seen from here: the Docker engine runs in another PID namespace or on another \
         machine; run halfopen on the engine's own machine, outside of containers",
        started.name
    ))
}

/// A container as a host of the lab.
#[derive(Debug)]
pub(super) struct Host {
    pub ns: NetNs,
    pub container: String,
    /// Where Docker put it.
    address: Ipv4Addr,
    /// What it gets for a hardware address.
    mac: Mac,
}

impl Host {
    /// Of a container that runs, the `index`th of its run.
    ///
    /// # Errors
    /// When its processes can't be seen from here.
    pub fn of(started: &Started, name: &str, prefix: [u8; 4], index: usize) -> Result<Self, LabError> {
        let ns = Self::namespace(started, name, &["lo", LINK])?;
        let address = started.address.ok_or_else(|| far(started))?;
        let [a, b, c, d] = prefix;
        // A run has fewer containers than that: 64 arms and a handful of others.
        let mac = [a, b, c, d, 0, u8::try_from(index).unwrap_or(u8::MAX)];
        Ok(Self { ns, container: started.name.clone(), address, mac })
    }

    /// Of a container without a network, which gets its links from the harness.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn apart(started: &Started, name: &str) -> Result<Self, LabError> {
        let ns = Self::namespace(started, name, &["lo"])?;
        Ok(Self { ns, container: started.name.clone(), address: Ipv4Addr::UNSPECIFIED, mac: [0; 6] })
    }

    /// A container's network namespace, in which there may be these links and no others.
    fn namespace(started: &Started, name: &str, may_have: &[&str]) -> Result<NetNs, LabError> {
        let ns = NetNs::open(Path::new(&format!("/proc/{}/ns/net", started.pid)), name).map_err(|_| far(started))?;
        let links = link_names(&ns).map_err(LabError::Network)?;
        if ns.is_current() || links.iter().any(|link| !may_have.contains(&link.as_str())) {
            return Err(far(started));
        }
        Ok(ns)
    }

    /// What every host begins with.
    fn base_ops(&self) -> Vec<Op> {
        let mut ops = base_ops();
        ops.push(sysctl(&format!("ipv4.conf.{LINK}.rp_filter"), 0));
        ops.push(Op::Hardware { link: LINK.into(), mac: self.mac });
        ops
    }

    /// A permanent entry: the address is never asked for by ARP.
    fn neighbour(&self) -> Op {
        Op::Neighbour { link: LINK.into(), address: self.address, mac: self.mac }
    }
}

/// Lays all of it out, over the router where there is one, else over the docker network.
pub(super) fn apply_all(spec: &LabSpec<'_>, seats: &Seats, clock: Clock) -> Result<Links, LabError> {
    let Some(router) = &seats.router else {
        return bridged(spec, seats).map(|()| Links::default());
    };
    let ns = |host: &Host| host.ns.clone();
    let network = Network {
        links: Links::default(),
        router: ns(router),
        server: ns(&seats.server),
        producer: ns(&seats.producer),
        proxy: seats.proxy.as_ref().map(ns),
        standby: seats.standby.as_ref().map(ns),
        clients: seats.arms.iter().map(ns).collect(),
    };
    join(spec, network, clock).map(|network| network.links)
}

/// Docker's own addresses stay as they are and carry the routes.
fn bridged(spec: &LabSpec<'_>, seats: &Seats) -> Result<(), LabError> {
    let Seats { server, producer, proxy, arms, .. } = seats;
    let route = |(to, prefix): (Ipv4Addr, u8), via: &Host| Op::Route { to, prefix, via: via.address, source: None };
    // The trials' server addresses, at whoever has them.
    let to_clients = |ops: &mut Vec<Op>| {
        for (k, arm) in arms.iter().enumerate() {
            ops.push(arm.neighbour());
            ops.push(route((clients_of(k), 16), arm));
        }
        ops.push(Op::Local { to: SERVERS.0, prefix: SERVERS.1 });
    };

    let mut ops = server.base_ops();
    // Thousands of clients connect at once: no queue of the kernel may be shorter than the broker's own.
    ops.push(sysctl("core.somaxconn", 65_535));
    ops.push(sysctl("ipv4.tcp_max_syn_backlog", 65_535));
    ops.push(Op::Address { link: "lo".into(), address: ADMIN, prefix: 32 });
    ops.push(producer.neighbour());
    ops.extend(proxy.as_ref().map(Host::neighbour));
    to_clients(&mut ops);
    apply(&server.ns, &ops).map_err(LabError::Network)?;

    if let Some(proxy) = proxy {
        let mut ops = proxy.base_ops();
        ops.push(server.neighbour());
        ops.push(route((ADMIN, 32), server));
        to_clients(&mut ops);
        apply(&proxy.ns, &ops).map_err(LabError::Network)?;
    }

    let mut ops = producer.base_ops();
    ops.push(server.neighbour());
    ops.push(route((ADMIN, 32), server));
    apply(&producer.ns, &ops).map_err(LabError::Network)?;

    for (k, (host, arm)) in arms.iter().zip(&spec.arms).enumerate() {
        let mut ops = host.base_ops();
        ops.extend([Some(server), proxy.as_ref()].into_iter().flatten().map(Host::neighbour));
        ops.push(Op::Local { to: clients_of(k), prefix: 16 });
        let of = |server_address: &Ipv4Addr| proxy.as_ref().filter(|_| spec.proxied.contains(server_address));
        ops.extend(arm.pairs.iter().map(|(c, s)| {
            let via = of(s).unwrap_or(server).address;
            Op::Route { to: *s, prefix: 32, via, source: Some(*c) }
        }));
        ops.extend(spec.names.then(|| route((ADMIN, 32), server)));
        apply(&host.ns, &ops).map_err(LabError::Network)?;
        set_sysctls(&host.ns, arm)?;
    }
    Ok(())
}

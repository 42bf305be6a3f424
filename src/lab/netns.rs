//! The lab's namespaces, links, addresses and routes.

use super::links::{self, Links};
use super::{LabError, LabSpec, MAX_ARMS, MAX_TRIALS_OF_ARM};
use crate::host::clock::Clock;
use crate::host::netlink::{Mac, Op, apply, link_names};
use crate::host::netns::NetNs;
use crate::scenario::Link;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The server's address for the producer and the harness itself, outside of the trials' ranges.
pub const ADMIN: Ipv4Addr = Ipv4Addr::new(10, 192, 0, 1);

/// The producer's address.
pub const PRODUCER: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 2);

/// The proxies' own address.
const PROXY_LINK: Ipv4Addr = Ipv4Addr::new(10, 249, 0, 2);
/// The gateway to the host that takes the servers' addresses over.
pub const STANDBY: Ipv4Addr = Ipv4Addr::new(10, 248, 0, 2);
/// The router's link to the servers.
pub const TO_SERVERS: &str = "server";
const SERVER_LINK: Ipv4Addr = Ipv4Addr::new(10, 252, 0, 2);
/// All servers' addresses: 10.128.0.0/10.
pub(super) const SERVERS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 10);

/// What the network has to know of an arm.
#[derive(Debug, Clone, Default)]
pub struct ArmNet {
    /// Its name, for messages.
    pub name: String,
    /// Sysctls of its namespace, named without `net.ipv4.`.
    pub sysctl: BTreeMap<String, i64>,
    /// What the path to its broker does to packets all the time.
    pub link: Option<Link>,
    /// Client and server address of each of its trials.
    pub pairs: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Those among them that reach their server over a link of their own, which can be taken down without harm to others.
    pub own_links: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Clients whose address is a real one on the loopback, which can be taken away.
    pub own_addresses: Vec<Ipv4Addr>,
}

/// The most trials of a run with links of their own: 10.(242+n/250).(n%250).0/30 each.
pub const MAX_OWN_LINKS: usize = 1_000;

/// The client's end of the link of its own.
#[must_use]
pub fn own_link_of(client: Ipv4Addr) -> String {
    let [_, arm, third, last] = client.octets();
    format!("own{arm}-{third}-{last}")
}

/// What the network has to know of a middlebox: its tracking is the router's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxNet {
    /// Whether it takes up a connection in the middle that it does not know.
    pub loose: bool,
    /// It forgets an established connection that was silent for so long; `None` leaves the kernel's five days.
    pub idle: Option<Duration>,
    /// The clients' addresses as the broker sees them, where it translates: they are the router's own.
    pub outside: Option<(Ipv4Addr, u8)>,
}

/// Which namespace becomes the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterNs {
    /// That of the calling thread, which must hold nothing but a loopback: the engine's own inside a supervised run.
    Current,
    /// A new one.
    New,
}

pub(super) struct Network {
    pub links: Links,
    pub router: NetNs,
    pub server: NetNs,
    pub producer: NetNs,
    pub proxy: Option<NetNs>,
    pub standby: Option<NetNs>,
    pub clients: Vec<NetNs>,
}

/// Checks counts and addresses.
pub(super) fn validate(arms: &[ArmNet]) -> Result<(), LabError> {
    if arms.len() > MAX_ARMS {
        return Err(LabError::TooManyArms { count: arms.len(), limit: MAX_ARMS });
    }
    for (k, arm) in arms.iter().enumerate() {
        if arm.pairs.len() > MAX_TRIALS_OF_ARM {
            let (arm, count) = (arm.name.clone(), arm.pairs.len());
            return Err(LabError::TooManyTrials { arm, count, limit: MAX_TRIALS_OF_ARM });
        }
        let inside = |address: &Ipv4Addr, network: Ipv4Addr| address.octets()[..2] == network.octets()[..2];
        let outside = |(c, s): &&(Ipv4Addr, Ipv4Addr)| !inside(c, clients_of(k)) || !inside(s, servers_of(k));
        if let Some((client, server)) = arm.pairs.iter().find(outside) {
            return Err(LabError::Address { arm: arm.name.clone(), client: *client, server: *server });
        }
    }
    Ok(())
}

/// 10.(64+k).0.0/16; `k` is below [`MAX_ARMS`], so the octets fit.
pub(super) fn clients_of(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 64 + k as u8, 0, 0)
}

/// 10.(128+k).0.0/16.
pub(super) fn servers_of(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 128 + k as u8, 0, 0)
}

/// A leaf of the star around the router: its link's network is a /30 with the router at .1 and the leaf at .2.
pub(super) struct Leaf<'a> {
    pub ns: &'a NetNs,
    /// Name of the router's end.
    pub link: String,
    /// Name of the leaf's end.
    pub own_link: String,
    /// The leaf's own address.
    pub address: Ipv4Addr,
    /// Numbers the hardware addresses, with the next one.
    pub number: u8,
    /// Which kind of leaf it is, for the same.
    pub group: u8,
}

impl Leaf<'_> {
    fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }

    fn mac(&self, of_router: bool) -> Mac {
        [0x02, 0x68, 0x6f, self.group, self.number, u8::from(of_router)]
    }

    /// In the router: the pair, its address, the neighbour.
    pub fn router_ops(&self) -> Vec<Op> {
        let link = self.link.clone();
        vec![
            Op::Veth {
                name: link.clone(),
                mac: self.mac(true),
                peer: self.own_link.clone(),
                peer_mac: self.mac(false),
                peer_ns: self.ns.clone(),
            },
            Op::Address { link: link.clone(), address: self.gateway(), prefix: 30 },
            Op::Up { link: link.clone() },
            Op::Neighbour { link, address: self.address, mac: self.mac(false) },
        ]
    }

    /// In the leaf, once the pair is there.
    pub fn own_ops(&self) -> Vec<Op> {
        let link = || self.own_link.clone();
        vec![
            Op::Address { link: link(), address: self.address, prefix: 30 },
            Op::Up { link: link() },
            Op::Neighbour { link: link(), address: self.gateway(), mac: self.mac(true) },
        ]
    }
}

pub(super) fn sysctl(name: &str, value: i64) -> Op {
    Op::Sysctl { name: name.into(), value }
}

/// Before any link is made, so that links start with it: the kernel may hand a new namespace the host's values.
pub(super) fn base_ops() -> Vec<Op> {
    let mut ops = vec![Op::Up { link: "lo".into() }];
    for of in ["all", "default", "lo"] {
        ops.push(sysctl(&format!("ipv4.conf.{of}.rp_filter"), 0));
        ops.push(sysctl(&format!("ipv4.conf.{of}.send_redirects"), 0));
        ops.push(sysctl(&format!("ipv4.conf.{of}.accept_redirects"), 0));
    }
    ops
}

pub(super) fn build(spec: &LabSpec<'_>, clock: Clock) -> Result<Network, LabError> {
    let router = match spec.router {
        RouterNs::New => NetNs::create("router"),
        RouterNs::Current => NetNs::current("router"),
    }
    .map_err(LabError::Network)?;
    let mut links = link_names(&router).map_err(LabError::Network)?;
    links.retain(|l| l != "lo");
    if !links.is_empty() {
        return Err(LabError::NotEmpty { links: links.join(", ") });
    }
    let create = |name: &str| NetNs::create(name).map_err(LabError::Network);
    let (server, producer) = (create("server")?, create("producer")?);
    let proxy = (!spec.proxied.is_empty()).then(|| create("proxy")).transpose()?;
    let standby = spec.standby.then(|| create("standby")).transpose()?;
    let clients = spec.arms.iter().map(|arm| create(&arm.name)).collect::<Result<Vec<_>, _>>()?;
    join(spec, Network { router, server, producer, proxy, standby, clients, links: Links::default() }, clock)
}

/// Joins namespaces that hold nothing but a loopback: links, addresses, routes, sysctls, and the arms' links.
pub(super) fn join(spec: &LabSpec<'_>, mut network: Network, clock: Clock) -> Result<Network, LabError> {
    let Network { router, clients, .. } = &network;
    let mut ops = base_ops();
    ops.push(sysctl("ipv4.ip_forward", 1));
    apply(router, &ops).map_err(LabError::Network)?;
    if let Some(middlebox) = &spec.middlebox {
        track(middlebox, router)?;
    }
    for (ns, arm) in clients.iter().zip(&spec.arms) {
        apply(ns, &base_ops()).map_err(LabError::Network)?;
        set_sysctls(ns, arm)?;
    }
    wire(spec, &network).map_err(LabError::Network)?;
    network.links = links::shape(&spec.arms, &network.router, &network.server, clock)?;
    Ok(network)
}

/// Makes the router a middlebox, as far as its settings go; what it refuses and translates are rules.
fn track(middlebox: &BoxNet, router: &NetNs) -> Result<(), LabError> {
    let mut ops = vec![sysctl("netfilter.nf_conntrack_tcp_loose", middlebox.loose.into())];
    if let Some(idle) = middlebox.idle {
        let seconds = i64::try_from(idle.as_secs()).unwrap_or(i64::MAX);
        ops.push(sysctl("netfilter.nf_conntrack_tcp_timeout_established", seconds));
    }
    // A packet to such an address is for the router itself, once it knows of no connection behind it.
    ops.extend(middlebox.outside.map(|(to, prefix)| Op::Local { to, prefix }));
    apply(router, &ops).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => LabError::NoConntrack,
        _ => LabError::Network(e),
    })
}

pub(super) fn set_sysctls(ns: &NetNs, arm: &ArmNet) -> Result<(), LabError> {
    for (name, value) in &arm.sysctl {
        apply(ns, &[sysctl(&format!("ipv4.{name}"), *value)]).map_err(|source| LabError::Sysctl {
            arm: arm.name.clone(),
            name: name.clone(),
            value: *value,
            source,
        })?;
    }
    Ok(())
}

/// A host that answers at the servers' addresses.
fn host_of_brokers(leaf: &Leaf<'_>) -> Vec<Op> {
    let mut ops = base_ops();
    // Thousands of clients connect at once: no queue of the kernel may be shorter than the broker's own.
    ops.push(sysctl("core.somaxconn", 65_535));
    ops.push(sysctl("ipv4.tcp_max_syn_backlog", 65_535));
    // By ARP it answers for its link's own address alone: one that is asked for is one that nobody has any more.
    ops.push(sysctl("ipv4.conf.all.arp_ignore", 1));
    ops.extend(leaf.own_ops());
    ops.push(Op::Local { to: SERVERS.0, prefix: SERVERS.1 });
    ops
}

fn wire(spec: &LabSpec<'_>, network: &Network) -> std::io::Result<()> {
    let Network { router, server, producer, proxy, standby, clients, .. } = network;
    let route = |(to, prefix): (Ipv4Addr, u8), via: Ipv4Addr| Op::Route { to, prefix, via, source: None };
    let everywhere = (Ipv4Addr::UNSPECIFIED, 0);

    let leaf = Leaf {
        ns: server,
        link: TO_SERVERS.into(),
        own_link: "eth0".into(),
        address: SERVER_LINK,
        number: 254,
        group: 0,
    };
    let mut ops = leaf.router_ops();
    ops.push(route(SERVERS, SERVER_LINK));
    ops.push(route((ADMIN, 32), SERVER_LINK));
    apply(router, &ops)?;
    let mut ops = host_of_brokers(&leaf);
    ops.push(Op::Address { link: "lo".into(), address: ADMIN, prefix: 32 });
    ops.push(route(everywhere, leaf.gateway()));
    apply(server, &ops)?;

    if let Some(standby) = standby {
        let leaf = Leaf {
            ns: standby,
            link: "standby".into(),
            own_link: "eth0".into(),
            address: STANDBY,
            number: 251,
            group: 0,
        };
        apply(router, &leaf.router_ops())?;
        let mut ops = host_of_brokers(&leaf);
        ops.push(route(everywhere, leaf.gateway()));
        apply(standby, &ops)?;
    }

    if let Some(proxy) = proxy {
        let leaf = Leaf {
            ns: proxy,
            link: "proxy".into(),
            own_link: "eth0".into(),
            address: PROXY_LINK,
            number: 252,
            group: 0,
        };
        let mut ops = leaf.router_ops();
        // Nearer than the servers' own way, and than that of an arm with a link.
        ops.extend(spec.proxied.iter().map(|server| route((*server, 32), PROXY_LINK)));
        apply(router, &ops)?;
        let mut ops = base_ops();
        ops.extend(leaf.own_ops());
        ops.push(Op::Local { to: SERVERS.0, prefix: SERVERS.1 });
        ops.push(route(everywhere, leaf.gateway()));
        apply(proxy, &ops)?;
    }

    let leaf = Leaf {
        ns: producer,
        link: "producer".into(),
        own_link: "eth0".into(),
        address: PRODUCER,
        number: 253,
        group: 0,
    };
    apply(router, &leaf.router_ops())?;
    let mut ops = base_ops();
    ops.extend(leaf.own_ops());
    ops.push(route(everywhere, leaf.gateway()));
    apply(producer, &ops)?;

    for (k, (ns, arm)) in clients.iter().zip(&spec.arms).enumerate() {
        // Checked by `validate`: k is below 64.
        let number = k as u8;
        let address = Ipv4Addr::new(10, 251, number, 2);
        let leaf = Leaf { ns, link: format!("arm{k}"), own_link: "eth0".into(), address, number, group: 0 };
        let mut ops = leaf.router_ops();
        ops.push(route((clients_of(k), 16), leaf.address));
        apply(router, &ops)?;
        let mut ops = leaf.own_ops();
        ops.extend(addresses(k, arm));
        let via = leaf.gateway();
        let shared = arm.pairs.iter().filter(|pair| !arm.own_links.contains(pair));
        ops.extend(shared.map(|(c, s)| Op::Route { to: *s, prefix: 32, via, source: Some(*c) }));
        ops.extend(spec.names.then(|| route((ADMIN, 32), via)));
        apply(ns, &ops)?;
    }
    own_links(spec, network)
}

/// The clients' addresses of an arm: its whole network, or one by one where some are to be taken away.
fn addresses(k: usize, arm: &ArmNet) -> Vec<Op> {
    if arm.own_addresses.is_empty() {
        return vec![Op::Local { to: clients_of(k), prefix: 16 }];
    }
    let one = |(client, _): &(Ipv4Addr, Ipv4Addr)| match arm.own_addresses.contains(client) {
        true => Op::Address { link: "lo".into(), address: *client, prefix: 32 },
        false => Op::Local { to: *client, prefix: 32 },
    };
    arm.pairs.iter().map(one).collect()
}

/// A link and a way of its own for each trial that asks for one.
fn own_links(spec: &LabSpec<'_>, network: &Network) -> std::io::Result<()> {
    let arms = network.clients.iter().zip(&spec.arms);
    let all = arms.flat_map(|(ns, arm)| arm.own_links.iter().map(move |pair| (ns, *pair)));
    for (n, (ns, (client, server))) in all.take(MAX_OWN_LINKS).enumerate() {
        // Below 1,000: the octets fit.
        let (group, number) = ((n / 250) as u8, (n % 250) as u8);
        let address = Ipv4Addr::new(10, 242 + group, number, 2);
        let leaf =
            Leaf { ns, link: format!("to{n}"), own_link: own_link_of(client), address, number, group: 2 + group };
        let mut ops = leaf.router_ops();
        ops.push(Op::Route { to: client, prefix: 32, via: address, source: None });
        apply(&network.router, &ops)?;
        let mut ops = leaf.own_ops();
        ops.push(Op::Route { to: server, prefix: 32, via: leaf.gateway(), source: Some(client) });
        apply(ns, &ops)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(pairs: Vec<(Ipv4Addr, Ipv4Addr)>) -> ArmNet {
        ArmNet { name: "a".into(), pairs, ..ArmNet::default() }
    }

    #[test]
    fn limits_are_checked_before_anything_is_made() {
        assert!(validate(&vec![arm(Vec::new()); 64]).is_ok());
        assert!(matches!(validate(&vec![arm(Vec::new()); 65]), Err(LabError::TooManyArms { count: 65, .. })));
        let pair = (Ipv4Addr::new(10, 64, 128, 1), Ipv4Addr::new(10, 128, 128, 1));
        assert!(validate(&[arm(vec![pair; 30_000])]).is_ok());
        assert!(matches!(validate(&[arm(vec![pair; 30_001])]), Err(LabError::TooManyTrials { .. })));
        assert!(matches!(validate(&[arm(vec![]), arm(vec![pair])]), Err(LabError::Address { .. })));
    }

    #[test]
    fn a_leaf_and_its_router_have_different_hardware_addresses() {
        let ns = NetNs::current("x").unwrap();
        let leaf = Leaf {
            ns: &ns,
            link: "arm3".into(),
            own_link: "eth0".into(),
            address: Ipv4Addr::new(10, 251, 3, 2),
            number: 3,
            group: 0,
        };
        assert_eq!(leaf.gateway(), Ipv4Addr::new(10, 251, 3, 1));
        assert_ne!(leaf.mac(true), leaf.mac(false));
        assert_eq!(leaf.mac(true)[0] & 3, 2, "locally administered, not multicast");
    }
}

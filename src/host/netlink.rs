//! Links, addresses, routes, neighbours and sysctls of a network namespace.
//!
//! What is to be done is data, a list of [`Op`]s, so that a failure names the one that failed. The work runs on a
//! thread of its own inside the namespace. What is left out: packet filters (`host::nft`) and looking at sockets.

use crate::host::netem::{self, Netem};
use crate::host::netns::NetNs;
use crate::host::tbf;
use futures::{StreamExt, TryStreamExt};
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::neighbour::{NeighbourAttribute, NeighbourState};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteScope, RouteType};
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

/// A hardware address.
pub type Mac = [u8; 6];

/// `RT_TABLE_LOCAL` of `linux/rtnetlink.h`.
const TABLE_LOCAL: u32 = 255;

/// `TCA_OPTIONS` of `linux/rtnetlink.h`.
const TCA_OPTIONS: u16 = 2;

/// One change.
#[derive(Debug, Clone)]
pub enum Op {
    /// A pair of virtual links: `name` here, `peer` in the other namespace. Both are down.
    Veth {
        /// The end in this namespace, at most 15 characters.
        name: String,
        /// Its hardware address.
        mac: Mac,
        /// The end in the other namespace.
        peer: String,
        /// That one's hardware address.
        peer_mac: Mac,
        /// The other namespace.
        peer_ns: NetNs,
    },
    /// Brings a link up.
    Up {
        /// The link.
        link: String,
    },
    /// Takes a link down: with it go the routes that lead over it.
    Down {
        /// The link.
        link: String,
    },
    /// Takes an address away again: with it go the routes that prefer it as their source.
    NoAddress {
        /// The link that has it.
        link: String,
        /// The address.
        address: Ipv4Addr,
        /// Length of its prefix.
        prefix: u8,
    },
    /// Takes the route to a network away again.
    NoRoute {
        /// Destination network.
        to: Ipv4Addr,
        /// Length of its prefix.
        prefix: u8,
    },
    /// Gives a link a hardware address.
    Hardware {
        /// The link.
        link: String,
        /// Its new address.
        mac: Mac,
    },
    /// Adds an address to a link.
    Address {
        /// The link.
        link: String,
        /// The address.
        address: Ipv4Addr,
        /// Length of its network's prefix.
        prefix: u8,
    },
    /// A neighbour that never has to be asked for by ARP.
    Neighbour {
        /// The link on which it is.
        link: String,
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
    },
    /// A route through a gateway.
    Route {
        /// Destination network.
        to: Ipv4Addr,
        /// Length of its prefix; 0 with `0.0.0.0` is the default route.
        prefix: u8,
        /// The gateway.
        via: Ipv4Addr,
        /// The source address that the kernel chooses for it.
        source: Option<Ipv4Addr>,
    },
    /// One address as a neighbour on a link, to be asked for by ARP.
    OnLink {
        /// The address.
        to: Ipv4Addr,
        /// The link.
        link: String,
    },
    /// A whole network as this host's own: every address in it can be bound and answers (`ip route add local`).
    Local {
        /// The network.
        to: Ipv4Addr,
        /// Length of its prefix.
        prefix: u8,
    },
    /// Lets all that leaves through a link pass the network emulator.
    Netem {
        /// The link.
        link: String,
        /// What it does.
        netem: Netem,
    },
    /// Lets no more than so many bytes a second leave through a link.
    Tbf {
        /// The link.
        link: String,
        /// Bytes a second.
        rate_bytes: u64,
    },
    /// A setting under `/proc/sys/net`.
    Sysctl {
        /// Its name with dots, from below `net`: `ipv4.ip_forward`.
        name: String,
        /// Its value.
        value: i64,
    },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Veth { name, peer, peer_ns, .. } => write!(f, "link {name} to {peer} in {}", peer_ns.name()),
            Self::Up { link } => write!(f, "link {link} up"),
            Self::Down { link } => write!(f, "link {link} down"),
            Self::NoAddress { link, address, prefix } => write!(f, "no address {address}/{prefix} on {link}"),
            Self::NoRoute { to, prefix } => write!(f, "no route {to}/{prefix}"),
            Self::Hardware { link, .. } => write!(f, "hardware address of {link}"),
            Self::Address { link, address, prefix } => write!(f, "address {address}/{prefix} on {link}"),
            Self::Neighbour { link, address, .. } => write!(f, "neighbour {address} on {link}"),
            Self::Route { to, prefix, via, source: Some(s) } => write!(f, "route {to}/{prefix} via {via} src {s}"),
            Self::Route { to, prefix, via, source: None } => write!(f, "route {to}/{prefix} via {via}"),
            Self::OnLink { to, link } => write!(f, "route {to}/32 on link {link}"),
            Self::Local { to, prefix } => write!(f, "local network {to}/{prefix}"),
            Self::Netem { link, .. } => write!(f, "netem on {link}"),
            Self::Tbf { link, rate_bytes } => write!(f, "tbf of {rate_bytes} bytes a second on {link}"),
            Self::Sysctl { name, value } => write!(f, "sysctl net.{name}={value}"),
        }
    }
}

/// Makes the changes in order; stops at the first that fails.
///
/// # Errors
/// With the namespace and the change in its message, and the kernel's own error kind.
pub fn apply(ns: &NetNs, ops: &[Op]) -> io::Result<()> {
    ns.run(|| {
        // The socket belongs to the namespace of the thread that opens it, so the runtime must not have another one.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let mut links = HashMap::new();
            let mut result = Ok(());
            for op in ops {
                result = one(&handle, &mut links, op).await.map_err(|e| name_it(ns, op, &e));
                if result.is_err() {
                    break;
                }
            }
            connection.abort();
            result
        })
    })
}

/// Brings the loopback up.
///
/// # Errors
/// As [`apply`].
pub fn loopback_up(ns: &NetNs) -> io::Result<()> {
    apply(ns, &[Op::Up { link: "lo".into() }])
}

/// The names of a namespace's links.
///
/// # Errors
/// When the kernel refuses the list.
pub fn link_names(ns: &NetNs) -> io::Result<Vec<String>> {
    ns.run(|| Ok(nix::net::if_::if_nameindex()?.iter().map(|i| i.name().to_string_lossy().into_owned()).collect()))
}

/// Whether a namespace's kernel knows a hardware address for a neighbour, on any link: asked for and never answered is no.
///
/// # Errors
/// When the kernel refuses the list.
pub fn neighbour_is_known(ns: &NetNs, address: Ipv4Addr) -> io::Result<bool> {
    ask(ns, async |handle| {
        let mut all = handle.neighbours().get().set_address_family(AddressFamily::Inet).execute();
        while let Some(neighbour) = all.try_next().await.map_err(plain)? {
            let is_it = |a: &NeighbourAttribute| *a == NeighbourAttribute::Destination(address.into());
            let hardware = |a: &NeighbourAttribute| matches!(a, NeighbourAttribute::LinkLayerAddress(_));
            if neighbour.attributes.iter().any(is_it) && neighbour.attributes.iter().any(hardware) {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// The gateway that a namespace's kernel sends packets for an address to; `None` where it is on a link or its own.
///
/// # Errors
/// When there is no route to it.
pub fn gateway_to(ns: &NetNs, address: Ipv4Addr) -> io::Result<Option<Ipv4Addr>> {
    ask(ns, async |handle| {
        let request = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(address, 32).build();
        let mut answers = handle.route().get(request).execute();
        let route = answers.try_next().await.map_err(plain)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(*gateway),
            _ => None,
        }))
    })
}

/// One question to the kernel of a namespace.
fn ask<T: Send>(ns: &NetNs, question: impl AsyncFnOnce(Handle) -> io::Result<T> + Send) -> io::Result<T> {
    ns.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let answer = question(handle).await;
            connection.abort();
            answer
        })
    })
}

/// Reads a setting under `/proc/sys/net`, named as in [`Op::Sysctl`].
///
/// # Errors
/// When there is no such setting, or it is not one number.
pub fn read_sysctl(ns: &NetNs, name: &str) -> io::Result<i64> {
    ns.run(|| {
        let text = std::fs::read_to_string(sysctl_path(name)?)?;
        text.trim()
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("net.{name} is not a number")))
    })
}

/// Whether this kernel has a queueing discipline, its module loaded if need be.
///
/// It is asked to put one on the loopback without the options that every one of them wants: `ENOENT` is the answer where
/// there is none of the name, `EINVAL` where there is.
///
/// # Errors
/// Any other refusal: no right to it, no loopback.
pub fn has_qdisc(ns: &NetNs, kind: &str) -> io::Result<bool> {
    let answer = ns.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, mut handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let mut message = TcMessage::with_index(1);
            message.header.parent = TcHandle::ROOT;
            message.attributes.push(TcAttribute::Kind(kind.to_string()));
            let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
            request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
            let mut answers = handle.request(request).map_err(plain)?;
            let mut result = Ok(());
            while let Some(answer) = futures::StreamExt::next(&mut answers).await {
                if let NetlinkPayload::Error(error) = answer.payload
                    && error.code.is_some()
                {
                    result = Err(error.to_io());
                }
            }
            connection.abort();
            result
        })
    });
    match answer {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The file of a setting. A link's name may contain dots, but none of the harness's does.
fn sysctl_path(name: &str) -> io::Result<PathBuf> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(good) || name.split('.').any(str::is_empty) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not the name of a sysctl")));
    }
    Ok(PathBuf::from("/proc/sys/net").join(name.replace('.', "/")))
}

fn name_it(ns: &NetNs, op: &Op, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{op} in namespace {}: {error}", ns.name()))
}

fn plain(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}

async fn one(handle: &Handle, links: &mut HashMap<String, u32>, op: &Op) -> io::Result<()> {
    match op {
        Op::Veth { name, mac, peer, peer_mac, peer_ns } => {
            let far = LinkMessageBuilder::<LinkUnspec>::new()
                .name(peer.clone())
                .address(peer_mac.to_vec())
                .setns_by_fd(peer_ns.as_fd().as_raw_fd())
                .build();
            let near = LinkMessageBuilder::<LinkVeth>::new(name, peer)
                .address(mac.to_vec())
                .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
                .build();
            handle.link().add(near).execute().await.map_err(plain)
        }
        Op::Up { link } => {
            let index = index_of(handle, links, link).await?;
            let message = LinkMessageBuilder::<LinkUnspec>::new().index(index).up().build();
            handle.link().change(message).execute().await.map_err(plain)
        }
        Op::Down { link } => {
            let index = index_of(handle, links, link).await?;
            let message = LinkMessageBuilder::<LinkUnspec>::new().index(index).down().build();
            handle.link().change(message).execute().await.map_err(plain)
        }
        Op::NoAddress { link, address, prefix } => {
            let mut message = AddressMessage::default();
            message.header.family = AddressFamily::Inet;
            message.header.prefix_len = *prefix;
            message.header.index = index_of(handle, links, link).await?;
            message.attributes = vec![AddressAttribute::Local((*address).into())];
            handle.address().del(message).execute().await.map_err(plain)
        }
        Op::NoRoute { to, prefix } => {
            // Of any scope (`RT_SCOPE_NOWHERE`), as `ip route del` asks.
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(*to, *prefix)
                .scope(RouteScope::NoWhere)
                .build();
            handle.route().del(route).execute().await.map_err(plain)
        }
        Op::Hardware { link, mac } => {
            let index = index_of(handle, links, link).await?;
            let message = LinkMessageBuilder::<LinkUnspec>::new().index(index).address(mac.to_vec()).build();
            handle.link().change(message).execute().await.map_err(plain)
        }
        Op::Address { link, address, prefix } => {
            let index = index_of(handle, links, link).await?;
            handle.address().add(index, IpAddr::V4(*address), *prefix).execute().await.map_err(plain)
        }
        Op::Neighbour { link, address, mac } => {
            let index = index_of(handle, links, link).await?;
            let request = handle.neighbours().add(index, IpAddr::V4(*address));
            request.link_layer_address(mac).state(NeighbourState::Permanent).execute().await.map_err(plain)
        }
        Op::Route { to, prefix, via, source } => {
            let mut route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(*to, *prefix).gateway(*via);
            if let Some(source) = source {
                route = route.pref_source(*source);
            }
            handle.route().add(route.build()).execute().await.map_err(plain)
        }
        Op::OnLink { to, link } => {
            let index = index_of(handle, links, link).await?;
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(*to, 32)
                .output_interface(index)
                .scope(RouteScope::Link);
            handle.route().add(route.build()).execute().await.map_err(plain)
        }
        Op::Local { to, prefix } => {
            let index = index_of(handle, links, "lo").await?;
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(*to, *prefix)
                .output_interface(index)
                .table_id(TABLE_LOCAL)
                .scope(RouteScope::Host)
                .kind(RouteType::Local);
            handle.route().add(route.build()).execute().await.map_err(plain)
        }
        Op::Netem { link, netem } => {
            let index = index_of(handle, links, link).await?;
            discipline(handle, index, netem::KIND, netem.options()).await
        }
        Op::Tbf { link, rate_bytes } => {
            let index = index_of(handle, links, link).await?;
            discipline(handle, index, tbf::KIND, tbf::options(*rate_bytes)).await
        }
        Op::Sysctl { name, value } => std::fs::write(sysctl_path(name)?, value.to_string()),
    }
}

/// The library has no words for these disciplines, so their options go as bytes.
async fn discipline(handle: &Handle, index: u32, kind: &str, options: Vec<u8>) -> io::Result<()> {
    let mut message = TcMessage::with_index(i32::try_from(index).unwrap_or(i32::MAX));
    message.header.parent = TcHandle::ROOT;
    message.header.handle = TcHandle { major: 1, minor: 0 };
    message.attributes.push(TcAttribute::Kind(kind.to_string()));
    message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut answers = handle.clone().request(request).map_err(plain)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(error.to_io());
        }
    }
    Ok(())
}

async fn index_of(handle: &Handle, known: &mut HashMap<String, u32>, link: &str) -> io::Result<u32> {
    if let Some(index) = known.get(link) {
        return Ok(*index);
    }
    let found = handle.link().get().match_name(link.to_string()).execute().try_next().await.map_err(plain)?;
    let index = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such link"))?.header.index;
    known.insert(link.to_string(), index);
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_name_stays_below_net() {
        assert_eq!(sysctl_path("ipv4.tcp_retries2").unwrap(), PathBuf::from("/proc/sys/net/ipv4/tcp_retries2"));
        for bad in ["", "..", "ipv4..x", "../kernel", "a/b", "ipv4.tcp retries"] {
            assert!(sysctl_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_operation_reads_like_the_command() {
        let route = Op::Route {
            to: Ipv4Addr::new(10, 128, 128, 1),
            prefix: 32,
            via: Ipv4Addr::new(10, 251, 0, 1),
            source: Some(Ipv4Addr::new(10, 64, 128, 1)),
        };
        assert_eq!(route.to_string(), "route 10.128.128.1/32 via 10.251.0.1 src 10.64.128.1");
        assert_eq!(Op::Sysctl { name: "ipv4.ip_forward".into(), value: 1 }.to_string(), "sysctl net.ipv4.ip_forward=1");
    }
}

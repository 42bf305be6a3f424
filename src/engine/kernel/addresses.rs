//! What becomes of the brokers' addresses: taken from their host, or given to another one.
//!
//! Both are one route in the router. A host that has vanished with its address is one that the router asks for by ARP and
//! never finds: the route to the gateway is replaced by one that says "on this link". A failover is a route to another
//! gateway. What is left out: the far end of the connection, which is the cutter's to destroy.

use super::actor::Proof;
use crate::host::netlink::{self, Op};
use crate::host::netns::NetNs;
use crate::lab::{STANDBY, TO_SERVERS};
use crate::units::TrialId;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Where an address went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    Nowhere,
    Standby,
}

/// The addresses that were taken from the brokers' host.
#[derive(Debug)]
pub struct Addresses {
    router: NetNs,
    moved: HashMap<TrialId, (Ipv4Addr, Whereabouts)>,
}

impl Addresses {
    /// All are at the brokers' host.
    #[must_use]
    pub fn new(router: NetNs) -> Self {
        Self { router, moved: HashMap::new() }
    }

    /// Nobody has a trial's address any more.
    ///
    /// # Errors
    /// In words, when the kernel takes no such route.
    pub fn vanish(&mut self, trial: TrialId, address: Ipv4Addr) -> Result<(), String> {
        let op = Op::OnLink { to: address, link: TO_SERVERS.into() };
        self.put(trial, address, Whereabouts::Nowhere, op)
    }

    /// Another host has a trial's address.
    ///
    /// # Errors
    /// As [`Self::vanish`].
    pub fn fail_over(&mut self, trial: TrialId, address: Ipv4Addr) -> Result<(), String> {
        let op = Op::Route { to: address, prefix: 32, via: STANDBY, source: None };
        self.put(trial, address, Whereabouts::Standby, op)
    }

    fn put(&mut self, trial: TrialId, address: Ipv4Addr, to: Whereabouts, op: Op) -> Result<(), String> {
        netlink::apply(&self.router, &[op]).map_err(|error| error.to_string())?;
        self.moved.insert(trial, (address, to));
        Ok(())
    }

    /// What a look at the router shows of a trial's address; `None` where it was left alone.
    #[must_use]
    pub fn proof(&self, trial: TrialId) -> Option<Proof> {
        let (address, to) = self.moved.get(&trial)?;
        let gateway = netlink::gateway_to(&self.router, *address);
        let proof = match (to, gateway) {
            (_, Err(error)) => Proof { what: format!("the route to {address}: {error}"), holds: false },
            (Whereabouts::Standby, Ok(gateway)) => {
                let holds = gateway == Some(STANDBY);
                let whose = if holds { "the other host's" } else { "not the other host's" };
                Proof { what: format!("{address} is {whose}"), holds }
            }
            (Whereabouts::Nowhere, Ok(gateway)) => match netlink::neighbour_is_known(&self.router, *address) {
                Ok(known) => {
                    let holds = gateway.is_none() && !known;
                    let words = if holds { "nobody answers ARP for" } else { "somebody has" };
                    Proof { what: format!("{words} {address}"), holds }
                }
                Err(error) => Proof { what: format!("the neighbours of the router: {error}"), holds: false },
            },
        };
        Some(proof)
    }
}

//! Cuts on the clients' own side: what a path never does, made on purpose to show by how much it misleads.
//!
//! The router cuts the same packets, so that what it counts says whether the client's side let anything through; here is
//! looked at what was done there. What is left out: cuts that answer, which are rules of the router.

use super::actor::Proof;
use crate::events::Tuple;
use crate::fault::{FaultError, LocalCut};
use crate::host::clock::Clock;
use crate::host::netlink::{self, Op};
use crate::host::netns::NetNs;
use crate::lab::own_link_of;
use crate::scenario::Injection;
use crate::units::TrialId;
use std::collections::HashMap;

/// The clients' own networks, and what was done there.
#[derive(Debug, Default)]
pub struct Distorted {
    clients: Vec<NetNs>,
    /// By injection and client.
    tables: HashMap<(Injection, usize), LocalCut>,
    done: HashMap<TrialId, (Tuple, Injection, usize)>,
}

impl Distorted {
    /// Over these client namespaces; tables are made for the injections that need one.
    ///
    /// # Errors
    /// Where the kernel has no such hook.
    pub fn new(clients: &[NetNs], injections: &[Injection], clock: Clock) -> Result<Self, FaultError> {
        let mut tables = HashMap::new();
        for injection in injections {
            for (client, ns) in clients.iter().enumerate() {
                if let Some(made) = LocalCut::install(*injection, ns, clock) {
                    tables.insert((*injection, client), made?);
                }
            }
        }
        Ok(Self { clients: clients.to_vec(), tables, done: HashMap::new() })
    }

    /// Takes a connection from its client.
    ///
    /// # Errors
    /// In words, when the kernel refuses.
    pub fn act(&mut self, trial: TrialId, tuple: Tuple, injection: Injection, client: usize) -> Result<(), String> {
        let ns = self.clients.get(client).ok_or("there is no such client")?;
        let (address, server) = (*tuple.local.ip(), *tuple.peer.ip());
        let op = match injection {
            Injection::ClientLink => Some(Op::Down { link: own_link_of(address) }),
            Injection::ClientAddress => Some(Op::NoAddress { link: "lo".into(), address, prefix: 32 }),
            Injection::ClientRoute => Some(Op::NoRoute { to: server, prefix: 32 }),
            _ => None,
        };
        match (op, self.tables.get_mut(&(injection, client))) {
            (Some(op), _) => netlink::apply(ns, &[op]).map_err(|error| error.to_string())?,
            (None, Some(table)) => table.refuse(tuple).map_err(|error| error.to_string())?,
            (None, None) => return Err(format!("`{injection}` is nothing that is done to a client")),
        }
        self.done.insert(trial, (tuple, injection, client));
        Ok(())
    }

    /// What a look at the client's side shows; `None` where nothing was done there.
    pub fn proof(&mut self, trial: TrialId) -> Option<Proof> {
        let (tuple, injection, client) = *self.done.get(&trial)?;
        if let Some(table) = self.tables.get_mut(&(injection, client)) {
            return Some(match table.refused(tuple) {
                Ok(Some(n)) => Proof { what: format!("{}: {n} packets so far", injection.words()), holds: true },
                Ok(None) => Proof { what: "the subject's own side refuses nothing".to_string(), holds: false },
                Err(error) => Proof { what: format!("the subject's own side: {error}"), holds: false },
            });
        }
        // Link, address and route end alike: the kernel has no way to the broker any more.
        let way = netlink::gateway_to(self.clients.get(client)?, *tuple.peer.ip());
        let holds = way.is_err();
        let words = if holds { "has no way to the broker" } else { "still has a way to the broker" };
        Some(Proof { what: format!("{}: its kernel {words}", injection.words()), holds })
    }
}

//! What each connection of a client from outside is for, heard at the broker's door.

use super::watch::Watch;
use crate::clients::RoleReader;
use crate::events::{Kind, Source, Tuple};
use crate::observe::Door;
use crate::scenario::BrokerKind;
use crate::units::TrialId;
use std::collections::HashMap;
use std::io::PipeReader;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

/// A client that is listened to.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Its trial.
    pub trial: TrialId,
    /// What it speaks.
    pub broker: BrokerKind,
    /// Its queue or list.
    pub queue: String,
}

/// All of them by their addresses and their brokers'.
pub type Pairs = HashMap<(Ipv4Addr, Ipv4Addr), Heard>;

impl Watch {
    /// Reports the role of each connection until `end` is closed.
    pub fn listen(&self, mut door: Door, clients: &Pairs, end: &PipeReader) {
        // Behind a middlebox that translates, the broker's host knows clients by other addresses than they do.
        let of = |tuple: Tuple| {
            clients
                .get(&(*self.registry.inside(tuple).local.ip(), *tuple.peer.ip()))
                .filter(|client| tuple.peer.port() == client.broker.port())
        };
        let mut readers: HashMap<Tuple, RoleReader> = HashMap::new();
        while let Ok(false) = door.wait(end.as_fd()) {
            let at = self.clock.now();
            door.drain(
                |tuple| of(tuple).is_some(),
                |tuple, begins, bytes| {
                    let Some(client) = of(tuple) else { return };
                    if begins {
                        readers.insert(tuple, RoleReader::of(client.broker, &client.queue));
                    }
                    if let Some(role) = readers.get_mut(&tuple).and_then(|reader| reader.read(bytes)) {
                        let tuple = self.registry.inside(tuple);
                        let kind = Kind::Role { tuple, role: role.to_string(), from: String::new() };
                        self.say(at, Source::Broker, client.trial, kind);
                    }
                },
            );
        }
    }
}

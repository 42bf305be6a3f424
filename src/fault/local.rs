//! A distorted cut: dropped on the client's own side, where its kernel is told.
//!
//! A table of its own in the client's namespace, owned by the engine's socket like the router's, with one set of flows. What
//! is left out: what the router counts meanwhile, which is the proof that nothing got past it.

use super::FaultError;
use crate::events::Tuple;
use crate::host::clock::Clock;
use crate::host::netns::NetNs;
use crate::host::nft::{Chain, ChainType, Element, Family, Field, Hook, Key, NftClient, Op, Rule, Set, Statement};
use crate::scenario::Injection;

/// The client's link in the lab.
const LINK: &str = "eth0";

static REFUSED: Set = Set {
    name: "refused",
    fields: &[Field::SourceAddress, Field::SourcePort, Field::DestinationAddress, Field::DestinationPort],
    leases: false,
};

static OUTPUT: Chain = Chain { name: "output", kind: ChainType::Filter, hook: Hook::Output, priority: 0 };
static EGRESS: Chain = Chain { name: "egress", kind: ChainType::Filter, hook: Hook::Egress(LINK), priority: 0 };

static OUTPUT_RULE: Rule = Rule { chain: &OUTPUT, statements: &[Statement::Lookup(&REFUSED), Statement::Drop] };
static EGRESS_RULE: Rule = Rule { chain: &EGRESS, statements: &[Statement::Lookup(&REFUSED), Statement::Drop] };

/// The flows that one client namespace refuses to send.
#[derive(Debug)]
#[must_use = "the kernel lets them pass when the table is dropped"]
pub struct LocalCut {
    client: NftClient,
    clock: Clock,
}

impl LocalCut {
    /// A table that refuses nothing yet; `None` for an injection that needs none.
    ///
    /// # Errors
    /// Where the kernel has no such hook: one at a device's egress came with Linux 5.16.
    pub fn install(injection: Injection, namespace: &NetNs, clock: Clock) -> Option<Result<Self, FaultError>> {
        let (family, chain, rule, name) = match injection {
            Injection::ClientOutput => (Family::Ip, &OUTPUT, &OUTPUT_RULE, "halfopen_output"),
            Injection::ClientEgress => (Family::Netdev, &EGRESS, &EGRESS_RULE, "halfopen_egress"),
            _ => return None,
        };
        let made = || {
            let mut client = NftClient::open(namespace, family, name)?;
            client.commit(clock, &[Op::AddTable, Op::AddSet(&REFUSED), Op::AddChain(chain), Op::AddRule(rule)])?;
            Ok(Self { client, clock })
        };
        Some(made().map_err(FaultError::Install))
    }

    /// Refuses what the client sends on a connection.
    ///
    /// # Errors
    /// When it is refused already.
    pub fn refuse(&mut self, tuple: Tuple) -> Result<(), FaultError> {
        let refused = self.client.commit(self.clock, &[Op::AddElement(element(tuple))]);
        refused.map(drop).map_err(FaultError::Counters)
    }

    /// How many packets of a connection were refused; `None` where it is not refused at all.
    ///
    /// # Errors
    /// When the set can't be read.
    pub fn refused(&mut self, tuple: Tuple) -> Result<Option<u64>, FaultError> {
        let found = self.client.elements_of(&[element(tuple)]).map_err(FaultError::Counters)?;
        Ok(found.into_iter().next().flatten().map(|reading| reading.packets))
    }
}

fn element(tuple: Tuple) -> Element {
    Element { set: &REFUSED, key: Key::of(REFUSED.fields, tuple.local, tuple.peer) }
}

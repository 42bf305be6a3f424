//! What a run's table consists of: the same for every profile, and more where a middlebox stands in the path.

use super::rules::{
    ANSWERS, CHAINS, CLIENTS, FIREWALL, HOST_RULES, HOST_SETS, NAT, REFUSE, REFUSED_FLOW, REJECT, RESET_FLOW,
    RST_BROKER, RULES, SETS, TRANSLATE, UNREACHABLE_FLOW,
};
use crate::host::nft::{Chain, Network, Op, Rule, Set};
use crate::scenario::{Fault, Middlebox, Scope};
use std::net::{Ipv4Addr, SocketAddrV4};

/// What the broker sees of the clients behind a NAT: each has an outer address of its own, and keeps its ports. That is
/// what tells the trials apart at the broker; what connection tracking does is the same as with one address for all.
pub const NAT_OUTSIDE: Network = Network { address: Ipv4Addr::new(10, 0, 0, 0), prefix: 10 };

/// What the table has beside what every table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// The middlebox that all connections go through.
    pub middlebox: Option<Middlebox>,
    /// Whether a whole host is cut off.
    pub hosts: bool,
    /// Whether a cut answers instead of dropping.
    pub answers: bool,
}

impl Layout {
    /// What these faults need. All of a run's faults agree on the middlebox.
    pub fn of<'f>(faults: impl IntoIterator<Item = &'f Fault>) -> Self {
        faults.into_iter().fold(Self::default(), |layout, fault| Self {
            middlebox: layout.middlebox.or(fault.middlebox),
            hosts: layout.hosts || fault.scope == Scope::Host,
            answers: layout.answers || fault.injection.rejects(),
        })
    }

    /// Whether the clients' addresses are translated.
    #[must_use]
    pub fn nat(self) -> bool {
        self.middlebox.is_some_and(|middlebox| middlebox.nat)
    }

    /// The client's address as the broker sees it.
    #[must_use]
    pub fn outside(self, client: SocketAddrV4) -> SocketAddrV4 {
        if self.nat() { SocketAddrV4::new(NAT_OUTSIDE.with_host_of(*client.ip()), client.port()) } else { client }
    }

    /// The client behind an address that the broker sees.
    #[must_use]
    pub fn inside(self, seen: SocketAddrV4) -> SocketAddrV4 {
        if self.nat() && NAT_OUTSIDE.contains(*seen.ip()) {
            SocketAddrV4::new(CLIENTS.with_host_of(*seen.ip()), seen.port())
        } else {
            seen
        }
    }

    fn strict(self) -> Option<Middlebox> {
        self.middlebox.filter(|middlebox| !middlebox.loose)
    }

    /// All sets, in the order in which they are created.
    #[must_use]
    pub fn sets(self) -> Vec<&'static Set> {
        let mut sets = SETS.to_vec();
        if self.hosts {
            sets.extend(HOST_SETS);
        }
        if self.answers {
            sets.extend([&UNREACHABLE_FLOW, &RESET_FLOW]);
        }
        sets.extend(self.strict().map(|_| &REFUSED_FLOW));
        sets.extend((self.nat() || self.answers).then_some(&RST_BROKER));
        sets
    }

    /// All chains, in the order in which they are created.
    #[must_use]
    pub fn chains(self) -> Vec<&'static Chain> {
        let mut chains = CHAINS.to_vec();
        chains.extend(self.strict().map(|_| &FIREWALL));
        chains.extend(self.nat().then_some(&NAT));
        chains
    }

    /// All rules, in order of evaluation within each chain.
    #[must_use]
    pub fn rules(self) -> Vec<&'static Rule> {
        let mut rules = RULES.to_vec();
        if self.hosts {
            rules.extend(HOST_RULES);
        }
        if self.answers {
            rules.extend(ANSWERS);
        }
        if let Some(middlebox) = self.strict() {
            rules.extend(if middlebox.resets { REJECT } else { REFUSE });
        }
        if self.nat() {
            rules.extend(TRANSLATE);
        }
        rules
    }

    /// The batch that creates the table: sets before the rules that name them.
    #[must_use]
    pub fn install_ops(self) -> Vec<Op> {
        let mut ops = vec![Op::AddTable];
        ops.extend(self.sets().into_iter().map(Op::AddSet));
        ops.extend(self.chains().into_iter().map(Op::AddChain));
        ops.extend(self.rules().into_iter().map(Op::AddRule));
        ops
    }

    /// Whether the table has the set.
    pub(super) fn has(self, set: &'static Set) -> bool {
        self.sets().contains(&set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_translated_there_and_back() {
        let behind =
            Layout { middlebox: Some(Middlebox { nat: true, loose: false, resets: false }), ..Layout::default() };
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 67, 128, 9), 40_001);
        let seen = SocketAddrV4::new(Ipv4Addr::new(10, 3, 128, 9), 40_001);
        assert_eq!((behind.outside(client), behind.inside(seen)), (seen, client));
        let other = SocketAddrV4::new(Ipv4Addr::new(10, 250, 0, 2), 40_001);
        assert_eq!(behind.inside(other), other);
        assert_eq!(Layout::default().outside(client), client);
    }
}

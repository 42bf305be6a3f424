//! The one table of a run: its sets, chains and rules, the same for every profile.
//!
//! *Offered* is counted before routing, dropped between routing and departure, *passed* last before departure. The
//! drop is the first rule of its hook at the lowest named priority, so nothing in the namespace sees a packet between.
//! The elements that drop may have a lease: the kernel then heals by itself, should the harness hang.
//! RST and FIN are counted where they have passed towards the client, ICMP where it leaves for the client's address,
//! whether it was forwarded or made by the router itself.
//!
//! Packets are counted as the router handles them: segments that the kernel coalesced or left to be split later count
//! once. Fragments beyond a datagram's first have no ports and escape the scope `flow`; TCP sets "don't fragment".

use super::layout::NAT_OUTSIDE;
use crate::host::nft::{Chain, ChainType, Field, Hook, Network, Rule, Set, Statement, TcpFlag};
use std::net::Ipv4Addr;

/// The table's name.
pub const TABLE: &str = "halfopen";

const FLOW: &[Field] = &[Field::SourceAddress, Field::SourcePort, Field::DestinationAddress, Field::DestinationPort];
const PAIR: &[Field] = &[Field::SourceAddress, Field::DestinationAddress];
const SOURCE: &[Field] = &[Field::SourceAddress];
const CLIENT: &[Field] = &[Field::DestinationAddress];

macro_rules! sets {
    ($($(#[$doc:meta])* $constant:ident = $name:literal $fields:ident $leases:literal;)*) => {
        $($(#[$doc])* pub(super) static $constant: Set = Set { name: $name, fields: $fields, leases: $leases };)*
    };
}

sets! {
    OFFERED_FLOW = "offered_flow" FLOW false;
    OFFERED_PAIR = "offered_pair" PAIR false;
    DROPPED_FLOW = "dropped_flow" FLOW true;
    DROPPED_PAIR = "dropped_pair" PAIR true;
    PASSED_FLOW = "passed_flow" FLOW false;
    PASSED_PAIR = "passed_pair" PAIR false;
    RST_FLOW = "rst_flow" FLOW false;
    RST_PAIR = "rst_pair" PAIR false;
    FIN_FLOW = "fin_flow" FLOW false;
    FIN_PAIR = "fin_pair" PAIR false;
    ICMP_CLIENT = "icmp_client" CLIENT false;
}

/// What every table has, in the order in which it is created.
pub(super) static SETS: &[&Set] = &[
    &OFFERED_FLOW,
    &OFFERED_PAIR,
    &DROPPED_FLOW,
    &DROPPED_PAIR,
    &PASSED_FLOW,
    &PASSED_PAIR,
    &RST_FLOW,
    &RST_PAIR,
    &FIN_FLOW,
    &FIN_PAIR,
    &ICMP_CLIENT,
];

sets! {
    // Of a client's whole host: what comes from its address, and what goes there.
    OFFERED_FROM = "offered_from" SOURCE false;
    OFFERED_TO = "offered_to" CLIENT false;
    DROPPED_FROM = "dropped_from" SOURCE true;
    DROPPED_TO = "dropped_to" CLIENT true;
    PASSED_FROM = "passed_from" SOURCE false;
    PASSED_TO = "passed_to" CLIENT false;
    RST_TO = "rst_to" CLIENT false;
    FIN_TO = "fin_to" CLIENT false;
}

/// What a table has beside that where a whole host is cut off.
pub(super) static HOST_SETS: &[&Set] =
    &[&OFFERED_FROM, &OFFERED_TO, &DROPPED_FROM, &DROPPED_TO, &PASSED_FROM, &PASSED_TO, &RST_TO, &FIN_TO];

sets! {
    // Of a cut that answers instead of dropping.
    UNREACHABLE_FLOW = "unreachable_flow" FLOW false;
    RESET_FLOW = "reset_flow" FLOW false;
}

sets! {
    // Of a middlebox: what it refused, and what it told the broker itself (a cut that answers does that, too).
    REFUSED_FLOW = "refused_flow" FLOW false;
    RST_BROKER = "rst_broker" FLOW false;
}

/// The clients' addresses.
pub(super) const CLIENTS: Network = Network { address: Ipv4Addr::new(10, 64, 0, 0), prefix: 10 };

static OFFERED: Chain =
    Chain { name: "count_offered", kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 };
static CUT: Chain = Chain { name: "cut", kind: ChainType::Filter, hook: Hook::Forward, priority: -300 };
static PASSED: Chain = Chain { name: "count_passed", kind: ChainType::Filter, hook: Hook::Postrouting, priority: 300 };

/// All chains, in the order in which they are created.
pub(super) static CHAINS: &[&Chain] = &[&OFFERED, &CUT, &PASSED];

/// Where a middlebox that tracks strictly refuses.
pub(super) static FIREWALL: Chain =
    Chain { name: "middlebox", kind: ChainType::Filter, hook: Hook::Forward, priority: 0 };
/// Where a middlebox translates.
pub(super) static NAT: Chain =
    Chain { name: "translate", kind: ChainType::Nat, hook: Hook::Postrouting, priority: 100 };

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident { $($chain:ident: [$($statement:expr),*];)* })*) => {
        $($(#[$doc])* pub(super) static $name: &[&Rule] =
            &[$(&Rule { chain: &$chain, statements: &[$($statement),*] }),*];)*
    };
}

rules! {
    /// What every table has, in order of evaluation within each chain.
    RULES {
    OFFERED: [Statement::Lookup(&OFFERED_FLOW)];
    OFFERED: [Statement::Lookup(&OFFERED_PAIR)];
    CUT: [Statement::Lookup(&DROPPED_FLOW), Statement::Drop];
    CUT: [Statement::Lookup(&DROPPED_PAIR), Statement::Drop];
    PASSED: [Statement::Lookup(&PASSED_FLOW)];
    PASSED: [Statement::Lookup(&PASSED_PAIR)];
    PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_FLOW)];
    PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_PAIR)];
    PASSED: [Statement::TcpFlag(TcpFlag::Fin), Statement::Lookup(&FIN_FLOW)];
    PASSED: [Statement::TcpFlag(TcpFlag::Fin), Statement::Lookup(&FIN_PAIR)];
    PASSED: [Statement::Icmp, Statement::Lookup(&ICMP_CLIENT)];
    }

    /// Where a whole host is cut off.
    HOST_RULES {
    OFFERED: [Statement::Lookup(&OFFERED_FROM)];
    OFFERED: [Statement::Lookup(&OFFERED_TO)];
    CUT: [Statement::Lookup(&DROPPED_FROM), Statement::Drop];
    CUT: [Statement::Lookup(&DROPPED_TO), Statement::Drop];
    PASSED: [Statement::Lookup(&PASSED_FROM)];
    PASSED: [Statement::Lookup(&PASSED_TO)];
    PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_TO)];
    PASSED: [Statement::TcpFlag(TcpFlag::Fin), Statement::Lookup(&FIN_TO)];
    }

    /// Where a cut answers: distorted, and only where that was asked for.
    ANSWERS {
    CUT: [Statement::Lookup(&UNREACHABLE_FLOW), Statement::Unreachable];
    CUT: [Statement::Lookup(&RESET_FLOW), Statement::Reset];
    PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_BROKER)];
    }

    /// Of a middlebox that drops what it does not know.
    REFUSE {
        FIREWALL: [Statement::Invalid, Statement::Lookup(&REFUSED_FLOW)];
        FIREWALL: [Statement::From(CLIENTS), Statement::Invalid, Statement::Drop];
        FIREWALL: [Statement::To(CLIENTS), Statement::Invalid, Statement::Drop];
    }

    /// Of a middlebox that answers it.
    REJECT {
        FIREWALL: [Statement::Invalid, Statement::Lookup(&REFUSED_FLOW)];
        FIREWALL: [Statement::From(CLIENTS), Statement::Invalid, Statement::Reset];
        FIREWALL: [Statement::To(CLIENTS), Statement::Invalid, Statement::Drop];
    }

    /// Of one that translates.
    TRANSLATE {
        NAT: [Statement::From(CLIENTS), Statement::MapSource(NAT_OUTSIDE)];
        PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_BROKER)];
    }
}

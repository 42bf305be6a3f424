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

use crate::host::nft::{Chain, Field, Hook, Op, Rule, Set, Statement, TcpFlag};

/// The table's name.
pub const TABLE: &str = "halfopen";

const FLOW: &[Field] = &[Field::SourceAddress, Field::SourcePort, Field::DestinationAddress, Field::DestinationPort];
const PAIR: &[Field] = &[Field::SourceAddress, Field::DestinationAddress];
const CLIENT: &[Field] = &[Field::DestinationAddress];

macro_rules! sets {
    ($($(#[$doc:meta])* $constant:ident = $name:literal $fields:ident $leases:literal;)*) => {
        $($(#[$doc])* pub(super) static $constant: Set = Set { name: $name, fields: $fields, leases: $leases };)*
        /// All sets, in the order in which they are created.
        pub(super) static SETS: &[&Set] = &[$(&$constant),*];
    };
}

sets! {
    OFFERED_FLOW = "offered_flow" FLOW false;
    OFFERED_HOST = "offered_host" PAIR false;
    DROPPED_FLOW = "dropped_flow" FLOW true;
    DROPPED_HOST = "dropped_host" PAIR true;
    PASSED_FLOW = "passed_flow" FLOW false;
    PASSED_HOST = "passed_host" PAIR false;
    RST_FLOW = "rst_flow" FLOW false;
    RST_HOST = "rst_host" PAIR false;
    FIN_FLOW = "fin_flow" FLOW false;
    FIN_HOST = "fin_host" PAIR false;
    ICMP_CLIENT = "icmp_client" CLIENT false;
}

static OFFERED: Chain = Chain { name: "count_offered", hook: Hook::Prerouting, priority: -300 };
static CUT: Chain = Chain { name: "cut", hook: Hook::Forward, priority: -300 };
static PASSED: Chain = Chain { name: "count_passed", hook: Hook::Postrouting, priority: 300 };

/// All chains, in the order in which they are created.
pub(super) static CHAINS: &[&Chain] = &[&OFFERED, &CUT, &PASSED];

macro_rules! rules {
    ($($chain:ident: [$($statement:expr),*];)*) => {
        /// All rules, in order of evaluation within each chain.
        pub(super) static RULES: &[&Rule] = &[$(&Rule { chain: &$chain, statements: &[$($statement),*] }),*];
    };
}

rules! {
    OFFERED: [Statement::Lookup(&OFFERED_FLOW)];
    OFFERED: [Statement::Lookup(&OFFERED_HOST)];
    CUT: [Statement::Lookup(&DROPPED_FLOW), Statement::Drop];
    CUT: [Statement::Lookup(&DROPPED_HOST), Statement::Drop];
    PASSED: [Statement::Lookup(&PASSED_FLOW)];
    PASSED: [Statement::Lookup(&PASSED_HOST)];
    PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_FLOW)];
    PASSED: [Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&RST_HOST)];
    PASSED: [Statement::TcpFlag(TcpFlag::Fin), Statement::Lookup(&FIN_FLOW)];
    PASSED: [Statement::TcpFlag(TcpFlag::Fin), Statement::Lookup(&FIN_HOST)];
    PASSED: [Statement::Icmp, Statement::Lookup(&ICMP_CLIENT)];
}

/// The batch that creates the table: sets before the rules that name them.
#[must_use]
pub fn install_ops() -> Vec<Op> {
    let mut ops = vec![Op::AddTable];
    ops.extend(SETS.iter().map(|set| Op::AddSet(set)));
    ops.extend(CHAINS.iter().map(|chain| Op::AddChain(chain)));
    ops.extend(RULES.iter().map(|rule| Op::AddRule(rule)));
    ops
}

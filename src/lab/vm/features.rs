//! Which features that the faults need does this kernel lack? Asked in each boot of the guest, where the kernel is one
//! that nobody else has tried: an owned table, sets of concatenated keys with a counter and a lease an element, the
//! three hooks.
//!
//! What is left out: the faults' own rules, which the engine installs and checks itself.

use crate::host::clock::Clock;
use crate::host::netns::NetNs;
use crate::host::nft::{
    Chain, ChainType, Element, Family, Field, Hook, Key, NftClient, NftError, Op, Rule, Set, Statement, TcpFlag,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

static FLOWS: Set = Set {
    name: "flows",
    fields: &[Field::SourceAddress, Field::SourcePort, Field::DestinationAddress, Field::DestinationPort],
    leases: true,
};
static CHAINS: [Chain; 3] = [
    Chain { name: "before", kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 },
    Chain { name: "between", kind: ChainType::Filter, hook: Hook::Forward, priority: 0 },
    Chain { name: "after", kind: ChainType::Filter, hook: Hook::Postrouting, priority: 300 },
];
static CUT: Rule = Rule { chain: &CHAINS[1], statements: &[Statement::Lookup(&FLOWS), Statement::Drop] };
static RESETS: Rule =
    Rule { chain: &CHAINS[2], statements: &[Statement::TcpFlag(TcpFlag::Rst), Statement::Lookup(&FLOWS)] };
static ICMP: Rule = Rule { chain: &CHAINS[2], statements: &[Statement::Icmp] };

/// The features that are missing, by the operation that was refused; empty when all are there.
#[must_use]
pub fn lacking() -> Vec<String> {
    match NetNs::create("the probe").map_err(|e| format!("network namespaces: {e}")).and_then(|ns| probe(&ns)) {
        Ok(()) => Vec::new(),
        Err(what) => vec![what],
    }
}

fn probe(namespace: &NetNs) -> Result<(), String> {
    let text = |e: NftError| e.to_string();
    let mut client = NftClient::open(namespace, Family::Ip, "halfopen_probe").map_err(text)?;
    let address = |last| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), 1000 + u16::from(last));
    let element = Element { set: &FLOWS, key: Key::of(FLOWS.fields, address(1), address(2)) };
    let mut ops = vec![Op::AddTable, Op::AddSet(&FLOWS)];
    ops.extend(CHAINS.iter().map(Op::AddChain));
    ops.extend([&CUT, &RESETS, &ICMP].map(Op::AddRule));
    ops.push(Op::AddLease(element, Duration::from_secs(60)));
    let clock = Clock::start();
    client.commit(clock, &ops).map_err(text)?;
    // Removed elements must come back with their last count, or a certificate would have a hole.
    client.commit(clock, &[Op::DeleteElement(element)]).map_err(text)?;
    Ok(())
}

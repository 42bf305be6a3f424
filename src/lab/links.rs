//! The arms' links: what the path does to packets all the time.
//!
//! The network emulator does all of it, where the kernel has one. Where it has none, loss is a rule that draws a number for
//! each packet and a rate is a token bucket; delay, jitter and reordering can't be had there. All of it is done to what
//! *leaves the router*: never on an end's own queue, whose drops an end would notice.

use super::LabError;
use super::netns::{ArmNet, Leaf, servers_of};
use crate::host::clock::Clock;
use crate::host::netem;
use crate::host::netem::Netem;
use crate::host::netlink::{Op, apply, has_qdisc};
use crate::host::netns::NetNs;
use crate::host::nft::{Chain, ChainType, Family, Hook, Network, NftClient, Op as Rules, Rule, Statement};
use crate::scenario::Link;
use std::net::Ipv4Addr;

/// The table of what is lost on the way, where the emulator does not lose it.
const TABLE: &str = "halfopen_links";

/// After everything that counts what passed: the loss lies on the way behind the router, as it does with the emulator.
static BEHIND: Chain = Chain { name: "lose", kind: ChainType::Filter, hook: Hook::Postrouting, priority: 310 };

/// What keeps the arms' links as they are.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Owns the rules that lose packets.
    pub losses: Option<NftClient>,
    /// What stands in for the emulator, a line an arm.
    pub notes: Vec<String>,
}

/// Makes the links of all arms that have one.
pub(super) fn shape(arms: &[ArmNet], router: &NetNs, server: &NetNs, clock: Clock) -> Result<Links, LabError> {
    let mut made = Links::default();
    let mut rules = Vec::new();
    let all: Vec<(usize, &ArmNet, Link)> =
        arms.iter().enumerate().filter_map(|(k, arm)| Some((k, arm, arm.link?))).collect();
    if all.is_empty() {
        return Ok(made);
    }
    let emulator = has_qdisc(router, netem::KIND).map_err(LabError::Network)?;
    for (k, arm, link) in all {
        let lacks = if emulator { Vec::new() } else { beyond_rules(&link) };
        if !lacks.is_empty() {
            return Err(LabError::NoNetem { arm: arm.name.clone(), lacks: lacks.join(" and ") });
        }
        let ways = ways(k, &link, router, server).map_err(LabError::Network)?;
        for (leaving, way) in ways {
            if let Some(op) = discipline(&leaving, &link, emulator) {
                apply(router, &[op]).map_err(|e| no_bucket(arm, e))?;
            }
            if !emulator && link.loss > 0.0 {
                rules.push(loses(link.loss, way));
            }
        }
        if !emulator {
            made.notes.push(format!(
                "link of {}: loss by nftables and rate by a token bucket (this kernel has no netem)",
                arm.name
            ));
        }
    }
    if !rules.is_empty() {
        let failed = |e: crate::host::nft::NftError| LabError::Network(std::io::Error::other(e.to_string()));
        let mut client = NftClient::open(router, Family::Ip, TABLE).map_err(failed)?;
        let mut ops = vec![Rules::AddTable, Rules::AddChain(&BEHIND)];
        ops.extend(rules.into_iter().map(Rules::AddRule));
        client.commit(clock, &ops).map_err(failed)?;
        made.losses = Some(client);
    }
    Ok(made)
}

/// What of a link only the emulator can do.
fn beyond_rules(link: &Link) -> Vec<&'static str> {
    let asked =
        [(!link.delay.is_zero(), "a delay"), (!link.jitter.is_zero(), "jitter"), (link.reorder > 0.0, "reordering")];
    asked.into_iter().filter_map(|(is, what)| is.then_some(what)).collect()
}

fn no_bucket(arm: &ArmNet, error: std::io::Error) -> LabError {
    match error.kind() {
        // The kernel's word for a discipline that it has not; the links are there, they were just made.
        std::io::ErrorKind::NotFound => {
            LabError::NoNetem { arm: arm.name.clone(), lacks: "a rate (not even sch_tbf)".into() }
        }
        _ => LabError::Network(error),
    }
}

/// The router's ends over which packets of the arm leave, each with the network that they come from or go to.
///
/// To the client that is the arm's own link. To the broker it is one that is made for it, with a way of its own to the
/// server, so that neither another arm nor the producer passes there.
fn ways(k: usize, link: &Link, router: &NetNs, server: &NetNs) -> std::io::Result<Vec<(String, Statement)>> {
    // Checked by `validate`: k is below 64.
    let number = k as u8;
    let arm = |second: u8| Network { address: Ipv4Addr::new(10, second + number, 0, 0), prefix: 16 };
    let mut ways = Vec::new();
    if link.to_client {
        ways.push((format!("arm{k}"), Statement::To(arm(64))));
    }
    if link.to_broker {
        let (name, address) = (format!("line{k}"), Ipv4Addr::new(10, 253, number, 2));
        let leaf = Leaf { ns: server, link: name.clone(), own_link: name.clone(), address, number, group: 1 };
        let mut ops = leaf.router_ops();
        ops.push(Op::Route { to: servers_of(k), prefix: 16, via: address, source: None });
        apply(router, &ops)?;
        apply(server, &leaf.own_ops())?;
        ways.push((name, Statement::To(arm(128))));
    }
    Ok(ways)
}

/// The discipline at a link; none where nothing is to be done.
fn discipline(leaving: &str, link: &Link, emulator: bool) -> Option<Op> {
    let rate_bytes = link.rate_bits.map(|bits| bits / 8);
    if !emulator {
        return rate_bytes.map(|rate_bytes| Op::Tbf { link: leaving.to_string(), rate_bytes });
    }
    let Link { delay, jitter, loss, reorder, .. } = *link;
    Some(Op::Netem { link: leaving.to_string(), netem: Netem { delay, jitter, loss, reorder, rate_bytes } })
}

/// A rule that loses a share of what goes one way. Rules are statics everywhere else; these are as many as a run has arms
/// and directions, and live as long as the process that owns the table.
fn loses(share: f64, way: Statement) -> &'static Rule {
    let millionths = (share.clamp(0.0, 1.0) * 1e6).round() as u32;
    let statements: &'static [Statement] = Box::leak(Box::new([way, Statement::Chance(millionths), Statement::Drop]));
    Box::leak(Box::new(Rule { chain: &BEHIND, statements }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_rules_can_not_do_is_named() {
        let plain = Link {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.3,
            reorder: 0.0,
            rate_bits: Some(1_000_000),
            to_broker: true,
            to_client: true,
        };
        assert!(beyond_rules(&plain).is_empty());
        let far = Link { delay: Duration::from_millis(80), reorder: 0.25, ..plain };
        assert_eq!(beyond_rules(&far), ["a delay", "reordering"]);
    }
}

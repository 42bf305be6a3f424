//! The same cut by iptables: its rules in chains of their own, the same counts, the same certificate.
//!
//! Everything is in the table `mangle`, which has the three hooks that a cut needs, so that one trial's rules come in one
//! commit, as the sets' elements do with nftables. A rule without a target only counts. Each trial's rules stand one after
//! another and are looked at in turn, so a packet's way grows with the trials, and a rule has no time to live: no lease. What
//! is left out: middleboxes, cuts that answer, and healing.

use super::FaultError;
use super::apply::{Applied, TrialReading};
use super::layout::Layout;
use super::render::{Counted, Cut, placed};
use crate::events::{Counters, TrialId, Tuple};
use crate::host::clock::Clock;
use crate::host::iptables::Iptables;
use crate::scenario::Scope;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The table of all rules.
const TABLE: &str = "mangle";
/// The most trials of a run: each packet meets up to nine rules of each.
pub const MOST_TRIALS: usize = 250;
/// Where each chain hangs.
const CHAINS: [(&str, &str); 3] =
    [("PREROUTING", "HALFOPEN-OFFERED"), ("FORWARD", "HALFOPEN-CUT"), ("POSTROUTING", "HALFOPEN-PASSED")];

/// One rule as the tools print it, without its counts, and what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    text: String,
    counts: Counted,
}

/// The rules of a cut, those that drop first.
fn lines(cut: &Cut) -> Vec<Line> {
    let wanted = placed(Layout { hosts: cut.scope == Scope::Host, ..Layout::default() }, cut);
    wanted.into_iter().map(|p| Line { text: line(cut, p.counts), counts: p.counts }).collect()
}

fn line(cut: &Cut, counts: Counted) -> String {
    use Counted as C;
    let Tuple { local, peer } = cut.tuple;
    let (chain, to_broker) = match counts {
        C::OfferedToBroker => (CHAINS[0].1, true),
        C::OfferedToClient => (CHAINS[0].1, false),
        C::DroppedToBroker | C::RefusedToBroker => (CHAINS[1].1, true),
        C::DroppedToClient | C::RefusedToClient => (CHAINS[1].1, false),
        C::PassedToBroker | C::RstToBroker => (CHAINS[2].1, true),
        C::PassedToClient | C::RstToClient | C::FinToClient | C::IcmpToClient => (CHAINS[2].1, false),
    };
    let (source, destination) = if to_broker { (local, peer) } else { (peer, local) };
    let icmp = counts == C::IcmpToClient;
    let mut text = format!("-A {chain}");
    let host = cut.scope == Scope::Host;
    if !icmp && (!host || to_broker) {
        text += &format!(" -s {}/32", source.ip());
    }
    if icmp || !host || !to_broker {
        text += &format!(" -d {}/32", destination.ip());
    }
    let flag = match counts {
        C::RstToClient | C::RstToBroker => " --tcp-flags RST RST",
        C::FinToClient => " --tcp-flags FIN FIN",
        _ => "",
    };
    if icmp {
        text += " -p icmp";
    } else if cut.scope == Scope::Flow {
        text += &format!(" -p tcp -m tcp --sport {} --dport {}{flag}", source.port(), destination.port());
    } else if !flag.is_empty() {
        text += &format!(" -p tcp -m tcp{flag}");
    }
    if counts.drops() { text + " -j DROP" } else { text }
}

/// The chains, with nothing in them.
fn base() -> Vec<String> {
    CHAINS.iter().map(|(hook, chain)| format!("-A {hook} -j {chain}")).collect()
}

/// What creates the chains.
fn install_text() -> String {
    let chains: String = CHAINS.iter().map(|(_, chain)| format!(":{chain} - [0:0]\n")).collect();
    let hooks: String = base().iter().map(|line| format!("{line}\n")).collect();
    format!("*{TABLE}\n{chains}{hooks}COMMIT\n")
}

/// What puts one cut in force.
fn cut_text(lines: &[Line]) -> String {
    let rules: String = lines.iter().map(|line| format!("{}\n", line.text)).collect();
    format!("*{TABLE}\n{rules}COMMIT\n")
}

/// All of one cut, as it is handed to `iptables-restore`: for people, and for the test that holds it to its golden text.
#[must_use]
pub fn render_iptables(cut: &Cut) -> String {
    install_text() + &cut_text(&lines(cut))
}

/// The rules of a printed table with their packets.
fn parse(printed: &str) -> Vec<(String, u64)> {
    let one = |line: &str| {
        let (counts, rule) = line.strip_prefix('[')?.split_once("] ")?;
        Some((rule.trim_end().to_string(), counts.split(':').next()?.parse().ok()?))
    };
    printed.lines().filter_map(one).collect()
}

/// The faults of a run, by iptables. The rules die with the router's namespace.
#[derive(Debug)]
pub struct IptablesTable {
    tools: Iptables,
    clock: Clock,
    trials: BTreeMap<TrialId, Vec<Line>>,
}

impl IptablesTable {
    /// Makes the chains, which drop nothing yet.
    ///
    /// # Errors
    /// With the tool's own words.
    pub fn install(tools: Iptables, clock: Clock) -> Result<Self, FaultError> {
        tools.add(&install_text()).map_err(FaultError::Iptables)?;
        Ok(Self { tools, clock, trials: BTreeMap::new() })
    }

    /// Puts a cut in force, in one commit for all its directions.
    ///
    /// # Errors
    /// When the trial is cut already, another trial has the same rules, or a lease is asked for.
    pub fn cut(&mut self, cut: &Cut) -> Result<Applied, FaultError> {
        let lines = lines(cut);
        let taken = self.trials.values().flatten().any(|known| lines.contains(known));
        if taken || self.trials.contains_key(&cut.trial) {
            return Err(FaultError::AlreadyCut(cut.trial));
        }
        if cut.lease.is_some() {
            return Err(FaultError::Iptables(std::io::Error::other("a rule of iptables has no time to live")));
        }
        let before = self.clock.now();
        self.tools.add(&cut_text(&lines)).map_err(FaultError::Iptables)?;
        self.trials.insert(cut.trial, lines);
        Ok(Applied { before, after: self.clock.now() })
    }

    /// Reads every trial's counts.
    ///
    /// # Errors
    /// With the tool's own words; a missing rule only makes its trial not intact.
    pub fn counters(&mut self) -> Result<HashMap<TrialId, TrialReading>, FaultError> {
        let found = parse(&self.tools.rules(TABLE).map_err(FaultError::Iptables)?);
        let counts: HashMap<&str, u64> = found.iter().map(|(rule, packets)| (rule.as_str(), *packets)).collect();
        let mut expected: Vec<String> = base();
        expected.extend(self.trials.values().flatten().map(|line| line.text.clone()));
        let mut rules: Vec<&str> = found.iter().map(|(rule, _)| rule.as_str()).collect();
        expected.sort_unstable();
        rules.sort_unstable();
        let intact = rules == expected;
        let reading = |lines: &Vec<Line>| {
            let mut counters = Counters::default();
            for line in lines {
                line.counts.write(&mut counters, counts.get(line.text.as_str()).copied().unwrap_or_default());
            }
            TrialReading { counters, intact }
        };
        Ok(self.trials.iter().map(|(trial, lines)| (*trial, reading(lines))).collect())
    }

    /// Reads one trial's counts, again while a packet is between two hooks.
    ///
    /// # Errors
    /// As [`Self::counters`], and when the trial is not cut.
    pub fn counters_of(&mut self, trial: TrialId) -> Result<TrialReading, FaultError> {
        let mut read = self.counters()?.remove(&trial).ok_or(FaultError::NotCut(trial))?;
        for _ in 1..super::apply::READINGS {
            if read.counters.lost_to_broker() + read.counters.lost_to_client() == 0 {
                break;
            }
            read = self.counters()?.remove(&trial).ok_or(FaultError::NotCut(trial))?;
        }
        Ok(read)
    }

    /// The trials that have had a packet dropped.
    ///
    /// # Errors
    /// As [`Self::counters`].
    pub fn dropping(&mut self) -> Result<HashSet<TrialId>, FaultError> {
        let dropped = |r: &TrialReading| r.counters.dropped_to_broker + r.counters.dropped_to_client > 0;
        Ok(self.counters()?.into_iter().filter(|(_, read)| dropped(read)).map(|(trial, _)| trial).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Directions, Injection, profile};
    use std::net::{Ipv4Addr, SocketAddrV4};

    fn example(drop: Directions, scope: Scope) -> Cut {
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 64, 128, 1), 40000);
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 128, 128, 1), 5672);
        Cut { trial: 0, tuple: Tuple { local, peer }, scope, drop, injection: Injection::Router, lease: None }
    }

    /// `HALFOPEN_WRITE_GOLDEN=1` writes them anew, to be read in the diff.
    #[test]
    fn the_profiles_that_drop_render_to_their_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        for name in ["blackhole", "to-broker", "to-client", "none"] {
            let drop = profile::builtin(name).expect("a built-in profile").drop;
            let of = |s: Scope| format!("# scope = \"{}\"\n{}", s.name(), render_iptables(&example(drop, s)));
            let text = Scope::ALL.map(of).join("\n");
            let file = folder.join(format!("{name}.iptables"));
            if std::env::var_os("HALFOPEN_WRITE_GOLDEN").is_some() {
                std::fs::write(&file, &text).expect("the golden text");
            }
            let golden = std::fs::read_to_string(&file).expect("the golden text");
            assert!(text == golden, "{} should be\n{text}", file.display());
        }
    }

    #[test]
    fn counts_are_read_as_the_tools_print_them() {
        let printed = "# Generated by iptables-save v1.8.9 (nf_tables)\n*mangle\n:FORWARD ACCEPT [9:9]\n:HALFOPEN-CUT - [0:0]\n\
                       [3:156] -A FORWARD -j HALFOPEN-CUT\n[2:104] -A HALFOPEN-CUT -s 10.0.0.1/32 -j DROP\nCOMMIT\n";
        let found = parse(printed);
        assert_eq!(found[0], ("-A FORWARD -j HALFOPEN-CUT".to_string(), 3));
        assert_eq!(found[1], ("-A HALFOPEN-CUT -s 10.0.0.1/32 -j DROP".to_string(), 2));
        assert_eq!(found.len(), 2);
    }
}

//! The same cut by iptables: its rules in chains of their own, the same counts, the same certificate.
//!
//! Everything is in the table `mangle`, which has the three hooks that a cut needs, so that one trial's rules come in one
//! commit, as the sets' elements do with nftables. A rule without a target only counts. Each trial's rules stand one after
//! another and are looked at in turn, so a packet's way grows with the trials. A rule has no time to live; the dropping rules of a
//! cut that is leased go by a list of the match `recent` instead, on which the client's address counts for the time of the
//! lease and no longer. Striking it there heals both ways in one moment. What is left out: middleboxes and cuts that answer.

use super::FaultError;
use super::apply::{Applied, TrialReading};
use super::layout::Layout;
use super::render::{Counted, Cut, placed};
use crate::events::{Counters, TrialId, Tuple};
use crate::host::clock::Clock;
use crate::host::iptables::Iptables;
use crate::host::recent::{RecentList, USUAL_LENGTH};
use crate::scenario::{Directions, Scope};
use crate::units::Offset;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// The table of all rules.
const TABLE: &str = "mangle";
/// The most trials of a run: each packet meets up to nine rules of each.
pub const MOST_TRIALS: usize = 250;
/// Where each chain hangs.
const CHAINS: [(&str, &str); 3] =
    [("PREROUTING", "HALFOPEN-OFFERED"), ("FORWARD", "HALFOPEN-CUT"), ("POSTROUTING", "HALFOPEN-PASSED")];

/// The chain that nothing jumps to: its rules keep the lists of leases alive.
const LEASES: &str = "HALFOPEN-LEASES";
/// How many clients share a list: none may be pushed out by another.
const LIST: usize = USUAL_LENGTH / 2;
/// As many lists as the most trials need.
const LISTS: usize = MOST_TRIALS.div_ceil(LIST);

/// For how long a cut is in force, on which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    list: usize,
    /// The match counts in whole seconds: never less than was asked for.
    seconds: u64,
}

impl Lease {
    fn new(list: usize, time: Duration) -> Self {
        Self { list, seconds: time.as_secs() + u64::from(time.subsec_nanos() > 0) }
    }
}

fn list_name(list: usize) -> String {
    format!("halfopen-{list}")
}

/// One rule as the tools print it, without its counts, and what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    text: String,
    counts: Counted,
}

/// The rules of a cut, those that drop first.
fn lines(cut: &Cut, lease: Option<Lease>) -> Vec<Line> {
    let wanted = placed(Layout { hosts: cut.scope == Scope::Host, ..Layout::default() }, cut);
    wanted.into_iter().map(|p| Line { text: line(cut, lease, p.counts), counts: p.counts }).collect()
}

fn line(cut: &Cut, lease: Option<Lease>, counts: Counted) -> String {
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
    if !counts.drops() {
        return text;
    }
    if let Some(Lease { list, seconds }) = lease {
        // The client's address, whichever way.
        let side = if to_broker { "--rsource" } else { "--rdest" };
        let name = list_name(list);
        text += &format!(" -m recent --rcheck --seconds {seconds} --name {name} --mask 255.255.255.255 {side}");
    }
    text + " -j DROP"
}

/// The chains, with nothing in them, and where cuts are leased what keeps the lists.
fn base(leases: bool) -> Vec<String> {
    let keeps =
        |list| format!("-A {LEASES} -m recent --rcheck --name {} --mask 255.255.255.255 --rsource", list_name(list));
    let lists = (0..LISTS).filter(|_| leases).map(keeps);
    CHAINS.iter().map(|(hook, chain)| format!("-A {hook} -j {chain}")).chain(lists).collect()
}

/// What creates the chains.
fn install_text(leases: bool) -> String {
    let names = CHAINS.iter().map(|(_, chain)| *chain).chain(leases.then_some(LEASES));
    let chains: String = names.map(|chain| format!(":{chain} - [0:0]\n")).collect();
    let rules: String = base(leases).iter().map(|line| format!("{line}\n")).collect();
    format!("*{TABLE}\n{chains}{rules}COMMIT\n")
}

/// What puts one cut in force.
fn cut_text(lines: &[Line]) -> String {
    let rules: String = lines.iter().map(|line| format!("{}\n", line.text)).collect();
    format!("*{TABLE}\n{rules}COMMIT\n")
}

/// All of one cut, as it is handed to `iptables-restore`: for people, and for the test that holds it to its golden text.
#[must_use]
pub fn render_iptables(cut: &Cut) -> String {
    let lease = cut.lease.map(|time| Lease::new(0, time));
    install_text(lease.is_some()) + &cut_text(&lines(cut, lease))
}

/// The rules of a printed table with their packets.
fn parse(printed: &str) -> Vec<(String, u64)> {
    let one = |line: &str| {
        let (counts, rule) = line.strip_prefix('[')?.split_once("] ")?;
        Some((rule.trim_end().to_string(), counts.split(':').next()?.parse().ok()?))
    };
    printed.lines().filter_map(one).collect()
}

/// A trial's cut.
#[derive(Debug)]
struct Installed {
    cut: Cut,
    lines: Vec<Line>,
    lease: Option<Lease>,
    /// When the address was entered, where the cut is leased and in force.
    leased_at: Option<Offset>,
    /// Whether it was healed.
    healed: bool,
}

/// The faults of a run, by iptables. The rules die with the router's namespace.
#[derive(Debug)]
pub struct IptablesTable {
    tools: Iptables,
    clock: Clock,
    trials: BTreeMap<TrialId, Installed>,
    /// Of leases; none where nothing is leased.
    lists: Vec<RecentList>,
}

impl IptablesTable {
    /// Makes the chains, which drop nothing yet, and with `leases` the lists by which cuts end by themselves.
    ///
    /// # Errors
    /// With the tool's own words; with leases also where the kernel has no match `recent`, or its lists are not for this
    /// user to write.
    pub fn install(tools: Iptables, leases: bool, clock: Clock) -> Result<Self, FaultError> {
        tools.add(&install_text(leases)).map_err(FaultError::Iptables)?;
        let list = |number| RecentList::new(tools.namespace(), &list_name(number));
        let lists: Vec<RecentList> = (0..LISTS).filter(|_| leases).map(list).collect();
        // Nobody has this address, and a list that can't be written has to show before the first cut.
        lists.iter().try_for_each(|list| list.strike(std::net::Ipv4Addr::LOCALHOST)).map_err(FaultError::Iptables)?;
        Ok(Self { tools, clock, trials: BTreeMap::new(), lists })
    }

    /// Puts a cut in force, in one commit for all its directions. Its lease begins a moment before.
    ///
    /// # Errors
    /// When the trial is cut already, another trial has the same rules, or a lease is asked for and there are no lists.
    pub fn cut(&mut self, cut: &Cut) -> Result<Applied, FaultError> {
        let drops = !cut.drop.is_none();
        let leased = self.trials.values().filter(|trial| trial.lease.is_some()).count();
        let lease = cut.lease.filter(|_| drops).map(|time| Lease::new(leased / LIST, time));
        let lines = lines(cut, lease);
        let taken = self.trials.values().flat_map(|trial| &trial.lines).any(|known| lines.contains(known));
        if taken || self.trials.contains_key(&cut.trial) {
            return Err(FaultError::AlreadyCut(cut.trial));
        }
        let leased_at = lease.map(|lease| self.enter(lease, cut)).transpose()?;
        let before = self.clock.now();
        self.tools.add(&cut_text(&lines)).map_err(FaultError::Iptables)?;
        let after = self.clock.now();
        self.trials.insert(cut.trial, Installed { cut: *cut, lines, lease, leased_at, healed: false });
        Ok(Applied { before, after })
    }

    /// Enters the client's address, from when on its rules drop. Before that, so that no lease seems longer than it is.
    fn enter(&self, lease: Lease, cut: &Cut) -> Result<Offset, FaultError> {
        let at = self.clock.now();
        self.list(lease)?.enter(*cut.tuple.local.ip()).map_err(FaultError::Iptables)?;
        Ok(at)
    }

    fn list(&self, lease: Lease) -> Result<&RecentList, FaultError> {
        let missing = || FaultError::Iptables(std::io::Error::other("no list was made for leases"));
        self.lists.get(lease.list).ok_or_else(missing)
    }

    /// Takes the dropping of a leased cut back, both ways in one moment. Of a control, nothing changes.
    ///
    /// # Errors
    /// When the trial is not cut, is healed already, or was cut without a lease.
    pub fn heal(&mut self, trial: TrialId) -> Result<Applied, FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        if installed.healed {
            return Err(FaultError::AlreadyHealed(trial));
        }
        let before = self.clock.now();
        match installed.lease {
            Some(lease) => {
                let list = self.list(lease)?;
                list.strike(*installed.cut.tuple.local.ip()).map_err(FaultError::Iptables)?;
            }
            None if installed.cut.drop.is_none() => {}
            None => return Err(FaultError::OnlyNftables("healing a cut without a lease")),
        }
        let after = self.clock.now();
        if let Some(installed) = self.trials.get_mut(&trial) {
            (installed.leased_at, installed.healed) = (None, true);
        }
        Ok(Applied { before, after })
    }

    /// Puts a healed cut in force again; its counts go on.
    ///
    /// # Errors
    /// When the trial is not cut, or was never healed.
    pub fn again(&mut self, trial: TrialId) -> Result<Applied, FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        if !installed.healed {
            return Err(FaultError::AlreadyCut(trial));
        }
        let (lease, cut) = (installed.lease, installed.cut);
        let before = self.clock.now();
        let leased_at = lease.map(|lease| self.enter(lease, &cut)).transpose()?;
        let after = self.clock.now();
        if let Some(installed) = self.trials.get_mut(&trial) {
            (installed.leased_at, installed.healed) = (leased_at, false);
        }
        Ok(Applied { before, after })
    }

    /// Cuts more ways of a trial that is cut already; its counts go on.
    ///
    /// # Errors
    /// When the trial is not cut, or a rule is there already.
    pub fn widen(&mut self, trial: TrialId, drop: Directions) -> Result<Applied, FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        let wider = Cut { drop, ..installed.cut };
        let all = lines(&wider, installed.lease);
        let more: Vec<Line> = all.iter().filter(|line| !installed.lines.contains(line)).cloned().collect();
        let before = self.clock.now();
        self.tools.add(&cut_text(&more)).map_err(FaultError::Iptables)?;
        let after = self.clock.now();
        if let Some(installed) = self.trials.get_mut(&trial) {
            (installed.cut, installed.lines) = (wider, all);
        }
        Ok(Applied { before, after })
    }

    /// Whether a lease still holds that should: the address is on its list, and not for longer than it counts.
    fn holds(&self, installed: &Installed) -> bool {
        match (installed.lease, installed.leased_at) {
            (Some(lease), Some(at)) => {
                let listed =
                    self.list(lease).is_ok_and(|list| list.has(*installed.cut.tuple.local.ip()).unwrap_or(false));
                listed && self.clock.now().since(at) < Duration::from_secs(lease.seconds)
            }
            _ => true,
        }
    }

    /// Reads every trial's counts.
    ///
    /// # Errors
    /// With the tool's own words; a missing rule, or a lease that is over, only makes its trial not intact.
    pub fn counters(&mut self) -> Result<HashMap<TrialId, TrialReading>, FaultError> {
        let found = parse(&self.tools.rules(TABLE).map_err(FaultError::Iptables)?);
        let counts: HashMap<&str, u64> = found.iter().map(|(rule, packets)| (rule.as_str(), *packets)).collect();
        let mut expected: Vec<String> = base(!self.lists.is_empty());
        expected.extend(self.trials.values().flat_map(|trial| &trial.lines).map(|line| line.text.clone()));
        let mut rules: Vec<&str> = found.iter().map(|(rule, _)| rule.as_str()).collect();
        expected.sort_unstable();
        rules.sort_unstable();
        let intact = rules == expected;
        let reading = |trial: &Installed| {
            let mut counters = Counters::default();
            for line in &trial.lines {
                line.counts.write(&mut counters, counts.get(line.text.as_str()).copied().unwrap_or_default());
            }
            TrialReading { counters, intact: intact && self.holds(trial) }
        };
        Ok(self.trials.iter().map(|(id, trial)| (*id, reading(trial))).collect())
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
            let mut all = Scope::ALL.map(of).to_vec();
            if !drop.is_none() {
                let leased = Cut { lease: Some(Duration::from_millis(4_500)), ..example(drop, Scope::Flow) };
                let title = "# scope = \"flow\", duration = \"2500ms\": leased for two seconds more, in whole seconds";
                all.push(format!("{title}\n{}", render_iptables(&leased)));
            }
            let text = all.join("\n");
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

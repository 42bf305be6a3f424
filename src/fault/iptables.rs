//! The same cut by iptables: the same counts, the same certificate.
//!
//! Each trial's rules stand one after another and are looked at in turn, so a packet's way grows with the trials. A rule has no
//! time to live; the dropping rules of a cut that is leased go by a list of the match `recent` instead, on which the client's
//! address counts for the time of the lease and no longer. Striking it there heals both ways in one moment. What the rules are:
//! `iptables_rules`.

use super::FaultError;
use super::apply::{Applied, TrialReading};
use super::iptables_rules::{LIST, LISTS, Lease, Line, base, cut_text, install_text, lines, list_name, parse, tables};
use super::layout::Layout;
use super::render::{Counted, Cut};
use crate::events::{Counters, TrialId};
use crate::host::clock::Clock;
use crate::host::iptables::Iptables;
use crate::host::recent::RecentList;
use crate::scenario::Directions;
use crate::units::Offset;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// A trial's cut.
#[derive(Debug)]
struct Installed {
    cut: Cut,
    lines: Vec<(Line, Counted)>,
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
    layout: Layout,
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
    pub fn install(layout: Layout, tools: Iptables, leases: bool, clock: Clock) -> Result<Self, FaultError> {
        tools.add(&install_text(layout, leases)).map_err(FaultError::Iptables)?;
        let list = |number| RecentList::new(tools.namespace(), &list_name(number));
        let lists: Vec<RecentList> = (0..LISTS).filter(|_| leases).map(list).collect();
        // Nobody has this address, and a list that can't be written has to show before the first cut.
        lists.iter().try_for_each(|list| list.strike(std::net::Ipv4Addr::LOCALHOST)).map_err(FaultError::Iptables)?;
        Ok(Self { tools, clock, layout, trials: BTreeMap::new(), lists })
    }

    /// Puts a cut in force, in one commit for all its directions. Its lease begins a moment before.
    ///
    /// # Errors
    /// When the trial is cut already, another trial has the same rules, or a lease is asked for and there are no lists.
    pub fn cut(&mut self, cut: &Cut) -> Result<Applied, FaultError> {
        self.cut_all(std::slice::from_ref(cut))
    }

    /// Puts several cuts in force, in one commit.
    ///
    /// # Errors
    /// As [`Self::cut`]; none of them is in force then.
    pub fn cut_all(&mut self, cuts: &[Cut]) -> Result<Applied, FaultError> {
        let mut leased = self.trials.values().filter(|trial| trial.lease.is_some()).count();
        let mut new: Vec<(TrialId, Installed)> = Vec::with_capacity(cuts.len());
        for cut in cuts {
            let lease = cut.lease.filter(|_| !cut.drop.is_none()).map(|time| Lease::new(leased / LIST, time));
            leased += usize::from(lease.is_some());
            let lines = lines(self.layout, cut, lease);
            let known = self.trials.iter().chain(new.iter().map(|(id, trial)| (id, trial)));
            let taken = known.clone().flat_map(|(_, trial)| &trial.lines).any(|line| lines.contains(line));
            if taken || known.map(|(id, _)| id).any(|id| *id == cut.trial) {
                return Err(FaultError::AlreadyCut(cut.trial));
            }
            new.push((cut.trial, Installed { cut: *cut, lines, lease, leased_at: None, healed: false }));
        }
        for (_, trial) in &mut new {
            trial.leased_at = trial.lease.map(|lease| self.enter(lease, &trial.cut)).transpose()?;
        }
        let all: Vec<_> = new.iter().flat_map(|(_, trial)| trial.lines.iter().cloned()).collect();
        let before = self.clock.now();
        self.tools.add(&cut_text(&all)).map_err(FaultError::Iptables)?;
        let after = self.clock.now();
        self.trials.extend(new);
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
        let all = lines(self.layout, &wider, installed.lease);
        let more: Vec<_> = all.iter().filter(|line| !installed.lines.contains(line)).cloned().collect();
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
        let mut found = Vec::new();
        for table in tables(self.layout) {
            found.extend(parse(table, &self.tools.rules(table).map_err(FaultError::Iptables)?));
        }
        let counts: HashMap<&Line, u64> = found.iter().map(|(rule, packets)| (rule, *packets)).collect();
        let mut expected: Vec<Line> = base(self.layout, !self.lists.is_empty());
        expected.extend(self.trials.values().flat_map(|trial| &trial.lines).map(|(line, _)| line.clone()));
        let mut rules: Vec<&Line> = found.iter().map(|(rule, _)| rule).collect();
        let mut expected: Vec<&Line> = expected.iter().collect();
        expected.sort_unstable();
        rules.sort_unstable();
        let intact = rules == expected;
        let reading = |trial: &Installed| {
            let mut counters = Counters::default();
            for (line, what) in &trial.lines {
                what.write(&mut counters, counts.get(line).copied().unwrap_or_default());
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

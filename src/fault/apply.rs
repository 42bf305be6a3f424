//! Putting faults in force in a namespace, and reading what they did.

use super::layout::Layout;
use super::render::{Counted, Cut, Placed, again_ops, cut_ops, heal_ops, placed};
use super::rules::{
    DROPPED_FLOW, DROPPED_FROM, DROPPED_PAIR, DROPPED_TO, REFUSED_FLOW, RESET_FLOW, TABLE, UNREACHABLE_FLOW,
};
use super::{FaultError, error};
use crate::events::{Counters, TrialId};
use crate::host::clock::Clock;
use crate::host::netns::NetNs;
use crate::host::nft::{Element, Family, NftClient, NftError, Op, Reading, RuleHandle, Set};
use crate::scenario::Directions;
use crate::units::Offset;
use std::collections::{BTreeMap, HashMap, HashSet};

/// How often a trial's counts are read until they add up. One packet takes some microseconds from hook to hook.
pub(super) const READINGS: u32 = 4;

/// Where a dropped packet is counted.
static SETS_OF_DROPS: [&Set; 7] =
    [&DROPPED_FLOW, &DROPPED_PAIR, &DROPPED_FROM, &DROPPED_TO, &UNREACHABLE_FLOW, &RESET_FLOW, &REFUSED_FLOW];

/// When a change of the faults came into force: after `before`, not later than `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Clock reading immediately before the batch was sent.
    pub before: Offset,
    /// Clock reading immediately after the kernel's acknowledgement.
    pub after: Offset,
}

/// What was counted for a trial since its cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialReading {
    /// The counts. After a heal the dropped packets are those of the time up to the heal.
    pub counters: Counters,
    /// Whether every rule is the one that was installed, and every element of the trial is where it should be.
    pub intact: bool,
}

#[derive(Debug)]
struct Installed {
    cut: Cut,
    placed: Vec<Placed>,
    /// Whether it drops at the moment.
    in_force: bool,
    /// What the dropping elements of earlier cuts counted.
    earlier: Vec<(Counted, u64)>,
}

impl Installed {
    fn present(&self) -> impl Iterator<Item = &Placed> {
        self.placed.iter().filter(|p| self.in_force || !p.counts.drops())
    }

    fn reading(&self, rules_intact: bool, count: impl Fn(&Element) -> Option<u64>) -> TrialReading {
        let mut counters = Counters::default();
        let mut intact = rules_intact;
        for placed in &self.placed {
            let earlier =
                self.earlier.iter().filter(|(counted, _)| *counted == placed.counts).map(|(_, n)| n).sum::<u64>();
            let now = if self.in_force || !placed.counts.drops() { count(&placed.element) } else { Some(0) };
            intact &= now.is_some();
            placed.counts.write(&mut counters, earlier + now.unwrap_or(0));
        }
        TrialReading { counters, intact }
    }
}

/// The faults of a run. Owned by one thread at a time, and sendable to a real-time one; every call is a few system
/// calls that the kernel answers at once.
///
/// At the instant of a cut each CPU may have a packet between two hooks: it can be counted as dropped and not as
/// offered, or as passed though offered before. Counts of one and the same instant are exact, totals of the hooks can
/// differ by those packets.
#[derive(Debug)]
#[must_use = "the kernel heals every fault when the table is dropped"]
pub struct FaultTable {
    client: NftClient,
    layout: Layout,
    clock: Clock,
    trials: BTreeMap<TrialId, Installed>,
    /// The rules as installed, and the generation at which they were last seen so.
    rules: Vec<RuleHandle>,
    generation: u32,
    rules_intact: bool,
}

impl FaultTable {
    /// Creates the table, which drops nothing yet, in the namespace through which the packets pass.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN` over the namespace, without nftables in the kernel, or where the table exists already.
    pub fn install(namespace: &NetNs, clock: Clock) -> Result<Self, FaultError> {
        Self::install_as(Layout::default(), namespace, clock)
    }

    /// The same with what a middlebox in the path needs.
    ///
    /// # Errors
    /// As [`Self::install`]; also where the kernel lacks connection tracking or what translates addresses.
    pub fn install_as(layout: Layout, namespace: &NetNs, clock: Clock) -> Result<Self, FaultError> {
        Self::install_in(layout, namespace, (Family::Ip, TABLE), clock)
    }

    /// The same in another family and under a name of its own: where the packets pass a bridge of a namespace that others
    /// use, too.
    ///
    /// # Errors
    /// As [`Self::install_as`].
    pub fn install_in(
        layout: Layout,
        namespace: &NetNs,
        (family, table): (Family, &str),
        clock: Clock,
    ) -> Result<Self, FaultError> {
        let mut client = NftClient::open(namespace, family, table).map_err(FaultError::Install)?;
        client.commit(clock, &layout.install_ops()).map_err(FaultError::Install)?;
        let generation = client.generation().map_err(FaultError::Install)?;
        let rules = client.rules().map_err(FaultError::Install)?;
        Ok(Self { client, layout, clock, trials: BTreeMap::new(), rules, generation, rules_intact: true })
    }

    /// Puts a cut in force, atomically in all its directions, and starts its counts at zero.
    ///
    /// # Errors
    /// When the trial is cut already, or another trial has the same key; nothing is changed then.
    pub fn cut(&mut self, cut: Cut) -> Result<Applied, FaultError> {
        if self.trials.contains_key(&cut.trial) {
            return Err(FaultError::AlreadyCut(cut.trial));
        }
        let (applied, _) = self.commit("cut", cut.trial, &cut_ops(self.layout, &cut))?;
        self.trials.insert(
            cut.trial,
            Installed { cut, placed: placed(self.layout, &cut), in_force: true, earlier: Vec::new() },
        );
        Ok(applied)
    }

    /// Takes the dropping back and goes on counting what is offered and passes. Of a control, nothing changes.
    ///
    /// # Errors
    /// When the trial is not cut, or healed already.
    pub fn heal(&mut self, trial: TrialId) -> Result<Applied, FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        if !installed.in_force {
            return Err(FaultError::AlreadyHealed(trial));
        }
        let ops = heal_ops(self.layout, &installed.cut);
        let (applied, last) = if ops.is_empty() {
            (Applied { before: self.clock.now(), after: self.clock.now() }, Vec::new())
        } else {
            self.commit("heal", trial, &ops)?
        };
        if let Some(installed) = self.trials.get_mut(&trial) {
            let dropping = installed.placed.iter().filter(|p| p.counts.drops());
            let count = |p: &Placed| last.iter().find(|r| r.key == p.element.key).map(|r| (p.counts, r.packets));
            let counts: Vec<_> = dropping.filter_map(count).collect();
            installed.earlier.extend(counts);
            installed.in_force = false;
        }
        Ok(applied)
    }

    /// Puts a healed cut in force again; its counts go on.
    ///
    /// # Errors
    /// When the trial is not cut, or was never healed.
    pub fn again(&mut self, trial: TrialId) -> Result<Applied, FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        if installed.in_force {
            return Err(FaultError::AlreadyCut(trial));
        }
        let (applied, _) = self.commit("cut again", trial, &again_ops(self.layout, &installed.cut))?;
        if let Some(installed) = self.trials.get_mut(&trial) {
            installed.in_force = true;
        }
        Ok(applied)
    }

    /// Cuts more ways of a trial that is cut already; its counts go on.
    ///
    /// # Errors
    /// When the trial is not cut, or an element is there already.
    pub fn widen(&mut self, trial: TrialId, drop: Directions) -> Result<Applied, FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        let wider = Cut { drop, ..installed.cut };
        let all = placed(self.layout, &wider);
        let more: Vec<_> =
            all.iter().filter(|p| !installed.placed.contains(p)).map(|p| super::render::add(&wider, p)).collect();
        let (applied, _) = self.commit("widen the cut of", trial, &more)?;
        if let Some(installed) = self.trials.get_mut(&trial) {
            (installed.cut, installed.placed) = (wider, all);
        }
        Ok(applied)
    }

    /// Reads every trial's counts: one pass over the sets, however many trials there are.
    ///
    /// # Errors
    /// When the sets can't be read at all; a missing element only makes its trial not intact.
    pub fn counters(&mut self) -> Result<HashMap<TrialId, TrialReading>, FaultError> {
        let mut counts = HashMap::with_capacity(self.trials.len() * 9);
        if self.trials.is_empty() {
            return Ok(HashMap::new());
        }
        for set in self.layout.sets() {
            let read = self.client.elements(set, |reading| {
                counts.insert(Element { set, key: reading.key }, reading.packets);
            });
            read.map_err(FaultError::Counters)?;
        }
        let rules_intact = self.check_rules().map_err(FaultError::Counters)?;
        let reading = |installed: &Installed| installed.reading(rules_intact, |e| counts.get(e).copied());
        Ok(self.trials.iter().map(|(trial, installed)| (*trial, reading(installed))).collect())
    }

    /// The trials that have had a packet dropped since their cut and were not healed. Two sets are read, and the rules
    /// are not looked at.
    ///
    /// # Errors
    /// When the sets can't be read.
    pub fn dropping(&mut self) -> Result<HashSet<TrialId>, FaultError> {
        let mut hit = HashSet::new();
        for set in SETS_OF_DROPS {
            let used = self.trials.values().any(|t| t.present().any(|p| p.element.set == set));
            if used {
                let read = self.client.elements(set, |reading| {
                    if reading.packets > 0 {
                        hit.insert(Element { set, key: reading.key });
                    }
                });
                read.map_err(FaultError::Counters)?;
            }
        }
        let dropped = |t: &Installed| t.present().any(|p| hit.contains(&p.element));
        Ok(self.trials.iter().filter(|(_, t)| dropped(t)).map(|(trial, _)| *trial).collect())
    }

    /// Reads one trial's counts. A packet that is between two hooks while they are read has been offered and is neither
    /// dropped nor passed yet: such a reading is made again, a few times.
    ///
    /// # Errors
    /// When the trial is not cut, or its elements can't be read.
    pub fn counters_of(&mut self, trial: TrialId) -> Result<TrialReading, FaultError> {
        let mut read = self.read_once(trial)?;
        for _ in 1..READINGS {
            if read.counters.lost_to_broker() + read.counters.lost_to_client() == 0 {
                break;
            }
            std::thread::yield_now();
            read = self.read_once(trial)?;
        }
        Ok(read)
    }

    fn read_once(&mut self, trial: TrialId) -> Result<TrialReading, FaultError> {
        let failed = |source| FaultError::Trial { what: "read the counters of", trial, source };
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        let wanted: Vec<_> = installed.present().map(|p| p.element).collect();
        let found = self.client.elements_of(&wanted).map_err(failed)?;
        let rules_intact = self.check_rules().map_err(failed)?;
        let counts: HashMap<_, _> =
            wanted.into_iter().zip(found).filter_map(|(e, reading)| Some((e, reading?.packets))).collect();
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        Ok(installed.reading(rules_intact, |e| counts.get(e).copied()))
    }

    /// Removes everything of a trial: what was still cut is healed, its counts are gone.
    ///
    /// # Errors
    /// When the trial is not cut, or an element is missing.
    pub fn forget(&mut self, trial: TrialId) -> Result<(), FaultError> {
        let installed = self.trials.get(&trial).ok_or(FaultError::NotCut(trial))?;
        let ops: Vec<_> = installed.present().map(|p| Op::DeleteElement(p.element)).collect();
        self.commit("forget", trial, &ops)?;
        self.trials.remove(&trial);
        Ok(())
    }

    /// Removes the table, which heals every fault. Dropping the table does the same without a word.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the table is gone.
    pub fn close(mut self) -> Result<(), FaultError> {
        self.client.commit(self.clock, &[Op::DeleteTable]).map(|_| ()).map_err(FaultError::Close)
    }

    fn commit(
        &mut self,
        what: &'static str,
        trial: TrialId,
        ops: &[Op],
    ) -> Result<(Applied, Vec<Reading>), FaultError> {
        let failed = |source| error::FaultError::Trial { what, trial, source };
        let committed = self.client.commit(self.clock, ops).map_err(failed)?;
        // A commit counts the generation up by one and skips zero (`nf_tables_commit`). Where a kernel counts
        // otherwise, the next reading merely looks at the rules once more.
        self.generation = self.generation.wrapping_add(1).max(1);
        let applied = Applied { before: committed.before, after: committed.after };
        Ok((applied, committed.deleted))
    }

    /// Whether all rules are those that were installed. Handles are never used twice and rules never change under
    /// one, so equal handles are equal rules.
    fn check_rules(&mut self) -> Result<bool, NftError> {
        let generation = self.client.generation()?;
        if generation != self.generation {
            self.rules_intact &= self.client.rules()? == self.rules;
            self.generation = generation;
        }
        Ok(self.rules_intact)
    }
}

#[cfg(test)]
mod tests {
    use super::FaultTable;

    #[test]
    fn the_table_can_be_sent_to_a_real_time_thread() {
        fn sendable<T: Send>() {}
        sendable::<FaultTable>();
    }
}

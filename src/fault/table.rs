//! The table of a run, by whichever firewall.

use super::FaultError;
use super::apply::{Applied, FaultTable, TrialReading};
use super::iptables::IptablesTable;
use super::render::Cut;
use crate::events::TrialId;
use crate::scenario::Directions;
use std::collections::HashSet;

/// Where the cuts are made and counted.
#[derive(Debug)]
pub enum Table {
    /// By nftables: all that a cut can be.
    Nftables(FaultTable),
    /// By iptables.
    Iptables(IptablesTable),
}

impl Table {
    /// As [`FaultTable::cut`].
    ///
    /// # Errors
    /// As there.
    pub fn cut(&mut self, cut: Cut) -> Result<Applied, FaultError> {
        match self {
            Self::Nftables(table) => table.cut(cut),
            Self::Iptables(table) => table.cut(&cut),
        }
    }

    /// Several cuts as if each came alone: one commit each with nftables, one for all of them with iptables, whose tools are
    /// programs.
    ///
    /// # Errors
    /// The first one; with iptables nothing is in force then.
    pub fn cut_all(&mut self, cuts: &[Cut]) -> Result<(), FaultError> {
        match self {
            Self::Nftables(table) => cuts.iter().try_for_each(|cut| table.cut(*cut).map(drop)),
            Self::Iptables(table) => table.cut_all(cuts).map(drop),
        }
    }

    /// As [`FaultTable::widen`].
    ///
    /// # Errors
    /// As there.
    pub fn widen(&mut self, trial: TrialId, drop: Directions) -> Result<Applied, FaultError> {
        match self {
            Self::Nftables(table) => table.widen(trial, drop),
            Self::Iptables(table) => table.widen(trial, drop),
        }
    }

    /// As [`FaultTable::heal`].
    ///
    /// # Errors
    /// As there.
    pub fn heal(&mut self, trial: TrialId) -> Result<Applied, FaultError> {
        match self {
            Self::Nftables(table) => table.heal(trial),
            Self::Iptables(table) => table.heal(trial),
        }
    }

    /// As [`FaultTable::again`].
    ///
    /// # Errors
    /// As there.
    pub fn again(&mut self, trial: TrialId) -> Result<Applied, FaultError> {
        match self {
            Self::Nftables(table) => table.again(trial),
            Self::Iptables(table) => table.again(trial),
        }
    }

    /// As [`FaultTable::counters_of`].
    ///
    /// # Errors
    /// As there.
    pub fn counters_of(&mut self, trial: TrialId) -> Result<TrialReading, FaultError> {
        match self {
            Self::Nftables(table) => table.counters_of(trial),
            Self::Iptables(table) => table.counters_of(trial),
        }
    }

    /// As [`FaultTable::dropping`].
    ///
    /// # Errors
    /// As there.
    pub fn dropping(&mut self) -> Result<HashSet<TrialId>, FaultError> {
        match self {
            Self::Nftables(table) => table.dropping(),
            Self::Iptables(table) => table.dropping(),
        }
    }

    /// As [`FaultTable::close`]. The rules of iptables go with their namespace.
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<(), FaultError> {
        match self {
            Self::Nftables(table) => table.close(),
            Self::Iptables(_) => Ok(()),
        }
    }
}

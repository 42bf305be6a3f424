//! What can go wrong with a fault.

use crate::events::TrialId;
use crate::host::nft::NftError;
use thiserror::Error;

/// Why a fault could not be put in force, healed or read.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The table could not be created.
    #[error("install the fault table: {0}")]
    Install(#[source] NftError),
    /// The trial already has a cut.
    #[error("trial {0} is cut already")]
    AlreadyCut(TrialId),
    /// The trial has no cut.
    #[error("trial {0} has no cut")]
    NotCut(TrialId),
    /// The trial's fault was healed before.
    #[error("trial {0} is healed already")]
    AlreadyHealed(TrialId),
    /// The kernel refused.
    #[error("{what} trial {trial}: {source}")]
    Trial {
        /// What was tried, as a verb.
        what: &'static str,
        /// The trial.
        trial: TrialId,
        /// Why not.
        source: NftError,
    },
    /// The tools of iptables could not be used.
    #[error("iptables: {0}")]
    Iptables(#[source] std::io::Error),
    /// Something that iptables has no means for.
    #[error("{0} needs nftables; run it without --firewall")]
    OnlyNftables(&'static str),
    /// The counters of all trials could not be read.
    #[error("read the fault counters: {0}")]
    Counters(#[source] NftError),
    /// The table could not be removed; it goes with the socket.
    #[error("remove the fault table: {0}")]
    Close(#[source] NftError),
}

//! `run --firewall iptables`: what can be asked of it, said before anything is made.

use super::args::{FirewallName, LabName, RunArgs};
use super::exit::{Exit, Failure};
use crate::fault::MOST_TRIALS_OF_IPTABLES;
use crate::host::iptables::Kind;
use crate::plan::Plan;
use std::path::Path;

/// The tools that were asked for; `None` is nftables.
pub(super) fn kind(name: FirewallName) -> Option<Kind> {
    match name {
        FirewallName::Nftables => None,
        FirewallName::Iptables => Some(Kind::Iptables),
        FirewallName::IptablesNft => Some(Kind::IptablesNft),
        FirewallName::IptablesLegacy => Some(Kind::IptablesLegacy),
    }
}

/// Refuses what iptables has no means for.
pub(super) fn check(path: &Path, plan: &Plan, args: &RunArgs) -> Result<(), Failure> {
    let Some(kind) = kind(args.firewall) else { return Ok(()) };
    let refuse = |text: String| Err(Failure::new(Exit::Cannot, format!("{}: {text}", path.display())));
    if args.lab != LabName::Netns {
        return refuse(format!(
            "--firewall {kind} runs with --lab netns: the other labs have no router of the run's own"
        ));
    }
    if plan.trials.len() > MOST_TRIALS_OF_IPTABLES {
        let n = plan.trials.len();
        return refuse(format!(
            "{n} trials are too many for {kind}, which looks at the rules of each for every packet; lower --trials until there \
             are {MOST_TRIALS_OF_IPTABLES}, or run it without --firewall"
        ));
    }
    if !kind.is_installed() {
        return Err(Failure::new(Exit::Cannot, format!("{kind} is not installed; {}", Kind::MEND)));
    }
    Ok(())
}

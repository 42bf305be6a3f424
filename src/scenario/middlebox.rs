//! A box between client and broker that keeps an entry for each connection: NAT, or a stateful firewall.

use super::error::Findings;
use super::fault::Fault;
use super::profile::{ProfileError, only_known, sentence};
use super::walk::Fields;
use crate::units::print_duration;
use serde::{Deserialize, Serialize};
use toml_edit::Item;

/// What such a box does once it has forgotten a connection. One run has one such box, and all connections go through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Middlebox {
    /// Whether it translates the client's address too: what comes from the broker is then addressed to the box itself,
    /// which answers what it does not know with a RST.
    pub nat: bool,
    /// Whether it takes up a connection in the middle that it does not know (`nf_conntrack_tcp_loose`).
    pub loose: bool,
    /// Whether it answers what it does not know with a RST to the client, and does not drop it in silence.
    pub resets: bool,
}

impl Middlebox {
    /// Whether the client must not be told: no RST, FIN or ICMP.
    #[must_use]
    pub fn silent(self) -> bool {
        !self.loose && !self.resets
    }
}

/// Reads the table of a profile.
///
/// # Errors
/// [`ProfileError`] names the key.
pub(super) fn parse(item: Option<&Item>) -> Result<Option<Middlebox>, ProfileError> {
    let Some(item) = item else { return Ok(None) };
    let missing = |key, expected| ProfileError::Missing { key, expected };
    let table = item.as_table_like().ok_or_else(|| missing("middlebox", "a table"))?;
    only_known(table, "middlebox.", &["nat", "tracking", "answer"])?;
    let nat = table.get("nat").and_then(Item::as_bool).ok_or_else(|| missing("middlebox.nat", "true or false"))?;
    let one_of = |key, shown, expected, words: [&str; 2]| {
        let text = sentence(table, key, shown)?;
        words.iter().position(|word| *word == text).ok_or_else(|| missing(shown, expected))
    };
    let loose = one_of("tracking", "middlebox.tracking", "`strict` or `loose`", ["strict", "loose"])? == 1;
    let resets = one_of("answer", "middlebox.answer", "`drop` or `reset`", ["drop", "reset"])? == 1;
    Ok(Some(Middlebox { nat, loose, resets }))
}

/// What an idle timeout leaves no room for, and what needs a middlebox.
pub(super) fn check(fields: &Fields, fault: &Fault, findings: &mut Findings) {
    let place = |key: &str| fields.get(key).map_or(fields.at, |found| found.key_at);
    if fault.middlebox.is_none() {
        if fields.has("idle") {
            let problem =
                format!("`{}` is about no box that could forget an idle connection; remove it", fault.profile);
            findings.error(place("idle"), fields.name("idle"), problem);
        }
        return;
    }
    if fields.has("scope") {
        let problem = "a middlebox forgets single connections, and a new one passes; remove it";
        findings.error(place("scope"), fields.name("scope"), problem);
    }
    let Some(idle) = fault.idle else { return };
    if idle.subsec_nanos() != 0 {
        findings.error(place("idle"), fields.name("idle"), "connection tracking counts whole seconds; write `7s`");
    }
    for key in ["at", "phase_window"] {
        if fields.has(key) {
            let problem = format!(
                "the fault comes when a connection was silent for {}, and nothing else decides when; remove it",
                print_duration(idle)
            );
            findings.error(place(key), fields.name(key), problem);
        }
    }
}

/// One run has one middlebox: its tracking and its timeout are the router's, not a connection's.
pub(super) fn one_for_all(faults: &[(&Fields, &Fault)], findings: &mut Findings) {
    let Some((_, first)) = faults.iter().find(|(_, fault)| fault.middlebox.is_some()) else { return };
    for (fields, fault) in faults {
        if (fault.middlebox, fault.idle) != (first.middlebox, first.idle) {
            let problem = format!(
                "all connections of a run go through one middlebox, and that of `{}` does something else to them; run it in \
                 a scenario of its own",
                first.name()
            );
            findings.error(fields.at("profile"), fields.name("profile"), problem);
        }
    }
}

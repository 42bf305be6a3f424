//! Whether the router vouches for a fault that is a middlebox' forgetting. Pure.
//!
//! That the entry is gone is looked at in the act's proof; here the packets are. What makes it valid depends on the box:
//! one that drops says nothing to the client and lets nothing pass; one that answers has sent a RST as soon as the client
//! spoke; one that tracks loosely drops nothing at all.

use super::VoidReason;
use crate::events::Counters;
use crate::scenario::Middlebox;

/// Why the certificate voids the trial, if it does. The most telling reason first.
pub(super) fn objection(c: &Counters, intact: bool, middlebox: Middlebox) -> Option<VoidReason> {
    let Middlebox { nat, loose, resets } = middlebox;
    let silent = middlebox.silent();
    let answered = c.offered_to_broker == 0 || c.rst_to_client > 0;
    // What a NAT itself tells the broker is a RST, and leaves the router as what passes does.
    let through = c.passed_to_broker > c.rst_to_broker;
    let lost = c.offered_to_broker > c.dropped_to_broker || (!nat && c.offered_to_client > c.dropped_to_client);
    // A NAT that tracks strictly tells a broker that speaks; nobody else does.
    let told = !nat || loose || c.offered_to_client == 0 || c.rst_to_broker > 0;
    let untold = || VoidReason::ActNotInForce("the broker spoke, and the NAT sent it no RST".to_string());
    let unanswered = || VoidReason::ActNotInForce("the client spoke, and the middlebox sent it no RST".to_string());
    let checks = [
        (!intact, VoidReason::RulesNotIntact),
        (c.icmp_to_client > 0, VoidReason::IcmpReachedClient),
        (silent && c.rst_to_client > 0, VoidReason::RstReachedClient),
        (!loose && c.fin_to_client > 0, VoidReason::FinReachedClient),
        (!loose && through, VoidReason::PassedToBroker),
        (!loose && c.passed_to_client > c.rst_to_client, VoidReason::PassedToClient),
        (resets && !answered, unanswered()),
        (!told, untold()),
        (loose && c.dropped_to_broker + c.dropped_to_client > 0, VoidReason::DroppedOutsideFault),
        (silent && lost, VoidReason::LostOtherwise),
    ];
    checks.into_iter().find_map(|(objects, reason)| objects.then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Middlebox = Middlebox { nat: true, loose: false, resets: false };
    const RESETS: Middlebox = Middlebox { resets: true, ..SILENT };
    const LOOSE: Middlebox = Middlebox { loose: true, ..SILENT };
    const FIREWALL: Middlebox = Middlebox { nat: false, ..SILENT };

    #[test]
    fn each_box_has_evidence_of_its_own() {
        let dropped = Counters { offered_to_broker: 3, dropped_to_broker: 3, ..Counters::default() };
        assert_eq!(objection(&dropped, true, SILENT), None);
        assert_eq!(objection(&dropped, true, FIREWALL), None);
        assert_eq!(objection(&dropped, false, SILENT), Some(VoidReason::RulesNotIntact));
        // It spoke, and nobody answered.
        assert!(matches!(objection(&dropped, true, RESETS), Some(VoidReason::ActNotInForce(_))));
        let answered = Counters { rst_to_client: 1, passed_to_client: 1, ..dropped };
        assert_eq!(objection(&answered, true, RESETS), None);
        assert_eq!(objection(&answered, true, SILENT), Some(VoidReason::RstReachedClient));
        let lives = Counters { offered_to_broker: 3, passed_to_broker: 3, passed_to_client: 3, ..Counters::default() };
        assert_eq!(objection(&lives, true, LOOSE), None);
        assert_eq!(objection(&lives, true, SILENT), Some(VoidReason::PassedToBroker));
        assert_eq!(objection(&dropped, true, LOOSE), Some(VoidReason::DroppedOutsideFault));
    }

    #[test]
    fn what_a_nat_tells_the_broker_has_not_passed() {
        let told = Counters { offered_to_client: 2, passed_to_broker: 2, rst_to_broker: 2, ..Counters::default() };
        assert_eq!(objection(&told, true, SILENT), None);
        let untold = Counters { offered_to_client: 2, dropped_to_client: 2, ..Counters::default() };
        assert!(matches!(objection(&untold, true, SILENT), Some(VoidReason::ActNotInForce(_))));
        assert_eq!(objection(&untold, true, FIREWALL), None);
        // A firewall has no address of its own that a packet could be for.
        assert_eq!(objection(&told, true, FIREWALL), Some(VoidReason::LostOtherwise));
    }
}

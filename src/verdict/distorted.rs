//! Whether the router vouches for a distorted cut. Pure.
//!
//! It can't vouch for a half-open connection, since there is none. What it says of a cut on the subject's own side is that
//! nothing of the subject came as far as the router and nothing reached it; of one that answers, that nothing passed but the
//! answers, and that there was one as soon as the subject spoke.

use super::VoidReason;
use crate::events::Counters;
use crate::scenario::Injection;

/// Why the certificate voids the trial, if it does. The most telling reason first.
pub(super) fn objection(c: &Counters, intact: bool, injection: Injection) -> Option<VoidReason> {
    let not = |why: String| VoidReason::ActNotInForce(why);
    let came_through = || not(format!("{} packets of the subject came as far as the router", c.offered_to_broker));
    let unanswered = |what: &str| not(format!("the subject spoke, and nobody answered with {what}"));
    let (resets, icmp) = (injection == Injection::RejectReset, injection == Injection::RejectIcmp);
    let spoke = c.dropped_to_broker > 0;
    let checks = [
        (!intact, VoidReason::RulesNotIntact),
        (injection.is_local() && c.offered_to_broker > 0, came_through()),
        (!icmp && c.icmp_to_client > 0, VoidReason::IcmpReachedClient),
        (!resets && c.rst_to_client > 0, VoidReason::RstReachedClient),
        (c.fin_to_client > 0, VoidReason::FinReachedClient),
        // An answer leaves the router as what passes does.
        (c.passed_to_broker > c.rst_to_broker, VoidReason::PassedToBroker),
        (c.passed_to_client > c.rst_to_client, VoidReason::PassedToClient),
        (resets && spoke && c.rst_to_client == 0, unanswered("a RST")),
        (icmp && spoke && c.icmp_to_client == 0, unanswered("ICMP")),
        (!injection.rejects() && c.lost_to_broker() + c.lost_to_client() > 0, VoidReason::LostOtherwise),
    ];
    checks.into_iter().find_map(|(objects, reason)| objects.then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_cut_lets_nothing_reach_the_router() {
        let silent = Counters { offered_to_client: 2, dropped_to_client: 2, ..Counters::default() };
        let judged = |c: &Counters| objection(c, true, Injection::ClientOutput);
        assert_eq!(judged(&silent), None);
        assert_eq!(objection(&silent, false, Injection::ClientOutput), Some(VoidReason::RulesNotIntact));
        let through = Counters { offered_to_broker: 1, dropped_to_broker: 1, ..silent };
        assert!(matches!(judged(&through), Some(VoidReason::ActNotInForce(_))));
        assert_eq!(
            judged(&Counters { rst_to_client: 1, passed_to_client: 1, ..silent }),
            Some(VoidReason::RstReachedClient)
        );
    }

    #[test]
    fn an_answer_has_to_come_and_be_the_right_one() {
        let spoke = Counters { offered_to_broker: 3, dropped_to_broker: 3, ..Counters::default() };
        let told = Counters { icmp_to_client: 1, ..spoke };
        let reset = Counters { rst_to_client: 3, passed_to_client: 3, ..spoke };
        assert_eq!(objection(&told, true, Injection::RejectIcmp), None);
        assert_eq!(objection(&reset, true, Injection::RejectReset), None);
        assert_eq!(objection(&told, true, Injection::RejectReset), Some(VoidReason::IcmpReachedClient));
        assert_eq!(objection(&reset, true, Injection::RejectIcmp), Some(VoidReason::RstReachedClient));
        for injection in [Injection::RejectIcmp, Injection::RejectReset] {
            assert!(matches!(objection(&spoke, true, injection), Some(VoidReason::ActNotInForce(_))));
            assert_eq!(objection(&Counters::default(), true, injection), None, "unexercised");
        }
    }
}

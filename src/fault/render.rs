//! What a cut becomes: elements, batches, and the text that `nft` prints for them. Pure.

use super::layout::Layout;
use super::rules::{
    DROPPED_FLOW, DROPPED_FROM, DROPPED_PAIR, DROPPED_TO, FIN_FLOW, FIN_PAIR, FIN_TO, ICMP_CLIENT, OFFERED_FLOW,
    OFFERED_FROM, OFFERED_PAIR, OFFERED_TO, PASSED_FLOW, PASSED_FROM, PASSED_PAIR, PASSED_TO, REFUSED_FLOW, RESET_FLOW,
    RST_BROKER, RST_FLOW, RST_PAIR, RST_TO, TABLE, UNREACHABLE_FLOW,
};
use crate::events::{Counters, TrialId, Tuple};
use crate::host::nft::{Element, Family, Key, Op, Set, print_table};
use crate::scenario::{Directions, Injection, Scope};
use std::net::SocketAddrV4;
use std::time::Duration;

/// One cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The trial that it belongs to.
    pub trial: TrialId,
    /// The connection, as its client sees it. The scope `pair` takes its two addresses alone, `host` the client's.
    pub tuple: Tuple,
    /// What of the client is cut.
    pub scope: Scope,
    /// Which packets are dropped; none for a control, which is counted all the same.
    pub drop: Directions,
    /// How; one that is local to the client is dropped here, too.
    pub injection: Injection,
    /// After this time the kernel heals the cut by itself; `None` leaves it until it is healed.
    pub lease: Option<Duration>,
}

/// What an element counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Offered, client to broker.
    OfferedToBroker,
    /// Offered, broker to client.
    OfferedToClient,
    /// Dropped, client to broker.
    DroppedToBroker,
    /// Dropped, broker to client.
    DroppedToClient,
    /// Passed, client to broker.
    PassedToBroker,
    /// Passed, broker to client.
    PassedToClient,
    /// RST passed to the client.
    RstToClient,
    /// FIN passed to the client.
    FinToClient,
    /// ICMP passed to the client.
    IcmpToClient,
    /// Refused by a middlebox, client to broker.
    RefusedToBroker,
    /// Refused by a middlebox, broker to client.
    RefusedToClient,
    /// RST that a middlebox itself sent to the broker, or let pass.
    RstToBroker,
}

impl Counted {
    /// Whether the element drops what it counts.
    #[must_use]
    pub fn drops(self) -> bool {
        matches!(self, Self::DroppedToBroker | Self::DroppedToClient)
    }

    /// Adds a count at its place: a fault's own drops and a middlebox's are one number.
    pub fn write(self, counters: &mut Counters, packets: u64) {
        let place = match self {
            Self::OfferedToBroker => &mut counters.offered_to_broker,
            Self::OfferedToClient => &mut counters.offered_to_client,
            Self::DroppedToBroker | Self::RefusedToBroker => &mut counters.dropped_to_broker,
            Self::DroppedToClient | Self::RefusedToClient => &mut counters.dropped_to_client,
            Self::PassedToBroker => &mut counters.passed_to_broker,
            Self::PassedToClient => &mut counters.passed_to_client,
            Self::RstToClient => &mut counters.rst_to_client,
            Self::FinToClient => &mut counters.fin_to_client,
            Self::IcmpToClient => &mut counters.icmp_to_client,
            Self::RstToBroker => &mut counters.rst_to_broker,
        };
        *place += packets;
    }
}

/// An element and what it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The element.
    pub element: Element,
    /// What it counts.
    pub counts: Counted,
}

/// The elements of a cut: those that drop come first, so that they are the first of the batch.
#[must_use]
pub fn placed(layout: Layout, cut: &Cut) -> Vec<Placed> {
    // The sets of one scope, for each way.
    let both = |set: &'static Set| (set, set);
    let of = |flow: &'static Set, pair: &'static Set, from: &'static Set, to: &'static Set| match cut.scope {
        Scope::Flow => both(flow),
        Scope::Pair => both(pair),
        Scope::Host => (from, to),
    };
    let (client, broker) = (cut.tuple.local, cut.tuple.peer);
    // As a packet is before it is translated back, and after it was translated.
    let outside = layout.outside(client);
    let place = |set: &'static Set, source: SocketAddrV4, destination: SocketAddrV4, counts| Placed {
        element: Element { set, key: Key::of(set.fields, source, destination) },
        counts,
    };
    let dropped = match cut.injection {
        Injection::RejectIcmp => both(&UNREACHABLE_FLOW),
        Injection::RejectReset => both(&RESET_FLOW),
        _ => of(&DROPPED_FLOW, &DROPPED_PAIR, &DROPPED_FROM, &DROPPED_TO),
    };
    let offered = of(&OFFERED_FLOW, &OFFERED_PAIR, &OFFERED_FROM, &OFFERED_TO);
    let passed = of(&PASSED_FLOW, &PASSED_PAIR, &PASSED_FROM, &PASSED_TO);
    let (_, rst) = of(&RST_FLOW, &RST_PAIR, &RST_TO, &RST_TO);
    let (_, fin) = of(&FIN_FLOW, &FIN_PAIR, &FIN_TO, &FIN_TO);
    let mut all = Vec::with_capacity(9);
    if cut.drop.to_broker {
        all.push(place(dropped.0, client, broker, Counted::DroppedToBroker));
    }
    if cut.drop.to_client {
        all.push(place(dropped.1, broker, client, Counted::DroppedToClient));
    }
    all.push(place(offered.0, client, broker, Counted::OfferedToBroker));
    all.push(place(offered.1, broker, outside, Counted::OfferedToClient));
    all.push(place(passed.0, outside, broker, Counted::PassedToBroker));
    all.push(place(passed.1, broker, client, Counted::PassedToClient));
    all.push(place(rst, broker, client, Counted::RstToClient));
    all.push(place(fin, broker, client, Counted::FinToClient));
    all.push(place(&ICMP_CLIENT, broker, client, Counted::IcmpToClient));
    if layout.has(&REFUSED_FLOW) {
        all.push(place(&REFUSED_FLOW, client, broker, Counted::RefusedToBroker));
        all.push(place(&REFUSED_FLOW, broker, client, Counted::RefusedToClient));
    }
    if layout.has(&RST_BROKER) {
        all.push(place(&RST_BROKER, outside, broker, Counted::RstToBroker));
    }
    all
}

/// The batch that puts a cut in force.
#[must_use]
pub fn cut_ops(layout: Layout, cut: &Cut) -> Vec<Op> {
    placed(layout, cut).into_iter().map(|p| add(cut, &p)).collect()
}

/// The batch that puts a healed cut in force again; empty for a control.
#[must_use]
pub fn again_ops(layout: Layout, cut: &Cut) -> Vec<Op> {
    placed(layout, cut).into_iter().filter(|p| p.counts.drops()).map(|p| add(cut, &p)).collect()
}

pub(super) fn add(cut: &Cut, placed: &Placed) -> Op {
    match cut.lease.filter(|_| placed.counts.drops()) {
        Some(lease) => Op::AddLease(placed.element, lease),
        None => Op::AddElement(placed.element),
    }
}

/// The batch that takes the dropping back and goes on counting; empty for a control.
#[must_use]
pub fn heal_ops(layout: Layout, cut: &Cut) -> Vec<Op> {
    placed(layout, cut).into_iter().filter(|p| p.counts.drops()).map(|p| Op::DeleteElement(p.element)).collect()
}

/// The whole table with this one cut, as `nft list ruleset` prints it.
#[must_use]
pub fn render_text(layout: Layout, cut: &Cut) -> String {
    let sets = sets(layout, cut);
    print_table(Family::Ip, TABLE, &sets, &layout.chains(), &layout.rules())
}

/// The same at the bridge of a docker network, whose run's frames have hardware addresses that begin with these four bytes.
#[must_use]
pub fn render_bridge(layout: Layout, cut: &Cut, to: [u8; 4]) -> String {
    let sets = sets(layout, cut);
    print_table(Family::Bridge { to: Some(to) }, TABLE, &sets, &layout.chains(), &layout.rules())
}

fn sets(layout: Layout, cut: &Cut) -> Vec<(&'static Set, Vec<Key>)> {
    let placed = placed(layout, cut);
    let keys =
        |set: &'static Set| placed.iter().filter(|p| p.element.set == set).map(|p| p.element.key).collect::<Vec<_>>();
    layout.sets().into_iter().map(|set| (set, keys(set))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::profile;
    use std::net::Ipv4Addr;

    const PLAIN: Layout = Layout { middlebox: None, hosts: false, answers: false };

    fn example(drop: Directions, scope: Scope) -> Cut {
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 64, 128, 1), 40000);
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 128, 128, 1), 5672);
        Cut { trial: 0, tuple: Tuple { local, peer }, scope, drop, injection: Injection::Router, lease: None }
    }

    /// The files are what a reader of `netem/` looks at. `HALFOPEN_WRITE_GOLDEN=1` writes them anew, to be read in the
    /// diff before they are committed.
    #[test]
    fn every_profile_renders_to_its_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        for name in profile::names() {
            let profile = profile::builtin(name).expect("a built-in profile");
            let plain = Layout { middlebox: profile.middlebox, ..PLAIN };
            let of = |scope: Scope| {
                let layout = Layout { hosts: scope == Scope::Host, ..plain };
                format!("# scope = \"{}\"\n{}", scope.name(), render_text(layout, &example(profile.drop, scope)))
            };
            let all = match profile.middlebox {
                Some(_) => render_text(plain, &example(profile.drop, Scope::Flow)),
                None => Scope::ALL.map(of).join("\n"),
            };
            is_golden(&folder.join(format!("{name}.nft")), &all);
        }
    }

    fn is_golden(file: &std::path::Path, text: &str) {
        if std::env::var_os("HALFOPEN_WRITE_GOLDEN").is_some() {
            std::fs::write(file, text).expect("the golden text");
        }
        let golden = std::fs::read_to_string(file).expect("the golden text");
        assert!(text == golden, "{} should be\n{text}", file.display());
    }

    /// What a docker network's bridge gets. `tests/lab/fault.rs` holds the text to what `nft` prints.
    #[test]
    fn the_bridge_renders_to_its_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        let of = |scope: Scope| {
            let layout = Layout { hosts: scope == Scope::Host, ..PLAIN };
            format!("# scope = \"{}\"\n{}", scope.name(), render_bridge(layout, &example(BOTH, scope), [0x06, 1, 2, 3]))
        };
        is_golden(&folder.join("docker-bridge.nft"), &Scope::ALL.map(of).join("\n"));
    }

    #[test]
    fn every_answer_renders_to_its_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        let layout = Layout { answers: true, ..PLAIN };
        for injection in [Injection::RejectIcmp, Injection::RejectReset] {
            let cut = Cut { injection, ..example(BOTH, Scope::Flow) };
            is_golden(&folder.join(format!("{injection}.nft")), &render_text(layout, &cut));
        }
    }

    const BOTH: Directions = Directions { to_broker: true, to_client: true };

    #[test]
    fn a_control_counts_everything_and_drops_nothing() {
        let control = example(Directions { to_broker: false, to_client: false }, Scope::Flow);
        assert_eq!(placed(PLAIN, &control).len(), 7);
        assert!(placed(PLAIN, &control).iter().all(|p| !p.counts.drops()));
        assert!(heal_ops(PLAIN, &control).is_empty());
    }

    #[test]
    fn dropping_comes_first_and_healing_removes_only_that() {
        let cut = example(BOTH, Scope::Pair);
        let placed = placed(PLAIN, &cut);
        assert_eq!(placed.len(), 9);
        assert!(placed[..2].iter().all(|p| p.counts.drops()) && placed[2..].iter().all(|p| !p.counts.drops()));
        let expected: Vec<_> = placed[..2].iter().map(|p| Op::DeleteElement(p.element)).collect();
        assert_eq!(heal_ops(PLAIN, &cut), expected);
    }

    #[test]
    fn each_count_has_a_place_of_its_own() {
        let cut = example(BOTH, Scope::Flow);
        let mut counters = Counters::default();
        for (packets, placed) in (1..).zip(placed(PLAIN, &cut)) {
            placed.counts.write(&mut counters, packets);
        }
        let expected = Counters {
            dropped_to_broker: 1,
            dropped_to_client: 2,
            offered_to_broker: 3,
            offered_to_client: 4,
            passed_to_broker: 5,
            passed_to_client: 6,
            rst_to_client: 7,
            fin_to_client: 8,
            icmp_to_client: 9,
            rst_to_broker: 0,
        };
        assert_eq!(counters, expected);
    }

    #[test]
    fn operations_name_their_element() {
        let cut = example(Directions { to_broker: true, to_client: false }, Scope::Flow);
        assert_eq!(
            cut_ops(PLAIN, &cut)[0].to_string(),
            "add element dropped_flow { 10.64.128.1 . 40000 . 10.128.128.1 . 5672 }"
        );
        let rule = PLAIN.install_ops().into_iter().find(|op| matches!(op, Op::AddRule(r) if r.statements.len() == 2));
        assert_eq!(
            rule.expect("a rule with a drop").to_string(),
            "add rule cut ip saddr . tcp sport . ip daddr . tcp dport @dropped_flow drop"
        );
    }
}

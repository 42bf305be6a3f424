//! What a cut becomes: elements, batches, and the text that `nft` prints for them. Pure.

use super::layout::Layout;
use super::rules::{
    DROPPED_FLOW, DROPPED_HOST, FIN_FLOW, FIN_HOST, ICMP_CLIENT, OFFERED_FLOW, OFFERED_HOST, PASSED_FLOW, PASSED_HOST,
    REFUSED_FLOW, RST_BROKER, RST_FLOW, RST_HOST, TABLE,
};
use crate::events::{Counters, TrialId, Tuple};
use crate::host::nft::{Element, Key, Op, Set, print_table};
use crate::scenario::{Directions, Scope};
use std::net::SocketAddrV4;
use std::time::Duration;

/// One cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The trial that it belongs to.
    pub trial: TrialId,
    /// The connection, as its client sees it. The scope `host` takes its two addresses alone.
    pub tuple: Tuple,
    /// What of the client is cut.
    pub scope: Scope,
    /// Which packets are dropped; none for a control, which is counted all the same.
    pub drop: Directions,
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
    let flow = cut.scope == Scope::Flow;
    let of = |for_flow: &'static Set, for_host: &'static Set| if flow { for_flow } else { for_host };
    let (client, broker) = (cut.tuple.local, cut.tuple.peer);
    // As a packet is before it is translated back, and after it was translated.
    let outside = layout.outside(client);
    let place = |set: &'static Set, source: SocketAddrV4, destination: SocketAddrV4, counts| Placed {
        element: Element { set, key: Key::of(set.fields, source, destination) },
        counts,
    };
    let dropped = of(&DROPPED_FLOW, &DROPPED_HOST);
    let offered = of(&OFFERED_FLOW, &OFFERED_HOST);
    let passed = of(&PASSED_FLOW, &PASSED_HOST);
    let mut all = Vec::with_capacity(9);
    if cut.drop.to_broker {
        all.push(place(dropped, client, broker, Counted::DroppedToBroker));
    }
    if cut.drop.to_client {
        all.push(place(dropped, broker, client, Counted::DroppedToClient));
    }
    all.push(place(offered, client, broker, Counted::OfferedToBroker));
    all.push(place(offered, broker, outside, Counted::OfferedToClient));
    all.push(place(passed, outside, broker, Counted::PassedToBroker));
    all.push(place(passed, broker, client, Counted::PassedToClient));
    all.push(place(of(&RST_FLOW, &RST_HOST), broker, client, Counted::RstToClient));
    all.push(place(of(&FIN_FLOW, &FIN_HOST), broker, client, Counted::FinToClient));
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

fn add(cut: &Cut, placed: &Placed) -> Op {
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
    let placed = placed(layout, cut);
    let keys =
        |set: &'static Set| placed.iter().filter(|p| p.element.set == set).map(|p| p.element.key).collect::<Vec<_>>();
    let sets: Vec<_> = layout.sets().into_iter().map(|set| (set, keys(set))).collect();
    print_table(TABLE, &sets, &layout.chains(), &layout.rules())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::profile;
    use std::net::Ipv4Addr;

    const PLAIN: Layout = Layout { middlebox: None };

    fn example(drop: Directions, scope: Scope) -> Cut {
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 64, 128, 1), 40000);
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 128, 128, 1), 5672);
        Cut { trial: 0, tuple: Tuple { local, peer }, scope, drop, lease: None }
    }

    /// The files are what a reader of `netem/` looks at. `HALFOPEN_WRITE_GOLDEN=1` writes them anew, to be read in the
    /// diff before they are committed.
    #[test]
    fn every_profile_renders_to_its_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        for name in profile::names() {
            let profile = profile::builtin(name).expect("a built-in profile");
            let (drop, layout) = (profile.drop, Layout { middlebox: profile.middlebox });
            let flow = render_text(layout, &example(drop, Scope::Flow));
            let host = render_text(layout, &example(drop, Scope::Host));
            let both = match profile.middlebox {
                Some(_) => flow,
                None => format!("# scope = \"flow\"\n{flow}\n# scope = \"host\"\n{host}"),
            };
            let file = folder.join(format!("{name}.nft"));
            if std::env::var_os("HALFOPEN_WRITE_GOLDEN").is_some() {
                std::fs::write(&file, &both).expect("the golden text");
            }
            let golden = std::fs::read_to_string(&file).expect("the golden text");
            assert!(both == golden, "{} should be\n{both}", file.display());
        }
    }

    #[test]
    fn a_control_counts_everything_and_drops_nothing() {
        let control = example(Directions { to_broker: false, to_client: false }, Scope::Flow);
        assert_eq!(placed(PLAIN, &control).len(), 7);
        assert!(placed(PLAIN, &control).iter().all(|p| !p.counts.drops()));
        assert!(heal_ops(PLAIN, &control).is_empty());
    }

    #[test]
    fn dropping_comes_first_and_healing_removes_only_that() {
        let cut = example(Directions { to_broker: true, to_client: true }, Scope::Host);
        let placed = placed(PLAIN, &cut);
        assert_eq!(placed.len(), 9);
        assert!(placed[..2].iter().all(|p| p.counts.drops()) && placed[2..].iter().all(|p| !p.counts.drops()));
        let expected: Vec<_> = placed[..2].iter().map(|p| Op::DeleteElement(p.element)).collect();
        assert_eq!(heal_ops(PLAIN, &cut), expected);
    }

    #[test]
    fn each_count_has_a_place_of_its_own() {
        let cut = example(Directions { to_broker: true, to_client: true }, Scope::Flow);
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

//! What a cut becomes with iptables: lines as the tools take and print them. Pure.
//!
//! What is counted is in the table `mangle`, which has the three hooks that a cut needs, so that one trial's rules come in one
//! commit, as the sets' elements do with nftables. A rule without a target only counts. `mangle` sees a packet before its
//! source is translated and before it is translated back, where nftables' table sees it after and before: rules on the way to the broker
//! name the client by its inner address, and by its outer one for what the router says itself. What answers (`REJECT`) may be in
//! the table `filter` alone, which comes behind; what a middlebox refuses is there, too, and its translation in `nat`.

use super::layout::{Layout, NAT_OUTSIDE};
use super::render::{Counted, Cut, placed};
use super::rules::CLIENTS;
use crate::events::Tuple;
use crate::host::recent::USUAL_LENGTH;
use crate::scenario::{Injection, Scope};
use std::net::SocketAddrV4;
use std::time::Duration;

/// The most trials of a run: each packet meets up to nine rules of each.
pub const MOST_TRIALS: usize = 250;

const MANGLE: &str = "mangle";
const FILTER: &str = "filter";
const NAT: &str = "nat";

/// Where each chain of what is counted hangs.
const CHAINS: [(&str, &str); 3] =
    [("PREROUTING", "HALFOPEN-OFFERED"), ("FORWARD", "HALFOPEN-CUT"), ("POSTROUTING", "HALFOPEN-PASSED")];
/// What answers, in `filter`.
const ANSWER: &str = "HALFOPEN-ANSWER";
/// What a middlebox refuses, in `filter`.
const BOX: &str = "HALFOPEN-BOX";
/// What it translates, in `nat`.
const TRANSLATE: &str = "HALFOPEN-NAT";
/// The chain that nothing jumps to: its rules keep the lists of leases alive.
const LEASES: &str = "HALFOPEN-LEASES";

/// How many clients share a list: none may be pushed out by another.
pub(super) const LIST: usize = USUAL_LENGTH / 2;
/// As many lists as the most trials need.
pub(super) const LISTS: usize = MOST_TRIALS.div_ceil(LIST);

const INVALID: &str = " -m conntrack --ctstate INVALID";

/// For how long a cut is in force, on which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub list: usize,
    /// The match counts in whole seconds: never less than was asked for.
    pub seconds: u64,
}

impl Lease {
    pub fn new(list: usize, time: Duration) -> Self {
        Self { list, seconds: time.as_secs() + u64::from(time.subsec_nanos() > 0) }
    }
}

pub(super) fn list_name(list: usize) -> String {
    format!("halfopen-{list}")
}

/// One rule as the tools print it, without its counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Line {
    pub table: &'static str,
    pub text: String,
}

fn in_mangle(text: String) -> Line {
    Line { table: MANGLE, text }
}

/// The rules of a cut with what they count, those that drop first.
pub(super) fn lines(layout: Layout, cut: &Cut, lease: Option<Lease>) -> Vec<(Line, Counted)> {
    let layout = Layout { hosts: cut.scope == Scope::Host, ..layout };
    let counted: Vec<Counted> = placed(layout, cut).into_iter().map(|placed| placed.counts).collect();
    counted
        .into_iter()
        .flat_map(|what| of(layout, cut, lease, what).into_iter().map(move |line| (line, what)))
        .collect()
}

/// The rules of one count: two where a middlebox has two addresses for the client.
fn of(layout: Layout, cut: &Cut, lease: Option<Lease>, counts: Counted) -> Vec<Line> {
    use Counted as C;
    let Tuple { local: client, peer } = cut.tuple;
    let outside = layout.outside(client);
    let clients = match counts {
        // What it forwards is not translated yet, what it says itself is.
        C::PassedToBroker | C::RstToBroker if outside != client => vec![client, outside],
        // Not translated back yet.
        C::OfferedToClient => vec![outside],
        _ => vec![client],
    };
    clients.into_iter().map(|client| line(cut, lease, counts, client, peer)).collect()
}

fn line(cut: &Cut, lease: Option<Lease>, counts: Counted, client: SocketAddrV4, peer: SocketAddrV4) -> Line {
    use Counted as C;
    let (chain, to_broker) = match counts {
        C::OfferedToBroker => (CHAINS[0].1, true),
        C::OfferedToClient => (CHAINS[0].1, false),
        C::DroppedToBroker if cut.injection.rejects() => (ANSWER, true),
        C::DroppedToClient if cut.injection.rejects() => (ANSWER, false),
        C::DroppedToBroker | C::RefusedToBroker => (CHAINS[1].1, true),
        C::DroppedToClient | C::RefusedToClient => (CHAINS[1].1, false),
        C::PassedToBroker | C::RstToBroker => (CHAINS[2].1, true),
        C::PassedToClient | C::RstToClient | C::FinToClient | C::IcmpToClient => (CHAINS[2].1, false),
    };
    let (source, destination) = if to_broker { (client, peer) } else { (peer, client) };
    let icmp = counts == C::IcmpToClient;
    let mut text = format!("-A {chain}");
    let host = cut.scope == Scope::Host;
    if !icmp && (!host || to_broker) {
        text += &format!(" -s {}/32", source.ip());
    }
    if icmp || !host || !to_broker {
        text += &format!(" -d {}/32", destination.ip());
    }
    let flag = match counts {
        C::RstToClient | C::RstToBroker => " --tcp-flags RST RST",
        C::FinToClient => " --tcp-flags FIN FIN",
        _ => "",
    };
    // Which way a refusal of the middlebox or an answer goes is always one connection's.
    let flow = cut.scope == Scope::Flow
        || matches!(counts, C::RefusedToBroker | C::RefusedToClient | C::RstToBroker)
        || chain == ANSWER;
    if icmp {
        text += " -p icmp";
    } else if flow {
        text += &format!(" -p tcp -m tcp --sport {} --dport {}{flag}", source.port(), destination.port());
    } else if !flag.is_empty() {
        text += &format!(" -p tcp -m tcp{flag}");
    }
    if matches!(counts, C::RefusedToBroker | C::RefusedToClient) {
        text += INVALID;
    }
    if !counts.drops() {
        return in_mangle(text);
    }
    if let Some(Lease { list, seconds }) = lease {
        // The client's address, whichever way.
        let side = if to_broker { "--rsource" } else { "--rdest" };
        let name = list_name(list);
        text += &format!(" -m recent --rcheck --seconds {seconds} --name {name} --mask 255.255.255.255 {side}");
    }
    match cut.injection {
        Injection::RejectIcmp => Line { table: FILTER, text: text + " -j REJECT --reject-with icmp-host-unreachable" },
        Injection::RejectReset => Line { table: FILTER, text: text + " -j REJECT --reject-with tcp-reset" },
        _ => in_mangle(text + " -j DROP"),
    }
}

/// The tables that a run has rules in.
pub(super) fn tables(layout: Layout) -> Vec<&'static str> {
    let refuses = layout.middlebox.is_some_and(|middlebox| !middlebox.loose);
    let filter = (refuses || layout.answers).then_some(FILTER);
    [Some(MANGLE), filter, layout.nat().then_some(NAT)].into_iter().flatten().collect()
}

/// The chains of each table.
fn chains(layout: Layout, leases: bool) -> Vec<(&'static str, &'static str)> {
    let strict = layout.middlebox.is_some_and(|middlebox| !middlebox.loose);
    let mut all: Vec<_> = CHAINS.iter().map(|(_, chain)| (MANGLE, *chain)).collect();
    all.extend(leases.then_some((MANGLE, LEASES)));
    all.extend(layout.answers.then_some((FILTER, ANSWER)));
    all.extend(strict.then_some((FILTER, BOX)));
    all.extend(layout.nat().then_some((NAT, TRANSLATE)));
    all
}

/// What hangs the chains where packets pass, with what is in them from the beginning: what a middlebox does, and where cuts
/// are leased what keeps the lists.
pub(super) fn base(layout: Layout, leases: bool) -> Vec<Line> {
    let keeps =
        |list| format!("-A {LEASES} -m recent --rcheck --name {} --mask 255.255.255.255 --rsource", list_name(list));
    let mut all: Vec<Line> = CHAINS.iter().map(|(hook, chain)| in_mangle(format!("-A {hook} -j {chain}"))).collect();
    all.extend((0..LISTS).filter(|_| leases).map(keeps).map(in_mangle));
    let clients = format!("{}/{}", CLIENTS.address, CLIENTS.prefix);
    let filter = |text: String| Line { table: FILTER, text };
    if layout.answers {
        all.push(filter(format!("-A FORWARD -j {ANSWER}")));
    }
    if let Some(middlebox) = layout.middlebox.filter(|middlebox| !middlebox.loose) {
        all.push(filter(format!("-A FORWARD -j {BOX}")));
        all.push(filter(match middlebox.resets {
            true => format!("-A {BOX} -s {clients} -p tcp{INVALID} -j REJECT --reject-with tcp-reset"),
            false => format!("-A {BOX} -s {clients}{INVALID} -j DROP"),
        }));
        all.push(filter(format!("-A {BOX} -d {clients}{INVALID} -j DROP")));
    }
    if layout.nat() {
        let outside = format!("{}/{}", NAT_OUTSIDE.address, NAT_OUTSIDE.prefix);
        all.push(Line { table: NAT, text: format!("-A POSTROUTING -j {TRANSLATE}") });
        all.push(Line { table: NAT, text: format!("-A {TRANSLATE} -s {clients} -j NETMAP --to {outside}") });
    }
    all
}

/// Chains and rules, table by table, as they are handed to `iptables-restore`.
fn text(chains: &[(&'static str, &'static str)], rules: &[Line]) -> String {
    let mut all = String::new();
    for table in [MANGLE, FILTER, NAT] {
        let names = chains.iter().filter(|(of, _)| *of == table).map(|(_, chain)| format!(":{chain} - [0:0]\n"));
        let lines = rules.iter().filter(|line| line.table == table).map(|line| format!("{}\n", line.text));
        let body: String = names.chain(lines).collect();
        if !body.is_empty() {
            all += &format!("*{table}\n{body}COMMIT\n");
        }
    }
    all
}

/// What creates the chains.
pub(super) fn install_text(layout: Layout, leases: bool) -> String {
    text(&chains(layout, leases), &base(layout, leases))
}

/// What puts one cut in force: what counts first, where what drops is in another table.
pub(super) fn cut_text(lines: &[(Line, Counted)]) -> String {
    let lines: Vec<Line> = lines.iter().map(|(line, _)| line.clone()).collect();
    text(&[], &lines)
}

/// All of one cut, as it is handed to `iptables-restore`: for people, and for the test that holds it to its golden text.
#[must_use]
pub fn render_iptables(layout: Layout, cut: &Cut) -> String {
    let lease = cut.lease.map(|time| Lease::new(0, time));
    install_text(layout, lease.is_some()) + &cut_text(&lines(layout, cut, lease))
}

/// The rules of a printed table with their packets.
pub(super) fn parse(table: &'static str, printed: &str) -> Vec<(Line, u64)> {
    let one = |line: &str| {
        let (counts, rule) = line.strip_prefix('[')?.split_once("] ")?;
        let text = rule.trim_end().to_string();
        Some((Line { table, text }, counts.split(':').next()?.parse().ok()?))
    };
    printed.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Directions, profile};
    use std::net::Ipv4Addr;

    fn example(drop: Directions, scope: Scope) -> Cut {
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 64, 128, 1), 40000);
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 128, 128, 1), 5672);
        Cut { trial: 0, tuple: Tuple { local, peer }, scope, drop, injection: Injection::Router, lease: None }
    }

    /// `HALFOPEN_WRITE_GOLDEN=1` writes them anew, to be read in the diff.
    #[test]
    fn the_profiles_that_drop_render_to_their_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        for name in ["blackhole", "to-broker", "to-client", "none"] {
            let drop = profile::builtin(name).expect("a built-in profile").drop;
            let of = |s: Scope| {
                format!("# scope = \"{}\"\n{}", s.name(), render_iptables(Layout::default(), &example(drop, s)))
            };
            let mut all = Scope::ALL.map(of).to_vec();
            if !drop.is_none() {
                let leased = Cut { lease: Some(Duration::from_millis(4_500)), ..example(drop, Scope::Flow) };
                let title = "# scope = \"flow\", duration = \"2500ms\": leased for two seconds more, in whole seconds";
                all.push(format!("{title}\n{}", render_iptables(Layout::default(), &leased)));
            }
            let text = all.join("\n");
            is_golden(&folder.join(format!("{name}.iptables")), &text);
        }
    }

    #[test]
    fn middleboxes_and_cuts_that_answer_render_to_their_golden_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("netem/golden");
        for name in ["nat-expired", "nat-reset", "nat-loose", "firewall-forgets"] {
            let profile = profile::builtin(name).expect("a built-in profile");
            let layout = Layout { middlebox: profile.middlebox, ..Layout::default() };
            let text = render_iptables(layout, &example(profile.drop, Scope::Flow));
            is_golden(&folder.join(format!("{name}.iptables")), &text);
        }
        let both = Directions { to_broker: true, to_client: true };
        for injection in [Injection::RejectIcmp, Injection::RejectReset] {
            let layout = Layout { answers: true, ..Layout::default() };
            let text = render_iptables(layout, &Cut { injection, ..example(both, Scope::Flow) });
            is_golden(&folder.join(format!("{injection}.iptables")), &text);
        }
    }

    fn is_golden(file: &std::path::Path, text: &str) {
        if std::env::var_os("HALFOPEN_WRITE_GOLDEN").is_some() {
            std::fs::write(file, text).expect("the golden text");
        }
        let golden = std::fs::read_to_string(file).expect("the golden text");
        assert!(text == golden, "{} should be\n{text}", file.display());
    }

    #[test]
    fn counts_are_read_as_the_tools_print_them() {
        let printed = "# Generated by iptables-save v1.8.9 (nf_tables)\n*mangle\n:FORWARD ACCEPT [9:9]\n:HALFOPEN-CUT - [0:0]\n\
                       [3:156] -A FORWARD -j HALFOPEN-CUT\n[2:104] -A HALFOPEN-CUT -s 10.0.0.1/32 -j DROP\nCOMMIT\n";
        let found = parse(MANGLE, printed);
        assert_eq!(found[0], (in_mangle("-A FORWARD -j HALFOPEN-CUT".to_string()), 3));
        assert_eq!(found[1], (in_mangle("-A HALFOPEN-CUT -s 10.0.0.1/32 -j DROP".to_string()), 2));
        assert_eq!(found.len(), 2);
    }
}

//! A table as the `nft` tool prints it.
//!
//! Only for people and for the tests that hold the rules to their golden text: nothing that this module prints is
//! ever read by the kernel.

use super::encode::MILLION;
use super::model::{Chain, ChainType, Family, Field, Hook, Key, Network, Rule, Set, Statement, TcpFlag};
use std::cmp::Ordering;
use std::fmt::Write;

/// The order in which `nft` prints the elements of a set.
///
/// A concatenation is compared as one little-endian number (`concat_expr_msort_value` of nftables' `src/mergesort.c`),
/// a single field in network order.
#[must_use]
pub fn printing_order(fields: &[Field], one: &Key, other: &Key) -> Ordering {
    let packed = |key: &Key| -> Vec<u8> {
        let width = |field: &Field| if field.is_address() { 4 } else { 2 };
        fields.iter().zip(key.wire().chunks(4)).flat_map(|(field, slot)| slot[..width(field)].to_vec()).collect()
    };
    let (one, other) = (packed(one), packed(other));
    if fields.len() > 1 { one.iter().rev().cmp(other.iter().rev()) } else { one.cmp(&other) }
}

/// A table as `nft list ruleset` prints it, with the elements of each set (at most one where the key has one field)
/// and all counters at zero. The comment with the owner's name is left out: it is the name of whichever process asks.
#[must_use]
pub fn print_table(
    family: Family,
    name: &str,
    sets: &[(&'static Set, Vec<Key>)],
    chains: &[&'static Chain],
    rules: &[&'static Rule],
) -> String {
    let (kind_of, frames) = match family {
        Family::Ip => ("ip", String::new()),
        Family::Netdev => ("netdev", String::new()),
        Family::Bridge { to: None } => ("bridge", String::new()),
        // The rest of the address is not compared, and printed as zero.
        Family::Bridge { to: Some([a, b, c, d]) } => {
            ("bridge", format!("ether daddr {a:02x}:{b:02x}:{c:02x}:{d:02x}:00:00/32 "))
        }
    };
    let mut text = format!("table {kind_of} {name} {{\n\tflags owner\n");
    for (set, keys) in sets {
        let types = set.fields.iter().map(|f| if f.is_address() { "ipv4_addr" } else { "inet_service" });
        let types: Vec<_> = types.collect();
        // Writing to a String can't fail.
        let flags = if set.leases { "\t\tflags timeout\n" } else { "" };
        let _ = write!(text, "\n\tset {} {{\n\t\ttype {}\n{flags}\t\tcounter\n", set.name, types.join(" . "));
        let mut keys = keys.clone();
        keys.sort_by(|one, other| printing_order(set.fields, one, other));
        let elements: Vec<_> =
            keys.iter().map(|k| format!("{} counter packets 0 bytes 0", k.texts(set.fields).join(" . "))).collect();
        if !elements.is_empty() {
            let _ = writeln!(text, "\t\telements = {{ {} }}", elements.join(",\n\t\t\t     "));
        }
        text.push_str("\t}\n");
    }
    for chain in chains {
        let _ = write!(
            text,
            "\n\tchain {} {{\n\t\ttype {} hook {} priority {}; policy accept;\n",
            chain.name,
            kind(chain.kind),
            hook(chain.hook),
            priority(family, chain)
        );
        for rule in rules.iter().filter(|rule| rule.chain == *chain) {
            let _ = writeln!(text, "\t\t{frames}{}", print_statements(rule.statements));
        }
        text.push_str("\t}\n");
    }
    text.push_str("}\n");
    text
}

/// The statements of a rule, without its chain.
pub(super) fn print_statements(statements: &[Statement]) -> String {
    let print = |statement: &Statement| match statement {
        Statement::TcpFlag(TcpFlag::Fin) => "tcp flags fin".to_string(),
        Statement::TcpFlag(TcpFlag::Rst) => "tcp flags rst".to_string(),
        Statement::Icmp => "ip protocol icmp".to_string(),
        Statement::Lookup(set) => {
            let fields: Vec<_> = set.fields.iter().copied().map(field).collect();
            format!("{} @{}", fields.join(" . "), set.name)
        }
        Statement::From(network) => format!("ip saddr {}", net(*network)),
        Statement::To(network) => format!("ip daddr {}", net(*network)),
        Statement::Invalid => "ct state invalid".to_string(),
        Statement::Chance(millionths) => format!("numgen random mod {MILLION} < {millionths}"),
        Statement::Drop => "drop".to_string(),
        Statement::Reset => "reject with tcp reset".to_string(),
        Statement::Unreachable => "reject with icmp host-unreachable".to_string(),
        Statement::MapSource(network) => format!("snat prefix to {}", net(*network)),
    };
    statements.iter().map(print).collect::<Vec<_>>().join(" ")
}

fn net(network: Network) -> String {
    format!("{}/{}", network.address, network.prefix)
}

fn kind(kind: ChainType) -> &'static str {
    match kind {
        ChainType::Filter => "filter",
        ChainType::Nat => "nat",
    }
}

fn field(field: Field) -> &'static str {
    match field {
        Field::SourceAddress => "ip saddr",
        Field::SourcePort => "tcp sport",
        Field::DestinationAddress => "ip daddr",
        Field::DestinationPort => "tcp dport",
    }
}

fn hook(hook: Hook) -> String {
    match hook {
        Hook::Prerouting => "prerouting".to_string(),
        Hook::Forward => "forward".to_string(),
        Hook::Postrouting => "postrouting".to_string(),
        Hook::Output => "output".to_string(),
        Hook::Egress(device) => format!("egress device \"{device}\""),
    }
}

fn priority(family: Family, chain: &Chain) -> String {
    // A bridge has names of its own, each for one hook (`bridge_std_prios` of nftables' `src/rule.c`).
    let bridge = matches!(family, Family::Bridge { .. });
    match chain.priority {
        -300 if bridge && chain.hook == Hook::Prerouting => "dstnat".to_string(),
        300 if bridge && chain.hook == Hook::Postrouting => "srcnat".to_string(),
        other if bridge => other.to_string(),
        -300 => "raw".to_string(),
        0 => "filter".to_string(),
        100 => "srcnat".to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn a_concatenation_is_ordered_from_its_last_byte() {
        const PAIR: &[Field] = &[Field::SourceAddress, Field::DestinationAddress];
        let at = |last: u8| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 1);
        let one_to_two = Key::of(PAIR, at(1), at(2));
        let two_to_one = Key::of(PAIR, at(2), at(1));
        assert_eq!(printing_order(PAIR, &two_to_one, &one_to_two), Ordering::Less);
        const ONE: &[Field] = &[Field::DestinationAddress];
        let near = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 1);
        let far = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 1);
        assert_eq!(printing_order(ONE, &Key::of(ONE, far, near), &Key::of(ONE, near, far)), Ordering::Less);
    }

    #[test]
    fn keys_print_their_fields() {
        const FLOW: &[Field] =
            &[Field::SourceAddress, Field::SourcePort, Field::DestinationAddress, Field::DestinationPort];
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 64, 128, 1), 40000);
        let destination = SocketAddrV4::new(Ipv4Addr::new(10, 128, 128, 1), 7000);
        let key = Key::of(FLOW, source, destination);
        assert_eq!(key.texts(FLOW).join(" . "), "10.64.128.1 . 40000 . 10.128.128.1 . 7000");
        assert_eq!(key.wire().len(), 16);
        assert_eq!(Key::from_wire(key.wire()), Some(key));
        assert_eq!(Key::from_wire(&[0; 17]), None);
    }
}

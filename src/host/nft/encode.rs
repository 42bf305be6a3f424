//! Operations as netlink messages.
//!
//! Register use and hidden dependencies (`meta l4proto tcp` before a TCP field) are those that the `nft` tool itself
//! generates (`nft --debug=netlink`), so that it prints the rules back as they were meant.

use super::model::{Chain, ChainType, Element, Family, Field, Hook as At, Network, Op, Rule, Set, Statement};
use netlink_packet_core::{DefaultNla, NetlinkMessage};
use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REQUEST};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions, GenMessage, Hook,
    Immediate, InetHookNumber, ListAttribute, Lookup, Meta, MetaKey, NfTablesMessage, Operator, Payload, Register,
    RuleAttribute, RuleMessage, SetAttribute, SetElementAttribute, SetElementList, SetElementMessage, SetFlags,
    SetMessage, TableAttribute, TableFlags, TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use std::time::Duration;

const SUBSYSTEM_NFTABLES: u16 = 10;
const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// `ETH_P_IP`, as it stands in a frame.
const ETHERNET_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
/// `NFT_CT_STATE`, and the bit of `NF_CT_STATE_INVALID_BIT`.
const CT_STATE: u32 = 0;
const CT_INVALID: u32 = 1;
/// `NFT_NG_RANDOM`; random numbers are drawn below a million.
const RANDOM: u32 = 1;
pub(super) const MILLION: u32 = 1_000_000;
/// `NFT_REJECT_TCP_RST`.
const TCP_RESET: u32 = 1;
/// `NFT_REJECT_ICMP_UNREACH`, and `ICMP_HOST_UNREACH`.
const ICMP_UNREACHABLE: u32 = 0;
const HOST_UNREACHABLE: u8 = 1;
/// `NF_NETDEV_EGRESS`.
const DEVICE_EGRESS: u32 = 1;
/// `NFT_NAT_SNAT`, `NFPROTO_IPV4`, `NF_NAT_RANGE_NETMAP`.
const SOURCE_NAT: u32 = 0;
const FAMILY_IPV4: u32 = 2;
const ONE_FOR_ONE: u32 = 1 << 6;

/// A whole batch: begin, the operations, end. The operation at index i gets the sequence number `first + 1 + i`, and
/// the last one asks for an acknowledgement, which the kernel sends after the commit.
pub(super) fn batch(buffer: &mut Vec<u8>, family: Family, table: &str, ops: &[Op], first: u32) {
    buffer.clear();
    control(buffer, ControlMessage::BatchBegin, first);
    let mut sequence = first;
    for (index, op) in ops.iter().enumerate() {
        sequence = sequence.wrapping_add(1);
        let (message, mut flags) = operation(family, table, op);
        if index + 1 == ops.len() {
            flags |= NLM_F_ACK;
        }
        push(buffer, header(family), message, flags, sequence);
    }
    control(buffer, ControlMessage::BatchEnd, sequence.wrapping_add(1));
}

fn operation(family: Family, table: &str, op: &Op) -> (NfTablesMessage, u16) {
    let create = NLM_F_CREATE | NLM_F_EXCL;
    match op {
        Op::AddTable => {
            let attributes = vec![TableAttribute::Name(table.into()), TableAttribute::Flags(TableFlags::Owner)];
            (NfTablesMessage::NewTable(TableMessage { attributes }), create)
        }
        Op::DeleteTable => {
            let attributes = vec![TableAttribute::Name(table.into())];
            (NfTablesMessage::DeleteTable(TableMessage { attributes }), 0)
        }
        Op::AddSet(set) => (NfTablesMessage::NewSet(new_set(table, set)), create),
        Op::AddChain(chain) => (NfTablesMessage::NewChain(new_chain(table, chain)), create),
        Op::AddRule(rule) => (NfTablesMessage::NewRule(new_rule(family, table, rule)), NLM_F_CREATE | NLM_F_APPEND),
        Op::AddElement(element) => (NfTablesMessage::NewSetElement(elements(table, element, None)), create),
        Op::AddLease(element, lease) => {
            (NfTablesMessage::NewSetElement(elements(table, element, Some(*lease))), create)
        }
        // The echo carries the element with its last count, read after the element went out of force.
        Op::DeleteElement(element) => (NfTablesMessage::DeleteSetElement(elements(table, element, None)), NLM_F_ECHO),
    }
}

/// A request for every element of a set.
pub(super) fn dump_elements(buffer: &mut Vec<u8>, family: Family, table: &str, set: &Set, sequence: u32) {
    buffer.clear();
    let attributes = vec![SetElementList::Table(table.into()), SetElementList::Set(set.name.into())];
    let message = NfTablesMessage::GetSetElement(SetElementMessage { attributes });
    push(buffer, header(family), message, NLM_F_DUMP, sequence);
}

/// A request for one element each, acknowledged, with consecutive sequence numbers from `first`.
pub(super) fn get_elements(buffer: &mut Vec<u8>, family: Family, table: &str, wanted: &[Element], first: u32) {
    buffer.clear();
    let mut sequence = first;
    for element in wanted {
        let message = NfTablesMessage::GetSetElement(elements(table, element, None));
        push(buffer, header(family), message, NLM_F_ACK, sequence);
        sequence = sequence.wrapping_add(1);
    }
}

/// A request for the table's rules.
pub(super) fn dump_rules(buffer: &mut Vec<u8>, family: Family, table: &str, sequence: u32) {
    buffer.clear();
    let attributes = vec![RuleAttribute::Table(table.into())];
    push(buffer, header(family), NfTablesMessage::GetRule(RuleMessage { attributes }), NLM_F_DUMP, sequence);
}

/// A request for the ruleset's generation.
pub(super) fn get_generation(buffer: &mut Vec<u8>, sequence: u32) {
    buffer.clear();
    let family = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    push(buffer, family, NfTablesMessage::GetGen(GenMessage { attributes: vec![] }), 0, sequence);
}

fn header(family: Family) -> NetfilterHeader {
    let family = match family {
        Family::Ip => NetfilterProtoFamily::IPv4,
        Family::Bridge { .. } => NetfilterProtoFamily::Bridge,
        Family::Netdev => NetfilterProtoFamily::NetDev,
    };
    NetfilterHeader::new(family, 0, 0)
}

fn control(buffer: &mut Vec<u8>, message: ControlMessage, sequence: u32) {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, SUBSYSTEM_NFTABLES);
    push(buffer, header, message, 0, sequence);
}

fn push(
    buffer: &mut Vec<u8>,
    family: NetfilterHeader,
    message: impl Into<NetfilterMessageInner>,
    flags: u16,
    sequence: u32,
) {
    let mut message = NetlinkMessage::from(NetfilterMessage::new(family, message));
    message.header.flags = NLM_F_REQUEST | flags;
    message.header.sequence_number = sequence;
    message.finalize();
    // Every message is a multiple of four bytes long, because its attributes are padded.
    let start = buffer.len();
    buffer.resize(start + message.buffer_len(), 0);
    message.serialize(&mut buffer[start..]);
}

fn elements(table: &str, element: &Element, lease: Option<Duration>) -> SetElementMessage {
    let mut one = vec![SetElementAttribute::Key(DataAttribute::Value(element.key.wire().to_vec()))];
    // `NFTA_SET_ELEM_TIMEOUT` is in milliseconds.
    let millis = |lease: Duration| SetElementAttribute::Timeout(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
    one.extend(lease.map(millis));
    let attributes = vec![
        SetElementList::Table(table.into()),
        SetElementList::Set(element.set.name.into()),
        SetElementList::Elements(vec![ListAttribute::Element(one)]),
    ];
    SetElementMessage { attributes }
}

fn new_set(table: &str, set: &Set) -> SetMessage {
    // Types are informational to the kernel; nft prints by them: 7 is ipv4_addr, 13 is inet_service, six bits each.
    let key_type = set.fields.iter().fold(0, |all, field| all << 6 | if field.is_address() { 7 } else { 13 });
    let counter = vec![
        ExpressionAttribute::Name("counter".into()),
        ExpressionAttribute::Data(Expressions::Other { expression_type: "counter".into(), attributes: vec![] }),
    ];
    // NFTA_SET_EXPR holds one expression without a list around it, which the typed attribute can't say: it takes one
    // of the two halves. Nested by hand.
    let expression = nested(17, &counter);
    // A key has at most four fields.
    let length = set.fields.len() as u32 * 4;
    let attributes = vec![
        SetAttribute::Table(table.into()),
        SetAttribute::Name(set.name.into()),
        SetAttribute::Flags(if set.leases { SetFlags::Timeout } else { SetFlags::empty() }),
        SetAttribute::KeyType(key_type),
        SetAttribute::KeyLen(length),
        SetAttribute::Id(1),
        SetAttribute::UserData(byte_order(set.fields)),
        SetAttribute::Other(expression),
    ];
    SetMessage { attributes }
}

/// The note that nft leaves for itself: the byte order of a key that is no concatenation (`NFTNL_UDATA_SET_KEYBYTEORDER`
/// is 0, big endian is 2).
fn byte_order(fields: &[Field]) -> Vec<u8> {
    let order: u32 = if fields.len() == 1 { 2 } else { 0 };
    let mut data = vec![0, 4];
    data.extend(order.to_ne_bytes());
    data
}

fn nested(kind: u16, attributes: &[ExpressionAttribute]) -> DefaultNla {
    use netlink_packet_core::{Emitable, NLA_F_NESTED};
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

fn new_chain(table: &str, chain: &Chain) -> ChainMessage {
    let (hook, device) = match chain.hook {
        At::Prerouting => (InetHookNumber::PreRouting, None),
        At::Forward => (InetHookNumber::Forward, None),
        At::Postrouting => (InetHookNumber::PostRouting, None),
        At::Output => (InetHookNumber::LocalOut, None),
        At::Egress(device) => (InetHookNumber::Other(DEVICE_EGRESS), Some(device)),
    };
    // The kernel reads the 32 bits as signed.
    let mut place = vec![Hook::Number(hook.into()), Hook::Priority(chain.priority as u32)];
    place.extend(device.map(|device| Hook::NetDeviceName(device.to_string())));
    let attributes = vec![
        ChainAttribute::Table(table.into()),
        ChainAttribute::Name(chain.name.into()),
        ChainAttribute::Hook(place),
        ChainAttribute::Policy(VERDICT_ACCEPT),
        ChainAttribute::Type(
            match chain.kind {
                ChainType::Filter => "filter",
                ChainType::Nat => "nat",
            }
            .into(),
        ),
    ];
    ChainMessage { attributes }
}

fn new_rule(family: Family, table: &str, rule: &Rule) -> RuleMessage {
    let mut expressions = only_these_frames(family);
    let mut is_tcp = false;
    for statement in rule.statements {
        match statement {
            Statement::TcpFlag(flag) => {
                only_tcp(&mut expressions, &mut is_tcp);
                expressions.push(load(TRANSPORT_HEADER, 13, 1, Register::Reg1));
                expressions.push(Expressions::Bitwise(vec![
                    Bitwise::SourceRegister(Register::Reg1),
                    Bitwise::DestinationRegister(Register::Reg1),
                    Bitwise::Length(1),
                    Bitwise::Mask(DataAttribute::Value(vec![flag.bit()])),
                    Bitwise::Xor(DataAttribute::Value(vec![0])),
                ]));
                expressions.push(compare(Operator::NotEqual, 0));
            }
            Statement::Icmp => {
                expressions.push(load(NETWORK_HEADER, 9, 1, Register::Reg1));
                expressions.push(compare(Operator::Equal, PROTOCOL_ICMP));
            }
            Statement::Lookup(set) => {
                if set.fields.iter().any(|field| !field.is_address()) {
                    only_tcp(&mut expressions, &mut is_tcp);
                }
                // 16-byte register 1 and the 32-bit registers 9, 10 and 11 lie one after another.
                let registers = [Register::Reg1, Register::Reg32_01, Register::Reg32_02, Register::Reg32_03];
                for (field, register) in set.fields.iter().zip(registers) {
                    expressions.push(match field {
                        Field::SourceAddress => load(NETWORK_HEADER, 12, 4, register),
                        Field::DestinationAddress => load(NETWORK_HEADER, 16, 4, register),
                        Field::SourcePort => load(TRANSPORT_HEADER, 0, 2, register),
                        Field::DestinationPort => load(TRANSPORT_HEADER, 2, 2, register),
                    });
                }
                expressions.push(Expressions::Lookup(vec![
                    Lookup::Set(set.name.into()),
                    Lookup::SourceRegister(Register::Reg1),
                ]));
            }
            Statement::From(network) => expressions.extend(within(12, *network)),
            Statement::To(network) => expressions.extend(within(16, *network)),
            Statement::Invalid => {
                expressions.push(other("ct", &[(1, register(Register::Reg1)), (2, CT_STATE)]));
                expressions.push(masked(CT_INVALID.to_ne_bytes()));
                expressions.push(compare_word(Operator::NotEqual, [0; 4]));
            }
            Statement::Chance(millionths) => {
                // Destination, modulus, type; then the number in network order, as comparisons are made byte by byte.
                expressions.push(other("numgen", &[(1, register(Register::Reg1)), (2, MILLION), (3, RANDOM)]));
                let reg1 = register(Register::Reg1);
                expressions.push(other("byteorder", &[(1, reg1), (2, reg1), (3, 1), (4, 4), (5, 4)]));
                expressions.push(compare_word(Operator::LessThan, millionths.to_be_bytes()));
            }
            Statement::Reset => {
                only_tcp(&mut expressions, &mut is_tcp);
                expressions.push(other("reject", &[(1, TCP_RESET)]));
            }
            Statement::Unreachable => expressions.push(Expressions::Other {
                expression_type: "reject".into(),
                attributes: vec![
                    DefaultNla::new(1, ICMP_UNREACHABLE.to_be_bytes().to_vec()),
                    DefaultNla::new(2, vec![HOST_UNREACHABLE]),
                ],
            }),
            Statement::MapSource(network) => {
                for (register, address) in [(Register::Reg1, network.address), (Register::Reg2, network.last())] {
                    expressions.push(Expressions::Immediate(vec![
                        Immediate::DestinationRegister(register),
                        Immediate::Data(DataAttribute::Value(address.octets().to_vec())),
                    ]));
                }
                let (first, last) = (register(Register::Reg1), register(Register::Reg2));
                let attributes = [(1, SOURCE_NAT), (2, FAMILY_IPV4), (3, first), (4, last), (7, ONE_FOR_ONE)];
                expressions.push(other("nat", &attributes));
            }
            Statement::Drop => expressions.push(Expressions::Immediate(vec![
                Immediate::DestinationRegister(Register::Verdict),
                Immediate::Data(DataAttribute::Verdict(vec![VerdictAttribute::Code(Verdict::Other(VERDICT_DROP))])),
            ])),
        }
    }
    let attributes = vec![
        RuleAttribute::Table(table.into()),
        RuleAttribute::Chain(rule.chain.name.into()),
        RuleAttribute::Expressions(expressions.into_iter().map(ListAttribute::from).collect()),
    ];
    RuleMessage { attributes }
}

/// A bridge carries more than IPv4, and more than the run's frames.
fn only_these_frames(family: Family) -> Vec<Expressions> {
    let to = match family {
        Family::Ip => return Vec::new(),
        Family::Bridge { to } => to,
        Family::Netdev => None,
    };
    let register = Meta::DestinationRegister(Register::Reg1);
    let mut expressions = vec![
        Expressions::Meta(vec![Meta::Key(MetaKey::EtherTypeProtocol), register]),
        compare_bytes(Operator::Equal, ETHERNET_IPV4.to_vec()),
    ];
    if let Some(to) = to {
        expressions.push(load(LINK_HEADER, 0, 4, Register::Reg1));
        expressions.push(compare_bytes(Operator::Equal, to.to_vec()));
    }
    expressions
}

fn only_tcp(expressions: &mut Vec<Expressions>, is_tcp: &mut bool) {
    if !std::mem::replace(is_tcp, true) {
        let register = Meta::DestinationRegister(Register::Reg1);
        expressions.push(Expressions::Meta(vec![Meta::Key(MetaKey::L4Proto), register]));
        expressions.push(compare(Operator::Equal, PROTOCOL_TCP));
    }
}

/// An expression whose attributes are all 32 bits in network order.
fn other(kind: &str, attributes: &[(u16, u32)]) -> Expressions {
    let attributes = attributes.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_be_bytes().to_vec()));
    Expressions::Other { expression_type: kind.into(), attributes: attributes.collect() }
}

fn register(register: Register) -> u32 {
    register.into()
}

/// The address at this place of the header, compared with a network.
fn within(offset: u32, network: Network) -> [Expressions; 3] {
    [
        load(NETWORK_HEADER, offset, 4, Register::Reg1),
        masked(network.mask().to_be_bytes()),
        compare_word(Operator::Equal, network.address.octets()),
    ]
}

fn masked(mask: [u8; 4]) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(4),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; 4])),
    ])
}

fn compare_word(operator: Operator, value: [u8; 4]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value.to_vec())),
    ])
}

fn load(base: u32, offset: u32, length: u32, register: Register) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

fn compare(operator: Operator, value: u8) -> Expressions {
    compare_bytes(operator, vec![value])
}

fn compare_bytes(operator: Operator, value: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
}

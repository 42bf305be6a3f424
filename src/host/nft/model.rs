//! What a table is made of.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Which packets a table sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// What a namespace routes.
    Ip,
    /// IPv4 that passes bridges of the namespace from port to port.
    Bridge {
        /// Only frames to hardware addresses that begin with these four bytes; `None` takes all.
        to: Option<[u8; 4]>,
    },
    /// IPv4 that enters or leaves single devices of the namespace, below everything that routes.
    Netdev,
}

/// A field of a packet, as a part of a set's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// `ip saddr`.
    SourceAddress,
    /// `tcp sport`.
    SourcePort,
    /// `ip daddr`.
    DestinationAddress,
    /// `tcp dport`.
    DestinationPort,
}

impl Field {
    /// Whether it is an address (4 bytes) or else a TCP port (2 bytes).
    #[must_use]
    pub fn is_address(self) -> bool {
        matches!(self, Self::SourceAddress | Self::DestinationAddress)
    }
}

/// A named set whose elements each have a counter of their own. Sets are statics, each equal to itself alone.
#[derive(Debug)]
pub struct Set {
    /// Its name.
    pub name: &'static str,
    /// The fields of its key, in order.
    pub fields: &'static [Field],
    /// Whether its elements may have a lease, after which the kernel removes them by itself.
    pub leases: bool,
}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Set {}

impl Hash for Set {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

/// Where a base chain sits on a packet's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before routing: everything that arrives.
    Prerouting,
    /// Between routing and departure: what is forwarded.
    Forward,
    /// Last before departure, forwarded or local.
    Postrouting,
    /// What the namespace itself sends, before it is routed.
    Output,
    /// What leaves through this device, whoever sends it, as it is handed to the device's queue.
    Egress(&'static str),
}

/// What a chain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainType {
    /// `filter`: sees every packet.
    Filter,
    /// `nat`: sees the first packet of each connection.
    Nat,
}

/// A base chain with policy `accept`.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub kind: ChainType,
    /// Its hook.
    pub hook: Hook,
    /// Its priority: lower runs earlier.
    pub priority: i32,
}

/// A flag of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpFlag {
    /// `fin`.
    Fin,
    /// `rst`.
    Rst,
}

impl TcpFlag {
    /// Its bit in byte 13 of the header.
    #[must_use]
    pub fn bit(self) -> u8 {
        match self {
            Self::Fin => 0x01,
            Self::Rst => 0x04,
        }
    }
}

/// A network: its address and the length of its prefix, 1 to 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Its address; the host's part is zero.
    pub address: Ipv4Addr,
    /// How many bits name the network.
    pub prefix: u8,
}

impl Network {
    /// The bits that name the network.
    #[must_use]
    pub fn mask(self) -> u32 {
        u32::MAX << (32 - u32::from(self.prefix.clamp(1, 32)))
    }

    /// Its last address.
    #[must_use]
    pub fn last(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.mask())
    }

    /// The address in this network with the host's part of `other`.
    #[must_use]
    pub fn with_host_of(self, other: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | (other.to_bits() & !self.mask()))
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.address.to_bits()
    }
}

/// A part of a rule, evaluated from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    /// Goes on only for TCP segments with this flag.
    TcpFlag(TcpFlag),
    /// Goes on only for ICMP.
    Icmp,
    /// Goes on only for packets whose key is in the set, and counts at that element.
    Lookup(&'static Set),
    /// Goes on only for packets from this network.
    From(Network),
    /// Goes on only for packets to this network.
    To(Network),
    /// Goes on only for packets that connection tracking can place nowhere.
    Invalid,
    /// Goes on for this share of packets, in parts of a million, drawn for each.
    Chance(u32),
    /// Drops.
    Drop,
    /// Answers with a RST and drops.
    Reset,
    /// Answers with ICMP host unreachable and drops.
    Unreachable,
    /// Source NAT into this network, one for one: the host's part stays. In a chain of type `nat`.
    MapSource(Network),
}

/// A rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// The chain that it belongs to.
    pub chain: &'static Chain,
    /// Its parts.
    pub statements: &'static [Statement],
}

/// The key of an element as it is written in packets: each field padded to four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    bytes: [u8; 16],
    length: u8,
}

impl Key {
    /// The key of packets from `source` to `destination` in a set with these fields.
    ///
    /// # Panics
    /// With more than four fields.
    #[must_use]
    pub fn of(fields: &[Field], source: SocketAddrV4, destination: SocketAddrV4) -> Self {
        assert!(fields.len() <= 4, "a key has at most four fields");
        let mut bytes = [0; 16];
        for (field, slot) in fields.iter().zip(bytes.chunks_exact_mut(4)) {
            match field {
                Field::SourceAddress => slot.copy_from_slice(&source.ip().octets()),
                Field::DestinationAddress => slot.copy_from_slice(&destination.ip().octets()),
                Field::SourcePort => slot[..2].copy_from_slice(&source.port().to_be_bytes()),
                Field::DestinationPort => slot[..2].copy_from_slice(&destination.port().to_be_bytes()),
            }
        }
        // At most 16, by the assertion above.
        Self { bytes, length: (fields.len() * 4) as u8 }
    }

    /// A key as the kernel sends it.
    #[must_use]
    pub fn from_wire(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { bytes, length: u8::try_from(value.len()).ok()? })
    }

    /// The key as the kernel takes it.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The fields as texts, in order: `10.0.0.1`, `5672`.
    #[must_use]
    pub fn texts(&self, fields: &[Field]) -> Vec<String> {
        let print = |(field, slot): (&Field, &[u8])| match field.is_address() {
            true => Ipv4Addr::new(slot[0], slot[1], slot[2], slot[3]).to_string(),
            false => u16::from_be_bytes([slot[0], slot[1]]).to_string(),
        };
        fields.iter().zip(self.bytes.chunks_exact(4)).map(print).collect()
    }
}

/// An element of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Element {
    /// The set.
    pub set: &'static Set,
    /// Its key.
    pub key: Key,
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {{ {} }}", self.set.name, self.key.texts(self.set.fields).join(" . "))
    }
}

/// One operation of an atomic batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Creates the table, owned by the client's socket; an error where it exists.
    AddTable,
    /// Removes the table with everything in it.
    DeleteTable,
    /// Creates a set.
    AddSet(&'static Set),
    /// Creates a chain.
    AddChain(&'static Chain),
    /// Appends a rule.
    AddRule(&'static Rule),
    /// Adds an element with its counter at zero; an error where it exists.
    AddElement(Element),
    /// The same, and the kernel removes it after this time, whatever became of the harness. The set must take leases.
    AddLease(Element, Duration),
    /// Removes an element; its last count comes back with the commit.
    DeleteElement(Element),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTable => f.write_str("add table"),
            Self::DeleteTable => f.write_str("delete table"),
            Self::AddSet(set) => write!(f, "add set {}", set.name),
            Self::AddChain(chain) => write!(f, "add chain {}", chain.name),
            Self::AddRule(rule) => {
                write!(f, "add rule {} {}", rule.chain.name, super::text::print_statements(rule.statements))
            }
            Self::AddElement(element) => write!(f, "add element {element}"),
            Self::AddLease(element, lease) => write!(f, "add element {element} timeout {}ms", lease.as_millis()),
            Self::DeleteElement(element) => write!(f, "delete element {element}"),
        }
    }
}

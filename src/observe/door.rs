//! What clients send, heard at the broker's door: the TCP segments that come into its network namespace, put in order.
//!
//! A packet socket in the broker's namespace hears everything and changes nothing: nobody waits for it, and a fault in the
//! router is before it. What is left out: what the bytes mean. A stream of which a part was not heard ends there.

use crate::events::Tuple;
use crate::host::netns::NetNs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

/// Larger than any packet, segments that the kernel handed on together included.
const PACKET_BYTES: usize = 128 * 1024;
/// Enough for what a few hundred clients send while this thread does not get to run.
const QUEUE_BYTES: usize = 4 << 20;
const IPV4_ETHERTYPE: u16 = 0x0800;
const TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// One segment.
#[derive(Debug, PartialEq, Eq)]
struct Segment<'b> {
    tuple: Tuple,
    sequence: u32,
    flags: u8,
    payload: &'b [u8],
}

/// Hears what comes in.
#[derive(Debug)]
pub struct Door {
    socket: Socket,
    buffer: Vec<u8>,
    streams: Streams,
}

impl Door {
    /// Listens in the broker's namespace.
    ///
    /// # Errors
    /// Where the kernel has no packet sockets or `CAP_NET_RAW` is missing.
    pub fn open(namespace: &NetNs) -> io::Result<Self> {
        let protocol = Protocol::from(i32::from(IPV4_ETHERTYPE.to_be()));
        let socket = namespace.run(|| Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)))?;
        socket.set_nonblocking(true)?;
        // As much as the limit allows; a stream that loses a segment is given up, never misread.
        let _ = socket.set_recv_buffer_size(QUEUE_BYTES);
        Ok(Self { socket, buffer: vec![0; PACKET_BYTES], streams: Streams::default() })
    }

    /// Waits until something comes in or `end` is closed; whether it was the latter.
    ///
    /// # Errors
    /// When it can't be waited.
    pub fn wait(&self, end: BorrowedFd<'_>) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN), PollFd::new(end, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE)?;
        Ok(fds[1].any().unwrap_or(false))
    }

    /// Hands on what has come in from clients that `is_client` names: the connection, as the client names it, whether it
    /// is a new one, and its next bytes.
    pub fn drain(&mut self, is_client: impl Fn(Tuple) -> bool, mut each: impl FnMut(Tuple, bool, &[u8])) {
        while let Ok(length) = (&self.socket).read(&mut self.buffer) {
            let Some(segment) = parse(&self.buffer[..length]).filter(|segment| is_client(segment.tuple)) else {
                continue;
            };
            let (tuple, begins) = (segment.tuple, segment.flags & (SYN | ACK) == SYN);
            if let Some(bytes) = self.streams.next(&segment)
                && (begins || !bytes.is_empty())
            {
                each(tuple, begins, bytes);
            }
        }
    }
}

/// Where each stream goes on.
#[derive(Debug, Default)]
struct Streams(HashMap<Tuple, u32>);

impl Streams {
    /// What of a segment is new; `None` where the stream is not known, or a part of it is missing.
    fn next<'b>(&mut self, segment: &Segment<'b>) -> Option<&'b [u8]> {
        if segment.flags & SYN != 0 {
            self.0.insert(segment.tuple, segment.sequence.wrapping_add(1));
            return Some(&[]);
        }
        let next = self.0.get_mut(&segment.tuple)?;
        // Sent again: negative is what is known already.
        let ahead = segment.sequence.wrapping_sub(*next) as i32;
        if ahead > 0 {
            self.0.remove(&segment.tuple);
            return None;
        }
        let fresh = segment.payload.get(ahead.unsigned_abs() as usize..).unwrap_or_default();
        *next = next.wrapping_add(fresh.len() as u32);
        if segment.flags & (FIN | RST) != 0 {
            self.0.remove(&segment.tuple);
        }
        Some(fresh)
    }
}

/// An IPv4 packet with a TCP segment.
fn parse(packet: &[u8]) -> Option<Segment<'_>> {
    let first = *packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    if first >> 4 != 4 || *packet.get(9)? != TCP {
        return None;
    }
    // Segments that were put together may be longer than the field can say; then it is 0.
    let packet = if total == 0 { packet } else { packet.get(..total)? };
    let address = |at: usize| {
        Some(Ipv4Addr::new(*packet.get(at)?, *packet.get(at + 1)?, *packet.get(at + 2)?, *packet.get(at + 3)?))
    };
    let tcp = packet.get(header..)?;
    let word = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    let tuple =
        Tuple { local: SocketAddrV4::new(address(12)?, word(0)?), peer: SocketAddrV4::new(address(16)?, word(2)?) };
    let sequence = u32::from_be_bytes([*tcp.get(4)?, *tcp.get(5)?, *tcp.get(6)?, *tcp.get(7)?]);
    let offset = usize::from(*tcp.get(12)? >> 4) * 4;
    Some(Segment { tuple, sequence, flags: *tcp.get(13)?, payload: tcp.get(offset..)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0];
        bytes.extend(u16::try_from(40 + payload.len()).unwrap().to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 64, 128, 1, 10, 128, 128, 1]);
        bytes.extend(40_000_u16.to_be_bytes());
        bytes.extend(5672_u16.to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        bytes.extend(payload);
        // Short frames are padded.
        bytes.extend([0; 6]);
        bytes
    }

    #[test]
    fn a_segment_is_read_from_its_packet() {
        let bytes = packet(7, ACK, b"AMQP");
        let segment = parse(&bytes).unwrap();
        assert_eq!(segment.tuple.to_string(), "10.64.128.1:40000-10.128.128.1:5672");
        assert_eq!((segment.sequence, segment.flags, segment.payload), (7, ACK, &b"AMQP"[..]));
        assert!((0..bytes.len()).all(|length| parse(&bytes[..length.min(39)]).is_none()));
    }

    #[test]
    fn streams_skip_what_came_twice_and_end_at_a_gap() {
        let mut streams = Streams::default();
        let mut heard = |sequence: u32, flags: u8, payload: &[u8]| {
            let bytes = packet(sequence, flags, payload);
            streams.next(&parse(&bytes).unwrap()).map(<[u8]>::to_vec)
        };
        assert_eq!(heard(5, ACK, b"x"), None, "its beginning was not heard");
        assert_eq!(heard(u32::MAX - 1, SYN, b""), Some(Vec::new()));
        assert_eq!(heard(u32::MAX, ACK, b"abc"), Some(b"abc".to_vec()));
        assert_eq!(heard(u32::MAX, ACK, b"abcd"), Some(b"d".to_vec()), "sent again with more");
        assert_eq!(heard(u32::MAX, ACK, b"abcd"), Some(Vec::new()));
        assert_eq!(heard(9, ACK, b"z"), None, "a gap");
        assert_eq!(heard(3, ACK, b"e"), None, "nothing after a gap");
    }
}

//! A namespace's TCP sockets through `sock_diag`: state, running timer, queues and `tcp_info`.
//!
//! Answers are parsed from the bytes: the typed packets have no place for the probe count of a keepalive timer. What
//! is left out: IPv6, which [`super::socket_table`] reads too, and keepalive settings, which the kernel doesn't tell here.

use crate::events::{SocketSnapshot, Tuple};
use crate::host::netns::NetNs;
use crate::host::nlmsg::{self, Message, u32_ne};
use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::ops::ControlFlow;
use std::time::Duration;
use thiserror::Error;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
pub(super) const ATTRIBUTE_INFO: u16 = 2;
/// Length of `struct inet_diag_msg`, before the attributes.
pub(super) const DIAG_HEADER_LEN: usize = 72;
const REQUEST_LEN: usize = 56;
const RECEIVE_BYTES: usize = 64 * 1024;
const NO_ANSWER: Duration = Duration::from_secs(5);

/// TCP states to look for, a bit for each kernel number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct States(u32);

impl States {
    /// Established connections only.
    pub const ESTABLISHED: Self = Self(1 << 1);
    /// Everything that is or was a connection: all states except LISTEN (10) and CLOSE (7).
    pub const CONNECTIONS: Self = Self(0xfff & !1 & !(1 << 10) & !(1 << 7));
    /// The same without TIME-WAIT (6).
    pub const LIVE: Self = Self(Self::CONNECTIONS.0 & !(1 << 6));
}

/// Why the sockets could not be read.
#[derive(Debug, Error)]
#[error("sock_diag in network namespace `{namespace}`: {operation}: {source}")]
pub struct SockDiagError {
    /// The namespace's name.
    pub namespace: String,
    /// What was tried.
    pub operation: &'static str,
    /// Why it failed.
    pub source: io::Error,
}

/// A netlink socket for looks at a namespace's sockets. Buffers are kept between looks.
#[derive(Debug)]
pub struct SockDiag {
    namespace: String,
    socket: Socket,
    sequence: u32,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl SockDiag {
    /// Opens the socket inside the namespace; no privilege is needed there.
    ///
    /// # Errors
    /// When the namespace can't be entered or the kernel has no `sock_diag`.
    pub fn open(namespace: &NetNs) -> Result<Self, SockDiagError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket2::SockRef::from(&socket).set_read_timeout(Some(NO_ANSWER))?;
            Ok(socket)
        };
        let socket = namespace.run(open).map_err(|source| SockDiagError {
            namespace: namespace.name().to_string(),
            operation: "open the netlink socket",
            source,
        })?;
        let answer = vec![0; RECEIVE_BYTES];
        Ok(Self { namespace: namespace.name().to_string(), socket, sequence: 0, request: Vec::new(), answer })
    }

    /// All IPv4 TCP sockets in these states; the tuple is as the socket's owner sees it, so a connection with both ends
    /// in the namespace is there twice.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn dump(&mut self, states: States) -> Result<Vec<(Tuple, SocketSnapshot)>, SockDiagError> {
        let mut found = Vec::new();
        self.dump_each(libc::AF_INET, states, |payload| found.extend(parse(payload)))?;
        Ok(found)
    }

    /// Hands over each answer of a dump, as its bytes.
    pub(super) fn dump_each(
        &mut self,
        family: i32,
        states: States,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), SockDiagError> {
        let any = if family == libc::AF_INET6 { SocketId::new_v6() } else { SocketId::new_v4() };
        self.encode_as(SOCK_DIAG_BY_FAMILY, family, states, any, NLM_F_DUMP);
        self.exchange("list the sockets", |message| match message.kind {
            nlmsg::DONE => ControlFlow::Break(Ok(())),
            nlmsg::ERROR => ControlFlow::Break(Err(refusal(message))),
            _ => {
                each(message.payload);
                ControlFlow::Continue(())
            }
        })
    }

    /// One connection as its owner sees it; `None` where the kernel has no such socket any more.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn get(&mut self, tuple: Tuple) -> Result<Option<SocketSnapshot>, SockDiagError> {
        Ok(self.find(tuple)?.map(|(_, snapshot)| snapshot))
    }

    fn find(&mut self, tuple: Tuple) -> Result<Option<([u8; 8], SocketSnapshot)>, SockDiagError> {
        self.encode(States(u32::MAX), identity(tuple, ANY_COOKIE), 0);
        let mut found = None;
        self.exchange("look up a socket", |message| {
            if message.kind == nlmsg::ERROR {
                return match nlmsg::acknowledgement(message) {
                    Some((libc::ENOENT, _)) => ControlFlow::Break(Ok(())),
                    _ => ControlFlow::Break(Err(refusal(message))),
                };
            }
            // The kernel falls back on a listener of the same port where the connection is gone.
            let own = parse(message.payload).filter(|(t, _)| *t == tuple).map(|(_, snapshot)| snapshot);
            found = cookie(message.payload).zip(own);
            ControlFlow::Break(Ok(()))
        })?;
        Ok(found)
    }

    /// Ends a connection from outside: its owner's calls fail with `ECONNABORTED`, and the kernel sends a RST, which whoever
    /// wants silence has to drop on its way. `false` where there is no such connection.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN` over the namespace, or where the kernel was built without `CONFIG_INET_DIAG_DESTROY`.
    pub fn destroy(&mut self, tuple: Tuple) -> Result<bool, SockDiagError> {
        // By its cookie: where the connection is gone meanwhile, the kernel would take the listener of the port instead.
        match self.find(tuple)? {
            Some((cookie, _)) => self.destroy_exactly(tuple, cookie),
            None => Ok(false),
        }
    }

    fn destroy_exactly(&mut self, tuple: Tuple, cookie: [u8; 8]) -> Result<bool, SockDiagError> {
        self.encode_as(SOCK_DESTROY, libc::AF_INET, States(u32::MAX), identity(tuple, cookie), NLM_F_ACK);
        let mut there = true;
        self.exchange("end a connection (needs a kernel with CONFIG_INET_DIAG_DESTROY)", |message| {
            match nlmsg::acknowledgement(message) {
                Some((0, _)) => ControlFlow::Break(Ok(())),
                Some((libc::ENOENT | libc::ESTALE, _)) => {
                    there = false;
                    ControlFlow::Break(Ok(()))
                }
                _ => ControlFlow::Break(Err(refusal(message))),
            }
        })?;
        Ok(there)
    }

    /// Whether [`Self::destroy`] works here, tried on a connection that can't exist.
    ///
    /// # Errors
    /// As `destroy`.
    pub fn can_destroy(&mut self) -> Result<(), SockDiagError> {
        let nowhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1);
        self.destroy_exactly(Tuple { local: nowhere, peer: nowhere }, [0; 8]).map(drop)
    }

    fn encode(&mut self, states: States, socket_id: SocketId, flags: u16) {
        self.encode_as(SOCK_DIAG_BY_FAMILY, libc::AF_INET, states, socket_id, flags);
    }

    fn encode_as(&mut self, kind: u16, family: i32, states: States, socket_id: SocketId, flags: u16) {
        // The families and IPPROTO_TCP fit into a byte.
        let request = InetRequest {
            family: family as u8,
            protocol: libc::IPPROTO_TCP as u8,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::from_bits_retain(states.0),
            socket_id,
        };
        self.sequence = self.sequence.wrapping_add(1);
        let length = nlmsg::HEADER_LEN + REQUEST_LEN;
        self.request.clear();
        self.request.extend((length as u32).to_ne_bytes());
        self.request.extend(kind.to_ne_bytes());
        self.request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        self.request.extend(self.sequence.to_ne_bytes());
        self.request.resize(length, 0);
        request.emit(&mut self.request[nlmsg::HEADER_LEN..]);
    }

    fn exchange(
        &mut self,
        operation: &'static str,
        mut each: impl FnMut(&Message<'_>) -> ControlFlow<io::Result<()>>,
    ) -> Result<(), SockDiagError> {
        let namespace = &self.namespace;
        let failed = |source| SockDiagError { namespace: namespace.clone(), operation, source };
        self.socket.send(&self.request, 0).map_err(failed)?;
        loop {
            let length = match self.socket.recv(&mut &mut self.answer[..], 0) {
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(failed(e)),
            };
            for message in nlmsg::messages(&self.answer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                if let ControlFlow::Break(done) = each(&message) {
                    return done.map_err(failed);
                }
            }
        }
    }
}

/// Stands for any cookie (`INET_DIAG_NOCOOKIE`).
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// The number that the kernel gave the socket of an answer.
fn cookie(payload: &[u8]) -> Option<[u8; 8]> {
    payload.get(44..52)?.try_into().ok()
}

fn identity(tuple: Tuple, cookie: [u8; 8]) -> SocketId {
    let mut id = SocketId::new_v4();
    id.source_address = IpAddr::V4(*tuple.local.ip());
    id.source_port = tuple.local.port();
    id.destination_address = IpAddr::V4(*tuple.peer.ip());
    id.destination_port = tuple.peer.port();
    id.cookie = cookie;
    id
}

fn refusal(message: &Message<'_>) -> io::Error {
    let code = nlmsg::acknowledgement(message).map_or(libc::EPROTO, |(code, _)| code);
    io::Error::from_raw_os_error(code)
}

/// One `inet_diag_msg` with its `tcp_info` (offsets of the kernel's `uapi/linux/inet_diag.h` and `uapi/linux/tcp.h`,
/// which only ever grow at the end).
fn parse(payload: &[u8]) -> Option<(Tuple, SocketSnapshot)> {
    let header = payload.get(..DIAG_HEADER_LEN)?;
    if header[0] != libc::AF_INET as u8 {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let tuple = Tuple { local: SocketAddrV4::new(address(8), port(4)), peer: SocketAddrV4::new(address(24), port(6)) };
    Some((tuple, snapshot(payload)?))
}

/// What the answer says of the socket, whatever its family.
pub(super) fn snapshot(payload: &[u8]) -> Option<SocketSnapshot> {
    let header = payload.get(..DIAG_HEADER_LEN)?;
    let mut snapshot = SocketSnapshot {
        state: header[1],
        timer: header[2],
        retrans: header[3],
        expires_ms: u32_ne(header, 52)?,
        rqueue: u32_ne(header, 56)?,
        wqueue: u32_ne(header, 60)?,
        ..SocketSnapshot::default()
    };
    // Sockets in TIME-WAIT have none.
    if let Some(info) = nlmsg::attribute(&payload[DIAG_HEADER_LEN..], ATTRIBUTE_INFO) {
        snapshot.probes = *info.get(3)?;
        snapshot.backoff = *info.get(4)?;
        snapshot.rto_us = u32_ne(info, 8)?;
        snapshot.unacked = u32_ne(info, 24)?;
        snapshot.last_data_recv_ms = u32_ne(info, 52)?;
        snapshot.last_ack_recv_ms = u32_ne(info, 56)?;
        snapshot.rtt_us = u32_ne(info, 68)?;
    }
    Some(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Vec<u8> {
        let mut bytes = vec![2, 1, 2, 3, 0x9c, 0x40, 0x1b, 0x58];
        bytes.extend([10, 64, 128, 1].iter().chain(&[0; 12]).chain(&[10, 128, 128, 1]).chain(&[0; 12]));
        bytes.resize(52, 0);
        for word in [1500u32, 7, 9, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        let mut info = vec![0u8; 104];
        (info[3], info[4]) = (4, 5);
        for (at, word) in [(8, 204_000u32), (24, 2), (52, 800), (56, 400), (68, 90)] {
            info[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes.extend(108u16.to_ne_bytes());
        bytes.extend(ATTRIBUTE_INFO.to_ne_bytes());
        bytes.extend(info);
        bytes
    }

    #[test]
    fn every_field_is_read_from_its_place() {
        let (tuple, snapshot) = parse(&message()).expect("a socket");
        assert_eq!(tuple.to_string(), "10.64.128.1:40000-10.128.128.1:7000");
        let expected = SocketSnapshot {
            state: 1,
            timer: 2,
            expires_ms: 1500,
            retrans: 3,
            backoff: 5,
            probes: 4,
            rqueue: 7,
            wqueue: 9,
            unacked: 2,
            last_data_recv_ms: 800,
            last_ack_recv_ms: 400,
            rtt_us: 90,
            rto_us: 204_000,
        };
        assert_eq!(snapshot, expected);
    }

    #[test]
    fn a_socket_without_tcp_info_is_still_a_socket() {
        let (_, snapshot) = parse(&message()[..DIAG_HEADER_LEN]).expect("a socket");
        assert_eq!((snapshot.expires_ms, snapshot.rto_us), (1500, 0));
        assert!(parse(&message()[..DIAG_HEADER_LEN - 1]).is_none());
    }
}

//! A namespace's TCP sockets of both families with their owners' inodes: what a look from outside starts from.
//!
//! The same answers of the kernel as [`super::SockDiag::dump`], read further. What is left out: who owns an inode, which
//! only `/proc` tells.

use super::sock_diag::{ATTRIBUTE_INFO, DIAG_HEADER_LEN, SockDiag, SockDiagError, States, snapshot};
use crate::events::SocketSnapshot;
use crate::host::nlmsg::{self, u32_ne};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its own end, an IPv4 address behind an IPv6 socket as what it is.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Its inode; 0 where no process has it open any more.
    pub inode: u64,
    /// Who opened it, by the reader's user namespace.
    pub uid: u32,
    /// The kernel's number for it, never given away again before the next boot.
    pub cookie: u64,
    /// State, timer, queues.
    pub snapshot: SocketSnapshot,
    /// Milliseconds since data was last sent.
    pub last_data_sent_ms: u32,
    /// Bytes sent so far, retransmissions included; 0 before Linux 4.19.
    pub bytes_sent: u64,
    /// Bytes received so far.
    pub bytes_received: u64,
    /// The window that the peer offers, in bytes; `None` before Linux 5.4.
    pub peer_window: Option<u32>,
    /// Bytes that wait and were never sent.
    pub not_sent: u32,
}

impl SockDiag {
    /// All TCP sockets in these states, of both families.
    ///
    /// # Errors
    /// When the socket fails. A kernel without IPv6 has none of it, and that is no error.
    pub fn table(&mut self, states: States) -> Result<Vec<TcpSocket>, SockDiagError> {
        let mut found = Vec::new();
        self.dump_each(libc::AF_INET, states, |payload| found.extend(parse(payload)))?;
        match self.dump_each(libc::AF_INET6, states, |payload| found.extend(parse(payload))) {
            Err(e) if e.source.raw_os_error() != Some(libc::ENOENT) => Err(e),
            _ => Ok(found),
        }
    }
}

fn parse(payload: &[u8]) -> Option<TcpSocket> {
    let header = payload.get(..DIAG_HEADER_LEN)?;
    let octets = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).ok();
    let address = |at: usize| -> Option<IpAddr> {
        let all = octets(at)?;
        match i32::from(header[0]) {
            libc::AF_INET => Some(Ipv4Addr::new(all[0], all[1], all[2], all[3]).into()),
            libc::AF_INET6 => Some(IpAddr::from(Ipv6Addr::from(all)).to_canonical()),
            _ => None,
        }
    };
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let mut socket = TcpSocket {
        local: SocketAddr::new(address(8)?, port(4)),
        peer: SocketAddr::new(address(24)?, port(6)),
        inode: u32_ne(header, 68)?.into(),
        uid: u32_ne(header, 64)?,
        cookie: u64::from(u32_ne(header, 44)?) | u64::from(u32_ne(header, 48)?) << 32,
        snapshot: snapshot(payload)?,
        last_data_sent_ms: 0,
        bytes_sent: 0,
        bytes_received: 0,
        peer_window: None,
        not_sent: 0,
    };
    // `tcp_info` only ever grows at its end; what an older kernel has not stays at its default.
    if let Some(info) = nlmsg::attribute(&payload[DIAG_HEADER_LEN..], ATTRIBUTE_INFO) {
        let wide =
            |at: usize| info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
        socket.last_data_sent_ms = u32_ne(info, 44).unwrap_or(0);
        socket.bytes_received = wide(128);
        socket.not_sent = u32_ne(info, 144).unwrap_or(0);
        socket.bytes_sent = wide(200);
        socket.peer_window = u32_ne(info, 228);
    }
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(family: u8, local: [u8; 16], info: &[u8]) -> Vec<u8> {
        let mut bytes = vec![family, 1, 0, 0, 0x9c, 0x40, 0x16, 0x28];
        bytes.extend(local.iter().chain(&[0; 16]));
        bytes.extend([0; 4]);
        for word in [7u32, 1, 0, 0, 0, 1000, 4242] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(u16::try_from(info.len() + 4).unwrap().to_ne_bytes());
        bytes.extend(ATTRIBUTE_INFO.to_ne_bytes());
        bytes.extend(info);
        bytes
    }

    #[test]
    fn owner_and_counters_are_read_and_a_mapped_address_is_an_old_one() {
        let mut info = vec![0u8; 232];
        info[44..48].copy_from_slice(&1500u32.to_ne_bytes());
        info[128..136].copy_from_slice(&99u64.to_ne_bytes());
        info[228..232].copy_from_slice(&64_000u32.to_ne_bytes());
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 7]);
        let socket = parse(&message(libc::AF_INET6 as u8, mapped, &info)).unwrap();
        assert_eq!(socket.local.to_string(), "10.0.0.7:40000");
        assert_eq!((socket.inode, socket.uid, socket.cookie), (4242, 1000, 1 << 32 | 7));
        assert_eq!((socket.last_data_sent_ms, socket.bytes_received), (1500, 99));
        assert_eq!(socket.peer_window, Some(64_000));
    }

    #[test]
    fn a_short_tcp_info_leaves_the_newer_fields_open() {
        let mut own = [0; 16];
        own[..4].copy_from_slice(&[10, 0, 0, 7]);
        let socket = parse(&message(libc::AF_INET as u8, own, &[0; 104])).unwrap();
        assert_eq!(
            (socket.local.to_string().as_str(), socket.peer_window, socket.bytes_sent),
            ("10.0.0.7:40000", None, 0)
        );
        assert!(parse(&[0; 10]).is_none());
    }
}

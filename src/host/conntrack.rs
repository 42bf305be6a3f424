//! Entries of connection tracking in a namespace: is one there, how long will it live, and let it be forgotten.
//!
//! Requests are written byte by byte after `include/uapi/linux/netfilter/nfnetlink_conntrack.h`; the kernel's handlers
//! are `ctnetlink_get_conntrack` and `ctnetlink_del_conntrack` (`net/netfilter/nf_conntrack_netlink.c`). A look does not
//! make an entry live longer, and one that has expired is not found any more, whether it was collected or not
//! (`____nf_conntrack_find`). What is left out: everything but TCP over IPv4, and events.

use super::netns::NetNs;
use super::nlmsg::{self, attribute, u32_be};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_…`.
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const AF_INET: u8 = 2;
const TCP: u8 = 6;
const NESTED: u16 = 1 << 15;
/// Length of `struct nfgenmsg`, before the attributes.
const FAMILY_HEADER_LEN: usize = 4;
const TIMEOUT: u16 = 7;
const RECEIVE_BYTES: usize = 16 * 1024;
/// The kernel answers within the system call.
const NO_ANSWER: Duration = Duration::from_secs(5);

/// A netlink socket for the entries of one namespace.
#[derive(Debug)]
pub struct Conntrack {
    socket: Socket,
    sequence: u32,
    answer: Vec<u8>,
}

impl Conntrack {
    /// Opens the socket inside the namespace.
    ///
    /// # Errors
    /// When it can't be opened; that the kernel tracks nothing shows at the first look.
    pub fn open(namespace: &NetNs) -> io::Result<Self> {
        let socket = namespace.run(|| {
            let mut socket = Socket::new(NETLINK_NETFILTER)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket.set_cap_ack(true)?;
            socket2::SockRef::from(&socket).set_read_timeout(Some(NO_ANSWER))?;
            Ok(socket)
        })?;
        Ok(Self { socket, sequence: 0, answer: vec![0; RECEIVE_BYTES] })
    }

    /// How long the entry of the connection will live if nothing passes, in whole seconds rounded down; `None`: there is
    /// none.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than that there is none, or its answer can't be read.
    pub fn lives(&mut self, client: SocketAddrV4, broker: SocketAddrV4) -> io::Result<Option<Duration>> {
        let answer = self.ask(GET, REQUEST, client, broker)?;
        let Some(entry) = answer else { return Ok(None) };
        let left = attribute(&entry, TIMEOUT).and_then(u32_be);
        left.map(|seconds| Some(Duration::from_secs(seconds.into())))
            .ok_or_else(|| io::Error::other("the kernel's answer has no timeout"))
    }

    /// Takes the entry of the connection away; false: there was none.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn forget(&mut self, client: SocketAddrV4, broker: SocketAddrV4) -> io::Result<bool> {
        Ok(self.ask(DELETE, REQUEST | ACKNOWLEDGE, client, broker)?.is_some())
    }

    /// The attributes of the answer, empty for a bare acknowledgement; `None`: there is no such entry.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        client: SocketAddrV4,
        broker: SocketAddrV4,
    ) -> io::Result<Option<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, flags, self.sequence, client, broker);
        let sent = self.socket.send(&request, 0)?;
        if sent != request.len() {
            return Err(io::Error::other("the request was cut short"));
        }
        loop {
            let length = match self.socket.recv(&mut &mut self.answer[..], 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                received => received?,
            };
            for message in nlmsg::messages(&self.answer[..length]).filter(|m| m.sequence == self.sequence) {
                match nlmsg::acknowledgement(&message) {
                    Some((0, _)) => return Ok(Some(Vec::new())),
                    Some((libc::ENOENT, _)) => return Ok(None),
                    Some((code, _)) => return Err(io::Error::from_raw_os_error(code)),
                    None if message.kind == NEW => {
                        return Ok(message.payload.get(FAMILY_HEADER_LEN..).map(<[u8]>::to_vec));
                    }
                    None => {}
                }
            }
        }
    }
}

/// A request about the connection that `client` opened to `broker`, both as the client names them.
fn request(kind: u16, flags: u16, sequence: u32, client: SocketAddrV4, broker: SocketAddrV4) -> Vec<u8> {
    let mut addresses = Vec::new();
    put(&mut addresses, 1, &client.ip().octets());
    put(&mut addresses, 2, &broker.ip().octets());
    let mut protocol = Vec::new();
    put(&mut protocol, 1, &[TCP]);
    put(&mut protocol, 2, &client.port().to_be_bytes());
    put(&mut protocol, 3, &broker.port().to_be_bytes());
    let mut tuple = Vec::new();
    put(&mut tuple, NESTED | 1, &addresses);
    put(&mut tuple, NESTED | 2, &protocol);
    let mut body = vec![AF_INET, 0, 0, 0];
    put(&mut body, NESTED | 1, &tuple);
    // A request is some 80 bytes long.
    let length = (nlmsg::HEADER_LEN + body.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

fn put(block: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // Attributes here are some tens of bytes long.
    block.extend((4 + value.len() as u16).to_ne_bytes());
    block.extend(kind.to_ne_bytes());
    block.extend(value);
    block.resize(block.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_request_names_the_connection() {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 64, 128, 1), 40_000);
        let broker = SocketAddrV4::new(Ipv4Addr::new(10, 128, 128, 1), 6379);
        let bytes = request(GET, REQUEST, 7, client, broker);
        let message = nlmsg::messages(&bytes).next().expect("one message");
        assert_eq!((message.kind, message.flags, message.sequence), (0x101, 1, 7));
        let tuple = attribute(&message.payload[FAMILY_HEADER_LEN..], 1).expect("a tuple");
        let addresses = attribute(tuple, 1).expect("addresses");
        assert_eq!(attribute(addresses, 2), Some(&[10, 128, 128, 1][..]));
        let protocol = attribute(tuple, 2).expect("a protocol");
        assert_eq!(attribute(protocol, 1), Some(&[6][..]));
        assert_eq!(attribute(protocol, 3), Some(&6379u16.to_be_bytes()[..]));
    }
}

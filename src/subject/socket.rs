//! Options on a socket, and the socket behind a library that hides it.

use crate::events::{EffectiveOptions, Tuple};
use crate::scenario::{Keepalive, Settings};
use nix::sys::socket::{Shutdown, SockaddrIn, getpeername, getsockname, shutdown};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Keepalive as `socket2` (and the `redis` crate) takes it.
pub(super) fn keepalive(keepalive: Keepalive) -> TcpKeepalive {
    TcpKeepalive::new().with_time(keepalive.idle).with_interval(keepalive.interval).with_retries(keepalive.probes)
}

/// Sets keepalive and `TCP_USER_TIMEOUT`. `TCP_NODELAY` too, as the real clients do: a heartbeat must not wait behind
/// unacknowledged data in Nagle's algorithm.
///
/// # Errors
/// The kernel's, for a value out of its range.
pub fn apply(socket: SockRef<'_>, settings: &Settings) -> io::Result<()> {
    match settings.keepalive {
        Some(on) => socket.set_tcp_keepalive(&keepalive(on))?,
        None => socket.set_keepalive(false)?,
    }
    if let Some(limit) = settings.tcp_user_timeout.get() {
        socket.set_tcp_user_timeout(Some(limit))?;
    }
    socket.set_tcp_nodelay(true)
}

/// Connects a blocking socket with the arm's options set before the handshake, so that `TCP_USER_TIMEOUT` bounds it
/// too. No bind: the route to the server names the source address.
///
/// # Errors
/// `TimedOut` without an error number when the arm's own `connect_timeout` ran out; the kernel's error else.
pub fn connect(server: SocketAddrV4, settings: &Settings) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    apply(SockRef::from(&socket), settings)?;
    let server = SockAddr::from(server);
    match settings.connect_timeout.get() {
        Some(limit) => socket.connect_timeout(&server, limit)?,
        None => socket.connect(&server)?,
    }
    Ok(socket)
}

/// Both ends of a connected socket.
///
/// # Errors
/// `ENOTCONN` when it isn't connected; `Other` when it isn't IPv4.
pub fn tuple_of(socket: SockRef<'_>) -> io::Result<Tuple> {
    let v4 = |address: SockAddr| address.as_socket_ipv4().ok_or_else(|| io::Error::other("not an IPv4 socket"));
    Ok(Tuple { local: v4(socket.local_addr()?)?, peer: v4(socket.peer_addr()?)? })
}

/// Reads the options back from the kernel; what can't be read is `None`.
#[must_use]
pub fn effective(socket: SockRef<'_>) -> EffectiveOptions {
    let millis = |limit: io::Result<Option<Duration>>| {
        limit.ok().map(|limit| u64::try_from(limit.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
    };
    let seconds = |time: io::Result<Duration>| time.ok().and_then(|time| u32::try_from(time.as_secs()).ok());
    EffectiveOptions {
        so_rcvtimeo_ms: millis(socket.read_timeout()),
        so_sndtimeo_ms: millis(socket.write_timeout()),
        keepalive: socket.keepalive().ok(),
        keepalive_idle_s: seconds(socket.tcp_keepalive_time()),
        keepalive_interval_s: seconds(socket.tcp_keepalive_interval()),
        keepalive_probes: socket.tcp_keepalive_retries().ok(),
        tcp_user_timeout_ms: millis(socket.tcp_user_timeout()).and_then(|ms| u32::try_from(ms).ok()),
        nonblocking: socket.nonblocking().ok(),
        ..EffectiveOptions::default()
    }
}

/// This process's own socket with these two ends, as a duplicate: drop it at once, it keeps the connection open.
#[must_use]
pub fn find(tuple: Tuple) -> Option<OwnedFd> {
    find_all(tuple.peer).into_iter().find(|(found, _)| *found == tuple).map(|(_, socket)| socket)
}

/// All of this process's sockets that are connected to `peer`, as duplicates.
#[must_use]
pub fn find_all(peer: SocketAddrV4) -> Vec<(Tuple, OwnedFd)> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number: RawFd| duplicate_if(number, peer)).collect()
}

fn duplicate_if(number: RawFd, peer: SocketAddrV4) -> Option<(Tuple, OwnedFd)> {
    let is_it = |fd: RawFd| getpeername::<SockaddrIn>(fd).is_ok_and(|found| SocketAddrV4::from(found) == peer);
    if !is_it(number) {
        return None;
    }
    // SAFETY: the borrow lasts for one dup(2). Another thread may close the number meanwhile and the kernel may give it
    // to another file; that is why the duplicate, which nobody else can close, is asked again below.
    let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()?;
    if !is_it(copy.as_raw_fd()) {
        return None;
    }
    let local = getsockname::<SockaddrIn>(copy.as_raw_fd()).ok()?;
    Some((Tuple { local: local.into(), peer }, copy))
}

/// Ends a connection under whoever waits on it: its reads return end of file, its polls a hang-up.
pub fn shut_down(socket: &impl AsFd) {
    // An error means that the connection has ended already, which is what was asked for.
    let _ = shutdown(socket.as_fd().as_raw_fd(), Shutdown::Both);
}

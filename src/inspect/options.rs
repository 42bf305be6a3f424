//! A live socket's effective options, through a duplicate of its owner's descriptor.
//!
//! The duplicate keeps the connection open, so it lives for a dozen system calls and no longer. Nothing is set, and
//! `SO_ERROR` is not read: that would take the error from its owner.

use crate::host::process::descriptor_of;
use crate::host::sockopt::{TCP_RTO_MAX_MS, number};
use serde::Serialize;
use socket2::SockRef;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Options as `getsockopt` tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Options {
    /// `O_NONBLOCK`: then `SO_RCVTIMEO` and `SO_SNDTIMEO` do nothing.
    pub nonblocking: bool,
    /// `SO_RCVTIMEO` in milliseconds; 0 is none.
    pub rcvtimeo_ms: u64,
    /// `SO_SNDTIMEO` in milliseconds; 0 is none.
    pub sndtimeo_ms: u64,
    /// `SO_KEEPALIVE`.
    pub keepalive: bool,
    /// `TCP_KEEPIDLE` in seconds; the sysctl's where nobody set it.
    pub keepalive_idle_s: u32,
    /// `TCP_KEEPINTVL` in seconds.
    pub keepalive_interval_s: u32,
    /// `TCP_KEEPCNT`.
    pub keepalive_probes: u32,
    /// `TCP_USER_TIMEOUT` in milliseconds; 0 is none.
    pub user_timeout_ms: u32,
    /// `TCP_SYNCNT`.
    pub syn_count: u32,
    /// `TCP_RTO_MAX_MS`; none before Linux 6.15.
    pub rto_max_ms: Option<u32>,
}

/// Reads a socket's options.
///
/// # Errors
/// The kernel's, at the first option that can't be read: half of them would be a wrong answer.
pub fn read(socket: BorrowedFd<'_>) -> io::Result<Options> {
    let of = SockRef::from(&socket);
    let millis = |limit: Option<Duration>| u64::try_from(limit.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let positive = |value: i32| u32::try_from(value).unwrap_or(0);
    Ok(Options {
        nonblocking: of.nonblocking()?,
        rcvtimeo_ms: millis(of.read_timeout()?),
        sndtimeo_ms: millis(of.write_timeout()?),
        keepalive: of.keepalive()?,
        keepalive_idle_s: seconds(of.tcp_keepalive_time()?),
        keepalive_interval_s: seconds(of.tcp_keepalive_interval()?),
        keepalive_probes: of.tcp_keepalive_retries()?,
        user_timeout_ms: positive(number(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT)?),
        syn_count: positive(number(socket, libc::IPPROTO_TCP, libc::TCP_SYNCNT)?),
        rto_max_ms: number(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS).ok().map(positive),
    })
}

/// Whether a descriptor is a TCP socket.
pub(super) fn is_tcp(socket: BorrowedFd<'_>) -> bool {
    let is = |option, wanted| number(socket, libc::SOL_SOCKET, option).is_ok_and(|found| wanted == found);
    is(libc::SO_TYPE, libc::SOCK_STREAM) && is(libc::SO_PROTOCOL, libc::IPPROTO_TCP)
}

/// A duplicate of another process's descriptor, where it is still the socket of this inode: a number can be given to
/// another file between two looks.
///
/// # Errors
/// `EPERM` without the right to trace the process; `EBADF` where the descriptor is gone or something else by now.
pub(super) fn duplicate(process: BorrowedFd<'_>, fd: i32, inode: u64) -> io::Result<OwnedFd> {
    let copy = descriptor_of(process, fd)?;
    match nix::sys::stat::fstat(&copy)?.st_ino == inode {
        true => Ok(copy),
        false => Err(io::Error::from_raw_os_error(libc::EBADF)),
    }
}

/// The options of another process's socket; the duplicate is closed before this returns.
///
/// # Errors
/// As [`duplicate`] and [`read`].
pub(super) fn of(process: BorrowedFd<'_>, fd: i32, inode: u64) -> io::Result<Options> {
    let copy = duplicate(process, fd, inode)?;
    read(copy.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::pidfd_open;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_live_sockets_options_are_its_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        let of_near = SockRef::from(&near);
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(60))
            .with_interval(Duration::from_secs(10))
            .with_retries(4);
        of_near.set_tcp_keepalive(&keepalive).unwrap();
        of_near.set_tcp_user_timeout(Some(Duration::from_secs(7))).unwrap();
        let me = pidfd_open(std::process::id()).unwrap();
        let inode = nix::sys::stat::fstat(&near).unwrap().st_ino;
        let options = of(me.as_fd(), near.as_raw_fd(), inode).unwrap();
        assert_eq!((options.nonblocking, options.keepalive), (false, true));
        assert!((1500..1510).contains(&options.rcvtimeo_ms), "the kernel rounds up to its ticks: {options:?}");
        assert_eq!((options.keepalive_idle_s, options.keepalive_interval_s, options.keepalive_probes), (60, 10, 4));
        assert_eq!((options.user_timeout_ms, options.sndtimeo_ms), (7000, 0));
        assert!(is_tcp(near.as_fd()));
        assert_eq!(of(me.as_fd(), near.as_raw_fd(), inode + 1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}

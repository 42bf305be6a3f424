//! Socket options that are one number, read from a descriptor. Nothing is ever set here.
//!
//! `SO_ERROR` is refused: reading it takes the error away from the socket's owner.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `TCP_RTO_MAX_MS`, since Linux 6.15.
pub const TCP_RTO_MAX_MS: i32 = 44;

/// The value of an option that is an `int`.
///
/// # Errors
/// `ENOPROTOOPT` where the kernel has no such option; `EINVAL` for `SO_ERROR`, which is its owner's to read.
pub fn number(socket: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<i32> {
    if level == libc::SOL_SOCKET && option == libc::SO_ERROR {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, which is that long.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length) };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn options_are_read_and_the_error_is_left_to_its_owner() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let count = number(listener.as_fd(), libc::IPPROTO_TCP, libc::TCP_SYNCNT).unwrap();
        assert!((1..=127).contains(&count), "{count}");
        assert_eq!(
            number(listener.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}

//! Network namespaces held by a descriptor alone: nothing under `/run/netns`, nothing to remove, gone with the process.
//!
//! A namespace is never entered on a shared thread: work inside runs on a thread of its own, which ends with the work.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// A network namespace. Clones share the descriptor; the namespace lives until the last one and the last process or
/// socket inside are gone.
#[derive(Debug, Clone)]
pub struct NetNs {
    name: String,
    fd: Arc<OwnedFd>,
}

const OWN: &str = "/proc/thread-self/ns/net";

impl NetNs {
    /// A new, empty namespace: not even its loopback is up.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` in the user namespace, `ENOSPC` at the limit of `user.max_net_namespaces`.
    pub fn create(name: &str) -> io::Result<Self> {
        let fd = on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open(OWN)
        })?;
        Ok(Self { name: name.to_string(), fd: Arc::new(fd.into()) })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current(name: &str) -> io::Result<Self> {
        Ok(Self { name: name.to_string(), fd: Arc::new(File::open(OWN)?.into()) })
    }

    /// The namespace of a file: `/proc/PID/ns/net`, or one that `ip netns` keeps under `/run/netns`.
    ///
    /// # Errors
    /// When the file can't be opened; of somebody else's process that takes the right to trace it.
    pub fn open(path: &std::path::Path, name: &str) -> io::Result<Self> {
        Ok(Self { name: name.to_string(), fd: Arc::new(File::open(path)?.into()) })
    }

    /// The number by which the kernel tells namespaces apart (the inode of its file).
    ///
    /// # Errors
    /// When the descriptor can't be asked.
    pub fn id(&self) -> io::Result<u64> {
        Ok(nix::sys::stat::fstat(&*self.fd)?.st_ino)
    }

    /// Whether the calling thread is in it.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let own = std::fs::metadata(OWN).map(|m| (m.dev(), m.ino()));
        let this = nix::sys::stat::fstat(&*self.fd).map(|s| (s.st_dev, s.st_ino));
        own.is_ok_and(|own| this == Ok(own))
    }

    /// The name in messages; the kernel knows no names.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread of its own inside the namespace. Sockets opened there stay in the namespace and can be
    /// handed out.
    ///
    /// # Errors
    /// When the namespace can't be entered; `work`'s own error is returned as it is.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            // Entering the namespace that one is in already takes a privilege, too.
            if !self.is_current() {
                setns(&*self.fd, CloneFlags::CLONE_NEWNET)?;
            }
            work()
        })
    }
}

/// The namespace that a socket belongs to, whoever holds it (`SIOCGSKNS`).
///
/// # Errors
/// Without `CAP_NET_ADMIN` over it.
pub fn of_socket(socket: BorrowedFd<'_>, name: &str) -> io::Result<NetNs> {
    const SIOCGSKNS: libc::Ioctl = 0x894c as libc::Ioctl;
    // SAFETY: the call takes no argument and returns a descriptor that nobody else owns.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(NetNs { name: name.to_string(), fd: Arc::new(unsafe { OwnedFd::from_raw_fd(fd) }) })
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread inside the namespace panicked")))
}

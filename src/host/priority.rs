//! Real-time priority for the one thread whose instants are measured.

use std::io;

/// Gives the calling thread the lowest real-time priority (`SCHED_FIFO` 1): it preempts all ordinary work of the
/// machine for the moment of a cut, and nothing of the kernel's own.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` in the initial user namespace; the thread then goes on as it was.
pub fn real_time() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live, initialised structure of the type that the call reads; 0 is this thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

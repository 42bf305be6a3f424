//! SIGINT, SIGTERM and SIGHUP as calls of a function, instead of an end in mid-work.

use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

fn ours() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Holds the three signals back in this thread and in every thread that it starts from now on, so that only
/// [`crate::host::supervise::supervise`] takes them. Call it before other threads exist: one of those would be handed
/// the signal, and the process would end in mid-run.
///
/// # Errors
/// When the mask can't be set.
pub fn hold() -> io::Result<()> {
    Ok(ours().thread_block()?)
}

/// Lets this thread be ended by them again.
///
/// # Errors
/// When the mask can't be set.
pub fn release() -> io::Result<()> {
    Ok(ours().thread_unblock()?)
}

/// How many of the three signals, while they are held back in all threads, have arrived in this process so far.
#[must_use]
pub fn arrived() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let set = ours();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are to values that outlive the call; no information about the signal is asked for.
    while unsafe { libc::sigtimedwait(set.as_ref(), std::ptr::null_mut(), &raw const now) } > 0 {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    COUNT.load(Ordering::Relaxed)
}

/// Blocks SIGUSR1 and SIGUSR2 in this thread, and in every thread that it starts from now on, and calls `on_signal` from a
/// thread of its own for each that arrives. Call it before other threads exist.
///
/// # Errors
/// When the mask can't be set or the thread can't be started.
pub fn on_orders(on_signal: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
    let set: SigSet = [Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect();
    set.thread_block()?;
    let wait = move || {
        while let Ok(signal) = set.wait() {
            on_signal(signal);
        }
    };
    std::thread::Builder::new().name("orders".into()).spawn(wait).map(drop)
}

/// Blocks the three signals in this thread, and in every thread that it starts from now on, and calls `on_signal` from
/// a thread of its own for each that arrives, until it returns `false`. Call it before other threads exist.
///
/// Programs started by [`crate::host::process::Launch`] get an empty mask again.
///
/// # Errors
/// When the mask can't be set or the thread can't be started.
pub fn forward(on_signal: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let set = ours();
    set.thread_block()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || while set.wait().is_ok() && on_signal() {})?;
    Ok(())
}

//! SIGINT, SIGTERM and SIGHUP as calls of a function, instead of an end in mid-work.

use nix::sys::signal::{SigSet, Signal};
use std::io;

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

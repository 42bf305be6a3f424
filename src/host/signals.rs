//! SIGINT, SIGTERM and SIGHUP as calls of a function, instead of an end in mid-work.

use nix::sys::signal::{SigSet, Signal};
use std::io;

/// Blocks the three signals in this thread, and in every thread that it starts from now on, and calls `on_signal` from
/// a thread of its own for each that arrives, until it returns `false`. Call it before other threads exist.
///
/// Programs started by [`crate::host::process::Launch`] get an empty mask again.
///
/// # Errors
/// When the mask can't be set or the thread can't be started.
pub fn forward(on_signal: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    set.thread_block()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || while set.wait().is_ok() && on_signal() {})?;
    Ok(())
}

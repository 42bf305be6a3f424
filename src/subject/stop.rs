//! Ending a connection from outside: a flag that threads and tasks can wait for, and the socket to wake.

use super::socket;
use crate::events::Tuple;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// Ends one trial's connection, wherever its thread or task waits.
#[derive(Debug, Default)]
pub(super) struct Stop {
    state: Mutex<State>,
    changed: Condvar,
    notify: Notify,
    /// The word to make a synchronous call; only where a client listens for it.
    call: OnceLock<EventFd>,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// The writer may fill its peer's window.
    may_fill: bool,
    tuple: Option<Tuple>,
}

impl Stop {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends it: wakes waits, and a thread blocked in the kernel by shutting its socket down.
    pub fn stop(&self) {
        let tuple = {
            let mut state = self.lock();
            state.stopped = true;
            state.tuple.take()
        };
        self.changed.notify_all();
        self.notify.notify_waiters();
        if let Some(socket) = tuple.and_then(socket::find) {
            socket::shut_down(&socket);
        }
    }

    /// Lets [`Stop::wait_to_fill`] go on.
    pub fn let_fill(&self) {
        self.lock().may_fill = true;
        self.changed.notify_all();
    }

    /// Waits until the window may be filled, or for the end.
    pub fn wait_to_fill(&self) {
        let waited = self.changed.wait_while(self.lock(), |state| !state.stopped && !state.may_fill);
        drop(waited.unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// Makes [`Stop::on_call`] tell of the word that follows.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn listen_for_call(&self) -> io::Result<()> {
        if self.call.get().is_none() {
            let word = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            // Only the client's own thread listens.
            let _ = self.call.set(word);
        }
        Ok(())
    }

    /// Becomes readable, and stays so, when the call is to be made; none where nobody listens.
    pub fn on_call(&self) -> Option<BorrowedFd<'_>> {
        self.call.get().map(AsFd::as_fd)
    }

    /// Gives the word; a client that does not listen makes no calls.
    pub fn call(&self) {
        if let Some(word) = self.call.get() {
            // Full would mean that it was given 2^64 times.
            let _ = word.write(1);
        }
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Names the socket to shut down; returns whether it was ended before, in which case nobody will.
    pub fn watch(&self, tuple: Tuple) -> bool {
        let mut state = self.lock();
        state.tuple = Some(tuple);
        state.stopped
    }

    /// Forgets the socket: it is closed.
    pub fn unwatch(&self) {
        self.lock().tuple = None;
    }

    /// Waits for the end, at most this long; returns whether it came.
    pub fn wait(&self, at_most: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, |state| !state.stopped);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.stopped
    }

    /// Waits for the end.
    pub async fn stopped(&self) {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            // Registered before the flag is read: an end between the two is not missed.
            notified.as_mut().enable();
            if self.is_stopped() {
                return;
            }
            notified.await;
        }
    }
}

/// Lets only so many threads through at a time.
#[derive(Debug)]
pub(super) struct Gate {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    /// A gate for this many.
    pub fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), changed: Condvar::new() }
    }

    /// Waits for a place.
    pub fn enter(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free = self.changed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(std::sync::PoisonError::into_inner) -= 1;
        Place(self)
    }
}

/// A place inside, given back when dropped.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Gate);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}

//! A queue between threads whose reader can wait until an instant of the run's clock.
//!
//! The waiting is the kernel's: a futex with an absolute deadline on `CLOCK_MONOTONIC`, so neither putting, taking nor
//! waiting reads a clock. `std`'s channel reads it some six times for each wait with a time limit. On this machine that is
//! cheap; in a user-mode Linux guest each reading is a system call, and they were 60 % of all system calls of a run. What
//! is left out: several readers, bounds, selection.

use super::clock::Clock;
use crate::units::Offset;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue's two ends.
#[must_use]
pub fn mailbox<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(VecDeque::new()),
        news: AtomicU32::new(0),
        sleeps: AtomicBool::new(false),
        senders: AtomicUsize::new(1),
        read: AtomicBool::new(true),
    });
    (Sender(shared.clone()), Receiver(shared))
}

struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    /// Counts what may end a wait: the futex's word.
    news: AtomicU32,
    /// Whether the reader is, or is about to be, asleep.
    sleeps: AtomicBool,
    senders: AtomicUsize,
    /// Whether the reader is there.
    read: AtomicBool,
}

/// The end to put things in; as many as are wanted.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end to take things out.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Nobody is left to read what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody is left to read it")]
pub struct Unread;

/// Why a wait brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Nothing {
    /// The instant came first.
    #[error("nothing came in time")]
    Timeout,
    /// No sender is left, and everything that they sent was taken.
    #[error("nobody is left to send anything")]
    Disconnected,
}

impl<T> Shared<T> {
    /// Nothing panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // SAFETY: the word outlives the call, which takes nothing else.
            unsafe {
                libc::syscall(libc::SYS_futex, self.news.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
            };
        }
    }

    /// Sleeps until the word is no longer `seen`, the deadline has come, or for no reason at all. Whether it was the deadline.
    fn sleep(&self, seen: u32, deadline: Option<&libc::timespec>) -> bool {
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let deadline = deadline.map_or(std::ptr::null(), std::ptr::from_ref);
        let any = libc::FUTEX_BITSET_MATCH_ANY;
        let nobody = std::ptr::null::<u32>();
        // SAFETY: the word and the deadline outlive the call; the second address is not used by this operation.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, self.news.as_ptr(), operation, seen, deadline, nobody, any) };
        result < 0 && nix::errno::Errno::last() == nix::errno::Errno::ETIMEDOUT
    }
}

impl<T> Sender<T> {
    /// Puts something in.
    ///
    /// # Errors
    /// [`Unread`] when the reader is gone; it is dropped then.
    pub fn send(&self, what: T) -> Result<(), Unread> {
        if !self.0.read.load(Ordering::SeqCst) {
            return Err(Unread);
        }
        self.0.lock().push_back(what);
        self.0.wake();
        Ok(())
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::SeqCst);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// Waits for as long as it takes.
    ///
    /// # Errors
    /// [`Nothing::Disconnected`].
    pub fn recv(&self) -> Result<T, Nothing> {
        self.wait(None)
    }

    /// Waits until `at` at the latest; with an instant that has passed it only looks.
    ///
    /// # Errors
    /// [`Nothing`].
    pub fn recv_until(&self, clock: Clock, at: Offset) -> Result<T, Nothing> {
        let due_ns = (at.0 + clock.zero_ns()).max(0);
        let deadline = libc::timespec { tv_sec: due_ns / 1_000_000_000, tv_nsec: due_ns % 1_000_000_000 };
        self.wait(Some(&deadline))
    }

    /// What is there already.
    pub fn try_recv(&self) -> Option<T> {
        self.0.lock().pop_front()
    }

    /// All that is there already.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv())
    }

    fn wait(&self, deadline: Option<&libc::timespec>) -> Result<T, Nothing> {
        loop {
            let seen = self.0.news.load(Ordering::SeqCst);
            // Before the look at the queue: who has gone by then has sent all that it ever will.
            let alone = self.0.senders.load(Ordering::SeqCst) == 0;
            if let Some(what) = self.try_recv() {
                return Ok(what);
            }
            if alone {
                return Err(Nothing::Disconnected);
            }
            self.0.sleeps.store(true, Ordering::SeqCst);
            let late = self.0.sleep(seen, deadline);
            self.0.sleeps.store(false, Ordering::SeqCst);
            if late {
                return self.try_recv().ok_or(Nothing::Timeout);
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.read.store(false, Ordering::SeqCst);
        self.0.lock().clear();
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

/// Takes everything until no sender is left.
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_sent_arrives_in_order_and_the_end_is_told() {
        let (sender, receiver) = mailbox();
        let second = sender.clone();
        let thread = std::thread::spawn(move || (0..1000).for_each(|n| second.send(n).unwrap()));
        let got: Vec<i32> = (0..1000).map(|_| receiver.recv().unwrap()).collect();
        thread.join().unwrap();
        assert_eq!(got, (0..1000).collect::<Vec<_>>());
        sender.send(7).unwrap();
        drop(sender);
        assert_eq!((receiver.recv(), receiver.recv()), (Ok(7), Err(Nothing::Disconnected)));
    }

    #[test]
    fn a_wait_ends_at_its_instant_and_never_before() {
        let clock = Clock::start();
        let (sender, receiver) = mailbox::<()>();
        let at = clock.now() + Duration::from_millis(20);
        assert_eq!(receiver.recv_until(clock, at), Err(Nothing::Timeout));
        assert!(clock.now() >= at);
        assert_eq!(receiver.recv_until(clock, Offset(-5)), Err(Nothing::Timeout), "long passed");
        sender.send(()).unwrap();
        assert_eq!(receiver.recv_until(clock, Offset(-5)), Ok(()), "what is there is taken all the same");
    }

    #[test]
    fn a_sleeper_is_woken_by_each_of_many_senders() {
        let (sender, receiver) = mailbox();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for n in 0..500 {
                        sender.send(n).unwrap();
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        drop(sender);
        assert_eq!(receiver.into_iter().count(), 2000);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_told_to_the_sender() {
        let (sender, receiver) = mailbox();
        drop(receiver);
        assert_eq!(sender.send(1), Err(Unread));
    }
}

//! What a proxy does with what it is given: it hands it on, or it has lost its manners.
//!
//! A signal changes them while it runs, and its name shows the change (`/proc/PID/comm`): whoever sent the signal can look
//! from outside whether it has taken effect. Nothing that is being handed on at that moment is still handed on after the
//! name has changed. What is left out: sockets, which are the proxy's.

use crate::host::{procfs, signals};
use nix::sys::signal::Signal;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The name of a proxy that acknowledges and swallows.
pub const SWALLOWS: &str = "swallowing";
/// The name of a proxy that withholds the end of a reply, and all after it.
pub const WITHHOLDS: &str = "withholding";

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToBroker,
    ToClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    HandsOn,
    Swallows,
    Withholds,
}

/// The manners of one proxied connection.
#[derive(Debug)]
pub(super) struct Manners {
    /// Read while bytes are handed on, written by whoever changes it.
    mode: RwLock<Mode>,
    /// Whether the reply that is cut short has begun.
    cut_short: AtomicBool,
}

impl Manners {
    /// Hands everything on.
    pub fn good() -> Arc<Self> {
        Arc::new(Self { mode: RwLock::new(Mode::HandsOn), cut_short: AtomicBool::new(false) })
    }

    /// Changes on SIGUSR1 and SIGUSR2. Call it before other threads exist.
    ///
    /// # Errors
    /// When the signals can't be waited for.
    pub fn follow_signals(self: &Arc<Self>) -> io::Result<()> {
        let manners = self.clone();
        signals::on_orders(move |signal| {
            let (mode, name) = match signal {
                Signal::SIGUSR1 => (Mode::Swallows, SWALLOWS),
                _ => (Mode::Withholds, WITHHOLDS),
            };
            *manners.mode.write().unwrap_or_else(PoisonError::into_inner) = mode;
            // Without the name nobody takes the change for done, and the trial is void.
            let _ = procfs::rename(name);
        })
    }

    /// Has as much of `length` bytes handed on as the manners allow: `hand` is given how many from the front.
    pub fn share(&self, way: Way, length: usize, hand: impl FnOnce(usize) -> io::Result<()>) -> io::Result<()> {
        let mode = self.mode.read().unwrap_or_else(PoisonError::into_inner);
        let passes = match (*mode, way) {
            (Mode::HandsOn, _) | (Mode::Withholds, Way::ToBroker) => length,
            (Mode::Swallows, _) => 0,
            (Mode::Withholds, Way::ToClient) if self.cut_short.swap(true, Ordering::Relaxed) => 0,
            (Mode::Withholds, Way::ToClient) => length.saturating_sub(1),
        };
        if passes == 0 { Ok(()) } else { hand(passes) }
    }

    /// Whether the end of one side is told to the other.
    pub fn tells_the_end(&self, way: Way) -> bool {
        match *self.mode.read().unwrap_or_else(PoisonError::into_inner) {
            Mode::HandsOn => true,
            Mode::Swallows => false,
            Mode::Withholds => way == Way::ToBroker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(manners: &Manners, way: Way, length: usize) -> usize {
        let mut passed = 0;
        let hand = |n| {
            passed = n;
            Ok(())
        };
        manners.share(way, length, hand).unwrap();
        passed
    }

    fn with(mode: Mode) -> Manners {
        Manners { mode: RwLock::new(mode), cut_short: AtomicBool::new(false) }
    }

    #[test]
    fn good_manners_hand_everything_on_and_swallowing_ones_nothing() {
        for way in [Way::ToBroker, Way::ToClient] {
            assert_eq!(passed(&with(Mode::HandsOn), way, 7), 7);
            assert_eq!(passed(&with(Mode::Swallows), way, 7), 0);
            assert!(with(Mode::HandsOn).tells_the_end(way) && !with(Mode::Swallows).tells_the_end(way));
        }
    }

    #[test]
    fn one_reply_is_cut_short_and_nothing_follows_it() {
        let manners = with(Mode::Withholds);
        assert_eq!([7, 7, 7].map(|n| passed(&manners, Way::ToClient, n)), [6, 0, 0]);
        assert_eq!([7, 7].map(|n| passed(&manners, Way::ToBroker, n)), [7, 7]);
        assert!(manners.tells_the_end(Way::ToBroker) && !manners.tells_the_end(Way::ToClient));
    }
}

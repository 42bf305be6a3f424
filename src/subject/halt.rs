//! The points of a worker's work at which it can be made to stand still, so that a fault finds it exactly there.

use crate::scenario::Trigger;
use crate::units::Offset;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    /// Where the next task stands still that comes there from then on.
    at: Option<(Trigger, Offset)>,
    /// Nobody stands any more.
    over: bool,
}

/// One trial's.
#[derive(Debug, Default)]
pub(super) struct Halt {
    state: Mutex<State>,
    changed: Condvar,
}

impl Halt {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task that comes to this point from then on stands still there.
    pub fn set(&self, point: Trigger, from: Offset) {
        self.lock().at = Some((point, from));
    }

    /// Whoever stands goes on, and nobody stands again.
    pub fn go_on(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Stands still at this point where that is wanted, once: says so first. Blocks until [`Self::go_on`].
    pub fn pass(&self, point: Trigger, now: Offset, say: impl FnOnce()) {
        let mut state = self.lock();
        if state.over || state.at.take_if(|(at, from)| *at == point && *from <= now).is_none() {
            return;
        }
        say();
        while !state.over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn one_stands_at_its_point_until_it_may_go_on() {
        let halt = Halt::default();
        halt.set(Trigger::AfterEffect, Offset(5));
        halt.pass(Trigger::AfterEffect, Offset(4), || panic!("not yet"));
        halt.pass(Trigger::BeforeEffect, Offset(5), || panic!("not there"));
        let (say, said) = channel();
        thread::scope(|scope| {
            let standing = scope.spawn(|| halt.pass(Trigger::AfterEffect, Offset(5), || say.send(()).unwrap()));
            said.recv().unwrap();
            // One stands; the next one passes.
            halt.pass(Trigger::AfterEffect, Offset(5), || panic!("one stands there already"));
            assert!(!standing.is_finished());
            halt.go_on();
        });
        halt.set(Trigger::AfterEffect, Offset(5));
        halt.pass(Trigger::AfterEffect, Offset(5), || panic!("it is over"));
    }
}

//! When to look at which socket again. Pure.
//!
//! A socket whose path is cut changes when one of its timers runs out, when its owner writes or closes, and at no other
//! time. The kernel tells when the running timer is due, some owners tell of each of their writes, and what neither
//! tells is covered by looks at a pace that slows down with the time since the cut. Each socket has its own next look:
//! in virtual time the looks are what a run of hours costs.

use crate::events::{SocketSnapshot, Tuple};
use crate::observe::tcp_state::{CLOSE, ESTABLISHED, FIN_WAIT1, FIN_WAIT2};
use crate::units::{Offset, Pace, TrialId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A timer is run by the tick after it is due (4 ms at the 250 Hz of most kernels).
const TICK: Duration = Duration::from_millis(5);
/// `idiag_timer` of TIME-WAIT, which says nothing about a watcher.
const TIMEWAIT_TIMER: u8 = 3;

/// So much later a trace record of an end is missing for good.
const CONFIRM: Duration = Duration::from_secs(2);

/// An end that looks have seen, and a later look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The first look that did not see the connection established.
    pub at: Offset,
    /// The last one that did.
    pub not_before: Offset,
    /// The state then: CLOSE where the socket was gone.
    pub state: i32,
}

/// What the thread that looks is told.
#[derive(Debug, Clone, Copy)]
pub enum Told {
    /// A connection of this trial is there; from now on it is looked at.
    Watch {
        /// The connection.
        tuple: Tuple,
        /// Its trial.
        trial: TrialId,
        /// The namespace of its owner.
        client: usize,
        /// Whether it is the connection under test, with its fault in force.
        cut: bool,
        /// Whether its owner tells of each write.
        candid: bool,
    },
    /// Something happened to the trial that the sockets may show.
    Look {
        /// The trial.
        trial: TrialId,
        /// The namespace of its client.
        client: usize,
        /// Whether it only wrote: then a socket that waits for acknowledgements already shows nothing new.
        wrote: bool,
    },
}

/// A connection that is looked at.
#[derive(Debug)]
pub struct Watched {
    /// Its trial.
    pub trial: TrialId,
    /// Whether its looks are reported.
    pub cut: bool,
    /// The last look that was reported.
    pub seen: Option<SocketSnapshot>,
    candid: bool,
    since: Offset,
    /// When the timer was due that has not run yet: wheels round up by an eighth.
    overdue: Option<Offset>,
    next: Offset,
    /// The last look that saw it established.
    stood: Offset,
    /// The first look after it that saw its end, until that is told.
    left: Option<(Offset, i32)>,
    /// Its end was told.
    told: bool,
}

/// Times between two looks at a socket.
#[derive(Debug, Clone, Copy)]
pub struct Paces {
    /// By the time since it was cut.
    pub age: Pace,
    /// The same where its owner tells of each write.
    pub candid: Pace,
    /// By the time since its timer was due.
    pub overdue: Pace,
    /// Whether a look may come later than it could, so that one finds a timer run that was late and many fall together: by
    /// an eighth of its distance.
    pub leisurely: bool,
}

/// The sockets of one client namespace.
#[derive(Debug)]
pub struct Looks {
    pace: Paces,
    watched: BTreeMap<Tuple, Watched>,
}

impl Looks {
    /// None yet.
    pub fn new(pace: Paces) -> Self {
        Self { pace, watched: BTreeMap::new() }
    }

    /// Takes a connection in, or notes that it was cut: it is looked at now.
    pub fn watch(&mut self, tuple: Tuple, trial: TrialId, cut: bool, candid: bool, now: Offset) {
        let (stood, left, told) = (now, None, false);
        let watched =
            Watched { trial, cut, seen: None, candid, since: now, overdue: None, next: now, stood, left, told };
        self.watched.insert(tuple, watched);
    }

    /// Something happened to a trial; `wrote`: its client wrote, and nothing else.
    pub fn look(&mut self, trial: TrialId, wrote: bool, now: Offset) {
        let waits = |one: &Watched| wrote && one.seen.as_ref().is_some_and(|s| s.unacked > 0);
        for one in self.watched.values_mut().filter(|one| one.trial == trial && !waits(one)) {
            one.next = now;
        }
    }

    /// When the next look is due.
    pub fn next(&self) -> Option<Offset> {
        self.watched.values().map(|one| one.next).min()
    }

    /// What is watched of a connection.
    pub fn get_mut(&mut self, tuple: &Tuple) -> Option<&mut Watched> {
        self.watched.get_mut(tuple)
    }

    /// All that are watched.
    pub fn all(&self) -> Vec<Tuple> {
        self.watched.keys().copied().collect()
    }

    /// Those whose look is due.
    pub fn due(&self, now: Offset) -> Vec<Tuple> {
        self.watched.iter().filter(|(_, one)| one.next <= now).map(|(tuple, _)| *tuple).collect()
    }

    /// A look at `now` asked for all of them and saw these and nothing else: what is gone is forgotten, the others' next
    /// looks are set.
    pub fn looked(&mut self, now: Offset, there: &BTreeMap<Tuple, SocketSnapshot>) {
        let all: Vec<Tuple> = self.watched.keys().copied().collect();
        for tuple in all {
            self.looked_at(now, tuple, there.get(&tuple));
        }
    }

    /// The same of one of them alone. What is gone is looked for once more, so that [`Self::left`] can tell.
    pub fn looked_at(&mut self, now: Offset, tuple: Tuple, socket: Option<&SocketSnapshot>) {
        match (socket, self.watched.get_mut(&tuple)) {
            (Some(socket), Some(one)) => {
                one.set_next(now, socket, self.pace);
                if one.left.is_some() && !one.told {
                    one.next = one.next.min(now + CONFIRM);
                }
            }
            (None, Some(one)) if one.left.is_some() && !one.told => one.next = now + CONFIRM,
            (None, Some(_)) => drop(self.watched.remove(&tuple)),
            (_, None) => {}
        }
    }

    /// What a look says of the end of a connection that is cut, where it says it for the second time: whoever reports ends at
    /// their instants has had its time. To be asked before [`Self::looked_at`].
    pub fn left(&mut self, now: Offset, tuple: &Tuple, socket: Option<&SocketSnapshot>) -> Option<Left> {
        let one = self.watched.get_mut(tuple).filter(|one| one.cut && !one.told)?;
        let state = match socket.map_or(CLOSE, |socket| socket.state.into()) {
            ESTABLISHED => {
                one.stood = now;
                return None;
            }
            FIN_WAIT1 | FIN_WAIT2 => FIN_WAIT1,
            CLOSE => CLOSE,
            // Its peer has closed its end: the connection is still the client's to close.
            _ => return None,
        };
        let (at, state) = *one.left.get_or_insert((now, state));
        one.told = now.since(at) >= CONFIRM;
        one.told.then_some(Left { at, not_before: one.stood, state })
    }

    /// A look at `now` failed: again at the pace.
    pub fn failed(&mut self, now: Offset) {
        for one in self.watched.values_mut() {
            one.next = one.next.max(now + self.pace.age.after(now.since(one.since)));
        }
    }
}

impl Watched {
    fn set_next(&mut self, now: Offset, socket: &SocketSnapshot, pace: Paces) {
        let by_age = if self.candid { pace.candid } else { pace.age };
        let by_age = now + by_age.after(now.since(self.since));
        let running = socket.timer != 0 && socket.timer != TIMEWAIT_TIMER;
        let by_timer = match (running, socket.expires_ms) {
            (false, _) => {
                self.overdue = None;
                by_age
            }
            (true, 0) => {
                let due = *self.overdue.get_or_insert(now);
                now + pace.overdue.after(now.since(due))
            }
            (true, left_ms) => {
                self.overdue = None;
                let left = Duration::from_millis(left_ms.into());
                // A wheel is late by 8/63 of a timer's time at the most.
                let late = if pace.leisurely { left / 7 } else { Duration::ZERO };
                now + left + late + TICK
            }
        };
        let next = by_age.min(by_timer);
        self.next = if pace.leisurely { together(now, next) } else { next };
    }
}

/// The first instant from `next` on that all looks share which have about that far to go: put off by an eighth at the most.
fn together(now: Offset, next: Offset) -> Offset {
    let eighth = (next.0 - now.0) / 8;
    if eighth <= 0 {
        return next;
    }
    let step = 1_i64 << eighth.ilog2();
    Offset((next.0 + step - 1).div_euclid(step) * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    const PACE: Pace = Pace::new(Duration::from_millis(100), 50);
    const PACES: Paces =
        Paces { age: PACE, candid: Pace::new(Duration::from_secs(1), 10), overdue: PACE, leisurely: false };
    const SECOND: i64 = 1_000_000_000;

    fn tuple(port: u16) -> Tuple {
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Tuple { local: at(port), peer: at(7000) }
    }

    #[test]
    fn an_end_is_told_by_the_second_look_that_sees_it_with_the_time_of_the_first() {
        let mut looks = Looks::new(PACES);
        let second = |n: i64| Offset(n * SECOND);
        let there = SocketSnapshot { state: 1, ..SocketSnapshot::default() };
        let look = |looks: &mut Looks, n: i64, socket: Option<&SocketSnapshot>| {
            let left = looks.left(second(n), &tuple(1), socket);
            looks.looked_at(second(n), tuple(1), socket);
            (left, looks.next())
        };
        assert_eq!(look(&mut looks, 1, Some(&there)), (None, None), "nobody watches it");
        looks.watch(tuple(1), 7, true, false, second(1));
        assert_eq!(look(&mut looks, 60, Some(&there)).0, None);
        assert_eq!(look(&mut looks, 71, None), (None, Some(second(73))), "its record may still come");
        assert_eq!(
            look(&mut looks, 73, None),
            (Some(Left { at: second(71), not_before: second(60), state: CLOSE }), None)
        );
    }

    fn looked(looks: &mut Looks, now: Offset, timer: u8, expires_ms: u32) -> f64 {
        let socket = SocketSnapshot { state: 1, timer, expires_ms, ..SocketSnapshot::default() };
        looks.looked(now, &[(tuple(1), socket)].into());
        Offset(looks.next().unwrap().0 - now.0).as_secs()
    }

    #[test]
    fn an_idle_socket_is_looked_at_ever_more_rarely() {
        let mut looks = Looks::new(PACES);
        looks.watch(tuple(1), 7, true, false, Offset(0));
        assert_eq!(looks.next(), Some(Offset(0)));
        assert_eq!(looked(&mut looks, Offset(SECOND), 0, 0), 0.1);
        assert_eq!(looked(&mut looks, Offset(1000 * SECOND), 0, 0), 20.0);
    }

    #[test]
    fn a_running_timer_names_the_next_look_and_one_that_is_late_is_waited_for() {
        let mut looks = Looks::new(PACES);
        looks.watch(tuple(1), 7, true, false, Offset(0));
        let at = |s: i64| Offset(s * SECOND);
        assert_eq!(looked(&mut looks, at(1000), 2, 3000), 3.005);
        assert_eq!(looked(&mut looks, at(1003), 2, 0), 0.1);
        assert_eq!(looked(&mut looks, at(1103), 2, 0), 2.0);
        assert_eq!(looked(&mut looks, at(1104), 1, 60_000), 22.08, "never later than without a timer");
        assert_eq!(looked(&mut looks, at(1105), 3, 10), 22.1, "TIME-WAIT is no watcher");
    }

    #[test]
    fn news_of_a_trial_is_looked_at_at_once_and_what_is_gone_is_forgotten() {
        let mut looks = Looks::new(PACES);
        looks.watch(tuple(1), 7, true, false, Offset(0));
        looked(&mut looks, Offset(1000 * SECOND), 0, 0);
        looks.look(8, false, Offset(1001 * SECOND));
        assert_ne!(looks.next(), Some(Offset(1001 * SECOND)));
        looks.look(7, true, Offset(1001 * SECOND));
        assert_eq!(looks.next(), Some(Offset(1001 * SECOND)));
        looks.looked(Offset(1001 * SECOND), &BTreeMap::new());
        assert_eq!(looks.next(), None);
    }

    #[test]
    fn an_owner_that_tells_of_its_writes_is_looked_at_less_often_and_each_socket_by_itself() {
        let mut looks = Looks::new(PACES);
        let at = |s: i64| Offset(s * SECOND);
        looks.watch(tuple(1), 7, true, true, at(0));
        looks.watch(tuple(2), 8, true, false, at(0));
        let socket = SocketSnapshot { state: 1, ..SocketSnapshot::default() };
        for port in [1, 2] {
            looks.looked_at(at(1000), tuple(port), Some(&socket));
        }
        assert_eq!((looks.next(), looks.due(at(1099))), (Some(at(1020)), vec![tuple(2)]));
        looks.looked_at(at(1099), tuple(2), None);
        assert_eq!((looks.next(), looks.due(at(1100))), (Some(at(1100)), vec![tuple(1)]));
    }

    #[test]
    fn leisurely_looks_fall_together_and_find_a_timer_that_was_late() {
        let mut looks = Looks::new(Paces { leisurely: true, ..PACES });
        let at = |ms: i64| Offset(ms * 1_000_000);
        let socket = |timer, expires_ms| SocketSnapshot { state: 1, timer, expires_ms, ..SocketSnapshot::default() };
        for port in 1..=20 {
            looks.watch(tuple(port), port.into(), true, true, at(0));
            looks.looked_at(at(100_000 + 30 * i64::from(port)), tuple(port), Some(&socket(0, 0)));
        }
        let nexts: std::collections::BTreeSet<Offset> = looks.watched.values().map(|one| one.next).collect();
        assert!(nexts.len() <= 2, "asked for at 20 instants within 0.6 s, due ten seconds later: {nexts:?}");
        assert!(nexts.iter().all(|at| (110.03..111.98).contains(&at.as_secs())), "{nexts:?}");
        looks.looked_at(at(120_000), tuple(1), Some(&socket(1, 7000)));
        let next = looks.get_mut(&tuple(1)).unwrap().next.as_secs() - 120.0;
        assert!((7.0 * 71.0 / 63.0..7.0 * 8.0 / 7.0 * 1.13).contains(&next), "{next}");
    }

    #[test]
    fn a_failed_look_is_not_repeated_at_once() {
        let mut looks = Looks::new(PACES);
        looks.watch(tuple(1), 7, true, false, Offset(0));
        looks.failed(Offset(0));
        assert_eq!(looks.next(), Some(Offset(100_000_000)));
    }
}

//! py-amqp's heartbeats: negotiation and the tick. Pure: the time and the counts of frames are arguments.
//!
//! Source: `_on_tune` and `heartbeat_tick` in py-amqp's `connection.py` (5.4.2), called by `celery/worker/loops.py` every
//! heartbeat / 3.

use crate::units::Offset;
use std::time::Duration;

/// Ticks in one heartbeat: Celery's `broker_heartbeat_checkrate`.
const RATE: u32 = 3;

/// The heartbeat in force in seconds, 0 for none: the smaller one; the server's 0 gives the client's, the client's 0 gives 0.
pub(super) fn negotiate(client_s: u16, server_s: u16) -> u16 {
    match (client_s, server_s) {
        (0, _) => 0,
        (client, 0) => client,
        (client, server) => client.min(server),
    }
}

/// What a tick asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tick {
    /// Send a heartbeat now.
    pub send: bool,
    /// Nothing arrived for two heartbeats: the connection is given up, after what is to be sent was.
    pub expired: bool,
}

/// The state between two ticks.
#[derive(Debug, Clone)]
pub(super) struct Heartbeat {
    interval: Duration,
    /// Frames sent and received by the last tick.
    seen: Option<(u64, u64)>,
    sent_at: Offset,
    received_at: Offset,
    due: Offset,
}

impl Heartbeat {
    /// Starts to count at `now`; none for a heartbeat of 0.
    pub fn start(seconds: u16, now: Offset) -> Option<Self> {
        let interval = Duration::from_secs(seconds.into());
        (seconds > 0).then_some(Self {
            interval,
            seen: None,
            sent_at: now,
            received_at: now,
            due: now + interval / RATE,
        })
    }

    /// When the next tick is due, where a timer calls it.
    pub fn due(&self) -> Offset {
        self.due
    }

    /// Looks at how many frames have been sent and received so far. What was sent or received since the last tick counts
    /// as of now: a tick does not know when, as py-amqp does not.
    pub fn tick(&mut self, now: Offset, sent: u64, received: u64) -> Tick {
        let (sent_before, received_before) = self.seen.unzip();
        if sent_before != Some(sent) {
            self.sent_at = now;
        }
        if received_before != Some(received) {
            self.received_at = now;
        }
        self.seen = Some((sent, received));
        let send = now.since(self.sent_at) > self.interval / RATE;
        if send {
            self.sent_at = now;
        }
        self.due = now + self.interval / RATE;
        Tick { send, expired: now.since(self.received_at) > self.interval * 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_wins_and_zero_depends_on_whose_it_is() {
        let agreed = [(120, 60), (10, 60), (120, 0), (0, 60), (0, 0)].map(|(client, server)| negotiate(client, server));
        assert_eq!(agreed, [60, 10, 120, 0, 0]);
    }

    fn at(seconds: f64) -> Offset {
        Offset::from_secs(seconds)
    }

    /// Ticks as a timer that is a millisecond late each time calls them, until it expires or `until`. A heartbeat that is
    /// sent counts as a frame sent. Returns when it sent and when it expired.
    fn run(received: impl Fn(f64) -> u64, sent: impl Fn(f64) -> u64, until: f64) -> (Vec<f64>, Option<f64>) {
        let mut heartbeat = Heartbeat::start(6, Offset::ZERO).unwrap();
        let (mut sends, mut own) = (Vec::new(), 0);
        loop {
            let now = heartbeat.due() + Duration::from_millis(1);
            let s = now.as_secs();
            if s > until {
                return (sends, None);
            }
            let tick = heartbeat.tick(now, sent(s) + own, received(s));
            if tick.send {
                own += 1;
                sends.push(s);
            }
            if tick.expired {
                return (sends, Some(s));
            }
        }
    }

    #[test]
    fn an_idle_client_sends_at_every_other_tick() {
        // The first tick notes, the second (2.001 s later) sends, the third notes what was sent.
        let (sends, expired) = run(|s| s as u64, |_| 0, 30.0);
        let rounded: Vec<i64> = sends.iter().map(|s| s.round() as i64).collect();
        assert_eq!((rounded, expired), (vec![4, 8, 12, 16, 20, 24, 28], None));
    }

    #[test]
    fn a_client_that_sends_anyway_sends_no_heartbeats() {
        let (sends, _) = run(|s| s as u64, |s| s as u64, 30.0);
        assert_eq!(sends, Vec::<f64>::new());
    }

    #[test]
    fn silence_ends_it_two_heartbeats_after_the_tick_that_noted_the_last_frame() {
        // The last frame at 9.5 s is noted by the tick at 10 s; 12 s later is 22 s.
        let (_, expired) = run(|s| s.min(9.5) as u64 + u64::from(s >= 9.5), |_| 0, 60.0);
        assert!((22.0..22.1).contains(&expired.unwrap()), "{expired:?}");
        // Right after a tick it is noted late: 2 2/3 heartbeats at the most.
        let (_, expired) = run(|s| u64::from(s >= 10.1), |_| 0, 60.0);
        assert!((24.0..24.1).contains(&expired.unwrap()), "{expired:?}");
    }

    #[test]
    fn exactly_two_heartbeats_are_not_more_than_two() {
        let mut heartbeat = Heartbeat::start(6, Offset::ZERO).unwrap();
        assert_eq!(heartbeat.tick(at(0.0), 0, 0), Tick { send: false, expired: false });
        assert!(!heartbeat.tick(at(12.0), 0, 0).expired);
        assert!(heartbeat.tick(Offset(12_000_000_001), 0, 0).expired);
    }

    #[test]
    fn a_thread_that_ticks_late_sends_before_it_gives_up() {
        let mut heartbeat = Heartbeat::start(6, Offset::ZERO).unwrap();
        heartbeat.tick(at(2.0), 1, 1);
        assert_eq!(heartbeat.tick(at(60.0), 1, 1), Tick { send: true, expired: true });
        // A frame in the meantime is taken for a fresh one, however old it is.
        let mut heartbeat = Heartbeat::start(6, Offset::ZERO).unwrap();
        heartbeat.tick(at(2.0), 1, 1);
        assert!(!heartbeat.tick(at(60.0), 1, 2).expired);
    }

    #[test]
    fn zero_is_none() {
        assert!(Heartbeat::start(0, Offset::ZERO).is_none());
    }
}

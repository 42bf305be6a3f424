//! AMQP 0-9-1 heartbeats, client by client: negotiation, sending, checking.

use super::super::span::Span;
use crate::units::Setting;
use std::time::Duration;

/// An AMQP client library, as far as its heartbeat differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// py-amqp under Celery's event loop: `celery/worker/loops.py` ticks every heartbeat / 3.
    CeleryHub,
    /// py-amqp alone, or a pool without the hub: nobody ticks.
    PyAmqp,
    /// pika: `pika/heartbeat.py`.
    Pika,
    /// aiormq under aio-pika: `aiormq/connection.py`.
    Aiormq,
    /// lapin 4: `src/heartbeat.rs`.
    Lapin,
    /// amqp091-go: `heartbeater` in `connection.go`.
    Amqp091Go,
    /// py-amqp in a consumer that blocks in a read and ticks on the same thread: it looks only when a message arrives.
    Blocking,
    /// The same, with a thread of its own that ticks every heartbeat / 3.
    BlockingOwnThread,
}

impl Client {
    /// What the library asks for when nobody says anything; none: it takes the server's proposal.
    #[must_use]
    pub fn default_request(self) -> Option<Duration> {
        match self {
            // Celery's `broker_heartbeat`, aiormq's URL default and amqp091-go's `defaultHeartbeat`.
            Self::CeleryHub => Some(Duration::from_secs(120)),
            Self::Aiormq => Some(Duration::from_secs(60)),
            Self::Amqp091Go => Some(Duration::from_secs(10)),
            Self::PyAmqp | Self::Blocking | Self::BlockingOwnThread => Some(Duration::ZERO),
            Self::Pika | Self::Lapin => None,
        }
    }

    /// The negotiated heartbeat; none is off.
    ///
    /// `request`: `None` the library's default, `Some(Setting::None)` zero. `proposal`: the server's, none is zero.
    /// py-amqp (`_on_tune`): the smaller, a server's 0 gives the client's, a client's 0 gives 0. pika
    /// (`_tune_heartbeat_timeout`) and aiormq: the client's value always. lapin (`channel.rs`): the smaller, a client's
    /// 0 adopts the server's. amqp091-go (`pick`): the smaller, and 0 on either side gives the other's.
    #[must_use]
    pub fn negotiate(self, request: Option<Setting>, proposal: Option<Duration>) -> Option<Duration> {
        let asked = match request {
            None => self.default_request(),
            Some(setting) => Some(setting.get().unwrap_or(Duration::ZERO)),
        };
        let asked = asked.map(whole_seconds);
        let offered = proposal.map_or(Duration::ZERO, whole_seconds);
        let smaller = |a: Duration, b: Duration| if a.is_zero() || b.is_zero() { a.max(b) } else { a.min(b) };
        let agreed = match (self, asked) {
            (Self::CeleryHub | Self::PyAmqp | Self::Blocking | Self::BlockingOwnThread, Some(Duration::ZERO)) => {
                Duration::ZERO
            }
            (Self::Pika | Self::Aiormq, Some(value)) => value,
            (_, None) => offered,
            (_, Some(value)) => smaller(value, offered),
        };
        (!agreed.is_zero()).then_some(agreed)
    }

    /// Whether the check runs on the thread that a synchronous call can block.
    #[must_use]
    pub fn checks_on_the_calling_thread(self) -> bool {
        matches!(self, Self::CeleryHub | Self::PyAmqp | Self::Blocking)
    }

    /// Whether that thread waits in a read for the next message too, so that silence alone blocks it.
    #[must_use]
    pub fn waits_in_the_read(self) -> bool {
        self == Self::Blocking
    }

    /// From the last frame received to the moment at which the client gives up, over its check's phases; none where
    /// nobody checks.
    ///
    /// - py-amqp: a tick notes new bytes, and fails at the first one more than 2 heartbeats after that note.
    /// - pika: every heartbeat + 5 s it looks whether any byte came since the last look.
    /// - aiormq: every ⌊heartbeat / 2⌋ s it looks whether the last frame is older than (heartbeat + 1) · 3.
    /// - lapin: at each turn of its sender (heartbeat / 2) whether the last read is older than 2 heartbeats.
    /// - amqp091-go: a read deadline of 3 · heartbeat / 2 that each frame renews.
    #[must_use]
    pub fn gives_up_after(self, heartbeat: Duration) -> Option<Span> {
        let hb = heartbeat.as_secs_f64();
        match self {
            Self::CeleryHub | Self::BlockingOwnThread => Some(Span::new(2.0 * hb, 2.0 * hb + 2.0 * hb / 3.0)),
            Self::Pika => Some(Span::new(hb + 5.0, 2.0 * (hb + 5.0))),
            Self::Aiormq => Some(Span::new((hb + 1.0) * 3.0, (hb + 1.0) * 3.0 + (hb / 2.0).floor().max(1.0))),
            Self::Lapin => Some(Span::new(2.0 * hb, 2.5 * hb)),
            Self::Amqp091Go => Some(Span::new(1.5 * hb, 1.5 * hb + 0.01)),
            Self::PyAmqp | Self::Blocking => None,
        }
    }

    /// The time between a quiet client's own frames, shortest and longest; none where nobody sends.
    #[must_use]
    pub fn sends_every(self, heartbeat: Duration) -> Option<Span> {
        let hb = heartbeat.as_secs_f64();
        match self {
            // A tick sends when more than hb/3 passed since the last note: every tick, or every other one.
            Self::CeleryHub | Self::BlockingOwnThread => Some(Span::new(hb / 3.0, 2.0 * hb / 3.0)),
            Self::Aiormq => Some(Span::point((hb / 2.0).floor().max(1.0))),
            Self::Pika | Self::Lapin | Self::Amqp091Go => Some(Span::point(hb / 2.0)),
            Self::PyAmqp | Self::Blocking => None,
        }
    }
}

/// The tune frame carries whole seconds.
fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(client: Client, asked: u64, offered: u64) -> u64 {
        let setting = |s| if s == 0 { Setting::None } else { Setting::After(Duration::from_secs(s)) };
        client.negotiate(Some(setting(asked)), setting(offered).get()).map_or(0, |d| d.as_secs())
    }

    #[test]
    fn zero_means_something_else_to_each_client() {
        let zero_zero_both = |c| [agreed(c, 120, 60), agreed(c, 120, 0), agreed(c, 0, 60), agreed(c, 20, 60)];
        assert_eq!(zero_zero_both(Client::CeleryHub), [60, 120, 0, 20]);
        assert_eq!(zero_zero_both(Client::Blocking), [60, 120, 0, 20]);
        assert_eq!(zero_zero_both(Client::BlockingOwnThread), [60, 120, 0, 20]);
        assert_eq!(zero_zero_both(Client::Lapin), [60, 120, 60, 20]);
        assert_eq!(zero_zero_both(Client::Amqp091Go), [60, 120, 60, 20]);
        assert_eq!(zero_zero_both(Client::Pika), [120, 120, 0, 20]);
        assert_eq!(zero_zero_both(Client::Aiormq), [120, 120, 0, 20]);
    }

    #[test]
    fn public_reports_are_reproduced() {
        let s = |c: Client, hb| c.gives_up_after(Duration::from_secs(hb)).unwrap();
        assert_eq!(s(Client::Aiormq, 60), Span::new(183.0, 213.0));
        assert_eq!(s(Client::Lapin, 60), Span::new(120.0, 150.0));
        assert!(s(Client::Amqp091Go, 10).holds(15.0, 0.0));
    }
}

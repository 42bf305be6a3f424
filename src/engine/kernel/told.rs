//! What each connection of a client from outside is for, by the broker's own tables: where its traffic can't be read.

use super::heard::Pairs;
use super::watch::Watch;
use crate::clients::{role_of_consumer, tells_more};
use crate::events::{Event, Kind, Source, Tuple};
use crate::host::mailbox::{Nothing, Receiver};
use crate::lab::{Consumer, Tables};
use crate::units::TrialId;
use std::collections::HashMap;
use std::time::Duration;

/// Whose word it is.
const FROM: &str = "rabbitmqctl";
/// A client subscribes some time after it has connected: when it is asked after the last connection was made, each time from
/// the answer before.
const AFTER: [Duration; 7] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(32),
];

/// The roles that the broker's tables have told so far.
#[derive(Debug, Default)]
struct Told(HashMap<Tuple, &'static str>);

impl Told {
    /// What an answer tells that was not known: of several consumers on a connection the most telling one counts.
    fn take(&mut self, answer: &[(Tuple, TrialId, &'static str)]) -> Vec<(Tuple, TrialId, &'static str)> {
        let mut news: Vec<(Tuple, TrialId, &'static str)> = Vec::new();
        for (tuple, trial, role) in answer {
            if tells_more(role, self.0.get(tuple).copied()) {
                self.0.insert(*tuple, role);
                news.retain(|(known, ..)| known != tuple);
                news.push((*tuple, *trial, role));
            }
        }
        news
    }
}

impl Watch {
    /// Asks the broker after each new connection that `made` tells of, until that is closed, and reports what it says of clients.
    pub fn ask_tables(&self, tables: &Tables, clients: &Pairs, made: &Receiver<()>) {
        let (mut told, mut failed) = (Told::default(), false);
        let mut next = None;
        let mut step = 0;
        loop {
            let word = match next {
                Some(at) => made.recv_until(self.clock, at),
                None => made.recv(),
            };
            match word {
                Ok(()) => {
                    let soon = self.clock.now() + AFTER[0];
                    (step, next) = (0, Some(next.map_or(soon, |at| soon.min(at))));
                    continue;
                }
                Err(Nothing::Disconnected) => return,
                Err(Nothing::Timeout) => {}
            }
            match tables.consumers() {
                Ok(consumers) => {
                    let at = self.clock.now();
                    let answer: Vec<_> = consumers.iter().filter_map(|one| self.of_client(one, clients)).collect();
                    for (tuple, trial, role) in told.take(&answer) {
                        let kind = Kind::Role { tuple, role: role.to_string(), from: FROM.to_string() };
                        self.say(at, Source::Broker, trial, kind);
                    }
                }
                Err(error) if !failed => {
                    failed = true;
                    let text = format!("the broker's own tables could not be asked what connections are for: {error}");
                    let note = Event::of_run(self.clock.now(), Source::Broker, Kind::Note { text });
                    let _ = self.events.send(super::Message::Event(note));
                }
                Err(_) => {}
            }
            step += 1;
            next = AFTER.get(step).map(|pause| self.clock.now() + *pause);
        }
    }

    /// The connection, as its client names it, its trial, and what it is for.
    fn of_client(&self, consumer: &Consumer, clients: &Pairs) -> Option<(Tuple, TrialId, &'static str)> {
        let seen = Tuple { local: consumer.client, peer: consumer.broker };
        let tuple = self.registry.client_of(seen);
        let client = clients.get(&(*tuple.local.ip(), *tuple.peer.ip()))?;
        Some((tuple, client.trial, role_of_consumer(consumer.queue.as_bytes(), client.queue.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_consumers_the_most_telling_counts_and_is_told_once() {
        let tuple = |port: u16| Tuple {
            local: std::net::SocketAddrV4::new([10, 64, 128, 1].into(), port),
            peer: "10.128.128.1:5671".parse().unwrap(),
        };
        let mut told = Told::default();
        assert_eq!(told.take(&[(tuple(1), 7, "control"), (tuple(2), 7, "event")]).len(), 2);
        let again = [(tuple(1), 7, "control"), (tuple(1), 7, "consumer"), (tuple(2), 7, "event")];
        assert_eq!(told.take(&again), [(tuple(1), 7, "consumer")]);
        assert!(told.take(&again).is_empty());
    }
}

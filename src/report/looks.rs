//! What the looks at a socket and the messages say of one trial: timers that start, probes and copies that go out, what is
//! in flight, what arrives.

use super::lives::{Lane, Moment};
use crate::events::{Event, Kind, SocketSnapshot};
use crate::units::Offset;
use std::collections::HashMap;
use std::net::SocketAddrV4;

/// So many moments of this kind are told of one trial at most: the first ones, and how many followed.
const MOST: usize = 24;

/// The running timer in words.
fn timer(number: u8) -> &'static str {
    match number {
        0 => "no timer",
        1 => "retransmission timer",
        2 => "keepalive timer",
        3 => "TIME-WAIT",
        4 => "zero-window probe timer",
        _ => "an unknown timer",
    }
}

/// What a look shows that the one before did not.
fn change(before: Option<&SocketSnapshot>, now: &SocketSnapshot) -> Option<(String, String)> {
    let same = before.is_some_and(|b| {
        (b.timer, b.retrans, b.probes, b.unacked > 0) == (now.timer, now.retrans, now.probes, now.unacked > 0)
    });
    if same {
        return None;
    }
    let mut said = vec![format!("{} runs", timer(now.timer))];
    if now.timer == 0 {
        said = vec!["no timer runs".to_string()];
    }
    let mut short = String::new();
    if now.retrans > 0 && now.timer == 1 {
        said.push(format!("{} retransmitted, back-off {}", times(now.retrans), now.backoff));
        short = format!("retransmitted {}×", now.retrans);
    }
    if now.probes > 0 {
        said.push(format!("{} unanswered", plural(now.probes, "probe")));
        short = format!("{} out", plural(now.probes, "probe"));
    }
    if now.wqueue > 0 {
        said.push(format!("{} bytes unacknowledged", now.wqueue));
    }
    if short.is_empty() {
        short = if now.timer == 0 { "no timer" } else { timer(now.timer).trim_end_matches(" timer") }.to_string();
    }
    Some((short, said.join(", ")))
}

fn times(n: u8) -> String {
    if n == 1 { "once".to_string() } else { format!("{n} times") }
}

fn plural(n: u8, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The moments of some trials, by their numbers, each with the instant of its cut and the client's end of the connection.
pub(super) fn moments(
    events: &[Event],
    cuts: &HashMap<u32, (Offset, Option<SocketAddrV4>)>,
) -> HashMap<u32, Vec<Moment>> {
    let mut last: HashMap<u32, SocketSnapshot> = HashMap::new();
    let mut found: HashMap<u32, Vec<Moment>> = HashMap::new();
    let mut in_order: Vec<&Event> = events.iter().filter(|e| e.trial.is_some_and(|t| cuts.contains_key(&t))).collect();
    in_order.sort_by_key(|e| e.offset);
    for event in in_order {
        let Some((trial, (cut, local))) = event.trial.and_then(|t| Some((t, cuts.get(&t)?))) else { continue };
        let at_s = Offset(event.offset.0.saturating_sub(cut.0)).as_secs();
        let told = match &event.kind {
            Kind::Snapshot { tuple, socket } if Some(tuple.local) == *local => {
                let changed = change(last.get(&trial), socket);
                last.insert(trial, socket.clone());
                changed.map(|(short, text)| (Lane::Socket, short, text))
            }
            Kind::Delivered { message, .. } => {
                Some((Lane::Message, format!("#{message}"), format!("message {message} reached the client")))
            }
            _ => None,
        };
        if let Some((lane, short, text)) = told {
            found.entry(trial).or_default().push(Moment { lane, at_s, short, text, who: None });
        }
    }
    for list in found.values_mut() {
        shorten(list);
    }
    found
}

/// Of what came before the cut the last of each lane, of what came after it the first ones.
fn shorten(list: &mut Vec<Moment>) {
    for lane in [Lane::Socket, Lane::Message] {
        let last_before = list.iter().rposition(|m| m.lane == lane && m.at_s < 0.0);
        let mut index = 0;
        list.retain(|m| {
            let keep = m.lane != lane || m.at_s >= 0.0 || Some(index) == last_before;
            index += 1;
            keep
        });
    }
    for lane in [Lane::Socket, Lane::Message] {
        let of_lane = list.iter().filter(|m| m.lane == lane).count();
        if of_lane <= MOST {
            continue;
        }
        let mut kept = 0;
        list.retain(|m| {
            kept += usize::from(m.lane == lane);
            m.lane != lane || kept <= MOST
        });
        if let Some(end) = list.iter_mut().rev().find(|m| m.lane == lane) {
            end.text = format!("{}; {} more follow", end.text, of_lane - MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_told() {
        let quiet = SocketSnapshot { state: 1, timer: 2, ..SocketSnapshot::default() };
        assert_eq!(change(None, &quiet).unwrap().1, "keepalive timer runs");
        assert_eq!(change(Some(&quiet), &quiet), None);
        let probing = SocketSnapshot { probes: 2, ..quiet.clone() };
        let (short, text) = change(Some(&quiet), &probing).unwrap();
        assert_eq!((short.as_str(), text.as_str()), ("2 probes out", "keepalive timer runs, 2 probes unanswered"));
        let sending = SocketSnapshot { timer: 1, retrans: 3, backoff: 3, wqueue: 8, unacked: 1, ..quiet };
        let (short, text) = change(Some(&probing), &sending).unwrap();
        assert_eq!(short, "retransmitted 3×");
        assert_eq!(text, "retransmission timer runs, 3 times retransmitted, back-off 3, 8 bytes unacknowledged");
    }
}

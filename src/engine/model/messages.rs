//! The numbered messages of one trial: who gets them, when, and what ends the wait of those that are stuck.
//!
//! A queue is a queue: what was pushed to a dead connection comes back only when the broker gives that connection up,
//! what was not pushed waits for the next consumer. What is left out: more than the first message getting through
//! before the sender stalls for want of acknowledgements, and the order of redelivered ones among the others.

use super::course::Course;
use super::draw::Schedule;
use crate::events::Kind;
use crate::scenario::{Ack, BrokerKind, ReaperGeneration, SubjectKind};
use crate::timers::Watcher;
use crate::units::Offset;
use std::time::Duration;

/// One message.
#[derive(Debug, Clone, Default)]
struct Message {
    published: Offset,
    /// When, on which connection, and whether marked as repeated.
    deliveries: Vec<(Offset, u32, bool)>,
    /// Acknowledgements that the client sent.
    acks: Vec<(Offset, u32)>,
    /// The embedded peer got it.
    received: Option<Offset>,
    /// The connection that carried it, for a writer.
    attempt: u32,
    reaped: Option<Offset>,
}

impl Message {
    fn at(published: Offset) -> Self {
        Self { published, ..Self::default() }
    }
}

/// Everything that happens to messages, not in order.
pub fn events(course: &Course<'_>) -> Vec<(Offset, Kind)> {
    let kind = course.arm.settings.subject;
    let mut messages = match kind {
        SubjectKind::TcpReader => reader(course),
        SubjectKind::TcpWriter => writer(course),
        _ if kind.broker() == BrokerKind::Rabbitmq => rabbitmq(course),
        _ => redis(course),
    };
    reap(course, &mut messages);
    let mut events = Vec::new();
    for (id, message) in (0u64..).zip(&messages) {
        let mut say = |at: Offset, kind: Kind| {
            if at <= course.last {
                events.push((at, kind));
            }
        };
        match kind {
            SubjectKind::TcpWriter => say(message.published, Kind::Sent { attempt: message.attempt, message: id }),
            _ => say(message.published, Kind::Published { message: id }),
        }
        if kind.broker() != BrokerKind::None {
            say(message.published, Kind::Confirmed { message: id });
        }
        for &(at, attempt, redelivered) in &message.deliveries {
            say(at, Kind::Delivered { attempt, message: id, redelivered });
        }
        for &(at, attempt) in &message.acks {
            say(at, Kind::Acked { attempt, message: id });
        }
        if let Some(at) = message.received {
            say(at, Kind::PeerReceived { message: id });
        }
        let stored = course.plan.scenario.reaper.is_some();
        let seen = kind.broker() != BrokerKind::None && !kind.is_command();
        // What was failed before it arrives is not worked on, and a task store lets only one consumer begin.
        let mut arrivals = message.deliveries.clone();
        arrivals.retain(|(at, ..)| message.reaped.is_none_or(|reaped| *at < reaped));
        arrivals.sort_unstable();
        arrivals.truncate(if stored { 1 } else { arrivals.len() });
        for (at, attempt, _) in arrivals.into_iter().filter(|_| stored || seen) {
            let late = course.arm.settings.ack != Some(Ack::Early);
            let work =
                if kind.broker() == BrokerKind::Rabbitmq && late { course.arm.settings.work() } else { Duration::ZERO };
            say(at, Kind::Started { attempt, message: id });
            if seen {
                say(at + work, Kind::Effect { message: id });
            }
            if stored {
                say(at + work, Kind::Finished { attempt, message: id });
            }
        }
        if let Some(at) = message.reaped {
            say(at, Kind::Reaped { message: id, rule: Watcher::QueuedTimeout.name().to_string(), retried: false });
        }
    }
    events
}

/// When messages are published: the one task at the cut, or the schedule of the load.
fn times(course: &Course<'_>) -> Vec<Offset> {
    match (&course.plan.scenario.tasks, course.schedule) {
        (Some(_), _) => vec![course.cut],
        (None, Some(schedule)) => schedule.until(course.last).collect(),
        (None, None) => Vec::new(),
    }
}

/// Times of a bare TCP connection: its own schedule, and after a reconnect that of the new one.
fn times_by_connection(course: &Course<'_>, first_ends: Option<Offset>) -> Vec<(Offset, u32)> {
    let Some(every) = course.plan.scenario.load_of(course.arm) else {
        return times(course).into_iter().map(|at| (at, 0)).collect();
    };
    let first = course.schedule.into_iter().flat_map(|s| s.until(first_ends.unwrap_or(course.last)));
    let again = course.ready_again().into_iter().flat_map(|(attempt, ready)| {
        Schedule::new(ready, every, course.trial.id).until(course.last).map(move |at| (at, attempt))
    });
    first.map(|at| (at, 0)).chain(again).collect()
}

/// The peer writes into the connection; what the path swallows is gone with it.
fn reader(course: &Course<'_>) -> Vec<Message> {
    let through = course.through(course.broker_data.as_ref());
    let mut stalled = false;
    let served_until = course.ready_again().map(|(_, at)| at);
    let mut messages = Vec::new();
    for (at, attempt) in times_by_connection(course, served_until) {
        let mut message = Message::at(at);
        let delivered = match attempt {
            0 => {
                over_the_first(course, at, course.open_to_client(at), course.open_to_broker(at), through, &mut stalled)
            }
            _ => Some(at),
        };
        message
            .deliveries
            .extend(delivered.filter(|d| before_notice(course, *d, attempt)).map(|d| (d, attempt, false)));
        messages.push(message);
    }
    messages
}

/// The client writes; the peer receives.
fn writer(course: &Course<'_>) -> Vec<Message> {
    let through = course.through(course.client_data.as_ref());
    let mut stalled = false;
    let mut messages = Vec::new();
    for (at, attempt) in times_by_connection(course, course.notice.map(|(at, _)| at)) {
        let received = match attempt {
            0 => {
                over_the_first(course, at, course.open_to_broker(at), course.open_to_client(at), through, &mut stalled)
            }
            _ => Some(at),
        };
        messages.push(Message { attempt, received, ..Message::at(at) });
    }
    messages
}

/// When data that is sent at `at` arrives over the connection under test. `forth` is its direction, `back` that of its
/// acknowledgements: without them the first segment arrives and the sender then stalls.
fn over_the_first(
    course: &Course<'_>,
    at: Offset,
    forth: bool,
    back: bool,
    through: Option<Offset>,
    stalled: &mut bool,
) -> Option<Offset> {
    let dead = |since: Offset| course.far_end.is_some_and(|(gone, _)| since >= gone);
    if at < course.cut || course.fault.is_control() {
        return Some(at);
    }
    if let Some(through) = through {
        // Whatever was sent into the cut arrives with the copy that gets through, in order.
        let first_of_one_way = forth && !back && !std::mem::replace(stalled, true);
        return Some(if first_of_one_way { at } else { at.max(through) });
    }
    let arrives = forth && (back || !std::mem::replace(stalled, true)) && !dead(at);
    arrives.then_some(at)
}

/// A client that has given its connection up reads nothing from it any more.
fn before_notice(course: &Course<'_>, at: Offset, attempt: u32) -> bool {
    attempt > 0 || course.notice.is_none_or(|(notice, _)| at < notice)
}

/// RabbitMQ pushes up to the prefetch to a consumer, dead or alive, and takes back what a connection that it gave up
/// had not acknowledged.
fn rabbitmq(course: &Course<'_>) -> Vec<Message> {
    let settings = &course.arm.settings;
    let work = if settings.ack == Some(Ack::Early) { Duration::ZERO } else { settings.work() };
    let room = match settings.prefetch {
        None | Some(0) => usize::MAX,
        Some(n) => usize::from(n),
    };
    let mut messages: Vec<Message> = times(course).into_iter().map(Message::at).collect();
    let through = course.through(course.broker_data.as_ref());
    let acked_in_time = |at: Offset| course.notice.is_none_or(|(notice, _)| at + work < notice);
    // Pushed to the connection under test and not acknowledged at the broker.
    let mut held: Vec<usize> = Vec::new();
    let mut waiting: Vec<usize> = Vec::new();
    let (mut stalled, mut turn) = (false, false);
    let ready = course.ready_again();
    let mut requeue = course.far_end.map(|(at, _)| at);
    for (index, message) in messages.iter_mut().enumerate() {
        let at = message.published;
        let direct =
            over_the_first(course, at, course.open_to_client(at), course.open_to_broker(at), through, &mut stalled);
        if at < course.cut || through.is_some() || course.fault.is_control() {
            // The backlog after a healing is worked off a prefetch at a time.
            message.deliveries.extend(direct.filter(|d| before_notice(course, *d, 0)).map(|d| (d, 0, false)));
            message.acks.extend(direct.filter(|d| acked_in_time(*d)).map(|d| (d + work, 0)));
            let lost = direct.is_some_and(|d| d + work >= course.cut && !course.open_to_broker(d + work));
            if lost && through.is_none() {
                held.push(index);
            }
            continue;
        }
        let to_ghost = requeue.is_none_or(|gone| at < gone) && held.len() < room;
        // With two consumers that have room they are served in turns.
        let both = ready.is_some_and(|(_, r)| at >= r);
        turn = !turn;
        if to_ghost && (!both || turn) {
            if let Some(d) = direct.filter(|d| before_notice(course, *d, 0)) {
                message.deliveries.push((d, 0, false));
                message.acks.extend(acked_in_time(d).then_some((d + work, 0)));
            }
            if let Some(limit) = course.consumer_timeout_s.filter(|_| held.is_empty()) {
                // Counted from the first delivery that stays unacknowledged.
                let timeout = course.after(at.since(course.cut).as_secs_f64() + limit);
                requeue = Some(requeue.map_or(timeout, |gone| gone.min(timeout)));
            }
            held.push(index);
        } else {
            waiting.push(index);
        }
    }
    let Some((attempt, ready)) = ready else { return messages };
    let mut backlog = 0usize;
    for index in waiting {
        let late = messages[index].published < ready;
        let batch = u32::try_from(backlog / room).unwrap_or(u32::MAX);
        let at = messages[index].published.max(ready + if late { work * batch } else { Duration::ZERO });
        backlog += usize::from(late);
        messages[index].deliveries.push((at, attempt, false));
        messages[index].acks.push((at + work, attempt));
    }
    for (n, index) in held.into_iter().enumerate() {
        let Some(gone) = requeue else { break };
        let batch = u32::try_from(n / room).unwrap_or(u32::MAX);
        let at = gone.max(ready) + work * batch;
        messages[index].deliveries.push((at, attempt, true));
        messages[index].acks.push((at + work, attempt));
    }
    messages
}

/// `BRPOP` removes what it delivers: the message that is popped for a dead client is lost, the others stay in the list.
fn redis(course: &Course<'_>) -> Vec<Message> {
    let mut messages: Vec<Message> = times(course).into_iter().map(Message::at).collect();
    let through = course.through(course.broker_data.as_ref());
    let ready = course.ready_again();
    // The command that was outstanding at the cut is answered with nothing when its own timeout runs out.
    let asked_until = course.arm.settings.read_timeout.get().map(|limit| {
        let silence = course.case.conditions.traffic.broker_messages.unwrap_or_default();
        course.cut + (limit / 2).saturating_sub(silence.mul_f64(course.phases.age))
    });
    let mut popped = false;
    for message in &mut messages {
        let at = message.published;
        let first = if at < course.cut || course.fault.is_control() {
            Some((at, 0))
        } else if let Some(through) = through {
            let one_way = course.open_to_client(at) && !std::mem::replace(&mut popped, true);
            Some((if one_way { at } else { at.max(through) }, 0))
        } else if !popped
            && asked_until.is_none_or(|until| at < until)
            && course.far_end.is_none_or(|(gone, _)| at < gone)
            && ready.is_none_or(|(_, r)| at < r)
        {
            popped = true;
            course.open_to_client(at).then_some((at, 0)).filter(|_| before_notice(course, at, 0))
        } else {
            ready.map(|(attempt, r)| (at.max(r), attempt))
        };
        message.deliveries.extend(first.map(|(at, attempt)| (at, attempt, false)));
    }
    messages
}

/// The scheduler fails what is queued for too long: at the first of its sweeps at which the row is older than the
/// timeout. From Airflow 2.10.4 it queues the row again twice before, which gives a consumer that is back another chance.
fn reap(course: &Course<'_>, messages: &mut [Message]) {
    let Some(reaper) = &course.plan.scenario.reaper else { return };
    let interval = i64::try_from(reaper.interval.as_nanos()).unwrap_or(i64::MAX).max(1);
    let first_sweep = course.after(course.phases.reaper_check * reaper.interval.as_secs_f64());
    let sweep_after = |at: Offset| {
        let steps = (at.0 - first_sweep.0).div_euclid(interval) + 1;
        Offset(first_sweep.0.saturating_add(steps.saturating_mul(interval)))
    };
    let acknowledges = course.arm.settings.subject.broker() == BrokerKind::Rabbitmq;
    for message in messages {
        // From its first delivery on a task is running, and this rule is not about it any more.
        let begun = message.deliveries.iter().map(|(at, ..)| *at).min();
        let begun = [begun, message.received].into_iter().flatten().min();
        let sweep = sweep_after(message.published + reaper.timeout);
        if begun.is_some_and(|at| at <= sweep) {
            continue;
        }
        match reaper.generation {
            ReaperGeneration::FailsAtOnce => message.reaped = Some(sweep),
            ReaperGeneration::RequeuesTwice => {
                let second = sweep_after(sweep + reaper.timeout);
                let third = sweep_after(second + reaper.timeout);
                let again = course.ready_again().map(|(attempt, ready)| (ready.max(sweep), attempt));
                match again.filter(|(at, _)| *at < third) {
                    Some((at, attempt)) => {
                        message.deliveries.push((at, attempt, false));
                        if acknowledges {
                            message.acks.push((at + course.arm.settings.work(), attempt));
                        }
                    }
                    None if begun.is_none_or(|at| at > third) => message.reaped = Some(third),
                    None => {}
                }
            }
        }
    }
}

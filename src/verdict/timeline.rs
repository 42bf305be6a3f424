//! The facts of one trial, taken out of its events once: sorted, without duplicates, cut off at the trial's end.

use crate::events::{Cause, Counters, EffectiveOptions, Event, How, Kind, SocketSnapshot, Tuple};
use crate::plan::Plan;
use crate::units::Offset;
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

/// The events of each trial of the plan, in plan order. Each list is in one canonical order, without duplicates.
pub(super) fn by_trial<'e>(plan: &Plan, events: &'e [Event]) -> Vec<Vec<&'e Event>> {
    let by_id: HashMap<u32, usize> = plan.trials.iter().enumerate().map(|(i, t)| (t.id, i)).collect();
    let by_client: HashMap<Ipv4Addr, usize> = plan.trials.iter().enumerate().map(|(i, t)| (t.client, i)).collect();
    let mut lists = vec![Vec::new(); plan.trials.len()];
    for event in events {
        let index = match event.trial {
            Some(id) => by_id.get(&id),
            None => tuple_of(&event.kind).and_then(|t| by_client.get(t.local.ip())),
        };
        if let Some(list) = index.and_then(|i| lists.get_mut(*i)) {
            list.push(event);
        }
    }
    for list in &mut lists {
        canonical(list);
    }
    lists
}

/// By time; events of one instant by their text, so that the order of arrival never matters.
fn canonical(list: &mut Vec<&Event>) {
    let text = |e: &Event| serde_json::to_string(e).unwrap_or_default();
    list.sort_by(|a, b| a.offset.cmp(&b.offset).then_with(|| text(a).cmp(&text(b))));
    list.dedup_by(|a, b| a == b);
}

fn tuple_of(kind: &Kind) -> Option<Tuple> {
    match kind {
        Kind::Connected { tuple, .. }
        | Kind::PeerEnded { tuple, .. }
        | Kind::KernelEnd { tuple, .. }
        | Kind::Snapshot { tuple, .. }
        | Kind::Role { tuple, .. }
        | Kind::BrokerEnd { tuple, .. }
        | Kind::FaultApplied { tuple, .. } => Some(*tuple),
        _ => None,
    }
}

/// What is known only after the end of the watch.
fn is_late(kind: &Kind) -> bool {
    matches!(kind, Kind::Certificate { .. } | Kind::Proof { .. } | Kind::Used { .. })
}

/// How long after it closed a connection a client may still say why.
const SAID_AFTER_NS: i64 = 1_000_000_000;

/// The cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applied {
    pub tuple: Tuple,
    pub before: Offset,
    pub after: Offset,
    pub age_s: Option<f64>,
}

/// The end of a connection as the client's kernel saw it.
#[derive(Debug, Clone)]
pub(super) struct KernelEnd {
    pub at: Offset,
    pub errno: Option<i32>,
    pub not_before: Option<Offset>,
    pub by: String,
}

/// The end of a connection at the other end.
#[derive(Debug, Clone)]
pub(super) enum FarEnd {
    Broker { reason: String, text: String },
    Peer(Cause),
}

/// One connection, or an attempt at one.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempt {
    pub connecting: Option<Offset>,
    pub connected: Option<(Offset, Tuple)>,
    pub options: Option<EffectiveOptions>,
    pub ready: Option<Offset>,
    /// What it was for, where its traffic or the broker told.
    pub role: Option<String>,
    /// Whose word that is.
    pub role_from: &'static str,
    pub failed: Option<(Offset, Cause)>,
    pub notice: Option<(Offset, Cause)>,
    pub kernel_end: Option<KernelEnd>,
    pub far_end: Option<(Offset, FarEnd)>,
    /// Looks at the socket, in order.
    pub snapshots: Vec<(Offset, SocketSnapshot)>,
    /// When the client itself put data on the wire: messages and acknowledgements.
    pub wrote: Vec<Offset>,
}

impl Attempt {
    /// The end of the connection as far as the client's side knows: kernel or subject, whichever came first.
    pub fn local_end(&self) -> Option<Offset> {
        let notice = self.notice.as_ref().map(|(at, _)| *at);
        let kernel = self.kernel_end.as_ref().map(|end| end.at);
        notice.into_iter().chain(kernel).min()
    }
}

/// The facts of one trial.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    pub attempts: BTreeMap<u32, Attempt>,
    pub applied: Option<Applied>,
    /// The harness ended the first connection, so that the reconnect is the connection under test; what had been counted then.
    pub hung_up: Option<Counters>,
    pub fault_failed: Option<(Offset, String)>,
    /// The last heal, unless the fault came again after it.
    pub healed: Option<(Offset, Offset)>,
    /// When each cut after the first was in force.
    pub repeated: Vec<Offset>,
    /// When each heal began.
    pub heals: Vec<Offset>,
    /// Looks at what a fault beyond the path does, and whether it was as it should be.
    pub proofs: Vec<(Offset, String, bool)>,
    pub first_drop: Option<(Offset, Option<Offset>)>,
    pub certificates: Vec<(Offset, Counters, bool)>,
    pub exited: Option<(Offset, String)>,
    /// Processor time in milliseconds and memory in KiB of a client that is a program of somebody else's.
    pub used: Option<(u64, u64)>,
    /// Why the client gave a connection up, by its own words.
    said: Vec<(Offset, How, String)>,
    /// When the watch ended, and whether it was cut short.
    pub ended: Option<(Offset, bool)>,
}

impl Timeline {
    /// Takes the facts out of events in canonical order. What follows the trial's end is the harness tidying up and is
    /// left out, except certificates and proofs: those are read at the end.
    pub fn new(events: &[&Event]) -> Self {
        let ended = events.iter().find_map(|e| match &e.kind {
            Kind::TrialEnded { why } => Some((e.offset, why == "interrupted")),
            _ => None,
        });
        let mut t = Self { ended, ..Self::default() };
        let last = t.ended.map_or(Offset(i64::MAX), |(at, _)| at);
        for event in events.iter().filter(|e| e.offset <= last || is_late(&e.kind)) {
            t.take(event.offset, &event.kind);
        }
        t.let_it_say_why();
        // Tuples are known only now: a look at a socket may be stamped before the client reports its connection.
        for event in events.iter().filter(|e| e.offset <= last) {
            t.take_by_tuple(event.offset, &event.kind);
        }
        t
    }

    /// The connection under test. Where the harness ended the first one, that is the reconnect: it may never have stood, and
    /// whoever ends the attempt has noticed.
    pub fn first(&self) -> Attempt {
        let of = |number: u32| self.attempts.get(&number).cloned().unwrap_or_default();
        if self.hung_up.is_none() {
            return of(0);
        }
        let (ended, again) = (of(0), of(1));
        let (connected, notice) = (again.connected.or(ended.connected), again.notice.clone().or(again.failed.clone()));
        Attempt { ready: ended.ready, connected, notice, ..again }
    }

    /// The first connection that the client gave up after `cut`: when, which, and what it was for.
    pub fn first_reaction(&self, cut: Offset) -> Option<(Offset, u32, String)> {
        let gave_up = |(number, attempt): (&u32, &Attempt)| {
            let at = attempt.notice.as_ref().map(|(at, _)| *at).filter(|at| *at > cut)?;
            let open = attempt.connected.is_some_and(|(opened, _)| opened < cut);
            open.then(|| (at, *number, attempt.role.clone().unwrap_or_default()))
        };
        self.attempts.iter().filter_map(gave_up).min()
    }

    fn of(&mut self, attempt: u32) -> &mut Attempt {
        self.attempts.entry(attempt).or_default()
    }

    fn take(&mut self, at: Offset, kind: &Kind) {
        match kind {
            Kind::Connecting { attempt } => _ = self.of(*attempt).connecting.get_or_insert(at),
            Kind::Connected { attempt, tuple } => _ = self.of(*attempt).connected.get_or_insert((at, *tuple)),
            Kind::Options { attempt, effective } => self.of(*attempt).options = Some(effective.clone()),
            Kind::Ready { attempt } => _ = self.of(*attempt).ready.get_or_insert(at),
            Kind::ConnectFailed { attempt, cause } => _ = self.of(*attempt).failed.get_or_insert((at, cause.clone())),
            Kind::Notice { attempt, cause } => _ = self.of(*attempt).notice.get_or_insert((at, cause.clone())),
            Kind::Sent { attempt, .. } | Kind::Acked { attempt, .. } | Kind::Called { attempt, .. } => {
                self.of(*attempt).wrote.push(at)
            }
            Kind::FaultApplied { tuple, before, after, age_at_fault_s } => {
                let applied = Applied { tuple: *tuple, before: *before, after: *after, age_s: *age_at_fault_s };
                self.applied.get_or_insert(applied);
            }
            Kind::HungUp { counted, .. } => _ = self.hung_up.get_or_insert(*counted),
            Kind::FaultFailed { reason } => _ = self.fault_failed.get_or_insert((at, reason.clone())),
            Kind::FaultHealed { before, after } => {
                self.heals.push(*before);
                self.healed.get_or_insert((*before, *after));
            }
            Kind::FaultRepeated { after, .. } => {
                self.repeated.push(*after);
                self.healed = None;
            }
            Kind::Proof { what, holds } => self.proofs.push((at, what.clone(), *holds)),
            Kind::FirstDrop { not_before } => _ = self.first_drop.get_or_insert((at, *not_before)),
            Kind::Certificate { counters, intact } => self.certificates.push((at, *counters, *intact)),
            Kind::Used { cpu_ms, peak_rss_kib, .. } => self.used = Some((*cpu_ms, *peak_rss_kib)),
            Kind::Said { how, text } => self.said.push((at, *how, text.clone())),
            Kind::SubjectExited { status } => _ = self.exited.get_or_insert((at, status.clone())),
            _ => {}
        }
    }

    /// Some clients close first and speak then: what is said in a moment after the notice is its reason.
    fn let_it_say_why(&mut self) {
        let said = std::mem::take(&mut self.said);
        let Some((at, cause)) = self.attempts.get_mut(&0).and_then(|first| first.notice.as_mut()) else { return };
        let within = |after: Offset| (0..=SAID_AFTER_NS).contains(&(after.0 - at.0));
        let reason = said.iter().find(|(after, how, _)| within(*after) && *how != How::Other);
        if let Some((_, how, text)) = reason.filter(|_| cause.how == How::Other) {
            cause.how = *how;
            cause.text = format!("{}; it said: {text}", cause.text);
        }
    }

    fn take_by_tuple(&mut self, at: Offset, kind: &Kind) {
        let Some(attempt) = tuple_of(kind).and_then(|tuple| self.owner(tuple, at)) else { return };
        match kind {
            Kind::Role { role, from, .. } => {
                (attempt.role, attempt.role_from) = (Some(role.clone()), source_of_role(from));
            }
            Kind::Snapshot { socket, .. } => attempt.snapshots.push((at, socket.clone())),
            Kind::KernelEnd { errno, not_before, by, .. } => match &mut attempt.kernel_end {
                // The first sighting dates the end; a later one may still know the error.
                Some(end) => end.errno = end.errno.or(*errno),
                None => {
                    attempt.kernel_end = Some(KernelEnd { at, errno: *errno, not_before: *not_before, by: by.clone() });
                }
            },
            Kind::BrokerEnd { reason, text, .. } => {
                let far = FarEnd::Broker { reason: reason.clone(), text: text.clone() };
                attempt.far_end.get_or_insert((at, far));
            }
            Kind::PeerEnded { cause, .. } => _ = attempt.far_end.get_or_insert((at, FarEnd::Peer(cause.clone()))),
            _ => {}
        }
    }

    /// The attempt whose connection carried this name at that time: the latest that was open by then, because a port
    /// can be used again.
    fn owner(&mut self, tuple: Tuple, at: Offset) -> Option<&mut Attempt> {
        let mut named: Vec<(Offset, u32)> = self
            .attempts
            .iter()
            .filter_map(|(n, a)| a.connected.filter(|(_, own)| *own == tuple).map(|(opened, _)| (opened, *n)))
            .collect();
        named.sort_unstable();
        let chosen = named.iter().rev().find(|(opened, _)| *opened <= at).or(named.first())?.1;
        self.attempts.get_mut(&chosen)
    }
}

/// Whose word a role is, for the table.
fn source_of_role(from: &str) -> &'static str {
    match from {
        "rabbitmqctl" => "rabbitmqctl",
        "client_list" => "client_list",
        _ => "traffic",
    }
}

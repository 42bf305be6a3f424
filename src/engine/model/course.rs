//! The course of one trial: when its connection ends for whom, and what its client does then.

use super::draw::{self, Schedule};
use super::path::{self, FarReason, Lost};
use crate::plan::{Plan, Trial};
use crate::scenario::{Arm, Fault, SubjectKind};
use crate::timers::kernel::syn::SynTimer;
use crate::timers::{Case, Phases, Watcher, step};
use crate::units::Offset;
use std::time::Duration;

/// Between a failed attempt and the next one, as the subjects do it.
const PAUSE_S: f64 = 1.0;

/// One attempt to connect after the first connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it begins.
    pub begins: Offset,
    /// When it consumes, or else when it fails and whether by the client's own limit.
    pub ends: Result<Offset, (Offset, bool)>,
}

/// What happens to one trial. Times that lie beyond [`Course::last`] do not happen.
pub struct Course<'p> {
    /// The whole plan.
    pub plan: &'p Plan,
    /// The trial.
    pub trial: &'p Trial,
    /// Its arm.
    pub arm: &'p Arm,
    /// Its fault.
    pub fault: &'p Fault,
    /// The case that is stepped.
    pub case: &'p Case,
    /// Its phases.
    pub phases: Phases,
    /// The numbered messages of the first connection.
    pub schedule: Option<Schedule>,
    /// The cut, or in a control the moment at which it would have been.
    pub cut: Offset,
    /// The end of the horizon.
    pub last: Offset,
    /// The path heals, within the horizon.
    pub heal: Option<Offset>,
    /// The client learns of the end.
    pub notice: Option<(Offset, Watcher)>,
    /// The other end gives up, or learns that the client has.
    pub far_end: Option<(Offset, FarReason)>,
    /// The client's data that is lost.
    pub client_data: Option<Lost>,
    /// The broker's.
    pub broker_data: Option<Lost>,
    /// RabbitMQ's `consumer_timeout`, counted from a delivery, in seconds.
    pub consumer_timeout_s: Option<f64>,
    /// Attempts after the notice.
    pub attempts: Vec<Attempt>,
}

impl<'p> Course<'p> {
    /// Steps the trial. Connections are open and consuming at the run's zero.
    pub fn new(plan: &'p Plan, trial: &'p Trial, case: &'p Case) -> Self {
        let scenario = &plan.scenario;
        let (arm, fault) = (&scenario.arms[trial.arm], &scenario.faults[trial.fault]);
        let cut = Offset::ZERO + scenario.settle + trial.phase;
        let last = cut + scenario.horizon;
        let schedule =
            scenario.load_of(&scenario.arms[trial.arm]).map(|every| Schedule::new(Offset::ZERO, every, trial.id));
        let mut phases = draw::phases(scenario.seed, &arm.name, trial);
        draw::align(&mut phases, case, schedule, cut, arm.settings.work());
        let trace = step(case, &phases);
        let client_data = path::of_client(case, &phases);
        let broker_data =
            path::of_broker(case, &phases, scenario.tasks.is_some() && arm.settings.subject != SubjectKind::TcpWriter);
        let far = path::far_end(case, &phases, &trace, broker_data.as_ref());
        let heal = fault.duration.get().map(|d| cut + d).filter(|at| *at < last);
        let mut course = Self {
            plan,
            trial,
            arm,
            fault,
            case,
            phases,
            schedule,
            cut,
            last,
            heal,
            notice: None,
            far_end: None,
            client_data,
            broker_data,
            consumer_timeout_s: trace.fires.iter().find(|i| i.watcher == Watcher::ConsumerTimeout).map(|i| i.at_s),
            attempts: Vec::new(),
        };
        let within = |at: &Offset| *at <= last;
        course.notice = trace.detection.map(|i| (course.after(i.at_s), i.watcher)).filter(|(at, _)| within(at));
        course.far_end = far.map(|(at, why)| (course.after(at), why)).filter(|(at, _)| within(at));
        course.told_after_healing();
        course.closed_by_the_client();
        course.reconnect();
        course
    }

    /// An instant after the cut, to the microsecond: finer than any timer, and exact in every file.
    pub fn after(&self, seconds: f64) -> Offset {
        let micros = (seconds.max(0.0) * 1e6).round().min(9e15) as u64;
        self.cut + Duration::from_micros(micros)
    }

    /// Whether packets of the first connection pass to the broker at that time.
    pub fn open_to_broker(&self, at: Offset) -> bool {
        !self.fault.drop.to_broker || at < self.cut || self.heal.is_some_and(|heal| at >= heal)
    }

    /// Whether packets of the first connection pass to the client at that time.
    pub fn open_to_client(&self, at: Offset) -> bool {
        !self.fault.drop.to_client || at < self.cut || self.heal.is_some_and(|heal| at >= heal)
    }

    /// The first connection lives on after the path has healed.
    pub fn survives(&self) -> bool {
        self.heal.is_some_and(|heal| {
            self.notice.is_none_or(|(at, _)| at > heal) && self.far_end.is_none_or(|(at, _)| at > heal)
        })
    }

    /// When lost data of one end gets through after the healing; with nothing lost, the healing itself.
    pub fn through(&self, data: Option<&Lost>) -> Option<Offset> {
        let heal = self.heal.filter(|_| self.survives())?;
        let Some(data) = data else { return Some(heal) };
        let healed_s = heal.since(self.cut).as_secs_f64();
        data.through_at(healed_s).map(|at| self.after(at))
    }

    /// The first attempt that consumes again.
    pub fn ready_again(&self) -> Option<(u32, Offset)> {
        self.attempts.iter().find_map(|a| Some((a.number, a.ends.ok()?)))
    }

    /// The broker has given up while the path was dead, and the path heals: the first thing that the client sends is
    /// answered by a RST.
    fn told_after_healing(&mut self) {
        let (Some(heal), Some((gone, _)), Some(data)) = (self.heal, self.far_end, &self.client_data) else { return };
        if gone > heal || self.notice.is_some_and(|(at, _)| at <= heal) {
            return;
        }
        let Some(at) = data.through_at(heal.since(self.cut).as_secs_f64()).map(|at| self.after(at)) else { return };
        if at <= self.last && self.notice.is_none_or(|(known, _)| at < known) {
            self.notice = Some((at, Watcher::Reset));
        }
    }

    /// The client closes what it has given up; where the path is open its FIN arrives.
    fn closed_by_the_client(&mut self) {
        let Some((at, watcher)) = self.notice else { return };
        let open = watcher != Watcher::Reset && self.open_to_broker(at);
        if open && self.far_end.is_none_or(|(known, _)| known > at) {
            self.far_end = Some((at, FarReason::Closed));
        }
    }

    fn reconnect(&mut self) {
        let Some((mut begins, _)) = self.notice else { return };
        let settings = &self.arm.settings;
        // The redis client sets its socket's options after the handshake.
        let user_timeout = settings.tcp_user_timeout.get().filter(|_| settings.subject != SubjectKind::RedisBlocking);
        let syn = SynTimer::new(&self.case.client, None, user_timeout).window().span;
        let kernel_s = syn.lo_s + self.phases.client_tick * syn.width_s();
        let own_s = settings.connect_timeout.get().map(|d| d.as_secs_f64());
        let limit_s = own_s.map_or(kernel_s, |own| own.min(kernel_s));
        let blocked = |at: Offset| {
            !self.fault.scope.lets_reconnect() && !self.fault.is_control() && self.heal.is_none_or(|heal| at < heal)
        };
        for number in 1.. {
            if begins > self.last {
                return;
            }
            let opens = if blocked(begins) {
                self.heal.and_then(|heal| syn_after(heal.since(begins).as_secs_f64(), limit_s, self.case))
            } else {
                Some(0.0)
            };
            let ends = match opens {
                Some(after_s) => Ok(begins + Duration::from_secs_f64(after_s)),
                None => Err((begins + Duration::from_secs_f64(limit_s), own_s == Some(limit_s))),
            };
            self.attempts.push(Attempt { number, begins, ends });
            match ends {
                Ok(_) => return,
                Err((at, _)) => begins = at + Duration::from_secs_f64(PAUSE_S),
            }
        }
    }
}

/// The first SYN at or after `heal_s` of an attempt that is given up at `limit_s`: one a second at first, then at doubled
/// distances; without the wheel's rounding.
fn syn_after(heal_s: f64, limit_s: f64, case: &Case) -> Option<f64> {
    let (mut at, mut gap) = (0.0, 1.0);
    let mut linear = case.client.syn_linear_timeouts();
    while at < limit_s {
        if at >= heal_s {
            return Some(at);
        }
        at += gap;
        if linear > 0 {
            linear -= 1;
        } else {
            gap *= 2.0;
        }
    }
    None
}

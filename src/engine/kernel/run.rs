//! The dispatcher: builds the lab, starts the children, carries out the tracker's orders, tears down.

use super::Message;
use super::addresses::Addresses;
use super::alarms::Alarms;
use super::children::{Child, ChildNews};
use super::cutter::{Cutter, Request};
use super::distorted::Distorted;
use super::looks::Told;
use super::observers::{Observers, Roles};
use super::outside::Outside;
use super::owned::Owned;
use super::place::{self, work_dir};
use super::registry::Registry;
use super::tracker::{Order, Tracker};
use crate::clients::{self, Program, Where};
use crate::engine::job::{Facts, Job};
use crate::events::{Event, Kind, Source, Tuple};
use crate::fault::Table;
use crate::host::clock::Clock;
use crate::host::conntrack::Conntrack;
use crate::host::guest::in_user_mode_linux;
use crate::host::mailbox::{Nothing, Receiver, Sender, mailbox};
use crate::host::process::{nofile_within_reach, on_end};
use crate::host::userns::mapped_user;
use crate::host::{procfs, signals};
use crate::lab::{ADMIN, Broker, Lab, LabError, Patience, Resource, Seat};
use crate::observe::{Door, SockDiag};
use crate::plan::{self, Plan};
use crate::reaper::{Place, TaskStore};
use crate::scenario::{Act, BrokerKind, Injection, Settings, Trigger};
use crate::store::{EventLog, LOGS, MemoryUse, RunDir, StoreError};
use crate::subject::protocol::{Command, Sweeps, Target};
use crate::units::{Offset, Pace, TrialId, seconds};
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddrV4;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// The embedded peer's name among the children.
const PEER: &str = "peer";
/// The reapers' name.
const REAPER: &str = "reaper";
/// The proxies' names begin with this.
const PROXY: &str = "proxy";
/// How long connections may take to be consuming before their trials are void.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);
/// How much longer for each program of somebody else's: they start side by side, and each takes seconds of a processor.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(4);
/// Time between two words about the progress, by the time since the run began.
const PROGRESS: Pace = Pace::new(Duration::from_millis(100), 100).at_most(Duration::from_secs(30));
/// Descriptors that a child may need: a few a connection.
const NOFILE: u64 = 65_536;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Every trial reached its end.
    Complete,
    /// A signal came; what was measured until then is written.
    Interrupted,
}

/// Why a run could not be carried out.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The machine lacks something.
    #[error("{0}")]
    Cannot(String),
    /// The harness failed.
    #[error("{0}")]
    Harness(String),
}

fn harness(what: &str) -> impl Fn(std::io::Error) -> EngineError + '_ {
    move |e| EngineError::Harness(format!("{what}: {e}"))
}

fn store(e: StoreError) -> EngineError {
    EngineError::Harness(e.to_string())
}

/// Everything that is alive during a run.
struct Run<'a> {
    job: &'a Job,
    plan: &'a Plan,
    clock: Clock,
    lab: Lab,
    children: Vec<Child>,
    /// Index of the producer among the children, where there is one.
    producer: Option<usize>,
    /// Indices of the reapers among the children.
    reapers: Vec<usize>,
    /// Index of the user, where one waits for the tasks.
    user: Option<usize>,
    requests: Option<Sender<Request>>,
    cutter: Option<JoinHandle<Table>>,
    registry: Registry,
    observers: Observers,
    outside: Outside,
    inbox: Receiver<Message>,
    /// For children that are started in the course of the run.
    sender: Sender<Message>,
    /// What clients that were there before the run had open when the observers started.
    there: Vec<Tuple>,
    restarts: Restarts,
    /// The worker of each trial, where it is a process of its own.
    workers: HashMap<TrialId, usize>,
    again: StartedAgain,
    /// Where the tasks are written down.
    store: Option<String>,
    /// The socket of the provider at which effects are made.
    provider: Option<String>,
    facts: Facts,
}

/// Carries a job out. Events go to the run directory as they come; the facts are returned whatever happened.
///
/// # Errors
/// [`EngineError`]; what had been created is torn down first.
pub fn run(job: &Job, progress: &mut dyn FnMut(Progress)) -> (Facts, Result<Ending, EngineError>) {
    let clock = Clock::start();
    let mut facts = Facts { zero_ns: clock.zero_ns(), ..Facts::default() };
    let result = (|| {
        let mut events = RunDir::existing(&job.out).event_log(clock).map_err(store)?;
        let (sender, inbox) = mailbox();
        let patience = Patience::new(clock);
        signals::forward({
            let (sender, interrupted) = (sender.clone(), patience.interrupted.clone());
            move || {
                interrupted.store(true, Ordering::Relaxed);
                sender.send(Message::Interrupt).is_ok()
            }
        })
        .map_err(harness("signals"))?;
        progress(Progress::stage("building the lab and starting its brokers"));
        let lab = match place::build(job, &lab_spec(job), &patience) {
            Err(LabError::Interrupted) => return Ok(Ending::Interrupted),
            built => built.map_err(lab_error)?,
        };
        facts.phases_s.insert("lab".into(), seconds(clock.now().since(Offset::ZERO)));
        for broker in &lab.brokers {
            events.hide(&broker.password);
        }
        let mut run = Run::start(job, clock, lab, sender, inbox, std::mem::take(&mut facts))?;
        let ending = run.dispatch(&mut events, progress);
        let (run_facts, closed) = run.close(&mut events);
        facts = run_facts;
        let ending = ending?;
        closed?;
        events.flush().map_err(store)?;
        Ok(ending)
    })();
    facts.phases_s.insert("total".into(), seconds(clock.now().since(Offset::ZERO)));
    (facts, result)
}

/// Where a run stands, for the progress line.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is going on.
    pub stage: String,
    /// Share done and the time left, once that can be told.
    pub left: Option<(f64, Duration)>,
}

impl Progress {
    fn stage(text: &str) -> Self {
        Self { stage: text.to_string(), left: None }
    }
}

/// What the machine lacks is said with the mend; everything else is the harness's own failure.
fn lab_error(error: LabError) -> EngineError {
    match error {
        LabError::NoProgram { .. }
        | LabError::NoNetem { .. }
        | LabError::NoConntrack
        | LabError::Sysctl { .. }
        | LabError::Cannot(_) => EngineError::Cannot(error.to_string()),
        other => EngineError::Harness(other.to_string()),
    }
}

/// Whether a fault of the plan does something of the kind.
fn does(plan: &Plan, what: impl Fn(Act) -> bool) -> bool {
    plan.scenario.faults.iter().any(|fault| fault.act.is_some_and(&what))
}

/// What the run may do less than root on the machine itself could, where that is so.
fn rights() -> Vec<String> {
    let user = mapped_user().map(|user| format!("privileges: a user namespace of user {user}"));
    let within_reach = nofile_within_reach(NOFILE);
    let few = (within_reach < NOFILE).then(|| format!("descriptors: {within_reach} a process, by the hard limit"));
    user.into_iter().chain(few).collect()
}

impl<'a> Run<'a> {
    fn start(
        job: &'a Job,
        clock: Clock,
        lab: Lab,
        sender: Sender<Message>,
        inbox: Receiver<Message>,
        mut facts: Facts,
    ) -> Result<Self, EngineError> {
        let plan = &job.plan;
        for broker in &lab.brokers {
            let version = broker.version.clone().unwrap_or_else(|| "unknown".to_string());
            facts.brokers.insert(broker.kind.name().to_string(), version);
            facts.phases_s.insert(format!("{} start", broker.kind), seconds(broker.startup));
            facts.sources.extend(broker.unlike_stock.iter().map(|what| format!("start of {}: {what}", broker.kind)));
        }
        facts.sources.extend(lab.notes().iter().cloned());
        facts.sources.extend(job.firewall.map(|kind| format!("cuts: {kind}, in the table mangle")));
        let layout = layout(plan);
        let table = place::install_table(layout, job, &lab, clock).map_err(|e| EngineError::Cannot(e.to_string()))?;
        let diags = || -> Result<Vec<SockDiag>, EngineError> {
            lab.clients.iter().map(|ns| SockDiag::open(ns).map_err(|e| EngineError::Cannot(e.to_string()))).collect()
        };
        let registry = Registry::behind(layout);
        // A proxy reads its client's traffic itself.
        let any = plan.trials.iter().any(|trial| is_command(plan, trial.arm) && !proxied(plan, trial.fault));
        let door = any.then(|| Door::open(&lab.server));
        let read = door.as_ref().is_some_and(Result::is_ok);
        // Of what was there before the run there is no broker that could be asked.
        let mut outside = Outside::of(plan, read || !lab.brokers.is_empty());
        let aims = job.docker.as_ref().map(|docker| &docker.aims[..]).unwrap_or_default();
        aims.iter().enumerate().for_each(|(place, aim)| outside.place(aim.trial, place));
        let there: Vec<Tuple> = aims.iter().flat_map(|aim| attached(&lab, aim.trial)).collect();
        if !aims.is_empty() {
            facts.sources.push(TARGETS.into());
        }
        // A guest is a machine of its own: all of its sockets are of this run.
        let known = if in_user_mode_linux() { Vec::new() } else { diags()? };
        let owned = Owned::new(outside.pairs(), known).knowing(there.iter().copied());
        let heard = opening::heard(plan, &outside);
        let unread = opening::unread(plan, &heard, read);
        let roles = Roles { door: door.map(|door| (door, heard)), unread };
        let observers = Observers::start(clock, &registry, &sender, &lab, diags()?, owned, roles);
        let observers = observers.map_err(harness("observers"))?;
        facts.sources.extend(observers.sources());
        facts.sources.extend(rights());
        let mut far_ends = SockDiag::open(&lab.server).map_err(|e| EngineError::Cannot(e.to_string()))?;
        let ends = plan.scenario.faults.iter().any(|fault| fault.trigger == Some(Trigger::Reconnect));
        if ends || does(plan, Act::destroys) {
            far_ends.can_destroy().map_err(|e| EngineError::Cannot(e.to_string()))?;
        }
        let (requests, orders) = mailbox();
        let (tell, priority) = mailbox();
        let addresses = Addresses::new(lab.router.clone());
        let tracked = layout.middlebox.map(|_| Conntrack::open(&lab.router)).transpose();
        let tracked = tracked.map_err(|e| EngineError::Cannot(format!("connection tracking: {e}")))?;
        let injections: BTreeSet<Injection> = plan.scenario.faults.iter().map(|fault| fault.injection).collect();
        let injections: Vec<Injection> = injections.into_iter().collect();
        let distorted = Distorted::new(&lab.clients, &injections, clock);
        let distorted = distorted.map_err(|e| EngineError::Cannot(format!("a distorted cut: {e}")))?;
        let cutter = Cutter::new(clock, table, diags()?, far_ends, addresses, sender.clone());
        let cutter = cutter.through(tracked).distorting(distorted);
        let cutter = std::thread::Builder::new()
            .name("cutter".into())
            .spawn(move || {
                // Nobody who asks is gone before the answer.
                let _ = tell.send(crate::host::priority::real_time());
                cutter.serve(&orders)
            })
            .map_err(harness("cutter"))?;
        if let Ok(Err(why)) = priority.recv() {
            // The brackets say by themselves what that costs.
            facts.sources.push(format!("cuts: at ordinary priority ({why})"));
        }
        let mut run = Self {
            job,
            plan: &job.plan,
            clock,
            lab,
            children: Vec::new(),
            producer: None,
            reapers: Vec::new(),
            user: None,
            requests: Some(requests),
            cutter: Some(cutter),
            registry,
            observers,
            outside,
            inbox,
            sender: sender.clone(),
            there,
            restarts: Restarts::default(),
            workers: HashMap::new(),
            again: StartedAgain::default(),
            store: None,
            provider: None,
            facts,
        };
        for broker in &run.lab.brokers {
            let sender = sender.clone();
            on_end(broker.pid(), move || _ = sender.send(Message::BrokerEnded)).map_err(harness("broker"))?;
        }
        run.start_children(job)?;
        run.name_targets();
        if let Some(resource) = run.plan.scenario.faults.iter().find_map(|fault| Resource::of(fault.act?)) {
            let alarms = run.lab.brokers.iter().filter_map(|broker| broker.alarm(resource)).collect();
            run.ask(Request::Alarms(Alarms::new(resource, alarms)));
        }
        run.ask(Request::Proxies(run.proxy_pids()));
        Ok(run)
    }

    /// Runs until every trial has ended or a signal comes.
    fn dispatch(&mut self, events: &mut EventLog, progress: &mut dyn FnMut(Progress)) -> Result<Ending, EngineError> {
        let mut hello = vec![false; self.children.len()];
        let mut tracker: Option<Tracker<'_>> = None;
        let mut say_progress = self.clock.now();
        let mut interrupted = false;
        let total = self.plan.trials.len();
        loop {
            let mut orders = Vec::new();
            let due = tracker.as_ref().and_then(Tracker::next_deadline);
            let due = due
                .into_iter()
                .chain(events.due())
                .chain(self.restarts.next())
                .chain(tracker.as_ref().map(|_| say_progress))
                .min();
            let message = match due {
                Some(at) => self.inbox.recv_until(self.clock, at),
                None => self.inbox.recv(),
            };
            match message {
                Ok(Message::Event(mut event)) => {
                    if let Kind::PeerEnded { tuple, .. } = &mut event.kind {
                        *tuple = self.registry.inside(*tuple);
                    }
                    let all = self.outside.on_event(event);
                    orders.extend(self.take(&all, events, tracker.as_mut())?);
                }
                Ok(Message::Socket(change)) => {
                    if change.begins() {
                        self.observers.made(change.tuple);
                    }
                    let all = self.outside.on_socket(change);
                    orders.extend(self.take(&all, events, tracker.as_mut())?);
                }
                Ok(Message::Attached(trial, there)) => {
                    let all = self.outside.attach(trial, self.clock.now(), &there);
                    orders.extend(self.take(&all, events, tracker.as_mut())?);
                }
                Ok(Message::Child(index, ChildNews::Hello(versions))) => {
                    self.facts.clients.extend(versions);
                    match hello.get_mut(index) {
                        Some(heard) => *heard = true,
                        None => self.worker_or_reaper_is_back(index),
                    }
                }
                Ok(Message::Child(index, ChildNews::Garbled(text))) => {
                    return Err(EngineError::Harness(format!(
                        "{} spoke out of turn: {text}",
                        self.children[index].name()
                    )));
                }
                // It was meant to, and another one may have its place already.
                Ok(Message::Child(index, ChildNews::Ended { .. }))
                    if self.children[index].name() == PEER && self.kills_brokers() => {}
                Ok(Message::Child(index, ChildNews::Ended { .. })) => {
                    let status = self.children[index].status();
                    orders.extend(self.child_ended(index, &status, events, tracker.as_mut())?);
                }
                Ok(Message::StartAgain(act, trials)) => self.start_again(act, trials)?,
                Ok(Message::Answers(result)) => self.answers(result)?,
                Ok(Message::Interrupt) => interrupted = true,
                Ok(Message::BrokerEnded) => self.check_brokers()?,
                Err(Nothing::Timeout | Nothing::Disconnected) => {}
            }
            let now = self.clock.now();
            events.tick(now).map_err(store)?;
            self.restart_due(now, events)?;
            if tracker.is_none() && hello.iter().all(|h| *h) {
                let programs = self.outside.pairs().len();
                let patience = OPEN_PATIENCE + PROGRAM_PATIENCE * u32::try_from(programs).unwrap_or(u32::MAX);
                tracker = Some(Tracker::new(self.plan, now, patience));
                self.facts.phases_s.insert("children".into(), seconds(now.since(Offset::ZERO)));
                progress(Progress::stage(&format!("opening {total} connections")));
                self.open_all();
            }
            let Some(tracker) = &mut tracker else {
                if interrupted {
                    return Ok(Ending::Interrupted);
                }
                continue;
            };
            orders.extend(tracker.tick(now));
            if now >= say_progress {
                say_progress = now + PROGRESS.after(now.since(Offset::ZERO));
                progress(self.progress(tracker, now));
            }
            if interrupted {
                orders.extend(tracker.interrupt());
            }
            for order in orders {
                self.carry_out(order);
            }
            if tracker.finished() {
                return Ok(if interrupted { Ending::Interrupted } else { Ending::Complete });
            }
        }
    }

    /// Writes events down and lets everybody know who has to.
    fn take(
        &mut self,
        all: &[Event],
        events: &mut EventLog,
        mut tracker: Option<&mut Tracker<'_>>,
    ) -> Result<Vec<Order>, EngineError> {
        let mut orders = Vec::new();
        for event in all {
            self.note(event);
            events.append(event).map_err(store)?;
            if let Some(tracker) = &mut tracker {
                orders.extend(tracker.on_event(event));
            }
        }
        Ok(orders)
    }

    /// Whether the scenario means the brokers to end.
    fn kills_brokers(&self) -> bool {
        does(self.plan, Act::ends_processes)
    }

    /// A broker that ends by itself ends the run: nothing after that would be measured.
    fn check_brokers(&mut self) -> Result<(), EngineError> {
        if self.kills_brokers() {
            return Ok(());
        }
        for broker in &mut self.lab.brokers {
            if let Some(status) = broker.ended().map_err(harness("broker"))? {
                let words = broker.last_words();
                return Err(EngineError::Harness(format!(
                    "{} ended early ({status}); its last words:\n{words}",
                    broker.kind
                )));
            }
        }
        Ok(())
    }

    fn progress(&self, tracker: &Tracker<'_>, now: Offset) -> Progress {
        let (ready, cut, noticed, ended) = tracker.counts();
        let total = self.plan.trials.len();
        let left = self.plan.estimate.saturating_sub(now.since(Offset::ZERO));
        let share = (now.as_secs() / seconds(self.plan.estimate)).min(0.99);
        Progress {
            stage: format!("{ready}/{total} consuming, {cut} cut, {noticed} noticed, {ended} ended"),
            left: Some((share, left)),
        }
    }

    /// Tells the observers of connections, of cuts, and of what the sockets may show; and the producer of what a reaper
    /// had queued again.
    fn note(&mut self, event: &Event) {
        let Some(trial) = event.trial else { return };
        self.again.note(trial, &event.kind);
        match &event.kind {
            Kind::Connected { tuple, .. } => {
                self.registry.add(*tuple, trial);
                self.observers.tell(self.watch(*tuple, trial, false));
            }
            Kind::Relayed { tuple, upstream } => self.registry.relayed(*tuple, *upstream),
            Kind::Ready { .. } => {
                let host = self.host_of(trial);
                for (attempt, tuple) in self.outside.open(trial) {
                    self.children[host].send(&Command::Inspect { trial, attempt, tuple });
                }
            }
            Kind::FaultApplied { tuple, after, .. } => {
                if self.restarts_brokers() {
                    self.restarts.begin(*after);
                }
                self.observers.tell(self.watch(*tuple, trial, true));
            }
            Kind::Sent { .. } | Kind::Called { .. } | Kind::Notice { .. } | Kind::FaultHealed { .. } => {
                let wrote = matches!(event.kind, Kind::Sent { .. } | Kind::Called { .. });
                self.observers.tell(Told::Look { trial, client: self.place_of(trial), wrote });
            }
            Kind::Requeued { message } => self.tell_producer(&Command::Republish { trial, message: *message }),
            Kind::AskedAgain { message } => self.tell_producer(&Command::Reissue { trial, of: *message }),
            Kind::Published { message } => self.wait_for(trial, *message, event.offset, None),
            Kind::Reissued { message, of } => self.wait_for(trial, *message, event.offset, Some(*of)),
            _ => {}
        }
    }

    fn tell_producer(&mut self, command: &Command) {
        if let Some(producer) = self.producer {
            self.children[producer].send(command);
        }
    }

    /// Somebody waits for this message's task from now on, where there is a user and the message is a task.
    fn wait_for(&mut self, trial: TrialId, message: u64, at: Offset, of: Option<u64>) {
        let scenario = &self.plan.scenario;
        let task = scenario.sweeps_of(&scenario.arms[self.arm_of(trial)]).is_none();
        if let Some(user) = self.user.filter(|_| task) {
            self.children[user].send(&Command::Await { trial, message, at, of });
        }
    }

    fn watch(&self, tuple: Tuple, trial: TrialId, cut: bool) -> Told {
        let client = self.place_of(trial);
        // The bare sockets' owners report each of their writes; a client library writes when it likes.
        let candid = self.plan.scenario.arms[self.arm_of(trial)].settings.subject.broker() == BrokerKind::None;
        Told::Watch { tuple, trial, client, cut, candid }
    }

    fn child_ended(
        &mut self,
        index: usize,
        status: &str,
        events: &mut EventLog,
        tracker: Option<&mut Tracker<'_>>,
    ) -> Result<Vec<Order>, EngineError> {
        let hosted: Vec<TrialId> = match self.former_or_worker(index) {
            Some(trial) => vec![trial],
            // It was killed on purpose and serves no trial of its own.
            None if self.may_be_killed(index) => return Ok(Vec::new()),
            None if self.plan.scenario.has_worker_processes() => Vec::new(),
            None => self.plan.trials.iter().filter(|trial| trial.arm == index).map(|trial| trial.id).collect(),
        };
        let (Some(tracker), false) = (tracker, hosted.is_empty()) else {
            return Err(EngineError::Harness(format!("{} ended early: {status}", self.children[index].name())));
        };
        let mut orders = Vec::new();
        for trial in hosted {
            let kind = Kind::SubjectExited { status: status.to_string() };
            let event = Event::of_trial(self.clock.now(), Source::Harness, trial, kind);
            events.append(&event).map_err(store)?;
            orders.extend(tracker.on_event(&event));
        }
        Ok(orders)
    }

    /// The child that hosts a trial's subject: its arm's, or one of its own.
    fn host_of(&self, trial: TrialId) -> usize {
        self.workers.get(&trial).copied().unwrap_or_else(|| self.arm_of(trial))
    }

    /// Orders name trials of the plan, so the fall-back is never taken.
    fn arm_of(&self, trial: TrialId) -> usize {
        self.plan.trial(trial).map_or(0, |t| t.arm)
    }

    /// The place of a trial's client namespace: its arm's, or its own where it was there before the run.
    fn place_of(&self, trial: TrialId) -> usize {
        let aims = self.job.docker.as_ref().map(|docker| &docker.aims[..]).unwrap_or_default();
        aims.iter().position(|aim| aim.trial == trial).unwrap_or_else(|| self.arm_of(trial))
    }

    fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request);
        }
    }

    fn tell_host(&mut self, trial: TrialId, command: &Command) {
        let host = self.host_of(trial);
        self.children[host].send(command);
    }
}

#[path = "again.rs"]
mod again;
#[path = "closing.rs"]
mod closing;
#[path = "opening.rs"]
mod opening;
#[path = "orders.rs"]
mod orders;
#[path = "restarts.rs"]
mod restarts;
use again::StartedAgain;
use opening::{TARGETS, attached, database, is_command, vhost};
use restarts::Restarts;
#[path = "spec.rs"]
mod spec;
use spec::{lab_spec, layout, proxied};

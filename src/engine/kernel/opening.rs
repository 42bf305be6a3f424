//! The opening of a run: its children, the proxies, the programs of others, and the connections under test.

use super::super::foreign_log::Log;
use super::super::heard::{Heard, Pairs};
use super::*;
use crate::scenario::{LivenessStore, ReaperSettings};
use crate::subject::protocol::Beats;

/// The run's task store, with no task in it; its place.
fn make_store(run_id: &str, lab: &Lab) -> Result<String, EngineError> {
    let place = match &lab.database {
        Some(database) => Place::Postgres(database.sockets.clone()),
        None => Place::Sqlite(work_dir().join(format!("tasks-{run_id}.sqlite"))),
    };
    TaskStore::create(&place).map_err(|e| EngineError::Harness(e.to_string()))?;
    Ok(place.to_string())
}

/// Whether the workers' signs of life are keys in Redis.
fn keys(reaper: &ReaperSettings) -> bool {
    reaper.liveness.as_ref().is_some_and(|rule| rule.store == LivenessStore::Redis)
}

/// Whether the subjects of an arm are programs of somebody else's.
pub(super) fn is_command(plan: &Plan, arm: usize) -> bool {
    plan.scenario.arms.get(arm).is_some_and(|arm| arm.settings.subject.is_command())
}

pub(super) fn vhost(trial: TrialId) -> String {
    format!("halfopen.{trial}")
}

/// The queue or list of a trial: its own, or the one that its program insists on.
fn queue(plan: &Plan, trial: TrialId) -> String {
    let settings = plan.trial(trial).and_then(|t| plan.scenario.arms.get(t.arm)).map(|arm| &arm.settings);
    let named = settings.and_then(|settings| settings.command.as_ref()?.queue.clone());
    named.unwrap_or_else(|| format!("halfopen.{trial}"))
}

/// What a run with a target says of its connections.
pub(super) const TARGETS: &str = "target: connections that were there before the run begin with it; the one under test is the oldest \
                                  of its container, by descriptor";

/// What a client that was there before the run has open, its names first.
pub(super) fn attached(lab: &Lab, trial: TrialId) -> Vec<Tuple> {
    lab.connections(trial).into_iter().map(|(local, peer)| Tuple { local, peer }).collect()
}

/// The number of a trial's Redis database: one of its own for a program of somebody else's.
pub(super) fn database(plan: &Plan, trial: TrialId, arm: usize) -> u32 {
    let redis = plan.scenario.arms.get(arm).is_some_and(|arm| arm.settings.subject.broker() == BrokerKind::Redis);
    if redis && is_command(plan, arm) { trial + 1 } else { 0 }
}

/// The clients from outside, for whoever listens to them.
pub(super) fn heard(plan: &Plan, outside: &Outside) -> Pairs {
    let one = |(pair, trial): ((std::net::Ipv4Addr, std::net::Ipv4Addr), TrialId)| {
        let arm = plan.scenario.arms.get(plan.trial(trial)?.arm)?;
        // Nobody knows which queue is somebody else's own.
        let own = arm.settings.command.as_ref().is_some_and(|line| line.target.is_some());
        let queue = if own { String::new() } else { queue(plan, trial) };
        Some((pair, Heard { trial, broker: arm.settings.subject.broker(), queue }))
    };
    outside.trials().into_iter().filter_map(one).collect()
}

impl Run<'_> {
    pub(super) fn start_children(&mut self, job: &Job, sender: &Sender<Message>) -> Result<(), EngineError> {
        let scenario = &self.plan.scenario;
        let (clock, children) = (self.clock, &mut self.children);
        let lab = &self.lab;
        let mut add = |role: &[&str], name: &str, seat: Seat| -> Result<usize, EngineError> {
            let index = children.len();
            children.push(Child::start(role, name, index, (lab, seat), clock, NOFILE, sender).map_err(harness(name))?);
            Ok(index)
        };
        // Made before anybody opens it.
        let store = match &scenario.reaper {
            Some(_) => Some(make_store(&job.run_id, &self.lab)?),
            None => None,
        };
        let store: Vec<&str> = store.iter().flat_map(|path| ["--store", path.as_str()]).collect();
        for (index, arm) in scenario.arms.iter().enumerate() {
            add(&[&["__subject"], store.as_slice()].concat(), &format!("subject {}", arm.name), Seat::Arm(index))?;
        }
        if scenario.arms.iter().any(|a| a.settings.subject.broker() == BrokerKind::None) {
            add(&["__peer"], PEER, Seat::Server)?;
            if lab.standby.is_some() {
                add(&["__peer"], "peer of the other host", Seat::Standby)?;
            }
        }
        if scenario.load_interval.is_some()
            && scenario.arms.iter().any(|a| a.settings.subject.broker() != BrokerKind::None)
        {
            let role = [&["__producer"], store.as_slice()].concat();
            self.producer = Some(add(&role, "producer", Seat::Producer)?);
        }
        if let Some(reaper) = &scenario.reaper {
            // It needs no network at all, and so there is none that could be cut; but for the workers' keys it reaches Redis
            // from where nothing is ever cut.
            let seat = if keys(reaper) { Seat::Producer } else { Seat::Nowhere };
            for _ in 0..reaper.reapers {
                self.reapers.push(add(&[&["__reaper"], store.as_slice()].concat(), "reaper", seat)?);
            }
        }
        if lab.proxy.is_some() {
            for trial in &self.plan.trials {
                let port = scenario.arms[trial.arm].settings.port();
                let listen = SocketAddrV4::new(trial.server, port).to_string();
                let (id, upstream) = (trial.id.to_string(), SocketAddrV4::new(ADMIN, port).to_string());
                let queue = queue(self.plan, trial.id);
                let role = ["__proxy", "--trial", &id, "--listen", &listen, "--upstream", &upstream, "--queue", &queue];
                add(&role, &format!("{PROXY} {id}"), Seat::Proxy)?;
            }
        }
        if let Some(database) = &self.lab.database {
            let version = database.version.clone().unwrap_or_else(|| "unknown".to_string());
            self.facts.brokers.insert("postgres".to_string(), version);
        }
        Ok(())
    }

    /// The acceptors before the broker, by trial.
    pub(super) fn proxy_pids(&self) -> Vec<(TrialId, u32)> {
        let trial = |child: &Child| child.name().strip_prefix(PROXY)?.trim().parse().ok();
        self.children.iter().filter_map(|child| Some((trial(child)?, child.pid()))).collect()
    }

    /// The brokers' processes, the embedded peer's among them.
    pub(super) fn broker_pids(&self) -> Vec<u32> {
        let peers = self.children.iter().filter(|child| child.name() == PEER).map(Child::pid);
        self.lab.brokers.iter().map(Broker::pid).chain(peers).collect()
    }

    /// Where a broker is for somebody of the run's own: at its plain listener.
    pub(super) fn target(&self, trial: TrialId, server: std::net::Ipv4Addr, kind: BrokerKind) -> Target {
        let login = self.lab.broker(kind).map(|b| (b.user.clone(), b.password.clone()));
        let (user, password) = login.unwrap_or_default();
        let vhost = if is_command(self.plan, self.arm_of(trial)) { vhost(trial) } else { "/".to_string() };
        let db = database(self.plan, trial, self.arm_of(trial));
        let queue = queue(self.plan, trial);
        Target { server: SocketAddrV4::new(server, kind.port()), vhost, db, queue, user, password, ca_file: None }
    }

    /// Where the client of a trial finds its broker.
    pub(super) fn target_of(&self, trial: &plan::Trial) -> Target {
        let settings = &self.plan.scenario.arms[trial.arm].settings;
        let ca_file = self.lab.certificates.as_ref().filter(|_| settings.tls).map(|files| files.ca.clone());
        let plain = self.target(trial.id, trial.server, settings.subject.broker());
        Target { server: SocketAddrV4::new(trial.server, settings.port()), ca_file, ..plain }
    }

    /// How the worker of a trial gives signs of life.
    fn beats(&self, trial: TrialId, server: std::net::Ipv4Addr) -> Option<Box<Beats>> {
        let rule = self.plan.scenario.reaper.as_ref()?.liveness.clone()?;
        Some(Box::new(Beats { rule, target: self.target(trial, server, BrokerKind::Redis) }))
    }

    /// The program of a trial whose subject is one of somebody else's.
    pub(super) fn program(&self, trial: TrialId, settings: &Settings, target: &Target) -> Option<Program> {
        let mut adapter = clients::adapter(settings)?;
        let arms = self.job.docker.as_ref().map(|docker| &docker.arms[..]).unwrap_or_default();
        let image = arms.get(self.arm_of(trial)).and_then(Option::as_ref);
        if let Some(image) = image {
            adapter.command = [image.entrypoint.clone(), adapter.command].concat();
        }
        let place = Where {
            environment: self.job.environments.get(&settings.subject).cloned(),
            started_in: image.map_or_else(|| self.job.started_in.clone(), |image| image.working_dir.clone()),
            trial,
            broker: settings.subject.broker(),
            broker_host: target.server.ip().to_string(),
            broker_port: target.server.port(),
            vhost: target.vhost.clone(),
            db: target.db,
            queue: target.queue.clone(),
            user: target.user.clone(),
            password: target.password.clone(),
            effects: work_dir().join("clients").join(trial.to_string()).join("effects"),
            ca_file: target.ca_file.clone(),
            log: self.job.out.join(LOGS).join(format!("trial-{trial}.log")),
        };
        let attached = self.lab.attached_pid(trial);
        let mut program = Program { attached, ..adapter.program(settings, &place) };
        if let Some(image) = image {
            let own = image.env.iter().filter_map(|line| line.split_once('='));
            let own = own.map(|(name, value)| (name.to_string(), value.to_string()));
            program.env = own.chain(program.env).collect();
            program.user.clone_from(&image.user);
        }
        Some(program)
    }

    /// Begins with what a client that was there before the run has open, and follows what it says.
    fn begin_attached(&self, trial: TrialId, program: &Program) {
        let now: Vec<Tuple> = attached(&self.lab, trial);
        // What has come since the observers started, they have told of themselves.
        let both = now.into_iter().filter(|tuple| self.there.contains(tuple)).collect();
        let _ = self.sender.send(Message::Attached(trial, both));
        let mut log = match Log::open(trial, program, self.clock, self.sender.clone()) {
            Ok(log) => log,
            Err(error) => {
                let text = format!("{}: {error}", program.log.display());
                let note = Event::of_run(self.clock.now(), Source::Harness, Kind::Note { text });
                let _ = self.sender.send(Message::Event(note));
                return;
            }
        };
        self.lab.follow(trial, move |piece| log.take(piece));
    }

    pub(super) fn open_all(&mut self) {
        let plan = self.plan;
        if let Some(settings) = &plan.scenario.reaper {
            let first = plan::first_sweep(plan.scenario.seed, settings.interval);
            let url = |b: &Broker| format!("redis://{}:{}@{}", b.user, b.password, b.admin());
            let redis = self.lab.broker(BrokerKind::Redis).filter(|_| keys(settings)).map(url);
            for reaper in &self.reapers {
                let reap = Command::Reap { settings: settings.clone(), first, redis: redis.clone() };
                self.children[*reaper].send(&reap);
            }
        }
        for trial in &plan.trials {
            let settings = Box::new(plan.scenario.arms[trial.arm].settings.clone());
            let target = self.target_of(trial);
            let load_interval = plan.scenario.load_of(&plan.scenario.arms[trial.arm]);
            let program = self.program(trial.id, &settings, &target);
            if let Some(adapter) = clients::adapter(&settings) {
                self.facts.clients.extend(adapter.locked_versions());
            }
            if let Some(program) = program.as_ref().filter(|program| program.attached.is_some()) {
                self.begin_attached(trial.id, program);
            }
            let program = program.map(Box::new);
            let beats = self.beats(trial.id, trial.server);
            let open = Command::Open { trial: trial.id, target, settings, load_interval, program, beats };
            self.children[trial.arm].send(&open);
            if plan.scenario.load_of(&plan.scenario.arms[trial.arm]).is_some()
                && plan.scenario.arms[trial.arm].settings.is_ready_by_message()
            {
                self.carry_out(Order::StartLoad { trial: trial.id, first_due: None });
            }
        }
    }
}

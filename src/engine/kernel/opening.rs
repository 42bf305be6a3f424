//! The opening of a run: its children, the proxies, the programs of others, and the connections under test.

use super::super::heard::{Heard, Pairs};
use super::*;
use crate::lab::POSTGRES_PORT;
use crate::scenario::{Arm, LivenessRule, LivenessStore, ReaperSettings, Scenario, StorePath};
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

/// Whether any workers' signs of life are keys in Redis.
fn keys(scenario: &Scenario) -> bool {
    let rule = scenario.reaper.as_ref().and_then(|reaper| reaper.liveness.as_ref());
    let of = |arm: &Arm| rule.map(|rule| arm.liveness.unwrap_or(rule.store));
    scenario.arms.iter().any(|arm| of(arm) == Some(LivenessStore::Redis))
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

/// The number of a trial's Redis database: one of its own for a program of somebody else's.
pub(super) fn database(plan: &Plan, trial: TrialId, arm: usize) -> u32 {
    let redis = plan.scenario.arms.get(arm).is_some_and(|arm| arm.settings.subject.broker() == BrokerKind::Redis);
    if redis && is_command(plan, arm) { trial + 1 } else { 0 }
}

/// The clients from outside, for whoever listens to them.
pub(super) fn heard(plan: &Plan, outside: &Outside) -> Pairs {
    let one = |(pair, trial): ((std::net::Ipv4Addr, std::net::Ipv4Addr), TrialId)| {
        let arm = plan.scenario.arms.get(plan.trial(trial)?.arm)?;
        Some((pair, Heard { trial, broker: arm.settings.subject.broker(), queue: queue(plan, trial) }))
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
            let seat = if keys(scenario) { Seat::Producer } else { Seat::Nowhere };
            let own = if reaper.runs_in.is_some() { 0 } else { reaper.reapers };
            for _ in 0..own {
                self.reapers.push(add(&[&["__reaper"], store.as_slice()].concat(), "reaper", seat)?);
            }
        }
        if scenario.user.is_some() {
            self.user = Some(add(&[&["__user"], store.as_slice()].concat(), "user", Seat::Nowhere)?);
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
        let arm = &self.plan.scenario.arms[self.arm_of(trial)];
        if arm.settings.subject.is_command() || self.plan.scenario.sweeps_of(arm).is_some() {
            return None;
        }
        let reaper = self.plan.scenario.reaper.as_ref()?;
        let own = |rule: &LivenessRule| LivenessRule { store: arm.liveness.unwrap_or(rule.store), ..rule.clone() };
        let (rule, running) = (reaper.liveness.as_ref().map(own), reaper.running);
        if rule.is_none() && running.is_none() {
            return None;
        }
        let target = self.target(trial, server, BrokerKind::Redis);
        Some(Box::new(Beats { rule, target, ahead_ms: arm.clock_ahead_ms, running }))
    }

    /// What a sweep goes by.
    fn sweeps(&self, settings: &ReaperSettings) -> Sweeps {
        let url = |b: &Broker| format!("redis://{}:{}@{}", b.user, b.password, b.admin());
        let redis = self.lab.broker(BrokerKind::Redis).filter(|_| keys(&self.plan.scenario)).map(url);
        let own = |trial: &plan::Trial| Some((trial.id, self.plan.scenario.arms[trial.arm].liveness?));
        Sweeps { settings: settings.clone(), redis, elsewhere: self.plan.trials.iter().filter_map(own).collect() }
    }

    /// The program of a trial whose subject is one of somebody else's.
    pub(super) fn program(&self, trial: TrialId, settings: &Settings, target: &Target) -> Option<Program> {
        let adapter = clients::adapter(settings)?;
        let place = Where {
            environment: self.job.environments.get(&settings.subject).cloned(),
            started_in: self.job.started_in.clone(),
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
        Some(adapter.program(settings, &place))
    }

    pub(super) fn open_all(&mut self) {
        let plan = self.plan;
        if let Some(settings) = &plan.scenario.reaper {
            let first = plan::first_sweep(plan.scenario.seed, settings.interval);
            let sweeps = self.sweeps(settings);
            for reaper in &self.reapers {
                self.children[*reaper].send(&Command::Reap { sweeps: sweeps.clone(), first });
            }
        }
        if let (Some(index), Some(user)) = (self.user, plan.scenario.user) {
            self.children[index].send(&Command::Attend { user });
        }
        for trial in &plan.trials {
            let settings = Box::new(plan.scenario.arms[trial.arm].settings.clone());
            let target = self.target_of(trial);
            let load_interval = plan.scenario.load_of(&plan.scenario.arms[trial.arm]);
            let program = self.program(trial.id, &settings, &target);
            if let Some(adapter) = clients::adapter(&settings) {
                self.facts.clients.extend(adapter.locked_versions());
            }
            let program = program.map(Box::new);
            let beats = self.beats(trial.id, trial.server);
            let arm = &plan.scenario.arms[trial.arm];
            let sweeps = plan.scenario.sweeps_of(arm).map(|reaper| Box::new(self.sweeps(reaper)));
            let over_network = plan.scenario.reaper.as_ref().is_some_and(|r| r.store_path == StorePath::Network);
            let address = SocketAddrV4::new(trial.server, POSTGRES_PORT);
            let store = over_network.then(|| Place::Remote(address).to_string());
            let open =
                Command::Open { trial: trial.id, target, settings, load_interval, program, beats, store, sweeps };
            self.children[trial.arm].send(&open);
            if plan.scenario.load_of(&plan.scenario.arms[trial.arm]).is_some()
                && plan.scenario.arms[trial.arm].settings.is_ready_by_message()
            {
                self.carry_out(Order::StartLoad { trial: trial.id, first_due: None });
            }
        }
    }
}

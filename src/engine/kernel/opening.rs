//! The opening of a run: its children, the proxies, the programs of others, and the connections under test.

use super::super::foreign_log::Log;
use super::super::heard::{Heard, Pairs};
use super::*;
use crate::host::names::look_up_by;
use crate::lab::{POSTGRES_PORT, ZONE};
use crate::scenario::{Arm, LivenessRule, LivenessStore, ReaperSettings, Scenario, StorePath, Trigger};
use crate::subject::protocol::{Beats, Worker};
use crate::subject::{Answers, Entry};

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

/// What a run with a target says of its connections.
pub(super) const TARGETS: &str = "target: connections that were there before the run begin with it; the one under test is the oldest \
                                  of its container, by descriptor";

/// What a client that was there before the run has open, its names first.
pub(super) fn attached(lab: &Lab, trial: TrialId) -> Vec<Tuple> {
    lab.connections(trial).into_iter().map(|(local, peer)| Tuple { local, peer }).collect()
}

/// The number of a trial's Redis database: one of its own for a program of somebody else's.
pub(super) fn database(plan: &Plan, trial: TrialId, arm: usize) -> u32 {
    let settings = plan.scenario.arms.get(arm).map(|arm| &arm.settings);
    let redis = settings.is_some_and(|settings| settings.subject.broker() == BrokerKind::Redis);
    // kombu's hash of what is not acknowledged is the database's, not a queue's.
    let kombu = settings.is_some_and(|settings| settings.ack.is_some());
    if redis && (kombu || is_command(plan, arm)) { trial + 1 } else { 0 }
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

/// Those of the clients whose traffic nobody reads: it is encrypted, or there is no ear at the door.
pub(super) fn unread(plan: &Plan, all: &Pairs, read: bool) -> Pairs {
    let is_unread = |client: &Heard| {
        let Some(trial) = plan.trial(client.trial) else { return false };
        plan.scenario.arms[trial.arm].settings.tls || !(read || proxied(plan, trial.fault))
    };
    all.iter().filter(|(_, client)| is_unread(client)).map(|(pair, client)| (*pair, client.clone())).collect()
}

/// The name of a trial's broker, where it is looked up.
fn name_of(plan: &Plan, trial: &plan::Trial) -> Option<String> {
    let withheld = plan.scenario.faults[trial.fault].act == Some(Act::WithholdAnswer);
    withheld.then(|| format!("broker-{}.{ZONE}", trial.id))
}

/// What the name server is told.
fn names(plan: &Plan) -> Vec<Entry> {
    let entry = |trial: &plan::Trial| {
        let answers = match plan.scenario.faults[trial.fault].duration.get() {
            Some(time) => Answers::After(time),
            None => Answers::Never,
        };
        Some(Entry { trial: trial.id, name: name_of(plan, trial)?, address: trial.server, answers })
    };
    plan.trials.iter().filter_map(entry).collect()
}

impl Run<'_> {
    /// Starts a child in a role and keeps it; its index.
    fn add(&mut self, role: &[&str], name: &str, seat: Seat) -> std::io::Result<usize> {
        let index = self.children.len();
        let child = Child::start(role, name, index, (&self.lab, seat), self.clock, NOFILE, &self.sender)?;
        self.children.push(child);
        Ok(index)
    }

    /// The arguments of a child that works with tasks.
    fn store_args(&self) -> Vec<String> {
        self.store.iter().flat_map(|place| ["--store".to_string(), place.clone()]).collect()
    }

    /// Starts the process of one trial's worker.
    pub(super) fn start_subject(&mut self, arm: usize, trial: TrialId) -> std::io::Result<usize> {
        let name = format!("worker {trial} of {}", self.plan.scenario.arms[arm].name);
        self.add_subject(arm, &name)
    }

    fn add_subject(&mut self, arm: usize, name: &str) -> std::io::Result<usize> {
        let mut args = self.store_args();
        args.extend(self.provider.iter().flat_map(|socket| ["--provider".to_string(), socket.clone()]));
        if self.plan.scenario.faults.iter().any(|fault| fault.trigger.is_some_and(Trigger::halts)) {
            args.push("--halts".to_string());
        }
        let role: Vec<&str> = std::iter::once("__subject").chain(args.iter().map(String::as_str)).collect();
        self.add(&role, name, Seat::Arm(arm))
    }

    /// Starts a reaper in a process of its own.
    pub(super) fn start_reaper(&mut self) -> std::io::Result<usize> {
        // It needs no network at all, and so there is none that could be cut; but for the workers' keys it reaches Redis
        // from where nothing is ever cut.
        let seat = if keys(&self.plan.scenario) { Seat::Producer } else { Seat::Nowhere };
        let args = self.store_args();
        let role: Vec<&str> = std::iter::once("__reaper").chain(args.iter().map(String::as_str)).collect();
        self.add(&role, REAPER, seat)
    }

    pub(super) fn start_children(&mut self, job: &Job) -> Result<(), EngineError> {
        let plan = self.plan;
        let scenario = &plan.scenario;
        // Made before anybody opens it.
        if scenario.keeps_tasks() {
            self.store = Some(make_store(&job.run_id, &self.lab)?);
        }
        if scenario.has_provider() {
            self.provider = Some(work_dir().join(format!("provider-{}", job.run_id)).display().to_string());
        }
        if scenario.has_worker_processes() {
            for trial in &plan.trials {
                let index = self.start_subject(trial.arm, trial.id).map_err(harness("a worker"))?;
                self.workers.insert(trial.id, index);
            }
        } else {
            for (index, arm) in scenario.arms.iter().enumerate() {
                self.add_subject(index, &format!("subject {}", arm.name)).map_err(harness("a subject"))?;
            }
        }
        if let Some(socket) = self.provider.clone() {
            self.add(&["__provider", "--provider", &socket], "provider", Seat::Nowhere).map_err(harness("provider"))?;
        }
        if scenario.arms.iter().any(|a| a.settings.subject.broker() == BrokerKind::None) {
            self.add(&["__peer"], PEER, Seat::Server).map_err(harness(PEER))?;
            if self.lab.standby.is_some() {
                let name = "peer of the other host";
                self.add(&["__peer"], name, Seat::Standby).map_err(harness(name))?;
            }
        }
        if scenario.load_interval.is_some()
            && scenario.arms.iter().any(|a| a.settings.subject.broker() != BrokerKind::None)
        {
            let args = self.store_args();
            let role: Vec<&str> = std::iter::once("__producer").chain(args.iter().map(String::as_str)).collect();
            self.producer = Some(self.add(&role, "producer", Seat::Producer).map_err(harness("producer"))?);
        }
        let outside = |reaper: &&ReaperSettings| !reaper.inside_the_worker && reaper.runs_in.is_none();
        if let Some(reaper) = scenario.reaper.as_ref().filter(outside) {
            for _ in 0..reaper.reapers {
                let index = self.start_reaper().map_err(harness("reaper"))?;
                self.reapers.push(index);
            }
        }
        if scenario.user.is_some() {
            let args = self.store_args();
            let role: Vec<&str> = std::iter::once("__user").chain(args.iter().map(String::as_str)).collect();
            self.user = Some(self.add(&role, "user", Seat::Nowhere).map_err(harness("the user"))?);
        }
        if does(plan, |act| act == Act::WithholdAnswer) {
            let dir = work_dir();
            // Containers have files of their own, laid into them as they were made; these mounts are the machine's there.
            if self.job.docker.is_none() {
                look_up_by(ADMIN, &dir)
                    .map_err(|e| EngineError::Cannot(format!("a name server of the run's own: {e}")))?;
            }
            let path = dir.join("names.json");
            let text = serde_json::to_vec(&names(plan)).map_err(std::io::Error::other);
            text.and_then(|text| std::fs::write(&path, text)).map_err(harness("the name server's names"))?;
            let listen = SocketAddrV4::new(ADMIN, 53).to_string();
            let path = path.to_string_lossy().into_owned();
            let role = ["__resolver", "--listen", &listen, "--entries", &path];
            self.add(&role, "name server", Seat::Server).map_err(harness("name server"))?;
        }
        if self.lab.proxy.is_some() {
            for trial in plan.trials.iter().filter(|trial| proxied(plan, trial.fault)) {
                let port = scenario.arms[trial.arm].settings.port();
                let listen = SocketAddrV4::new(trial.server, port).to_string();
                let (id, upstream) = (trial.id.to_string(), SocketAddrV4::new(ADMIN, port).to_string());
                let queue = queue(plan, trial.id);
                let mut role =
                    vec!["__proxy", "--trial", &id, "--listen", &listen, "--upstream", &upstream, "--queue", &queue];
                if scenario.faults[trial.fault].act == Some(Act::StaySilent) {
                    role.push("--silent");
                }
                let name = format!("{PROXY} {id}");
                self.add(&role, &name, Seat::Proxy).map_err(harness(&name))?;
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
        Target {
            server: SocketAddrV4::new(server, kind.port()),
            vhost,
            db,
            queue,
            durable: self.plan.scenario.durable,
            user,
            password,
            ca_file: None,
            name: None,
        }
    }

    /// Where the client of a trial finds its broker.
    pub(super) fn target_of(&self, trial: &plan::Trial) -> Target {
        let settings = &self.plan.scenario.arms[trial.arm].settings;
        let ca_file = self.lab.certificates.as_ref().filter(|_| settings.tls).map(|files| files.ca.clone());
        let plain = self.target(trial.id, trial.server, settings.subject.broker());
        let name = name_of(self.plan, trial);
        Target { server: SocketAddrV4::new(trial.server, settings.port()), ca_file, name, ..plain }
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
        // Where the reaper looks, whichever database the messages are in.
        let target = Target { db: 0, ..self.target(trial, server, BrokerKind::Redis) };
        Some(Box::new(Beats {
            rule,
            target,
            ahead_ms: arm.clock_ahead_ms,
            steps_after: arm.clock_steps_after,
            running,
        }))
    }

    /// What a sweep goes by.
    pub(super) fn sweeps(&self, settings: &ReaperSettings) -> Sweeps {
        let url = |b: &Broker| format!("redis://{}:{}@{}", b.user, b.password, b.admin());
        let redis = self.lab.broker(BrokerKind::Redis).filter(|_| keys(&self.plan.scenario)).map(url);
        let own = |trial: &plan::Trial| Some((trial.id, self.plan.scenario.arms[trial.arm].liveness?));
        Sweeps { settings: settings.clone(), redis, elsewhere: self.plan.trials.iter().filter_map(own).collect() }
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

    pub(super) fn settings_of(&self, trial: TrialId) -> &Settings {
        &self.plan.scenario.arms[self.arm_of(trial)].settings
    }

    /// Lets one trial's subject open its connection, and the reaper inside it sweep.
    pub(super) fn open(&mut self, trial: TrialId, worker: Worker) {
        let plan = self.plan;
        let Some(planned) = plan.trial(trial) else { return };
        let settings = Box::new(self.settings_of(trial).clone());
        let target = self.target_of(planned);
        let load_interval = plan.scenario.load_of(&plan.scenario.arms[self.arm_of(trial)]);
        let program = self.program(trial, &settings, &target);
        if let Some(adapter) = clients::adapter(&settings) {
            self.facts.clients.extend(adapter.locked_versions());
        }
        if let Some(program) = program.as_ref().filter(|program| program.attached.is_some()) {
            self.begin_attached(trial, program);
        }
        let program = program.map(Box::new);
        let beats = self.beats(trial, planned.server);
        let jobs = plan.scenario.jobs.clone();
        let sweeps = plan.scenario.sweeps_of(&plan.scenario.arms[self.arm_of(trial)]);
        let sweeps = sweeps.map(|reaper| Box::new(self.sweeps(reaper)));
        let over_network = plan.scenario.reaper.as_ref().is_some_and(|r| r.store_path == StorePath::Network);
        let address = SocketAddrV4::new(planned.server, POSTGRES_PORT);
        let store = over_network.then(|| Place::Remote(address).to_string());
        let open =
            Command::Open { trial, target, settings, load_interval, program, beats, jobs, worker, store, sweeps };
        self.tell_host(trial, &open);
        if let Some(reaper) = plan.scenario.reaper.as_ref().filter(|reaper| reaper.inside_the_worker) {
            let command = self.reap(reaper, Some(trial));
            self.tell_host(trial, &command);
        }
    }

    pub(super) fn open_all(&mut self) {
        let plan = self.plan;
        if let Some(settings) = &plan.scenario.reaper {
            self.again.strikes_from(self.clock.now() + plan::first_sweep(plan.scenario.seed, settings.interval));
            self.let_reapers_sweep();
        }
        if let (Some(index), Some(user)) = (self.user, plan.scenario.user) {
            self.children[index].send(&Command::Attend { user });
        }
        for trial in &plan.trials {
            self.open(trial.id, Worker::default());
            let arm = &plan.scenario.arms[trial.arm];
            if plan.scenario.load_of(arm).is_some() && arm.settings.is_ready_by_message() {
                self.carry_out(Order::StartLoad { trial: trial.id, first_due: None });
            }
        }
    }
}

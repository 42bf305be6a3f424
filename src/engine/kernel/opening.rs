//! The opening of a run: its children, the proxies, the programs of others, and the connections under test.

use super::*;

/// The run's task store, with no task in it; its path.
fn make_store(run_id: &str) -> Result<String, EngineError> {
    let path = work_dir().join(format!("tasks-{run_id}.sqlite"));
    TaskStore::create(&path).map_err(|e| EngineError::Harness(e.to_string()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Whether the subjects of an arm are programs of somebody else's.
pub(super) fn is_command(plan: &Plan, arm: usize) -> bool {
    plan.scenario.arms.get(arm).is_some_and(|arm| arm.settings.subject.is_command())
}

pub(super) fn vhost(trial: TrialId) -> String {
    format!("halfopen.{trial}")
}

fn queue(trial: TrialId) -> String {
    format!("halfopen.{trial}")
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
            Some(_) => Some(make_store(&job.run_id)?),
            None => None,
        };
        let store: Vec<&str> = store.iter().flat_map(|path| ["--store", path.as_str()]).collect();
        for (index, arm) in scenario.arms.iter().enumerate() {
            add(&[&["__subject"], store.as_slice()].concat(), &format!("subject {}", arm.name), Seat::Arm(index))?;
        }
        if scenario.arms.iter().any(|a| a.settings.subject.broker() == BrokerKind::None) {
            add(&["__peer"], PEER, Seat::Server)?;
        }
        if scenario.load_interval.is_some()
            && scenario.arms.iter().any(|a| a.settings.subject.broker() != BrokerKind::None)
        {
            let role = [&["__producer"], store.as_slice()].concat();
            self.producer = Some(add(&role, "producer", Seat::Producer)?);
        }
        if scenario.reaper.is_some() {
            // It needs no network at all, and so there is none that could be cut.
            self.reaper = Some(add(&[&["__reaper"], store.as_slice()].concat(), "reaper", Seat::Nowhere)?);
        }
        if lab.proxy.is_some() {
            for trial in &self.plan.trials {
                add(&["__proxy"], &format!("{PROXY} {}", trial.id), Seat::Proxy)?;
            }
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

    pub(super) fn target(&self, trial: TrialId, server: std::net::Ipv4Addr, kind: BrokerKind) -> Target {
        let login = self.lab.broker(kind).map(|b| (b.user.clone(), b.password.clone()));
        let (user, password) = login.unwrap_or_default();
        let vhost = if is_command(self.plan, self.arm_of(trial)) { vhost(trial) } else { "/".to_string() };
        Target { server: SocketAddrV4::new(server, kind.port()), vhost, queue: queue(trial), user, password }
    }

    /// The program of a trial whose subject is one of somebody else's.
    pub(super) fn program(&self, trial: TrialId, settings: &Settings, target: &Target) -> Option<Program> {
        let adapter = clients::adapter(settings.subject)?;
        let place = Where {
            environment: self.job.environments.get(&settings.subject)?.clone(),
            trial,
            broker_host: target.server.ip().to_string(),
            broker_port: target.server.port(),
            vhost: target.vhost.clone(),
            queue: target.queue.clone(),
            user: target.user.clone(),
            password: target.password.clone(),
            effects: work_dir().join("clients").join(trial.to_string()).join("effects"),
            log: self.job.out.join(LOGS).join(format!("trial-{trial}.log")),
        };
        Some(adapter.program(settings, &place))
    }

    /// The proxies listen before the first client looks for them.
    pub(super) fn open_proxies(&mut self) {
        for (index, trial) in
            self.proxy_pids().into_iter().map(|(trial, _)| trial).collect::<Vec<_>>().into_iter().enumerate()
        {
            let Some(planned) = self.plan.trial(trial) else { continue };
            let kind = self.plan.scenario.arms[planned.arm].settings.subject.broker();
            let first = self.children.len() - self.plan.trials.len();
            let (listen, upstream) =
                (SocketAddrV4::new(planned.server, kind.port()), SocketAddrV4::new(ADMIN, kind.port()));
            self.children[first + index].send(&Command::Relay { trial, listen, upstream, queue: queue(trial) });
        }
    }

    pub(super) fn open_all(&mut self) {
        self.open_proxies();
        let plan = self.plan;
        if let (Some(reaper), Some(settings)) = (self.reaper, &plan.scenario.reaper) {
            let first = plan::first_sweep(plan.scenario.seed, settings.interval);
            self.children[reaper].send(&Command::Reap { settings: settings.clone(), first });
        }
        for trial in &plan.trials {
            let settings = Box::new(plan.scenario.arms[trial.arm].settings.clone());
            let target = self.target(trial.id, trial.server, settings.subject.broker());
            let load_interval = plan.scenario.load_of(&plan.scenario.arms[trial.arm]);
            let program = self.program(trial.id, &settings, &target);
            if let Some(adapter) = clients::adapter(settings.subject) {
                self.facts.clients.extend(adapter.locked_versions());
            }
            let program = program.map(Box::new);
            let open = Command::Open { trial: trial.id, target, settings, load_interval, program };
            self.children[trial.arm].send(&open);
        }
    }
}

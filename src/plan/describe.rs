//! What a plan is going to do to the machine, for `run --dry-run`.
//!
//! What is left out: whether this machine can do it, which is `doctor`'s to say.

use super::build::waves;
use super::model::{Plan, Window};
use super::phase;
use crate::scenario::{Act, BrokerKind, Scope, Trigger};
use crate::units::print_duration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What a run will create and for how long, all of it gone with the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The scenario's name.
    pub scenario: String,
    /// Its question.
    pub question: String,
    /// One line an arm.
    pub arms: Vec<ArmLine>,
    /// One line a fault.
    pub faults: Vec<String>,
    /// What the model predicts, one line an arm and fault; empty where it was not asked.
    pub predictions: Vec<String>,
    /// The lab: `netns`, `docker` or `vm`.
    pub lab: String,
    /// Containers by role, with their images.
    pub containers: Vec<String>,
    /// Docker networks.
    pub networks: usize,
    /// Whether the time is a guest's, which skips what nobody works in.
    pub virtual_time: bool,
    /// Network namespaces by role.
    pub namespaces: Vec<String>,
    /// Pairs of virtual Ethernet devices.
    pub veth_pairs: usize,
    /// Routes inside those namespaces: one a trial, and those of the networks.
    pub routes: usize,
    /// The processes that will be started, besides the subjects.
    pub processes: Vec<String>,
    /// The packet filter's table.
    pub table: String,
    /// What the run needs to be allowed to do.
    pub privileges: Vec<String>,
    /// Connections under test.
    pub connections: usize,
    /// In how many waves, one after the other; 1 is all at once.
    pub waves: usize,
    /// How long the run will take, in seconds.
    pub estimate_s: f64,
}

/// An arm in a description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmLine {
    /// Its name.
    pub name: String,
    /// Its subject.
    pub subject: String,
    /// Its trials in this plan, over all faults.
    pub trials: usize,
    /// The longest window from which its phases are drawn, in seconds.
    pub phase_window_s: f64,
}

/// Describes a plan.
#[must_use]
pub fn describe(plan: &Plan) -> Description {
    let scenario = &plan.scenario;
    let with_producer =
        scenario.load_interval.is_some() && scenario.broker.kinds.iter().any(|k| *k != BrokerKind::None);
    let arms: Vec<ArmLine> = scenario
        .arms
        .iter()
        .enumerate()
        .map(|(i, arm)| {
            let window = |fault| phase::window(scenario, arm, fault);
            ArmLine {
                name: arm.name.clone(),
                subject: arm.settings.subject.to_string(),
                trials: plan.trials.iter().filter(|trial| trial.arm == i).count(),
                phase_window_s: scenario.faults.iter().map(window).max().unwrap_or_default().as_secs_f64(),
            }
        })
        .collect();
    let mut namespaces = vec!["router".to_string(), "server".to_string()];
    namespaces.extend(arms.iter().map(|arm| format!("client {}", arm.name)));
    namespaces.extend(with_producer.then(|| "producer".to_string()));
    let behind_proxy = |fault: usize| scenario.faults[fault].act.is_some_and(Act::in_proxy);
    let proxied = plan.trials.iter().filter(|trial| behind_proxy(trial.fault)).count();
    namespaces.extend((proxied > 0).then(|| "proxy".to_string()));
    let standby = scenario.faults.iter().any(|fault| fault.act == Some(Act::FailOver));
    namespaces.extend(standby.then(|| "standby".to_string()));
    let mut processes = vec!["supervisor, first process of its own PID namespace".to_string(), "engine".to_string()];
    processes.extend(scenario.broker.kinds.iter().map(|kind| match kind {
        BrokerKind::None => format!("embedded peer on port {}", kind.port()),
        BrokerKind::Rabbitmq => format!("rabbitmq-server (and epmd) on port {}, private data directory", kind.port()),
        BrokerKind::Redis => format!("redis-server on port {}, private data directory", kind.port()),
    }));
    processes.extend(with_producer.then(|| "producer of the numbered messages".to_string()));
    processes
        .extend(standby.then(|| "the same brokers once more, on the host that takes their address over".to_string()));
    let programs = plan.trials.iter().filter(|t| scenario.arms[t.arm].settings.subject.is_command()).count();
    processes.extend((programs > 0).then(|| format!("{programs} process trees of clients from outside, one a trial")));
    processes
        .extend((proxied > 0).then(|| format!("{proxied} proxies, one a trial, and a process for each connection")));
    let pairs = namespaces.len() - 1;
    if let Some(reaper) = &scenario.reaper {
        let (timeout, interval) = (print_duration(reaper.timeout), print_duration(reaper.interval));
        let by_itself = reaper.runs_in.is_none();
        if by_itself {
            namespaces.push("reaper".to_string());
        }
        let who = match (&reaper.runs_in, &reaper.liveness) {
            (Some(arm), _) => format!("the workers of `{arm}`, a message for each sweep,"),
            (None, Some(_)) => format!("{} reapers", reaper.reapers),
            (None, None) => "reaper".to_string(),
        };
        processes.push(match &reaper.liveness {
            None if by_itself => format!("{who}: fails what was queued for more than {timeout}, looks every {interval}"),
            None => format!("{who}: fail what was queued for more than {timeout}; look every {interval}"),
            Some(rule) if reaper.inside_the_worker => format!(
                "a reaper in each worker: fails what was pending for {timeout}, processing for {} or by a worker without a sign \
                 of life for {}; looks every {interval}",
                print_duration(rule.processing),
                print_duration(rule.ttl)
            ),
            Some(rule) => format!(
                "{who}: fail what was pending for {timeout}, processing for {} or by a worker without a sign of life for {}; \
                 look every {interval}",
                print_duration(rule.processing),
                print_duration(rule.ttl)
            ),
        });
        processes.extend(reaper.running.map(|rule| {
            let (timeout, every) = (print_duration(rule.timeout), print_duration(rule.interval));
            format!("reaper: fails what runs without a heartbeat for {timeout}, looks every {every}")
        }));
    }
    processes.extend(
        scenario.user.map(|user| format!("user: waits for each task, polls every {}", print_duration(user.poll))),
    );
    processes.extend(scenario.has_provider().then(|| "provider at which effects are made".to_string()));
    processes.push(match scenario.has_worker_processes() {
        true => format!("{} worker processes, one a trial", plan.trials.len()),
        false => format!("{} subject processes, one or more an arm", arms.len()),
    });
    let links = || scenario.arms.iter().filter_map(|arm| arm.settings.link);
    // A link to the broker is a pair of its own beside the server's.
    let lines = links().filter(|link| link.to_broker).count();
    let mut privileges = vec![
        "root, or unprivileged user namespaces".to_string(),
        "network, PID and mount namespaces; nftables and veth inside them".to_string(),
    ];
    privileges.extend(
        links()
            .next()
            .map(|_| "netem in the kernel (sch_netem) for the arms' links; loss and rate do without".to_string()),
    );
    privileges.push("nothing of the host's own network is touched".to_string());
    Description {
        scenario: scenario.name.clone(),
        question: scenario.question.clone(),
        faults: scenario.faults.iter().map(fault_line).collect(),
        predictions: predictions(plan),
        // Every namespace but the router's and the reaper's, which needs none, hangs on a pair of its own.
        veth_pairs: pairs + lines,
        routes: plan.trials.len()
            + 2 * arms.len()
            + 2
            + 2 * usize::from(with_producer)
            + proxied
            + usize::from(standby)
            + lines,
        table: "one nftables table (family ip) in the router's namespace, owned by the engine's socket".to_string(),
        privileges,
        connections: plan.trials.len(),
        waves: waves(scenario, plan.trials.len()),
        estimate_s: plan.estimate.as_secs_f64(),
        arms,
        lab: "netns".to_string(),
        containers: Vec::new(),
        networks: 0,
        virtual_time: false,
        namespaces,
        processes,
    }
}

/// The hull of what is predicted for the trials of each arm under each fault, then what is not.
fn predictions(plan: &Plan) -> Vec<String> {
    let scenario = &plan.scenario;
    let mut lines = Vec::new();
    for (a, arm) in scenario.arms.iter().enumerate() {
        for (f, fault) in scenario.faults.iter().enumerate() {
            let of_it = || plan.trials.iter().filter(|trial| trial.arm == a && trial.fault == f);
            let windows: Vec<Window> = of_it().filter_map(|trial| trial.predicted).collect();
            let Some(first) = of_it().find(|trial| trial.predicted.is_some()) else { continue };
            let names: Vec<&str> = first.predicted_watchers.iter().map(|watcher| watcher.name()).collect();
            let lo = windows.iter().filter_map(|w| w.lo_s).reduce(f64::min);
            let hi = windows.iter().map(|w| w.hi_s).reduce(|a, b| Some(a?.max(b?))).flatten();
            let when = match (lo, hi) {
                (None, _) => "never".to_string(),
                (Some(lo), None) => format!("from {lo:.2} s, perhaps never"),
                (Some(lo), Some(hi)) => format!("{lo:.2}–{hi:.2} s"),
            };
            lines.push(format!("{} under {}: {} {when}", arm.name, fault.name(), names.join(" or ")));
        }
    }
    lines.extend(plan.doubts.iter().cloned());
    lines
}

fn fault_line(fault: &crate::scenario::Fault) -> String {
    let scope = match fault.scope {
        Scope::Flow => "this connection only",
        Scope::Pair => "everything between the client's address and the broker's, reconnects too",
        Scope::Host => "the client's address, reconnects too",
    };
    let word = if fault.act.is_some_and(Act::starts_again) { "started again" } else { "healed" };
    let mut healed =
        fault.duration.get().map_or(String::new(), |time| format!(", {word} after {}", print_duration(time)));
    if let Some(repeat) = fault.repeat {
        healed.push_str(&format!(", {} times with {} between", repeat.times, print_duration(repeat.pause)));
    }
    let at = match (fault.at, fault.trigger) {
        _ if fault.idle.is_some() => {
            format!("after {} of silence", print_duration(fault.idle.unwrap_or_default()))
        }
        _ if fault.in_handshake() => "in force before the client connects".to_string(),
        (Some(at), _) => format!("at {} after settling", print_duration(at)),
        (None, Some(Trigger::InFlight)) => "on the first delivery after a uniform phase".to_string(),
        (None, Some(Trigger::AfterHeartbeat)) => {
            "on the first segment from the broker after a uniform phase".to_string()
        }
        (None, Some(Trigger::BeforeEffect)) => "before the effect of the first task after a uniform phase".to_string(),
        (None, Some(Trigger::AfterEffect)) => {
            "between the effect of the first task after a uniform phase and its commit".to_string()
        }
        (None, Some(Trigger::AfterCommit)) => {
            "between the commit of the first task after a uniform phase and its acknowledgement".to_string()
        }
        (None, Some(Trigger::Reconnect)) => "on the reconnect after a RST at a uniform phase".to_string(),
        (None, None) => "at a uniform phase".to_string(),
    };
    let name = fault.name();
    if let Some(act) = fault.act {
        let whom = match act {
            _ if act.beside_the_connection() => "for every trial at once",
            _ if act.hits_all() => "every connection at once",
            _ if act.in_proxy() => scope,
            Act::ResetThrice => "each client by itself",
            _ => "each connection by itself",
        };
        return format!("{name}: {}, {whom}, {at}{healed}", act.words());
    }
    if fault.is_control() {
        return format!("{name}: nothing is dropped (control)");
    }
    format!("{name}: {scope}, {at}{healed}")
}

/// To the second, as an estimate deserves.
fn rounded(seconds: f64) -> String {
    print_duration(Duration::from_secs(seconds.ceil() as u64))
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.scenario, self.question)?;
        write!(f, "connections   {}", self.connections)?;
        if self.waves > 1 {
            write!(f, ", in {} waves", self.waves)?;
        }
        writeln!(f)?;
        for arm in &self.arms {
            let (name, subject, trials) = (&arm.name, &arm.subject, arm.trials);
            writeln!(f, "  arm         {name} ({subject}), {trials} trials, phase window {} s", arm.phase_window_s)?;
        }
        for fault in &self.faults {
            writeln!(f, "  fault       {fault}")?;
        }
        for prediction in &self.predictions {
            writeln!(f, "  predicts    {prediction}")?;
        }
        if self.lab != "netns" {
            writeln!(f, "lab           {}", self.lab)?;
        }
        if !self.namespaces.is_empty() {
            writeln!(f, "namespaces    {}", self.namespaces.join(", "))?;
        }
        for container in &self.containers {
            writeln!(f, "container     {container}")?;
        }
        if self.networks > 0 {
            writeln!(f, "networks      {}", self.networks)?;
        }
        for (name, count) in [("veth pairs  ", self.veth_pairs), ("routes      ", self.routes)] {
            if count > 0 {
                writeln!(f, "{name}  {count}")?;
            }
        }
        for process in &self.processes {
            writeln!(f, "process       {process}")?;
        }
        writeln!(f, "packet filter {}", self.table)?;
        for privilege in &self.privileges {
            writeln!(f, "needs         {privilege}")?;
        }
        write!(f, "takes about   {}", rounded(self.estimate_s))?;
        if self.virtual_time {
            write!(f, " of the guest's own time, which skips what nobody works in;")?;
        }
        write!(f, "{} then all of it is gone", if self.virtual_time { "" } else { "," })
    }
}

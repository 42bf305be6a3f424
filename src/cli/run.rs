//! `halfopen run`: reads and plans everything first, then carries out one scenario after the other.

use super::args::{EngineName, FirewallName, LabName, RunArgs};
use super::exit::{Exit, Failure};
use super::guest::{Guest, run_in_guest};
use super::jobs::side_by_side;
use super::redact::redact;
use super::{baseline, dry_run, firewall, machine, own_program, pretty, print, waves};
use crate::clients;
use crate::engine::job::{FACTS_FILE, Facts, JOB_FILE, Job};
use crate::engine::kernel::descriptors;
use crate::engine::model::{self, ModelError};
use crate::host::process::nofile_within_reach;
use crate::host::programs::Program;
use crate::host::supervise::{Ended, InitError, Supervise, UserNamespace, supervise};
use crate::host::{clock, journal, signals};
use crate::lab::docker::{self, DockerSpec};
use crate::plan::{self, Overrides, Plan};
use crate::scenario::{self, Arm, BrokerKind, Fault, ReaperSettings, Scenario, StorePath, SubjectKind, TaskStoreKind};
use crate::store::{LOGS, Recorded, RunDir, RunInfo, ScenarioSource};
use crate::units::{print_duration, utc_date_time};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A scenario that is ready to run.
#[derive(Clone)]
pub(super) struct Ready {
    /// Its file.
    pub(super) path: PathBuf,
    text: String,
    /// What will be done.
    pub(super) plan: Plan,
    /// Where the environments of its clients from outside are.
    pub(super) environments: BTreeMap<SubjectKind, PathBuf>,
    /// The stored run that its gates are held to.
    baseline: Option<(PathBuf, Recorded)>,
    /// The images, for the docker lab.
    pub(super) docker: Option<DockerSpec>,
}

/// Runs the scenarios.
pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    if args.out.as_ref().is_some_and(|out| out.to_str().is_none()) {
        return Err(Failure::new(Exit::Usage, "--out is not UTF-8; choose a path that is"));
    }
    if args.engine == EngineName::Kernel && !args.dry_run {
        // Before anything starts a thread, which would be handed the signal.
        signals::hold().map_err(|e| Failure::new(Exit::Harness, format!("signals: {e}")))?;
    }
    let mut all = Vec::new();
    for path in &args.scenarios {
        all.push(prepare(path, args)?);
    }
    names_differ(&all)?;
    let targets = all.iter().map(|ready| super::docker::allowed(&ready.path, &ready.plan, args));
    let targets: Vec<bool> = targets.collect::<Result<_, _>>()?;
    if all.len() > 1 && targets.contains(&true) {
        let text = "a scenario with a `target` is run alone: what it cuts is asked for by name";
        return Err(Failure::new(Exit::Usage, text));
    }
    if args.engine == EngineName::Model {
        if args.firewall != FirewallName::Nftables {
            return Err(Failure::new(
                Exit::Usage,
                "--firewall is about real packets, and --engine model has none; remove one of the two",
            ));
        }
        return run_simulated(&all, args);
    }
    if args.lab == LabName::Docker {
        all = all.into_iter().flat_map(per_image).collect();
        names_differ(&all)?;
    }
    all.iter().try_for_each(real_sockets_only)?;
    all.iter().try_for_each(|ready| firewall::check(&ready.path, &ready.plan, args))?;
    let total: Duration = all.iter().map(|r| r.plan.estimate).sum();
    if let Some(max) = args.max_time.filter(|max| total > *max) {
        let text = format!(
            "the plan takes about {} and --max-time allows {}; lower --trials, run fewer scenarios, or allow more",
            print_duration(Duration::from_secs(total.as_secs() + 1)),
            print_duration(max)
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    if args.dry_run {
        return dry_run::tell(&all, args);
    }
    if args.lab == LabName::Docker {
        for ready in &mut all {
            ready.docker = Some(match docker::has_targets(&ready.plan) {
                true => super::docker::aim(&mut ready.plan)?,
                false => super::docker::prepare(&ready.plan)?,
            });
        }
    } else {
        all.iter().try_for_each(|ready| preflight(ready, args.lab))?;
    }
    for ready in &mut all {
        ready.environments = environments(&ready.plan)?;
    }
    run_each(&all, args, carry_out)
}

/// One scenario after the other until one is interrupted, or guests side by side.
fn run_each(all: &[Ready], args: &RunArgs, one: CarryOut) -> Result<Exit, Failure> {
    let jobs = if args.lab == LabName::Vm { args.jobs as usize } else { 1 };
    let work = |ready: &Ready| one(ready, &out_dir(args, &ready.plan.scenario, all.len()), args);
    if jobs > 1 {
        // Before any thread exists; each guest's own thread looks for signals.
        hold()?;
    }
    let mut exit = Exit::Held;
    let mut summaries = Vec::new();
    let results = side_by_side(all, jobs, work, |done| matches!(done, Ok((Exit::Interrupted, _))));
    for (ready, result) in all.iter().zip(results) {
        let (one, summary) = match result {
            Ok(done) => done,
            // What the other scenarios said is not lost with it.
            Err(failure) => {
                say!("halfopen: {}: {}", ready.path.display(), redact(&failure.text));
                (failure.exit, serde_json::Value::Null)
            }
        };
        exit = exit.and(one);
        summaries.push(summary);
    }
    if args.json {
        let value = if let [one] = &summaries[..] { one.clone() } else { summaries.into() };
        print(&pretty(&value))?;
    }
    Ok(exit)
}

fn hold() -> Result<(), Failure> {
    signals::hold().map_err(|e| Failure::new(Exit::Harness, format!("signals: {e}")))
}

/// What carries a scenario out: its exit code and its summary.
type CarryOut = fn(&Ready, &Path, &RunArgs) -> Result<(Exit, serde_json::Value), Failure>;

/// The model engine: no preflight, no supervisor, no time that could be too long.
fn run_simulated(all: &[Ready], args: &RunArgs) -> Result<Exit, Failure> {
    if !args.dry_run {
        return run_each(all, args, simulate);
    }
    if args.json {
        let one = |r: &Ready| serde_json::json!({ "scenario": r.plan.scenario.name, "engine": "model", "trials": r.plan.trials.len() });
        return print(&pretty(&all.iter().map(one).collect::<Vec<_>>().into()));
    }
    let one = |r: &Ready| {
        let (name, trials) = (&r.plan.scenario.name, r.plan.trials.len());
        format!(
            "{name}: {trials} trials are simulated; nothing is created but the run directory, and no privilege is needed"
        )
    };
    print(&all.iter().map(one).collect::<Vec<_>>().join("\n"))
}

fn simulate(ready: &Ready, out: &Path, args: &RunArgs) -> Result<(Exit, serde_json::Value), Failure> {
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    let dir = RunDir::create(out).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    let source = ScenarioSource::new(&ready.path.display().to_string(), &ready.text);
    let mut info = RunInfo::new(ready.plan.clone(), source, "model", clock::unix_seconds());
    info.engine = "model".to_string();
    info.machine = model::reference_machine();
    dir.write_run(&info).map_err(|e| harness(&e))?;
    let facts = match model::run(&info.plan, &info.machine, dir.path()) {
        Ok(facts) => facts,
        Err(ModelError::TooManyMessages(n)) => {
            dir.discard().map_err(|e| harness(&e))?;
            return Err(Failure::new(Exit::Cannot, ModelError::TooManyMessages(n).to_string()));
        }
        Err(error) => return Err(harness(&error)),
    };
    (info.sources, info.phases_s, info.complete) = (facts.sources, facts.phases_s, true);
    baseline::attach(&mut info, ready.baseline.as_ref());
    dir.write_run(&info).map_err(|e| harness(&e))?;
    finish(&dir, Exit::Held, args)
}

/// Judges, writes, shows.
fn finish(dir: &RunDir, exit: Exit, args: &RunArgs) -> Result<(Exit, serde_json::Value), Failure> {
    let (judged, summary) = super::report::render(dir, !args.json)?;
    if !args.json {
        super::report::point_to(dir);
    }
    Ok((exit.and(judged), summary))
}

/// What the model engine does not know how to simulate.
fn simulated_only(ready: &Ready) -> Result<(), Failure> {
    let option = |arm: &Arm| match (&arm.settings.link, arm.settings.peer_reads) {
        _ if arm.settings.ping.is_some() => Some("ping"),
        _ if arm.settings.tls => Some("tls"),
        (_, false) => Some("peer_reads = false"),
        (Some(_), _) => Some("link"),
        _ if arm.settings.work.is_some() => Some("work"),
        _ if !arm.settings.delivery.is_plain() => Some("what is asked of its deliveries"),
        _ if arm.settings.subject == SubjectKind::RedisBlocking && arm.settings.ack.is_some() => Some("ack"),
        _ => None,
    };
    let scenario = &ready.plan.scenario;
    let arm = scenario.arms.iter().find_map(|arm| match arm.settings.subject.is_command() {
        true => Some(format!("arm `{}`: {}", arm.name, arm.settings.subject)),
        false => Some(format!("arm `{}`: {}", arm.name, option(arm)?)),
    });
    let real_only = |fault: &&Fault| {
        let more = fault.act.is_some() || fault.repeat.is_some() || fault.trigger.is_some();
        more || !fault.injection.is_faithful()
    };
    let fault = scenario.faults.iter().find(real_only).map(|fault| format!("fault `{}`", fault.name()));
    let words = |reaper: &ReaperSettings| match () {
        () if reaper.liveness.is_some() => Some("the rule `liveness`"),
        () if reaper.reapers > 1 => Some("`reapers`"),
        () if reaper.running.is_some() => Some("`task_heartbeat`"),
        () if reaper.retry.is_some() => Some("`retries`"),
        () if reaper.brake.is_some() => Some("the brake (`max_fail`, `max_share`)"),
        () if reaper.runs_in.is_some() => Some("`runs_in`"),
        () if reaper.inside_the_worker => Some("`home`"),
        () if reaper.store_path != StorePath::Own => Some("`store_path`"),
        () => None,
    };
    let reaper = scenario.reaper.as_ref().and_then(words).map(|what| format!("[reaper]: {what}"));
    let user = scenario.user.map(|_| "[user]".to_string());
    let second = scenario.second_consumer.then(|| "[load] second_consumer".to_string());
    let jobs = (!scenario.jobs.is_empty()).then(|| "[[job]]".to_string());
    let jobs = jobs.or(scenario.load_count.map(|_| "[load] count".to_string()));
    match arm.or(fault).or(reaper).or(user).or(jobs).or(second) {
        Some(what) => {
            let text = format!("{}: {what} runs with --engine kernel in this version", ready.path.display());
            Err(Failure::new(Exit::Cannot, text))
        }
        None => Ok(()),
    }
}

/// What only the model engine can do.
pub(super) fn real_sockets_only(ready: &Ready) -> Result<(), Failure> {
    let (file, scenario) = (ready.path.display(), &ready.plan.scenario);
    let refuse = |text: String| Err(Failure::new(Exit::Cannot, format!("{file}: {text}")));
    if scenario.tasks.is_some() {
        return refuse("[tasks] runs with --engine model: nobody waits for its months; with real sockets, write [load] with a rate".into());
    }
    let bare = |arm: &&Arm| scenario.load_of(arm).is_some() && arm.settings.subject.broker() == BrokerKind::None;
    match scenario.arms.iter().filter(|_| scenario.reaper.is_some()).find(bare) {
        Some(arm) => refuse(format!(
            "arm `{}`: [reaper] with bare TCP runs with --engine model: with real sockets a task waits in a broker's queue; write `load = \"off\"` in the arm",
            arm.name
        )),
        None => Ok(()),
    }
}

/// Reads a scenario file; its text goes into the run directory.
pub fn read_scenario(path: &Path) -> Result<(String, Scenario), Failure> {
    let text = read_text(path)?;
    let scenario = parse(path, &text)?;
    Ok((text, scenario))
}

/// The text of a scenario file.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    let label = path.display();
    let bytes = std::fs::read(path).map_err(|e| {
        Failure::new(
            Exit::Usage,
            format!("{label}: can't read the scenario: {e}; `halfopen list` shows those that are there"),
        )
    })?;
    String::from_utf8(bytes).map_err(|e| {
        Failure::new(
            Exit::Usage,
            format!("{label}: not UTF-8 at byte {}; save the file as UTF-8", e.utf8_error().valid_up_to()),
        )
    })
}

fn parse(path: &Path, text: &str) -> Result<Scenario, Failure> {
    scenario::read(&path.display().to_string(), text).map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))
}

fn prepare(path: &Path, args: &RunArgs) -> Result<Ready, Failure> {
    prepare_text(path, read_text(path)?, args, false)
}

/// Reads and plans a scenario; `able_only` leaves out the arms that the kernel it will run on can't carry out.
pub(super) fn prepare_text(path: &Path, text: String, args: &RunArgs, able_only: bool) -> Result<Ready, Failure> {
    let mut scenario = parse(path, &text)?;
    if !args.allow_distorted {
        scenario::refuse_distorted(&path.display().to_string(), &text)
            .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))?;
    }
    let mut machine = match (args.engine, args.lab) {
        (EngineName::Model, _) => machine::reference(),
        (EngineName::Kernel, LabName::Vm) => machine::guest(),
        (EngineName::Kernel, _) => machine::for_the_model(),
    };
    for text in &args.assume {
        machine.assume(text).map_err(|e| Failure::new(Exit::Usage, format!("--assume: {e}")))?;
    }
    let left_out = if able_only { plan::leave_out(&mut scenario, machine.kernel) } else { Vec::new() };
    if scenario.arms.is_empty() {
        let why: Vec<&str> = left_out.iter().map(|left| left.why.as_str()).collect();
        return Err(Failure::new(Exit::Cannot, format!("{}: {}", path.display(), why.join("; "))));
    }
    let baseline = baseline::read(&scenario, args.baseline.as_deref())?;
    let overrides = Overrides { seed: args.seed, trials: args.trials, partition: args.partition };
    let mut plan =
        plan::build(scenario, &overrides).map_err(|e| Failure::new(Exit::Usage, format!("{}: {e}", path.display())))?;
    plan.left_out = left_out;
    let mut ready =
        Ready { path: path.to_path_buf(), text, plan, environments: BTreeMap::new(), baseline, docker: None };
    if args.engine == EngineName::Model {
        simulated_only(&ready)?;
    }
    plan::predict(&mut ready.plan, &machine);
    Ok(ready)
}

fn out_dir(args: &RunArgs, scenario: &Scenario, runs: usize) -> PathBuf {
    match (&args.out, runs) {
        (Some(out), 1) => out.clone(),
        (Some(out), _) => out.join(&scenario.name),
        // The time of the start keeps an earlier run of the same scenario.
        (None, _) => {
            let started: String = utc_date_time(clock::unix_seconds()).chars().filter(char::is_ascii_digit).collect();
            PathBuf::from("runs").join(format!("{}-{started}", scenario.name))
        }
    }
}

/// A scenario for each image of its broker, named after it where there are several.
fn per_image(ready: Ready) -> Vec<Ready> {
    let images = ready.plan.scenario.broker.image.clone();
    if images.len() < 2 {
        return vec![ready];
    }
    let of = |image: String| {
        let mut one = ready.clone();
        let plain: String =
            image.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        one.plan.scenario.name = format!("{}-{plain}", one.plan.scenario.name);
        one.plan.scenario.broker.image = vec![image];
        one
    };
    images.into_iter().map(of).collect()
}

/// Several scenarios have a folder each, by name.
fn names_differ(all: &[Ready]) -> Result<(), Failure> {
    for (i, ready) in all.iter().enumerate() {
        let name = &ready.plan.scenario.name;
        if let Some(other) = all[..i].iter().find(|o| o.plan.scenario.name == *name) {
            let (one, two) = (other.path.display(), ready.path.display());
            let text = format!("{one} and {two} have the same name `{name}`; rename one, or run them one at a time");
            return Err(Failure::new(Exit::Usage, text));
        }
    }
    Ok(())
}

/// Carries one scenario out with real sockets: its exit code and its summary.
pub(super) fn carry_out(ready: &Ready, out: &Path, args: &RunArgs) -> Result<(Exit, serde_json::Value), Failure> {
    let waves = ready.plan.waves();
    let (exit, dir) = match &waves[..] {
        // A part is what somebody wants at once.
        [_, _, ..] if args.partition.is_none() => waves::measure(ready, waves, out, args)?,
        _ => measure(ready, out, args)?,
    };
    match dir {
        Some(dir) => finish(&dir, exit, args),
        None => Ok((exit, serde_json::Value::Null)),
    }
}

/// Carries one scenario out, all of it at once: how it ended, and its directory where anything was measured.
pub(super) fn measure(ready: &Ready, out: &Path, args: &RunArgs) -> Result<(Exit, Option<RunDir>), Failure> {
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    signals::hold().map_err(|e| Failure::new(Exit::Harness, format!("signals: {e}")))?;
    let dir = RunDir::create(out).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    let source = ScenarioSource::new(&ready.path.display().to_string(), &ready.text);
    let lab = match args.lab {
        LabName::Netns => "netns",
        LabName::Docker => "docker",
        LabName::Vm => "vm",
    };
    let mut info = RunInfo::new(ready.plan.clone(), source, lab, clock::unix_seconds());
    info.machine = machine::machine();
    dir.write_run(&info).map_err(|e| harness(&e))?;
    let (ended, guest) = match supervised(&dir, ready, args) {
        Ok(ended) => ended,
        Err(failure) => {
            dir.discard().map_err(|e| harness(&e))?;
            return Err(failure);
        }
    };
    if args.jobs == 1 {
        // From here on an impatient Ctrl-C just ends this process: nothing of the run is left but files.
        signals::release().map_err(|e| harness(&e))?;
    }
    let facts = take_facts(dir.path());
    (info.brokers, info.clients, info.sources, info.memory) =
        (facts.brokers, facts.clients, facts.sources, facts.memory);
    info.phases_s = facts.phases_s;
    if let Some(guest) = guest {
        info.machine = guest.machine;
        info.sources.extend(guest.notes);
    }
    let exit = match (ended.interrupted, ended.code) {
        (true, _) | (_, 130) => Exit::Interrupted,
        (_, 0) => Exit::Held,
        (_, 2) => Exit::Usage,
        (_, 3) => Exit::Cannot,
        _ => Exit::Harness,
    };
    info.complete = exit == Exit::Held;
    info.sources.extend(super::docker::afterwards(ready.docker.as_ref()));
    baseline::attach(&mut info, ready.baseline.as_ref());
    dir.write_run(&info).map_err(|e| harness(&e))?;
    if exit == Exit::Cannot {
        // The engine has said why. Nothing was measured, so no run is left behind.
        dir.discard().map_err(|e| harness(&e))?;
        return Ok((exit, None));
    }
    Ok((exit, Some(dir)))
}

/// Hands the job over and waits. The job file holds no secret: logins are made inside.
fn supervised(dir: &RunDir, ready: &Ready, args: &RunArgs) -> Result<(Ended, Option<Guest>), Failure> {
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    // Links resolved: inside the run's mount namespace another place may lie over the linked one.
    let out = std::fs::canonicalize(dir.path()).map_err(|e| harness(&e))?;
    let run_id = run_id(args.lab, &ready.plan);
    let mut job = Job {
        run_id: run_id.clone(),
        plan: ready.plan.clone(),
        out: out.clone(),
        environments: ready.environments.clone(),
        docker: ready.docker.clone(),
        firewall: firewall::kind(args.firewall),
        started_in: std::env::current_dir().map_err(|e| harness(&e))?,
        progress: true,
    };
    if let Some(docker) = job.docker.as_mut().filter(|docker| docker.others) {
        docker.shared = vec![out.join(LOGS)];
        docker.read_only = ready.environments.values().cloned().collect();
        // Where the files of a command line of the user's own are, if they are in no image.
        let arms = ready.plan.scenario.arms.iter().filter_map(|arm| arm.settings.command.as_ref());
        if arms.into_iter().any(|line| line.image.is_none() && line.target.is_none()) {
            // All of the machine is nobody's working directory.
            docker.read_only.extend(Some(job.started_in.clone()).filter(|dir| dir.parent().is_some()));
        }
    }
    let file = out.join(JOB_FILE);
    dir.write(JOB_FILE, &serde_json::to_vec(&job).map_err(|e| harness(&e))?).map_err(|e| harness(&e))?;
    if args.lab == LabName::Vm {
        let inside = (!ready.environments.is_empty(), ready.plan.trials.len());
        let ended = run_in_guest(&run_id, &out, inside, args);
        let _ = std::fs::remove_file(&file);
        return ended.map(|(ended, guest)| (ended, Some(guest)));
    }
    if args.lab == LabName::Docker {
        let ended = super::docker::attended(&job, &file);
        let _ = std::fs::remove_file(&file);
        return ended.map(|ended| (ended, None));
    }
    let ended = supervise(&Supervise {
        run_id,
        program: PathBuf::from("/proc/self/exe"),
        args: vec!["__engine".into(), file.clone().into()],
        out_dir: out,
        keep: Vec::new(),
        user_namespace: UserNamespace::Auto,
        state_dir: journal::state_dir(),
    });
    let _ = std::fs::remove_file(&file);
    ended.map(|ended| (ended, None)).map_err(|e| match e {
        InitError::NotRoot
        | InitError::UserNamespace { .. }
        | InitError::Namespaces { .. }
        | InitError::Setup { .. } => Failure::new(Exit::Cannot, e.to_string()),
        InitError::Journal(e) => {
            Failure::new(Exit::Cannot, format!("{e}; name a directory of your own in HALFOPEN_STATE_DIR"))
        }
        other => harness(&other),
    })
}

/// Unique on this machine. A guest is a machine of its own: there the same plan has the same name each time, since names
/// end in hash tables, and their order is part of what has to repeat.
fn run_id(lab: LabName, plan: &Plan) -> String {
    match lab {
        LabName::Vm => format!("vm-{}", plan.scenario.seed),
        _ => format!("{}-{}", clock::unix_seconds(), std::process::id()),
    }
}

/// The engine's facts, as far as it came; one that was killed has left none.
fn take_facts(out: &Path) -> Facts {
    let path = out.join(FACTS_FILE);
    let facts = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    facts
}

/// The environments of the clients from outside, made now where they are not there yet.
pub(super) fn environments(plan: &Plan) -> Result<BTreeMap<SubjectKind, PathBuf>, Failure> {
    let mut all = BTreeMap::new();
    for kind in plan.scenario.arms.iter().map(|arm| arm.settings.subject) {
        let Some(adapter) = clients::adapter_of(kind).filter(|_| !all.contains_key(&kind)) else { continue };
        let dir = clients::ensure(&adapter, &mut |text| say!("halfopen: {text}"));
        all.insert(kind, dir.map_err(|e| Failure::new(Exit::Cannot, e.to_string()))?);
    }
    Ok(all)
}

/// What can be known to be missing before anything is made.
pub(super) fn preflight(ready: &Ready, lab: LabName) -> Result<(), Failure> {
    for kind in &ready.plan.scenario.broker.kinds {
        let needed: &[Program] = match kind {
            BrokerKind::None => &[],
            BrokerKind::Rabbitmq => &[Program::RabbitmqServer, Program::Epmd],
            BrokerKind::Redis => &[Program::RedisServer],
        };
        if let Some(missing) = needed.iter().find(|p| p.locate().is_none()) {
            return Err(Failure::new(Exit::Cannot, format!("{} is not installed; {}", missing.name(), missing.mend())));
        }
    }
    own_program::are_there(&ready.path, &ready.plan)?;
    let postgres = ready.plan.scenario.reaper.as_ref().is_some_and(|r| r.store == TaskStoreKind::Postgres);
    if postgres && Program::Postgres.locate().is_none() {
        let (name, mend) = (Program::Postgres.name(), Program::Postgres.mend());
        return Err(Failure::new(Exit::Cannot, format!("{name} is not installed; {mend}")));
    }
    if lab == LabName::Vm {
        // A guest is root of its own kernel.
        return Ok(());
    }
    let need = descriptors(&ready.plan);
    let limit = nofile_within_reach(need.count);
    if limit < need.count {
        let (file, process, count) = (ready.path.display(), &need.process, need.count);
        let text = format!(
            "{file}: {process} needs {count} file descriptors and the hard limit is {limit}; raise it (as root: `ulimit \
             -Hn {count}`; for good: `nofile` in /etc/security/limits.conf, or LimitNOFILE= of the service), or lower \
             --trials"
        );
        return Err(Failure::new(Exit::Cannot, text));
    }
    Ok(())
}

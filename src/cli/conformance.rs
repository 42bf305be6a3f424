//! `halfopen conformance`: the same settings in every lab, each held to the model and to the others.
//!
//! It only runs scenarios as `run` does, each into a run directory of its own, and compares what is recorded there.

use super::args::{ConformanceArgs, EngineName, FirewallName, LabName, RunArgs};
use super::exit::{Exit, Failure};
use super::run::{Ready, carry_out, environments, preflight, prepare_text, read_text, real_sockets_only};
use super::{pretty, print};
use crate::host::{clock, signals};
use crate::report::conformance::{Conformance, LabRun, MODEL};
use crate::store::{self, RunDir};
use crate::units::print_duration;
use crate::units::utc_date_time;
use crate::verdict::judge;
use comfy_table::Table;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings of tests/conformance, and unanswered handshakes.
const SET: [(&str, &str); 2] = [
    ("scenarios/conformance.toml", include_str!("../../scenarios/conformance.toml")),
    ("scenarios/unanswered-syn.toml", include_str!("../../scenarios/unanswered-syn.toml")),
];
/// Trials of each setting and fault there, so that a call takes two to three minutes.
const SET_TRIALS: u32 = 3;

/// Timers at full length.
const FULL_SIZE: [(&str, &str); 2] = [
    ("scenarios/full-length.toml", include_str!("../../scenarios/full-length.toml")),
    ("scenarios/full-size.toml", include_str!("../../scenarios/full-size.toml")),
];

/// What runs may be of, in the order of the tables.
const LABS: [&str; 3] = ["vm", "netns", "docker"];

/// Real time that nobody who did not ask for it is made to wait.
const PATIENCE: Duration = Duration::from_secs(600);

/// A scenario's label and text.
type Source = (PathBuf, String);

/// Compares the model, `vm` and `netns`.
pub fn conformance(args: &ConformanceArgs) -> Result<Exit, Failure> {
    if let Some(dir) = &args.from {
        return show(&recorded(dir)?, model(args), BTreeMap::new(), None, args.json);
    }
    if args.out.as_ref().is_some_and(|out| out.to_str().is_none()) {
        return Err(Failure::new(Exit::Usage, "--out is not UTF-8; choose a path that is"));
    }
    // Before anything starts a thread, which would be handed the signal.
    signals::hold().map_err(|e| Failure::new(Exit::Harness, format!("signals: {e}")))?;
    let out = args.out.clone().unwrap_or_else(default_out);
    let (mut runs, mut left_out) = (Vec::new(), BTreeMap::new());
    for lab in labs(args)? {
        let name = name_of(lab);
        match in_lab(lab, args, &out) {
            Ok(more) => runs.extend(more),
            Err(failure) if failure.exit == Exit::Cannot && args.labs.is_none() => {
                say!("halfopen: {name} IS LEFT OUT: {}", failure.text);
                left_out.insert(name.to_string(), failure.text);
            }
            Err(failure) => {
                return Err(Failure::new(failure.exit, format!("{name}: {}", failure.text)));
            }
        }
    }
    if runs.is_empty() {
        let text = "no lab can run here; `halfopen doctor` says what mends it";
        return Err(Failure::new(Exit::Cannot, text));
    }
    show(&runs, model(args), left_out, Some(&out), args.json)
}

fn name_of(lab: LabName) -> &'static str {
    match lab {
        LabName::Netns => "netns",
        LabName::Docker => "docker",
        LabName::Vm => "vm",
    }
}

/// Whether the model takes part.
fn model(args: &ConformanceArgs) -> bool {
    args.labs.as_ref().is_none_or(|labs| labs.iter().any(|lab| lab == MODEL))
}

/// The labs to run in; virtual time first, since it is the quicker one to fail.
fn labs(args: &ConformanceArgs) -> Result<Vec<LabName>, Failure> {
    let asked = |name: &str| args.labs.as_ref().is_none_or(|labs| labs.iter().any(|lab| lab == name));
    if args.full_size && args.labs.is_some() && asked("netns") {
        let text = "--full-size takes two and a half hours in netns; compare it with --labs model,vm, or wait for it with \
                    `halfopen run scenarios/full-length.toml`";
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut labs = Vec::new();
    if asked("vm") {
        labs.push(LabName::Vm);
    }
    if asked("netns") && !args.full_size {
        labs.push(LabName::Netns);
    } else if args.full_size && args.labs.is_none() {
        say!("halfopen: full-size settings are compared in vm only: in netns they take two and a half hours");
    }
    // Containers take longer to start and cut with the same rules: they are asked for by name.
    if args.labs.is_some() && asked("docker") {
        labs.push(LabName::Docker);
    }
    if labs.is_empty() {
        return Err(Failure::new(Exit::Usage, "--labs names no lab to run in; add vm, netns or docker"));
    }
    Ok(labs)
}

/// What is to run.
fn sources(args: &ConformanceArgs) -> Result<Vec<Source>, Failure> {
    let built_in = |set: [(&str, &str); 2]| set.map(|(path, text)| (PathBuf::from(path), text.to_string())).into();
    match (args.scenarios.as_slice(), args.full_size) {
        ([], true) => Ok(built_in(FULL_SIZE)),
        ([], false) => Ok(built_in(SET)),
        (paths, _) => paths.iter().map(|path| Ok((path.clone(), read_text(path)?))).collect(),
    }
}

/// Runs everything in one lab.
fn in_lab(lab: LabName, args: &ConformanceArgs, out: &Path) -> Result<Vec<LabRun>, Failure> {
    let scaled = args.scenarios.is_empty() && !args.full_size;
    let run_args = RunArgs {
        scenarios: args.scenarios.clone(),
        engine: EngineName::Kernel,
        lab,
        out: None,
        seed: args.seed,
        trials: args.trials.or(scaled.then_some(SET_TRIALS)),
        partition: None,
        baseline: None,
        dry_run: false,
        target_is_disposable: false,
        target_max: Duration::ZERO,
        max_time: None,
        assume: Vec::new(),
        // What is distorted agrees with no model.
        allow_distorted: false,
        firewall: FirewallName::Nftables,
        jobs: 1,
        kernel: args.kernel.clone(),
        vm_mode: super::vm::ModeArg::InfCpu,
        // The tables of the single runs would stand in the way of the one that is asked for.
        json: true,
    };
    let mut all: Vec<Ready> = sources(args)?
        .into_iter()
        .map(|(path, text)| prepare_text(&path, text, &run_args, true))
        .collect::<Result<_, _>>()?;
    for ready in &mut all {
        super::docker::allowed(&ready.path, &ready.plan, &run_args)?;
        real_sockets_only(ready)?;
        match lab {
            LabName::Docker => ready.docker = Some(super::docker::prepare(&ready.plan)?),
            LabName::Netns | LabName::Vm => preflight(ready, lab)?,
        }
        ready.environments = environments(&ready.plan)?;
    }
    let total: Duration = all.iter().map(|ready| ready.plan.estimate).sum();
    let took = print_duration(Duration::from_secs(total.as_secs() + 1));
    let name = name_of(lab);
    if lab != LabName::Vm {
        if total > PATIENCE && args.labs.is_none() {
            let text = format!("it would take about {took} of real time; ask for it with --labs model,vm,netns");
            return Err(Failure::new(Exit::Cannot, text));
        }
        say!("halfopen: {name}: about {took}");
    }
    let mut runs = Vec::new();
    for ready in &all {
        let dir = out.join(name).join(&ready.plan.scenario.name);
        let (exit, _) = carry_out(ready, &dir, &run_args)?;
        match exit {
            // What its gates say is for `run`; here the pairs are judged.
            Exit::Held | Exit::GateFailed | Exit::Inconclusive => runs.push(read(&dir)?),
            Exit::Interrupted => return Err(Failure::new(exit, "interrupted; what was recorded is kept")),
            Exit::Cannot => return Err(Failure::new(exit, "the run said why above")),
            other => return Err(Failure::new(other, format!("the run in {} failed", dir.display()))),
        }
    }
    Ok(runs)
}

fn read(dir: &Path) -> Result<LabRun, Failure> {
    let recorded = store::read(dir).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    let judged = judge(&recorded.run.plan, &recorded.events).in_lab(&recorded.run.lab);
    Ok(LabRun { run: recorded.run, judged })
}

/// The runs that an earlier call left: DIR/LAB/SCENARIO.
fn recorded(dir: &Path) -> Result<Vec<LabRun>, Failure> {
    let mut runs = Vec::new();
    for lab in LABS {
        let mut dirs: Vec<PathBuf> =
            std::fs::read_dir(dir.join(lab)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        dirs.sort();
        for dir in dirs {
            runs.push(read(&dir)?);
        }
    }
    if runs.is_empty() {
        let text = format!("{}: no run of `halfopen conformance` is there (vm/…, netns/… or docker/…)", dir.display());
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(runs)
}

fn show(
    runs: &[LabRun],
    model: bool,
    left_out: BTreeMap<String, String>,
    out: Option<&PathBuf>,
    json: bool,
) -> Result<Exit, Failure> {
    let ran = |lab: &&str| runs.iter().any(|r| r.run.lab == **lab);
    let names: Vec<String> = LABS.iter().filter(|lab| ran(lab)).map(ToString::to_string).collect();
    let all = Conformance::new(runs, &names, model, left_out);
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    let value = serde_json::to_value(&all).map_err(|e| harness(&e))?;
    if json {
        print(&pretty(&value))?;
    } else {
        print(&all.terminal(Table::new().width()))?;
    }
    if let Some(out) = out {
        let text = pretty(&value) + "\n";
        RunDir::existing(out).write("conformance.json", text.as_bytes()).map_err(|e| harness(&e))?;
        say!("halfopen: the runs and conformance.json are in {}", out.display());
    }
    Ok(match all.exit_code {
        0 => Exit::Held,
        1 => Exit::GateFailed,
        _ => Exit::Inconclusive,
    })
}

/// The time of the start keeps an earlier comparison.
fn default_out() -> PathBuf {
    let started: String = utc_date_time(clock::unix_seconds()).chars().filter(char::is_ascii_digit).collect();
    PathBuf::from("runs").join(format!("conformance-{started}"))
}

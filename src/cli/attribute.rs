//! `halfopen attribute`: which timer made these durations.

use super::exit::{Exit, Failure};
use super::{machine, pretty, print, run};
use crate::attribute::{
    Hints, Published, Sample, Timer, answer_published, attribute as answer, from_plan, library, list, parse_timer,
    read, render, render_published,
};
use crate::plan::{self, Overrides};
use crate::store;
use crate::verdict::{Outcome, TrialRow, judge};
use clap::{Args, ValueEnum};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Arguments of `attribute`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AttributeArgs {
    /// Stuck durations: CSV with a header, JSON lines, one value a line, or a run directory; `-` is standard input
    #[arg(value_name = "DURATIONS", required_unless_present_any = ["timers", "published"])]
    pub durations: Option<PathBuf>,
    /// The column (CSV) or key (JSON lines) [default: by its name, and said]
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// The unit of bare numbers: ns, us, ms, s, m, h [default: by the column's name, else seconds]
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<String>,
    /// Two columns of instants, whose difference is the duration
    #[arg(long, value_name = "START,END", value_parser = two, conflicts_with_all = ["column", "unit"])]
    pub between: Option<(String, String)>,
    /// A timer of your own; may be given several times
    #[arg(long = "timer", value_name = "NAME=DURATION [check=DURATION] [layer=LAYER]", value_parser = timer)]
    pub own: Vec<Timer>,
    /// Only the timers that are named here, by a scenario or by a run: not the library
    #[arg(long)]
    pub only: bool,
    /// The watchers that the model predicts for a scenario, as timers
    #[arg(long, value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Of a run directory: which durations [default: stuck where messages flowed, else ttd]
    #[arg(long, value_enum)]
    pub metric: Option<Metric>,
    /// Of a run directory: one arm only
    #[arg(long, value_name = "NAME")]
    pub arm: Option<String>,
    /// Figures of a report, where the durations were not published
    #[arg(long, value_name = "mean=…,median=…,share=…", value_parser = Published::parse, conflicts_with = "durations")]
    pub published: Option<Published>,
    /// List the timers with their sources
    #[arg(long, conflicts_with_all = ["durations", "published"])]
    pub timers: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  halfopen attribute stuck.csv                              the column is found by its name, and said
  halfopen attribute tasks.csv --between queued_dttm,end_date
  halfopen attribute stuck.jsonl --column elapsed --unit ms
  halfopen attribute stuck.txt --timer \"queued_timeout=1200s check=120s\"
  halfopen attribute stuck.txt --timer lb=350s --timer retransmit=925s..1045s --only
  halfopen attribute stuck.csv --scenario scenarios/reaper-fallback.toml
  halfopen attribute runs/airflow-1283 --arm current        what made the stalls of a run
  halfopen attribute --published mean=1283.9s,median=1288.4s,share=80%@1100s..1400s
  halfopen attribute --timers                               the library, each with its source
  psql -Atc \"SELECT extract(epoch FROM end_date - queued_dttm) FROM task_instance WHERE state = 'failed'\" | halfopen attribute -

A timer is named when the durations are at least 20 times likelier under it than under any ordinary law that varies by
30 % or more, and spread as its check would spread them; otherwise the answer is \"unexplained\". docs/attribute.md has the
rule, its proof, and queries for Airflow's table and log.
Exit codes: 0 answered (\"unexplained\" is an answer), 2 wrong usage or an unreadable file, 5 the harness itself failed.";

/// What a trial's duration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// How long the oldest message was stuck
    Stuck,
    /// The time to detect
    Ttd,
}

/// Nobody has this much text of durations; a hundred million of them fit.
const LARGEST: u64 = 2 << 30;

fn two(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((start, end)) if !start.trim().is_empty() && !end.trim().is_empty() => {
            Ok((start.trim().to_string(), end.trim().to_string()))
        }
        _ => Err(format!("`{text}` is not START,END; write for example queued_dttm,end_date")),
    }
}

fn timer(text: &str) -> Result<Timer, String> {
    parse_timer(text).map_err(|e| e.to_string())
}

fn usage(text: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, text.to_string())
}

/// Attributes durations, or figures.
pub fn attribute(args: &AttributeArgs) -> Result<Exit, Failure> {
    let mut timers = args.own.clone();
    if let Some(path) = &args.scenario {
        timers.extend(of_scenario(path)?);
    }
    let given = args.durations.as_deref().map(|path| durations(path, args)).transpose()?;
    let (sample, mut told) = match given {
        None => (Sample::default(), Vec::new()),
        Some(Given { sample, told, timers: of_run }) => {
            timers.extend(of_run);
            (sample, told)
        }
    };
    if args.only && timers.is_empty() {
        return Err(usage("--only leaves no timer; name one with --timer, or give --scenario"));
    }
    if !args.only {
        timers.extend(library());
    }
    if args.timers {
        return if args.json { json(&timers) } else { print(&list(&timers)) };
    }
    if let Some(published) = args.published {
        let found = answer_published(published, &timers);
        return if args.json { json(&found) } else { print(&render_published(&found)) };
    }
    let found = answer(&sample, &timers);
    if !args.json {
        return print(&render(&found, &told));
    }
    let mut value = serde_json::to_value(&found).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?;
    value["read"] = std::mem::take(&mut told).into();
    print(&pretty(&value))
}

fn json(value: &impl serde::Serialize) -> Result<Exit, Failure> {
    print(&pretty(&serde_json::to_value(value).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?))
}

/// Durations, how they were read, and the timers that come with them.
struct Given {
    sample: Sample,
    told: Vec<String>,
    timers: Vec<Timer>,
}

fn durations(path: &Path, args: &AttributeArgs) -> Result<Given, Failure> {
    if path.is_dir() {
        return of_run(path, args);
    }
    if args.arm.is_some() || args.metric.is_some() {
        return Err(usage("--arm and --metric choose from a run directory; of a file, --column names the durations"));
    }
    let (label, text) = text_of(path)?;
    let hints = Hints { column: args.column.clone(), unit: args.unit.clone(), between: args.between.clone() };
    let found = read(&label, &text, &hints).map_err(usage)?;
    Ok(Given { sample: Sample::new(found.seconds), told: found.told, timers: Vec::new() })
}

fn text_of(path: &Path) -> Result<(String, String), Failure> {
    let mut bytes = Vec::new();
    let (label, read) = if path.as_os_str() == "-" {
        ("standard input".to_string(), std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes))
    } else {
        let opened = std::fs::File::open(path);
        (path.display().to_string(), opened.and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)))
    };
    read.map_err(|e| usage(format!("can't read {label}: {e}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(usage(format!("{label}: more than {} GiB; give a part of it", LARGEST >> 30)));
    }
    String::from_utf8(bytes).map(|text| (label.clone(), text)).map_err(|_| {
        usage(format!("{label}: not UTF-8 text; give CSV with a header, JSON lines, or one duration a line"))
    })
}

fn of_scenario(path: &Path) -> Result<Vec<Timer>, Failure> {
    let (_, scenario) = run::read_scenario(path)?;
    let mut plan =
        plan::build(scenario, &Overrides::default()).map_err(|e| usage(format!("{}: {e}", path.display())))?;
    plan::predict(&mut plan, &machine::reference());
    let timers = from_plan(&plan);
    if timers.is_empty() {
        let text = format!("{}: the model predicts no watcher that fires; name timers with --timer", path.display());
        return Err(usage(text));
    }
    Ok(timers)
}

fn of_run(path: &Path, args: &AttributeArgs) -> Result<Given, Failure> {
    if args.column.is_some() || args.unit.is_some() || args.between.is_some() {
        return Err(usage("a run directory has its own columns and unit; --metric stuck or ttd chooses"));
    }
    let recorded = store::read(path).map_err(usage)?;
    let scenario = &recorded.run.plan.scenario;
    if let Some(name) = args.arm.as_ref().filter(|name| !scenario.arms.iter().any(|a| a.name == **name)) {
        let names: Vec<&str> = scenario.arms.iter().map(|a| a.name.as_str()).collect();
        return Err(usage(format!("{} has no arm `{name}`; it has {}", path.display(), names.join(", "))));
    }
    let judged = judge(&recorded.run.plan, &recorded.events);
    let own = |r: &&TrialRow| args.arm.as_ref().is_none_or(|a| *a == r.arm) && r.outcome != Outcome::Void;
    let rows: Vec<&TrialRow> = judged.trials.iter().filter(own).collect();
    let metric =
        args.metric.unwrap_or(if rows.iter().any(|r| r.queued_s.is_some()) { Metric::Stuck } else { Metric::Ttd });
    let (seconds, unresolved) = times(&rows, metric);
    let what = match metric {
        Metric::Stuck => "how long the oldest message was stuck",
        Metric::Ttd => "the time to detect",
    };
    let arms = args.arm.as_ref().map_or_else(|| "all arms".to_string(), |a| format!("arm {a}"));
    let told = vec![format!("{}: {} trials of {arms}: {what}.", path.display(), rows.len())];
    if seconds.is_empty() && unresolved.is_empty() {
        return Err(usage(format!("{}: no trial of {arms} has {what}; try another --metric", path.display())));
    }
    let timers = if metric == Metric::Ttd { from_plan(&recorded.run.plan) } else { Vec::new() };
    Ok(Given { sample: Sample::new(seconds).with_unresolved(unresolved), told, timers })
}

/// Durations, and the watches of those that have no end.
fn times(rows: &[&TrialRow], metric: Metric) -> (Vec<f64>, Vec<f64>) {
    let (mut ended, mut open) = (Vec::new(), Vec::new());
    for row in rows {
        let (value, waits) = match metric {
            Metric::Stuck => (row.stuck_s, row.queued_s.is_some()),
            Metric::Ttd => (row.ttd_s, row.outcome == Outcome::Censored),
        };
        match value {
            Some(span) => ended.push(span.as_secs()),
            None if waits => open.push(row.horizon_s.as_secs()),
            None => {}
        }
    }
    (ended, open)
}

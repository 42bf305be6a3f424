//! The command line: names, defaults and help, nothing else.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Who notices a half-open connection, when, and what was lost meanwhile.
#[derive(Debug, Parser)]
#[command(name = "halfopen", version, max_term_width = 100, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  halfopen predict --set subject=celery         who would notice, when, and why not the others
  halfopen predict --from-env airflow.cfg       the same for your own settings; needs no root and no broker
  halfopen inspect --pid 4242                   the same for each connection of a live process
  halfopen doctor                               what this machine can do, and what mends a lack
  halfopen list                                 the scenarios, each with its question and length
  halfopen run scenarios/first-look.toml        real brokers, real consumers, real half-open sockets
  halfopen run scenarios/one-way.toml --dry-run what it would create, with which privileges, for how long
  halfopen compare runs/one-way                 arm against arm: better, worse, equal or inconclusive
  halfopen reap reap.toml                       what is stuck in your own task table, and why; changes nothing
  halfopen attribute stuck.csv                  which timer made your stuck durations
  halfopen report runs/one-way                  render a recorded run again, offline, without root

Exit codes: 0 every gate held, 1 a gate failed, 2 wrong usage or scenario, 3 this machine can't run it,
4 inconclusive (void or too few trials), 5 the harness itself failed, 130 interrupted and cleaned up.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios: cut real connections, watch who notices, judge the gates
    Run(RunArgs),
    /// Say who would notice, when, and why not the others: for a scenario, or for settings that you have
    Predict(PredictArgs),
    /// Say which timer made a sample of stuck durations, and which ones certainly did not
    Attribute(super::attribute::AttributeArgs),
    /// Look at a live process: for each of its connections who would notice a silent cut, and when
    Inspect(super::inspect::InspectArgs),
    /// Run the same settings in virtual time and in namespaces, and say where model and labs agree
    Conformance(ConformanceArgs),
    /// Compare two runs, or arms of one: what is better, how sure that is, and what it costs
    Compare(CompareArgs),
    /// Join the parts of one plan that ran with --partition, as if it had never been split
    Merge(MergeArgs),
    /// Render a recorded run again: judged anew from its events, offline, without root
    Report(ReportArgs),
    /// The reaper on your own task table: what is stuck, and why; changes nothing unless told to
    Reap(super::reap::ReapArgs),
    /// What this machine can do, and the command that mends each lack
    Doctor(JsonArgs),
    /// Remove what a killed run could have left, and nothing else
    Clean(CleanArgs),
    /// The virtual-time kernel: build it, look at it, use it, remove it
    Vm(super::vm::VmArgs),
    /// Print the JSON schema of the scenario file
    Schema,
    /// List the scenarios, each with its question and how long it takes
    List(ListArgs),
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  halfopen run scenarios/control.toml --trials 5
  halfopen run scenarios/one-way.toml --out /tmp/one-way --seed 11
  halfopen run scenarios/first-look.toml scenarios/one-way.toml --out nightly --max-time 30m --json")]
pub struct RunArgs {
    /// Scenario files
    #[arg(required = true, value_name = "SCENARIO")]
    pub scenarios: Vec<PathBuf>,
    /// What carries the trials out
    #[arg(long, value_enum, default_value_t = EngineName::Kernel)]
    pub engine: EngineName,
    /// Where the kernel engine runs
    #[arg(long, value_enum, default_value_t = LabName::Netns)]
    pub lab: LabName,
    /// The run directory for one scenario; holds one folder a scenario for several [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw phases from this seed instead of the scenario's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Trials per arm and fault, instead of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub trials: Option<u32>,
    /// Only this share of the trials, for example 1/4; done at once, whatever `at_once` says
    #[arg(long, value_name = "I/N", value_parser = partition)]
    pub partition: Option<(u32, u32)>,
    /// Say what would be created, which privileges that takes and how long it lasts; create nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The stored run for gates with no_worse_than = "baseline" [default: baselines/NAME, where it is]
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// With --lab docker and a `target`: yes, the connections of these containers may be cut
    #[arg(long)]
    pub target_is_disposable: bool,
    /// The longest that the containers of a `target` may be cut
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    pub target_max: Duration,
    /// Refuse a plan that is estimated to take longer
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_time: Option<Duration>,
    /// Let the model believe something else about the machine or its sysctls, for example
    /// sysctl.tcp_retries2=8, hz=1000 or kernel=6.1; the run itself is not changed
    #[arg(long, value_name = "KEY=VALUE")]
    pub assume: Vec<String>,
    /// Run cuts that the subject's own kernel notices, or that answer: what they measure is not a half-open connection, and
    /// the run says so wherever it is shown
    #[arg(long)]
    pub allow_distorted: bool,
    /// What drops and counts the packets, for --lab netns
    #[arg(long, value_enum, default_value_t = FirewallName::Nftables)]
    pub firewall: FirewallName,
    /// Guests side by side, for several scenarios with --lab vm
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// With --lab vm: a kernel of your own, instead of the one that `halfopen vm build` built
    #[arg(long, value_name = "PATH")]
    pub kernel: Option<PathBuf>,
    /// With --lab vm: how the guest's clock moves
    #[arg(long, value_enum, default_value_t = super::vm::ModeArg::InfCpu)]
    pub vm_mode: super::vm::ModeArg,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Values of `--firewall`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirewallName {
    /// Sets with counters, leases, and all profiles
    Nftables,
    /// Whichever kind the machine calls iptables: cuts that drop, and stay
    Iptables,
    /// The same over nf_tables
    IptablesNft,
    /// The same over xtables
    IptablesLegacy,
}

/// Arguments of `conformance`.
#[derive(Debug, Args)]
#[command(after_help = CONFORMANCE_EXAMPLES)]
pub struct ConformanceArgs {
    /// Scenario files [default: the built-in conformance set, scaled to a few minutes]
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<PathBuf>,
    /// What is compared: model, vm, netns, docker [default: all that this machine can run, but docker]
    #[arg(long, value_name = "LAB,…", value_delimiter = ',', value_parser = ["model", "vm", "netns", "docker"])]
    pub labs: Option<Vec<String>>,
    /// Settings at full length (tcp_retries2 15, keepalive 7200/75/9, 127 s of SYNs), in vm only: netns would take hours
    #[arg(long, conflicts_with = "scenarios")]
    pub full_size: bool,
    /// Draw phases from this seed instead of the scenario's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Trials per setting and fault [default: 3 for the built-in set, else the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub trials: Option<u32>,
    /// Holds a run directory for each lab and scenario [default: runs/conformance-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Compare again what an earlier call left in a directory; nothing is run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["scenarios", "full_size", "seed", "trials", "out", "kernel"])]
    pub from: Option<PathBuf>,
    /// For vm: a kernel of your own, instead of the one that `halfopen vm build` built
    #[arg(long, value_name = "PATH")]
    pub kernel: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

const CONFORMANCE_EXAMPLES: &str = "\
Examples:
  halfopen conformance                               the built-in settings in every lab that runs here
  halfopen conformance --full-size                   timers at full length, in virtual time
  halfopen conformance --labs model,vm               without root
  halfopen conformance my.toml --trials 8 --seed 3   your own settings
  halfopen conformance my.toml --labs netns,docker   the same in namespaces and in containers
  halfopen conformance --from runs/conformance-…     compare again what was recorded, offline

A trial agrees with the model inside the window that was given for its kernel beforehand. Two labs agree where the same
trial differs in them by no more than their windows allow.
Exit codes: 0 every pair agrees at 97 % or more, 1 one does not, 2 wrong usage, 3 a lab that was asked for can't run here,
4 a pair has nothing to compare, 5 the harness itself failed, 130 interrupted.";

/// Arguments of `predict`.
#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub struct PredictArgs {
    /// A scenario, or settings as you have them: .env, Celery module, `celery report`, airflow.cfg, transport options as
    /// JSON, rabbitmq.conf, redis.conf, `CONFIG GET` output, sysctls, a broker address; `-` is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// An option or a condition; several values, separated by commas, become arms of their own
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub sets: Vec<(String, String)>,
    /// Read AIRFLOW__*, CELERY_* and broker addresses from this environment
    #[arg(long)]
    pub from_env: bool,
    /// Read a file of NAME=value lines, whatever it is called
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Every watcher of every fault with its reason, and where each setting comes from
    #[arg(long)]
    pub explain: bool,
    /// Exit with 1 when there is a finding worse than a note
    #[arg(long)]
    pub strict: bool,
    /// List the keys of --set
    #[arg(long)]
    pub keys: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  halfopen predict --from-env                        the AIRFLOW__ and CELERY_ variables of this shell
  halfopen predict airflow.cfg rabbitmq.conf         settings from several files, put together
  redis-cli CONFIG GET '*' | halfopen predict - celeryconfig.py
  halfopen predict --set subject=celery --set broker=redis
  halfopen predict .env --set read_timeout=none,60s  two arms: as it is, and with a change
  halfopen predict --set subject=tcp-reader --set keepalive.idle=60s --set state=idle --set age_at_fault=0s --json
  halfopen predict scenarios/one-way.toml --explain

The first line is the verdict. Nothing is executed or connected to, and no root is needed.
Exit codes: 0 answered, 1 with --strict and a finding worse than a note, 2 wrong usage or an unreadable file.";

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArgs {
    /// A run directory: the first side; alone, its first arm is compared with each other arm
    #[arg(value_name = "A")]
    pub a: String,
    /// A run directory: the second side
    #[arg(value_name = "B")]
    pub b: Option<String>,
    /// Further runs of the first side (without B: of the same arms)
    #[arg(long, value_name = "RUN")]
    pub also_a: Vec<PathBuf>,
    /// Further runs of the second side
    #[arg(long, value_name = "RUN", requires = "b")]
    pub also_b: Vec<PathBuf>,
    /// Which arm of A against which of B; may be given several times
    #[arg(long, value_name = "ARM,ARM", allow_hyphen_values = true)]
    pub arms: Vec<String>,
    /// The largest difference that does not matter, for example ttd_mean=2s, stuck_mean=5%, detected=3%
    /// [default: a tenth of A's time, five points of a share, one false alarm a day]
    #[arg(long, value_name = "METRIC=VALUE")]
    pub margin: Vec<String>,
    /// A metric whose doubt leaves the comparison open as well [default: the mean stuck time, else the mean time to detect]
    #[arg(long, value_name = "METRIC")]
    pub gate: Vec<String>,
    /// Differences between the sides that are meant: fault, distortion, horizon, load, lab, mode, kernel, versions, machine
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', value_parser = super::compare::what)]
    pub allow: Vec<crate::report::compare::What>,
    /// Race the detections against such a reaper, for example 1200s/120s [default: the scenario's]
    #[arg(long, value_name = "TIMEOUT/INTERVAL")]
    pub reaper: Option<String>,
    /// A and B are counts of events in the field, EVENTS/EXPOSURE, and no runs
    #[arg(long, conflicts_with_all = ["also_a", "also_b", "arms", "margin", "gate", "allow", "reaper", "out"])]
    pub field: bool,
    /// Write compare.md, compare.json and junit.xml there
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  halfopen compare runs/heartbeat                          the first arm against each other arm, side by side in one run
  halfopen compare runs/monday runs/tuesday                arms of one name, run against run
  halfopen compare runs/a1 runs/b1 --also-a runs/a2 --also-b runs/b2
  halfopen compare runs/x runs/y --arms current,proposed   an arm of x against one of y
  halfopen compare runs/x --margin ttd_mean=2s --out cmp   a page for CI, JSON and JUnit
  halfopen compare --field 3/200000 0/200000               three events in 200,000 tasks before, none after: how strong is that?

A metric is better or worse where its 95 % interval, corrected for the number of questions, leaves no room for chance; equal
where all of it is within the margin; else inconclusive. See docs/comparing.md.
Exit codes: 0 nothing is worse, 1 something is, 2 wrong usage or runs that answer different questions, 4 inconclusive.";

/// Arguments of `merge`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  halfopen run nightly.toml --partition 1/4 --out part-1      on each of four machines, with its own number
  halfopen merge part-1 part-2 part-3 part-4 --out nightly

The parts are of one scenario file, one seed and one version. Exit codes: those of the joined run's gates; 4 too where a part is
missing, 2 where the runs are no parts of one plan.")]
pub struct MergeArgs {
    /// Run directories
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The joined run directory [default: runs/NAME-merged-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  halfopen report runs/one-way")]
pub struct ReportArgs {
    /// A run directory
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Arguments of commands that only print.
#[derive(Debug, Args)]
pub struct JsonArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `clean`.
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Say what would be removed; remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Folders or files to look in
    #[arg(value_name = "PATH", default_value = "scenarios")]
    pub paths: Vec<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What carries trials out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Real sockets on the real kernel
    Kernel,
    /// The timer model, simulated
    Model,
}

/// Where the kernel engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabName {
    /// Network namespaces of this machine
    Netns,
    /// Docker networks
    Docker,
    /// A virtual-time guest
    Vm,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    crate::units::parse_duration(text).map_err(|e| e.to_string())
}

pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_string(), value.trim().to_string())),
        _ => Err(format!("`{text}` is not KEY=VALUE; write for example read_timeout=60s")),
    }
}

fn partition(text: &str) -> Result<(u32, u32), String> {
    let shape = || format!("`{text}` is not I/N with 1 <= I <= N; write for example 1/4");
    let (i, n) = text.split_once('/').ok_or_else(shape)?;
    let (i, n): (u32, u32) = (i.parse().map_err(|_| shape())?, n.parse().map_err(|_| shape())?);
    if i == 0 || i > n { Err(shape()) } else { Ok((i, n)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn partitions_are_checked() {
        assert_eq!(partition("1/4"), Ok((1, 4)));
        for bad in ["0/4", "5/4", "1", "a/b", "1/0"] {
            assert!(partition(bad).is_err(), "{bad}");
        }
    }
}

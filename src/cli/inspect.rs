//! `halfopen inspect`: looks, asks `inspect`, prints.

use super::args::{assignment, duration};
use super::exit::{Exit, Failure};
use super::predict::style;
use super::print;
use crate::advise::cleanup;
use crate::host::clock::Clock;
use crate::inspect::{
    Class, Connection, InspectError, Inspection, Inspector, Judge, Look, Protocols, Shown, Tables, Target, Told,
    by_command, by_management, by_product, by_rabbitmqctl, exposition, inspection, render,
};
use crate::timers::Subject;
use crate::units::Offset;
use clap::{Args, ValueEnum};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArgs {
    #[command(flatten)]
    what: What,
    /// RabbitMQ's management API, for negotiated heartbeats: http://user:password@host:15672
    #[arg(long, value_name = "URL")]
    rabbitmq: Option<String>,
    /// Ask RabbitMQ through its own tool, on its machine
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, default_missing_value = "/usr/sbin/rabbitmqctl")]
    rabbitmqctl: Option<PathBuf>,
    /// What `rabbitmqctl … --formatter json` or the management API printed, saved in files
    #[arg(long, value_name = "FILE")]
    rabbitmq_tables: Vec<PathBuf>,
    /// Which client library the processes use, where it can't be seen: celery, py-amqp, pika, aio-pika, lapin, amqp091-go,
    /// redis-py
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// What is spoken on a port that is not the usual one, for example 5673=amqp
    #[arg(long, value_name = "PORT=PROTOCOL")]
    protocol: Vec<String>,
    /// Who cleans up by a store, for example queued_timeout=1200s
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    sets: Vec<(String, String)>,
    /// Exit with 1 when a connection would stay undetected for longer, with 4 when that can't be told
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    fail_over: Option<Duration>,
    /// What --fail-over judges [default: every silent cut]
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',', value_enum)]
    faults: Vec<ClassArg>,
    /// Every watcher with its reason, and which evidence is missing
    #[arg(long)]
    explain: bool,
    /// Print JSON instead of a table; with --watch, a line of JSON an event
    #[arg(long)]
    pub(super) json: bool,
    /// Look again and again: a table that is drawn anew (keys sort and quit), or without a terminal events as lines of JSON
    #[arg(long)]
    pub(super) watch: bool,
    /// How many looks [default: 1, with --watch no end]; 2 are better than 1, since what moves between them tells most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) looks: Option<u64>,
    /// Time between two looks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(super) every: Duration,
    /// With --watch: append the events to a file as lines of JSON
    #[arg(long, value_name = "FILE", requires = "watch")]
    pub(super) log: Option<PathBuf>,
    /// Print Prometheus' text format
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    prometheus: bool,
    /// Write Prometheus' text format to a file, for node_exporter's textfile collector; with --watch again and again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "prometheus", "listen"])]
    textfile: Option<PathBuf>,
    /// Serve Prometheus' text format at http://ADDRESS/metrics, a look for each request
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["json", "watch", "prometheus", "looks"])]
    listen: Option<SocketAddr>,
}

/// Whose connections.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// A process and its descendants
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// A container, by its name (Docker) or id (any engine)
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// A network namespace, by its file: /run/netns/NAME or /proc/PID/ns/net
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
    /// Every connection to or from a port
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Everything that this user may see
    #[arg(long)]
    all: bool,
}

/// A class by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClassArg {
    /// Cut both ways, nothing is sent
    Idle,
    /// Cut both ways as data was sent
    InFlight,
    /// What it sends is lost
    ToPeer,
    /// What the peer sends is lost
    FromPeer,
    /// The peer stands still, its kernel acknowledges
    Frozen,
}

const EXAMPLES: &str = "\
Examples:
  halfopen inspect --pid 4242                        each connection of a process and its children
  halfopen inspect --container worker-1 --explain    every watcher with its reason
  halfopen inspect --port 5672 --rabbitmq http://monitor:secret@broker:15672
  halfopen inspect --pid 4242 --client celery --rabbitmq-tables connections.json
  halfopen inspect --pid 4242 --looks 2              what moves between two looks tells what is half-open now
  halfopen inspect --container worker-1 --watch      live; keys sort and quit
  halfopen inspect --all --listen 127.0.0.1:9478     for Prometheus
  halfopen inspect --all --fail-over 60s --json      as a CI check: exit 1 where a cut stays unseen for longer
  halfopen inspect --pid 4242 --set queued_timeout=1200s    when the scheduler would give the work on

Nothing is changed: options are read through a duplicate that is closed at once, errors are left to their owner. Without
the right to look at a process (root, or CAP_SYS_PTRACE and CAP_NET_ADMIN) its columns stay `?`.
A window marked * is as far as can be seen from outside. docs/inspect.md explains the rest.
Exit codes: 0 answered, 1 over --fail-over, 2 wrong usage, 3 not allowed to look, 4 over as far as can be seen, but a
timer inside of the application may be sooner.";

impl From<ClassArg> for Class {
    fn from(class: ClassArg) -> Self {
        match class {
            ClassArg::Idle => Self::Idle,
            ClassArg::InFlight => Self::InFlight,
            ClassArg::ToPeer => Self::ToPeer,
            ClassArg::FromPeer => Self::FromPeer,
            ClassArg::Frozen => Self::Frozen,
        }
    }
}

impl What {
    fn target(&self) -> Target {
        match (self.pid, &self.container, &self.netns, self.port) {
            (Some(pid), ..) => Target::Process(pid),
            (_, Some(name), ..) => Target::Container(name.clone()),
            (_, _, Some(path), _) => Target::Namespace(path.clone()),
            (_, _, _, Some(port)) => Target::Port(port),
            _ => Target::All,
        }
    }
}

/// Looks once and prints.
pub fn inspect(args: &InspectArgs) -> Result<Exit, Failure> {
    let mut watched = Watched::of(args)?;
    if let Some(address) = args.listen {
        return super::inspect_serve::listen(address, &mut watched);
    }
    if let Some(path) = &args.textfile {
        return super::inspect_serve::textfile(path, args, &mut watched);
    }
    if args.watch {
        return super::inspect_watch::watch(args, &mut watched);
    }
    let clock = Clock::start();
    let (mut found, mut took_s) = watched.look().map_err(failure)?;
    for number in 1..args.looks.unwrap_or(1) {
        let nanoseconds = i64::try_from(args.every.as_nanos()).unwrap_or(i64::MAX);
        clock.sleep_until(Offset(nanoseconds.saturating_mul(number.cast_signed())));
        (found, took_s) = watched.look().map_err(failure)?;
    }
    if args.prometheus {
        print(&exposition(&found, took_s))?;
        return Ok(args.verdict(&found));
    }
    let style = style(args.explain);
    if args.json {
        write_json(&found)?;
    } else {
        print(&render(&found, &Shown { width: style.width.max(140), colours: style.colours, explain: style.explain }))?;
    }
    Ok(args.verdict(&found))
}

/// As it is made: ten thousand connections as one text would take more memory than everything else.
fn write_json(found: &Inspection) -> Result<(), Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, found).map_err(std::io::Error::from);
    match written.and_then(|()| writeln!(out)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Harness, format!("can't write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

impl InspectArgs {
    pub(super) fn verdict(&self, found: &Inspection) -> Exit {
        let Some(limit) = self.fail_over else { return Exit::Held };
        let classes: Vec<Class> = match self.faults.is_empty() {
            true => Class::CUTS.to_vec(),
            false => self.faults.iter().map(|class| (*class).into()).collect(),
        };
        let verdict = found.judge(limit, &classes);
        let limit = crate::units::print_duration(limit);
        if !verdict.over.is_empty() {
            say!(
                "halfopen: {} of {} connections would stay undetected for longer than {limit}",
                verdict.over.len(),
                found.rows.len()
            );
            return Exit::GateFailed;
        }
        if !verdict.unsure.is_empty() {
            say!(
                "halfopen: of {} of {} connections it can't be told whether they are noticed within {limit}; --explain names the \
                 evidence that is missing",
                verdict.unsure.len(),
                found.rows.len()
            );
            return Exit::Inconclusive;
        }
        Exit::Held
    }
}

/// A target under watch: each look is compared with the one before.
pub(super) struct Watched {
    asked: Asked,
    inspector: Inspector,
    target: Target,
    before: Option<Look>,
    clock: Clock,
}

impl Watched {
    fn of(args: &InspectArgs) -> Result<Self, Failure> {
        let asked = Asked::of(args)?;
        let target = args.what.target();
        Ok(Self { asked, inspector: Inspector::new(target.clone()), target, before: None, clock: Clock::start() })
    }

    /// The next look, and how long it took.
    pub(super) fn look(&mut self) -> Result<(Inspection, f64), InspectError> {
        let began = self.clock.now();
        let look = self.inspector.look()?;
        let found = self.asked.inspection(&self.inspector, &look, self.before.as_ref(), &self.target);
        self.before = Some(look);
        Ok((found, self.clock.now().since(began).as_secs_f64()))
    }

    /// Seconds from the first moment to the last look.
    pub(super) fn at_s(&self) -> f64 {
        self.before.as_ref().map_or(0.0, |look| look.at_s)
    }
}

/// What the command line adds to what is seen.
struct Asked {
    protocols: Protocols,
    client: Option<Subject>,
    tables: Option<Tables>,
    cleanup: crate::advise::Cleanup,
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}

pub(super) fn failure(error: InspectError) -> Failure {
    let exit = match error {
        InspectError::NoProcess(_) | InspectError::Container(_) => Exit::Usage,
        InspectError::Namespace { .. } | InspectError::NotAllowed { .. } => Exit::Cannot,
    };
    Failure::new(exit, error.to_string())
}

impl Asked {
    fn of(args: &InspectArgs) -> Result<Self, Failure> {
        let mut protocols = Protocols::default();
        for text in &args.protocol {
            protocols.add(text).map_err(|e| usage(format!("--protocol: {e}")))?;
        }
        let client = args.client.as_deref().map(str::parse::<Subject>).transpose();
        let client = client.map_err(|e| usage(format!("--client: {e}")))?;
        let mut tables = None;
        if let Some(address) = &args.rabbitmq {
            tables = Some(by_management(address).map_err(|e| usage(format!("--rabbitmq: {e}")))?);
        }
        if let Some(program) = &args.rabbitmqctl {
            tables = Some(by_rabbitmqctl(program).map_err(|e| usage(format!("--rabbitmqctl: {e}")))?);
        }
        for path in &args.rabbitmq_tables {
            let label = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|e| usage(format!("can't read {label}: {e}")))?;
            tables.get_or_insert_with(Tables::default).add(&label, &text).map_err(usage)?;
        }
        Ok(Self { protocols, client, tables, cleanup: cleanup(&args.sets).map_err(usage)? })
    }

    fn inspection(&self, inspector: &Inspector, look: &Look, before: Option<&Look>, target: &Target) -> Inspection {
        let kernel = inspector.kernel();
        let cleanup = self.cleanup.clone();
        let mut judge = Judge::new(kernel.hz, &kernel.release, &look.namespaces, cleanup.reaper, cleanup.row);
        let kernel = (kernel.release.clone(), kernel.hz);
        inspection(target.to_string(), kernel, look, before, &mut judge, &self.protocols, |c| self.told(c))
    }

    fn told(&self, connection: &Connection) -> Told {
        let tables = self.tables.as_ref();
        let row = tables.and_then(|t| t.get(connection.socket.local, connection.socket.peer));
        let at_broker = tables.map(|_| row.is_some());
        let by_broker = row.unwrap_or_default();
        let command = connection.owner.as_ref().and_then(|owner| by_command(&owner.command));
        let named = by_broker.product.as_deref().and_then(|product| by_product(product, command));
        Told { client: self.client.or(named), heartbeat_s: by_broker.heartbeat_s, broker: by_broker.side, at_broker }
    }
}

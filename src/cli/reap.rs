//! `halfopen reap`: the reaper on somebody's own task table.

use super::exit::{Exit, Failure};
use super::print;
use crate::reaper::own::{Deed, Metrics, OwnConfig, Reaper, StoreError, SweepReport, parse};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Arguments of `reap`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReapArgs {
    /// Where your tasks and workers are written down (TOML; docs/reap.md has one to start from)
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Fail what is found; without it nothing is changed
    #[arg(long)]
    pub act: bool,
    /// Go on sweeping at the interval of the file, until SIGTERM
    #[arg(long = "loop")]
    pub go_on: bool,
    /// Stop instead of failing more than this many rows in one sweep [default: the file's max_fail, 50]
    #[arg(long, value_name = "N")]
    pub max_fail: Option<usize>,
    /// Write Prometheus metrics into this file after each sweep, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Serve them over HTTP while --loop runs, for example on 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", requires = "go_on")]
    pub metrics_listen: Option<String>,
    /// Print one JSON document a sweep instead of lines
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  halfopen reap reap.toml                              one sweep, dry: what would be failed, and why
  halfopen reap reap.toml --json | jq '.doomed[].id'
  halfopen reap reap.toml --act                        one sweep that does it, for example from cron
  halfopen reap reap.toml --act --loop --metrics-listen 127.0.0.1:9464
  halfopen reap reap.toml --act --max-fail 5           stop, and change nothing, when more than 5 would fail

A file to start from:
  [tasks]
  address = \"host=/run/postgresql dbname=app user=reaper\"   # or address_env = \"DATABASE_URL\"
  table = \"task\"
  [liveness]
  store = \"redis\"                                          # or \"postgres\", or \"none\"
  address = \"redis://127.0.0.1:6379/0\"
  key = \"worker:{id}\"
  [limits]
  pending = \"5m\"
  processing = \"20m\"
  sweep = \"5m\"

It stops by itself, changing nothing, when one sweep would fail more than --max-fail rows or 20 % of the active ones, or
when every worker with a task is without a sign of life at once: then it is the store that failed, not the workers.
Exit codes: 0 swept, or ended by SIGTERM, 1 it stopped by itself, 2 wrong usage or file, 3 a store can't be reached,
5 a store failed in mid-sweep, 130 interrupted by SIGINT.";

/// Sweeps once, or until told to end.
pub fn reap(args: &ReapArgs) -> Result<Exit, Failure> {
    let config = read(&args.config, args.max_fail)?;
    // Before anything is failed.
    if let Some(path) = &args.metrics_file {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !dir.is_dir() {
            let text = format!("--metrics-file {}: there is no folder {}; make it", path.display(), dir.display());
            return Err(Failure::new(Exit::Usage, text));
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Harness, format!("can't start: {e}")))?;
    let done = runtime.block_on(sweep(args, config));
    // A Redis that does not answer may hold a thread for some seconds more; nobody waits for it.
    runtime.shutdown_background();
    done
}

fn read(path: &Path, max_fail: Option<usize>) -> Result<OwnConfig, Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    let text = std::fs::read_to_string(path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
    let mut config = parse(&text).map_err(|e| usage(format!("{}:{e}", path.display())))?;
    if let Some(max_fail) = max_fail {
        config.brake.max_fail = max_fail;
    }
    Ok(config)
}

/// The signals that end it.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one of them.
    async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.terminate.recv() => Exit::Held,
            _ = self.interrupt.recv() => Exit::Interrupted,
        }
    }
}

async fn sweep(args: &ReapArgs, config: OwnConfig) -> Result<Exit, Failure> {
    let harness = |e: io::Error| Failure::new(Exit::Harness, format!("can't start: {e}"));
    let mut ends = Ends::new().map_err(harness)?;
    let metrics = Arc::new(Mutex::new(Metrics::new(!args.act)));
    if let Some(address) = &args.metrics_listen {
        if let Err(error) = tokio::net::lookup_host(address).await {
            let text = format!("--metrics-listen {address}: {error}; write for example 127.0.0.1:9187");
            return Err(Failure::new(Exit::Usage, text));
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|e| Failure::new(Exit::Cannot, format!("--metrics-listen {address}: {e}")))?;
        tokio::spawn(serve(listener, metrics.clone()));
    }
    let interval = config.sweep;
    let mut reaper = Reaper::new(config, args.act);
    let mut ever = false;
    loop {
        // A signal in mid-sweep ends it between two statements at the latest: each stands alone and is whole.
        let swept = tokio::select! {
            swept = reaper.sweep() => swept,
            exit = ends.next() => return Ok(exit),
        };
        match swept {
            Ok(report) => {
                ever = true;
                locked(&metrics).sweep(&report);
                print(&show(args, &report))?;
                publish(args, &metrics)?;
                if report.stopped.is_some() {
                    return Ok(Exit::GateFailed);
                }
                if let Some(why) = report.broke_off {
                    let text = format!("the sweep broke off: {}", clean(&why));
                    if !args.go_on {
                        return Err(Failure::new(Exit::Harness, text));
                    }
                    say!("halfopen: {text}; the next sweep tries again");
                }
            }
            Err(error) => {
                locked(&metrics).error();
                publish(args, &metrics)?;
                // What was never reached, or is wrong, won't mend itself; what broke off may.
                if !args.go_on || !ever || matches!(error, StoreError::Config(_)) {
                    return Err(failure(&args.config, &error));
                }
                say!("halfopen: {error}; the next sweep tries again");
            }
        }
        if !args.go_on {
            return Ok(Exit::Held);
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            exit = ends.next() => return Ok(exit),
        }
    }
}

fn failure(file: &Path, error: &StoreError) -> Failure {
    let exit = match error {
        StoreError::Config(_) => Exit::Usage,
        StoreError::Unreachable { .. } => Exit::Cannot,
        StoreError::Failed { .. } => Exit::Harness,
    };
    let text = match error {
        // What only the store could tell of the file.
        StoreError::Config(text) => {
            let written = std::fs::read_to_string(file).unwrap_or_default();
            let place = place_of(&written, text).map(|(line, column)| format!("{line}:{column}: ")).unwrap_or_default();
            format!("{}:{}{text}", file.display(), if place.is_empty() { " " } else { &place })
        }
        _ => error.to_string(),
    };
    Failure::new(exit, text)
}

/// Where in the file the key stands that a message begins with (`tasks.status: …`): line and column, or those of its section.
fn place_of(file: &str, message: &str) -> Option<(usize, usize)> {
    let (section, key) = message.split([':', ' ']).next()?.split_once('.')?;
    let mut here = "";
    let mut place = None;
    for (number, line) in file.lines().enumerate() {
        let text = line.trim_start();
        let column = line.len() - text.len() + 1;
        if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            here = name.trim();
            if here == section {
                place = Some((number + 1, column));
            }
        } else if here == section && text.split('=').next().is_some_and(|name| name.trim() == key) {
            return Some((number + 1, column));
        }
    }
    place
}

fn locked(metrics: &Mutex<Metrics>) -> std::sync::MutexGuard<'_, Metrics> {
    metrics.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the metrics under another name and renames, so that a reader never sees half a file.
fn publish(args: &ReapArgs, metrics: &Mutex<Metrics>) -> Result<(), Failure> {
    let Some(path) = &args.metrics_file else { return Ok(()) };
    let mut part = path.clone().into_os_string();
    part.push(".part");
    let text = locked(metrics).text();
    let write = || -> io::Result<()> {
        let mut file = std::fs::File::create(&part)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&part, path)
    };
    write().map_err(|e| Failure::new(Exit::Harness, format!("--metrics-file {}: {e}", path.display())))
}

/// Answers every request with the metrics: whoever asks, asks for nothing else.
async fn serve(listener: TcpListener, metrics: Arc<Mutex<Metrics>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let text = locked(&metrics).text();
        tokio::spawn(async move {
            let mut request = [0; 4096];
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                text.len()
            );
            // A reader that went away is no matter of ours.
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all((head + &text).as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}

fn show(args: &ReapArgs, report: &SweepReport) -> String {
    if args.json {
        return serde_json::to_string(report).unwrap_or_default();
    }
    let mut lines = vec![format!(
        "{} active: {} pending, {} processing; workers: {} alive, {} gone, {} not known",
        report.pending + report.processing,
        report.pending,
        report.processing,
        report.workers_alive,
        report.workers_gone,
        report.workers_unknown
    )];
    for doomed in &report.doomed {
        let deed = match doomed.deed {
            Deed::WouldFail => "would fail",
            Deed::Failed => "failed",
            Deed::ChangedMeanwhile => "left alone, it changed meanwhile",
            Deed::HeldBack => "held back",
            Deed::NotKnown => "not known whether failed, no answer came",
            Deed::NotDone => "not done",
        };
        let (id, status) = (clean(&doomed.id), clean(&doomed.status));
        lines.push(format!("{deed}: {id} ({status}), {}: {}", doomed.rule, clean(&doomed.why)));
    }
    lines.extend(report.doubts.iter().map(|doubt| format!("note: {}", clean(doubt))));
    match &report.stopped {
        Some(why) => lines.push(format!("stopped, nothing was changed: {why}")),
        None if report.doomed.is_empty() => lines.push("nothing to fail".to_string()),
        None if !args.act => lines.push("dry run: nothing was changed; --act does it".to_string()),
        None => {}
    }
    lines.join("\n")
}

/// Without control characters: names in a table are somebody else's.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stores_word_on_the_file_has_its_place_there() {
        let file = "[tasks]\naddress = \"postgres://h\"\n  status = \"state\"\n\n[liveness]\nstatus = \"x\"\n";
        assert_eq!(place_of(file, "tasks.status: the table `t` has no column `state`"), Some((3, 3)));
        assert_eq!(place_of(file, "tasks.address postgres://h: no such host"), Some((2, 1)));
        assert_eq!(place_of(file, "liveness.ttl: too short"), Some((5, 1)));
        assert_eq!(place_of(file, "address_env names $X, which is not set; set it"), None);
    }
}

//! Some two hundred live connections are looked at by `inspect`, which knows nothing of them, and cut afterwards: what
//! happens has to lie in the windows that it printed.

use crate::common::{binary, require_root};
use halfopen::host::procfs;
use halfopen::timers::kernel::wheel::Wheel;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Row = BTreeMap<String, String>;

/// One look: when it was over, by the run's clock, and the rows of clients by their own address.
struct Look {
    over_s: f64,
    rows: HashMap<String, Value>,
}

fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

/// The zero of the run's clock: its child processes are told it.
fn zero_ns(run: u32) -> Option<i64> {
    procfs::tree(run).into_iter().find_map(|process| {
        let words = procfs::command_line(process.pid);
        let at = words.iter().position(|word| word == "--zero-ns")?;
        words.get(at + 1)?.parse().ok()
    })
}

fn look(run: u32, zero: i64) -> Option<Look> {
    let pid = run.to_string();
    let output = Command::new(binary()).args(["inspect", "--pid", &pid, "--json"]).output().unwrap();
    // Before the run has any namespace of its own there may be nothing to see.
    let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
    let over_s = (monotonic_ns() - zero) as f64 / 1e9;
    let client = |row: &&Value| {
        let port = row["peer"].as_str().unwrap_or_default().rsplit(':').next().unwrap_or_default();
        ["5672", "6379", "7000"].contains(&port) && row["state"] == "ESTABLISHED"
    };
    let rows = answer["rows"].as_array()?.iter().filter(client);
    Some(Look {
        over_s,
        rows: rows.map(|row| (row["local"].as_str().unwrap_or_default().to_string(), row.clone())).collect(),
    })
}

/// Looks for as long as the run lasts.
fn looks(run: &mut Child) -> Vec<Look> {
    let mut looks: Vec<Look> = Vec::new();
    while run.try_wait().unwrap().is_none() {
        let began = Instant::now();
        looks.extend(zero_ns(run.id()).and_then(|zero| look(run.id(), zero)));
        // Another pace would look more often than anything changes.
        std::thread::sleep(Duration::from_millis(700).saturating_sub(began.elapsed()));
    }
    looks
}

fn number(row: &Row, column: &str) -> Option<f64> {
    row.get(column).filter(|cell| !cell.is_empty()).map(|cell| cell.parse().unwrap())
}

/// How a trial came out against what was printed before it.
#[derive(Debug, PartialEq)]
enum Against {
    Inside,
    WithinAStep,
    Outside,
    /// Printed as "not known", or as a bound that nothing can break, or no look saw the connection before its cut.
    NotTold,
}

fn against(trial: &Row, looks: &[Look]) -> (Against, String) {
    let cut = number(trial, "fault_applied_s").unwrap();
    let before: Vec<&Value> =
        looks.iter().filter(|l| l.over_s < cut).filter_map(|l| l.rows.get(&trial["local"])).collect();
    let Some(row) = before.last() else {
        return (Against::NotTold, format!("{}: no look saw {}, cut at {cut}", trial["arm"], trial["local"]));
    };
    let writes = trial["subject"] == "tcp-writer";
    let class = if writes { "in_flight" } else { "idle" };
    let answer = row["answers"].as_array().unwrap().iter().find(|a| a["class"] == class).unwrap();
    let (lo, hi) = (answer["lo_s"].as_f64(), answer["hi_s"].as_f64());
    let knowledge = answer["knowledge"].as_str().unwrap();
    // Windows of data in flight count from the send that was lost, and a writer sends once a second.
    let hi = hi.map(|hi| if writes { hi + 1.0 } else { hi });
    let horizon = number(trial, "horizon_s").unwrap();
    let ttd = (trial["outcome"] == "detected").then(|| number(trial, "detected_s").unwrap() - cut);
    let told = format!("{} {class} {lo:?}–{hi:?} {knowledge}, came {ttd:?}", trial["arm"]);
    if knowledge == "unknown" || (knowledge == "at_most" && hi.is_none()) {
        return (Against::NotTold, told);
    }
    let Some(ttd) = ttd else {
        let fits = hi.is_none_or(|hi| hi > horizon);
        return (if fits { Against::Inside } else { Against::Outside }, told);
    };
    // An upper bound promises nothing about how early.
    let lo = if knowledge == "exact" { lo.unwrap_or(f64::INFINITY) } else { 0.0 };
    let hi = hi.unwrap_or(if knowledge == "exact" { f64::NEG_INFINITY } else { f64::INFINITY });
    let wheel = Wheel::new(250);
    let step = wheel.seconds(wheel.granularity(wheel.jiffies(Duration::from_secs_f64(ttd.max(0.0)))));
    let verdict = match ttd {
        t if (lo..=hi).contains(&t) => Against::Inside,
        t if (lo - step..=hi + step).contains(&t) => Against::WithinAStep,
        _ => Against::Outside,
    };
    (verdict, told)
}

#[test]
fn what_is_printed_beforehand_is_what_happens_when_the_connections_are_cut() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut command = Command::new(binary());
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["run", "scenarios/inspect-then-cut.toml", "--out"]).arg(&out);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let looks = looks(&mut run);
    let status = run.wait().unwrap();
    assert!(matches!(status.code(), Some(0 | 1 | 4)), "the run itself failed: {status}");
    let trials: Vec<Row> =
        csv::Reader::from_path(out.join("trials.csv")).unwrap().deserialize().map(|row| row.unwrap()).collect();
    assert!(trials.len() >= 200, "{} trials", trials.len());
    let settings: std::collections::BTreeSet<&String> = trials.iter().map(|t| &t["arm"]).collect();
    assert!(settings.len() >= 20);
    let counted: Vec<&Row> = trials.iter().filter(|t| t["outcome"] != "void").collect();
    let mut said: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for trial in &counted {
        let (verdict, text) = against(trial, &looks);
        let key = match verdict {
            Against::Inside => "inside",
            Against::WithinAStep => "within a step",
            Against::Outside => "outside",
            Against::NotTold => "not told",
        };
        said.entry(key).or_default().push(text);
    }
    let count = |key: &str| said.get(key).map_or(0, Vec::len);
    let told = count("inside") + count("within a step") + count("outside");
    println!(
        "{} trials in {} settings, {} looks: {} inside, {} within a step, {} outside, {} not told, {} void",
        trials.len(),
        settings.len(),
        looks.len(),
        count("inside"),
        count("within a step"),
        count("outside"),
        count("not told"),
        trials.len() - counted.len()
    );
    for look in &looks {
        let amqp = look.rows.values().filter(|row| row["protocol"] == "amqp");
        println!("look over at {:.1} s: {} rows, {} of AMQP", look.over_s, look.rows.len(), amqp.count());
    }
    for key in ["within a step", "outside", "not told"] {
        said.get(key).into_iter().flatten().for_each(|text| println!("{key}: {text}"));
    }
    // Void trials and rows without an answer prove nothing, so there may be few of them.
    assert!(told >= 190, "only {told} of {} trials could be compared", trials.len());
    assert_eq!(count("outside"), 0, "{:?}", said.get("outside"));
    assert!(count("inside") * 100 >= told * 97, "{} of {told} inside", count("inside"));
}

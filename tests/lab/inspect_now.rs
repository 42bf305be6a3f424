//! What looks half-open now, as `inspect` sees it, and its metrics and log.

use crate::common::{binary, require_root};
use crate::inspect::{inspect, row};
use crate::support::Lab as BareLab;
use halfopen::fault::{Cut, FaultTable};
use halfopen::scenario::{Directions, Injection, Scope};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn one_half_open_connection_among_a_hundred_healthy_ones_is_found_within_two_looks() {
    require_root();
    let lab = BareLab::build();
    let mut table = FaultTable::install(&lab.router, lab.clock).expect("the table");
    let mut connections: Vec<_> = (1..=101).map(|j| lab.connect(j).unwrap()).collect();
    for connection in &mut connections {
        connection.keepalive(30, 5, 3);
        connection.near.write_all(b"hello").unwrap();
    }
    let dead = connections[60].tuple;
    let drop = Directions { to_broker: true, to_client: true };
    table
        .cut(Cut { trial: 0, tuple: dead, scope: Scope::Flow, drop, injection: Injection::Router, lease: None })
        .expect("the cut");
    for connection in &mut connections {
        connection.near.write_all(b"anybody there?").unwrap();
    }
    let me = std::process::id().to_string();
    let answer = inspect(&["--pid", &me, "--looks", "2"]);
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 202);
    let of = |looks: &str| -> Vec<&str> {
        rows.iter().filter(|row| row["looks"] == looks).map(|row| row["local"].as_str().unwrap()).collect()
    };
    assert_eq!(of("half_open"), [dead.local.to_string()], "{}", row(&answer, &dead.local.to_string()));
    // Of the others nobody reads what arrived, at the far ends; that is a suspicion of its own kind.
    let near_ends: Vec<String> = connections.iter().map(|c| c.tuple.local.to_string()).collect();
    assert!(of("suspicious").iter().all(|local| !near_ends.contains(&(*local).to_string())));
}

/// Metrics once, and a log of events from a watch without a terminal.
#[test]
fn metrics_and_the_log_of_a_watch_tell_the_same() {
    require_root();
    let lab = BareLab::build();
    let connection = lab.connect(1).unwrap();
    let me = std::process::id().to_string();
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(binary()).args(["inspect", "--pid", &me]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&["--prometheus"]);
    let line = format!("peer=\"{}\",protocol=\"tcp\",class=\"idle\"}} +Inf", connection.tuple.peer);
    assert!(text.contains(&line), "{text}");
    let file = dir.path().join("halfopen.prom");
    run(&["--textfile", file.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&file).unwrap().contains(&line));
    let log = dir.path().join("events.jsonl");
    let printed = run(&["--watch", "--looks", "2", "--every", "200ms", "--log", log.to_str().unwrap()]);
    let events: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let name = format!("{}-{}", connection.tuple.local, connection.tuple.peer);
    let appeared = events.iter().filter(|e| e["event"] == "appeared" && e["connection"] == name.as_str()).count();
    assert_eq!(appeared, 1, "{printed}");
    assert_eq!(std::fs::read_to_string(Path::new(&log)).unwrap(), printed);
}

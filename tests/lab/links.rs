//! Links (netem) in the virtual-time guest, whose kernel has the emulator whatever this machine's has.

use crate::common::binary;
use crate::support::{Connection, Lab};
use crate::vm::boot;
use halfopen::host::netlink::{Op, apply};
use halfopen::host::process::{Launch, Stream};
use halfopen::store::{self, Recorded};
use halfopen::verdict::{Outcome, TrialRow, judge};
use std::io::{Read, Write};
use std::path::Path;

/// Runs a scenario with the binary's own command line; returns its exit code and its standard error.
fn run(dir: &Path, text: &str, more: &[&str]) -> (Option<i32>, String) {
    std::fs::write(dir.join("link.toml"), text).unwrap();
    let mut launch = Launch::new(binary()).args(["run", "link.toml", "--out", "out"]).args(more);
    launch.cwd = Some(dir.to_path_buf());
    launch.env.push(("HOME".into(), std::env::var_os("HOME").unwrap_or_default()));
    (launch.stdout, launch.stderr) = (Stream::Null, Stream::File(dir.join("err")));
    let status = launch.spawn().unwrap().wait().unwrap();
    (status.code(), std::fs::read_to_string(dir.join("err")).unwrap())
}

/// The rows of a run in a guest.
fn in_guest(text: &str) -> (Recorded, Vec<TrialRow>) {
    // Builds the kernel where there is none.
    boot(&["/bin/true"]);
    let dir = tempfile::tempdir().unwrap();
    let (code, errors) = run(dir.path(), text, &["--lab", "vm"]);
    let recorded = store::read(&dir.path().join("out")).unwrap_or_else(|e| panic!("exit {code:?}: {e}\n{errors}"));
    let rows = judge(&recorded.run.plan, &recorded.events).trials;
    (recorded, rows)
}

fn of<'r>(rows: &'r [TrialRow], arm: &str) -> Vec<&'r TrialRow> {
    rows.iter().filter(|row| row.arm == arm).collect()
}

const DELAYED: &str = "# Does a longer way move the timers as the model says?
[scenario]
name = \"delayed\"
horizon = \"40s\"
trials = 4
settle = \"4s\"
[load]
rate = \"2/s\"
[defaults]
link = { delay = \"50ms\" }
[[fault]]
profile = \"blackhole\"
phase_window = \"2s\"
[[arm]]
name = \"writer-far\"
subject = \"tcp-writer\"
sysctl.tcp_retries2 = 4
link = { delay = \"250ms\" }
[[arm]]
name = \"writer\"
subject = \"tcp-writer\"
sysctl.tcp_retries2 = 4
[[arm]]
name = \"writer-near\"
subject = \"tcp-writer\"
sysctl.tcp_retries2 = 4
link = \"off\"
[[arm]]
name = \"reader\"
subject = \"tcp-reader\"
keepalive = { idle = \"5s\", interval = \"1s\", probes = 3 }
[[gate]]
metric = \"agreement\"
min = 1.0
";

#[test]
fn a_delay_is_in_the_kernels_round_trip_and_the_model_takes_it_from_there() {
    let (recorded, rows) = in_guest(DELAYED);
    for row in &rows {
        // As many messages on their way as a round trip is long: more than the model knows, and it says so.
        let agrees = (row.arm != "writer-far").then_some(true);
        assert_eq!((row.outcome, row.agrees), (Outcome::Detected, agrees), "{row:?}");
    }
    let doubts = &recorded.run.plan.doubts;
    assert!(doubts.len() == 1 && doubts[0].contains("writer-far") && doubts[0].contains("in flight"), "{doubts:?}");
    // The same retries from a longer timeout: 200 ms + 500 ms of round trip for 200 ms.
    let earliest = |arm: &str| of(&rows, arm).iter().map(|r| r.ttd_s.unwrap().as_secs()).fold(f64::MAX, f64::min);
    assert!(earliest("writer-far") > earliest("writer-near") + 2.0, "{rows:#?}");
    let srtt = |arm: &str| -> Vec<u32> {
        let position = recorded.run.plan.scenario.arms.iter().position(|a| a.name == arm).unwrap();
        let of_arm = |trial: u32| recorded.run.plan.trial(trial).is_some_and(|t| t.arm == position);
        let looks = recorded.events.iter().filter(|e| e.trial.is_some_and(of_arm));

        looks
            .filter_map(|e| serde_json::to_value(&e.kind).ok()?.get("socket")?.get("rtt_us")?.as_u64()?.try_into().ok())
            .collect()
    };
    // The handshake is part of the average, and so is what an end waits for its own clock.
    for (arm, lo, hi) in [("writer", 100_000, 103_000), ("writer-far", 500_000, 503_000), ("writer-near", 0, 3_000)] {
        let seen = srtt(arm);
        assert!(!seen.is_empty() && seen.iter().all(|us| (lo..=hi).contains(us)), "{arm}: {seen:?}");
    }
}

const LOSSY: &str = "# How many healthy connections does a lossy link kill, by keepalive?
[scenario]
name = \"lossy\"
horizon = \"60s\"
trials = 24
[defaults]
subject = \"tcp-reader\"
connect_timeout = \"none\"
link = { loss = \"30%\" }
[fault]
profile = \"none\"
[[arm]]
name = \"keepalive-1-1-1\"
keepalive = { idle = \"1s\", interval = \"1s\", probes = 1 }
[[arm]]
name = \"keepalive-1-1-9\"
keepalive = { idle = \"1s\", interval = \"1s\", probes = 9 }
[[arm]]
name = \"no-link\"
keepalive = { idle = \"1s\", interval = \"1s\", probes = 1 }
link = \"off\"
";

#[test]
fn a_lossy_link_kills_an_impatient_keepalive_and_spares_a_patient_one() {
    let (_, rows) = in_guest(LOSSY);
    let killed = |arm: &str| {
        let watched: Vec<_> = of(&rows, arm).into_iter().filter(|r| r.outcome != Outcome::Void).collect();
        let alarms = watched.iter().filter(|r| r.outcome == Outcome::FalseAlarm).count();
        (alarms, watched.len())
    };
    // Measured with real time and 60 connections: 59 with three probes, 7 with nine.
    let (hasty, n) = killed("keepalive-1-1-1");
    assert!(n >= 20 && hasty * 10 >= n * 9, "{hasty} of {n}");
    let (patient, n) = killed("keepalive-1-1-9");
    assert!(n >= 20 && patient * 10 <= n * 3, "{patient} of {n}");
    assert_eq!(killed("no-link"), (0, 24));
}

const REORDERED: &str = "# Does a link that reorders or is narrow raise a false alarm?
[scenario]
name = \"reordered\"
horizon = \"6s\"
trials = 2
[load]
rate = \"20/s\"
[defaults]
link = { delay = \"80ms\", reorder = \"25%\" }
[fault]
profile = \"none\"
[[arm]]
name = \"reader\"
subject = \"tcp-reader\"
keepalive = { idle = \"1s\", interval = \"1s\", probes = 1 }
read_timeout = \"1s\"
[[arm]]
name = \"writer\"
subject = \"tcp-writer\"
tcp_user_timeout = \"1s\"
[[arm]]
name = \"narrow\"
subject = \"tcp-reader\"
read_timeout = \"2s\"
link = { delay = \"0s\", reorder = 0, rate = \"2mbit\", direction = \"to_client\" }
[[gate]]
metric = \"outcome\"
fraction = \"survived\"
min = 1.0
";

#[test]
fn reordering_detects_nothing() {
    let (recorded, rows) = in_guest(REORDERED);
    assert!(rows.iter().all(|row| row.outcome == Outcome::Survived), "{rows:#?}");
    let messages = judge(&recorded.run.plan, &recorded.events).messages;
    let latencies = |arm: &str| -> Vec<f64> {
        let trials: Vec<u32> = of(&rows, arm).iter().map(|r| r.trial).collect();
        let of_arm = messages.iter().filter(|m| trials.contains(&m.trial));
        of_arm.filter_map(|m| m.latency_s).map(|l| l.as_secs()).collect()
    };
    // A fourth does not wait, and what has overtaken waits for what it has overtaken.
    let seen = latencies("reader");
    let early = seen.iter().filter(|s| **s < 0.079).count();
    assert!(seen.len() > 150 && early * 10 > seen.len() && early * 2 < seen.len(), "{early} of {}", seen.len());
    // 60 bytes of packet at 2 Mbit/s take a fourth of a millisecond; more where several trials send at once.
    let seen = latencies("narrow");
    assert!(seen.iter().all(|s| (0.000_2..0.01).contains(s)), "{:?}", seen.iter().copied().reduce(f64::max));
}

/// On a machine whose kernel has the emulator the same scenario runs; on any other it says what would.
#[test]
fn a_kernel_without_the_emulator_says_so() {
    crate::common::require_root();
    let dir = tempfile::tempdir().unwrap();
    let text = "# Who?\n[scenario]\nname = \"far\"\nhorizon = \"1s\"\ntrials = 1\n[fault]\nprofile = \"none\"\n\
        [[arm]]\nname = \"a\"\nsubject = \"tcp-reader\"\nlink = { delay = \"5ms\" }\n";
    let (code, errors) = run(dir.path(), text, &["--lab", "netns"]);
    if code == Some(3) {
        assert!(errors.contains("a delay is not available here, because this kernel has no netem"), "{errors}");
        assert!(errors.contains("run with --lab vm"), "{errors}");
        assert!(!dir.path().join("out").exists(), "nothing was measured, so no run is left");
    } else {
        assert_eq!(code, Some(0), "{errors}");
    }
}

/// A token bucket where the router's packets leave for the server, and nothing on an end's own queue.
#[test]
fn a_rate_holds_without_the_emulator() {
    let lab = Lab::build();
    let rate_bytes = 500_000;
    apply(&lab.router, &[Op::Tbf { link: "server".into(), rate_bytes }]).expect("sch_tbf");
    let Connection { mut near, mut far, .. } = lab.connect(0).expect("a connection");
    let sent = vec![7; 750_000];
    let begun = lab.clock.now();
    let writer = std::thread::spawn(move || {
        near.write_all(&sent).expect("all of it leaves");
        near
    });
    let mut received = vec![0; 750_000];
    far.read_exact(&mut received).expect("all of it arrives");
    let took = lab.clock.now().since(begun);
    drop(writer.join());
    // The bucket's 5 kB are gone at once; the other 745 take a second and a half.
    assert!(took.as_secs_f64() > 1.4, "{took:?}");
}

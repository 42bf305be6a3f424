//! The virtual-time guest. The kernel is built where the cache has none, which takes minutes, once.

use crate::common::{binary, processes_with, within};
use halfopen::host::process::{Launch, Stream};
use halfopen::lab::vm::{Boot, BuildOptions, Cache, Mode, Rule, VmError, build};
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::time::Duration;

pub fn boot(argv: &[&str]) -> Boot {
    let cache = Cache::of_user().unwrap();
    // Other tests build at the same time: the first one builds, the others wait for it.
    let mut kernel = Err(VmError::NoCacheDir);
    let built = within(Duration::from_secs(2400), || {
        kernel = build(&cache, &BuildOptions::default(), &mut |line| eprintln!("{line}"));
        !matches!(kernel, Err(VmError::Busy(_)))
    });
    assert!(built, "another build of the kernel did not end");
    let mut boot = Boot::new(kernel.unwrap(), argv.iter().map(ToString::to_string).collect()).unwrap();
    boot.init = binary();
    boot.env = vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())];
    boot
}

fn run(boot: &Boot) -> (halfopen::lab::vm::Booted, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let booted = boot.run(&mut out, &mut err, &mut |stall| panic!("{stall}")).unwrap();
    (booted, String::from_utf8(out).unwrap() + &String::from_utf8(err).unwrap())
}

#[test]
fn an_hour_passes_in_seconds_and_the_kernel_has_what_faults_need() {
    let (booted, text) = run(&boot(&["/bin/sleep", "3600"]));
    assert_eq!((booted.code, text.as_str()), (0, ""));
    assert!((3600.0..3601.0).contains(&booted.virtual_s), "{booted:?}");
    assert!(booted.wall_s < 10.0, "{booted:?}");
    assert_eq!(booted.lacks, Vec::<String>::new());
}

#[test]
fn status_and_both_outputs_come_out_and_the_hosts_files_can_not_be_changed() {
    let script = "echo out; echo err >&2; touch /etc/halfopen-was-here 2>/dev/null && echo written; exit 7";
    let (booted, text) = run(&boot(&["/bin/sh", "-c", script]));
    assert_eq!((booted.code, text.as_str()), (7, "out\nerr\n"));
}

#[test]
fn a_writable_directory_below_tmp_has_its_own_path_inside() {
    let dir = tempfile::tempdir().unwrap();
    let mut boot = boot(&["/bin/sh", "-c", "ls /tmp | wc -l; echo inside > result"]);
    boot.cwd = dir.path().to_path_buf();
    boot.writable = vec![dir.path().to_path_buf()];
    assert_eq!(run(&boot).0.code, 0);
    assert_eq!(std::fs::read_to_string(dir.path().join("result")).unwrap(), "inside\n");
}

#[test]
fn the_guests_name_is_known_without_a_name_server() {
    // RabbitMQ asks for it at its start, and waits for whoever answers.
    let (booted, text) = run(&boot(&["/bin/sh", "-c", "getent hosts $(cat /proc/sys/kernel/hostname) >/dev/null"]));
    assert_eq!((booted.code, text.as_str()), (0, ""));
}

#[test]
fn ten_boots_give_the_same_bytes() {
    let script =
        "for i in 1 2 3; do sleep 100.3; date +%s.%N; cat /proc/uptime; done; cat /proc/sys/kernel/random/boot_id >&2";
    let boot = boot(&["/bin/sh", "-c", script]);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let mut out = Vec::new();
        boot.run(&mut out, &mut std::io::sink(), &mut |stall| panic!("{stall}")).unwrap();
        seen.push(String::from_utf8(out).unwrap());
    }
    assert_eq!(seen[0].lines().count(), 6);
    assert!(seen.iter().all(|s| *s == seen[0]), "{seen:#?}");
}

#[test]
fn a_spinning_process_is_named_and_the_run_goes_on_in_basic_mode() {
    // In inf-cpu mode the sleep never ends, since the loop leaves the clock no chance.
    let mut boot = boot(&["/bin/sh", "-c", "while :; do :; done & sleep 3; kill $!; echo done"]);
    boot.limits.spin = Duration::from_secs(2);
    let (mut out, mut first) = (Vec::new(), None);
    let booted = boot.run(&mut out, &mut Vec::new(), &mut |stall| first = Some(stall.clone())).unwrap();
    let first = first.expect("the first attempt was stopped");
    assert_eq!((first.rule, first.mode), (Rule::Spin, Mode::InfCpu));
    assert!(first.process.as_ref().is_some_and(|p| p.contains("(sh")), "{first}");
    assert_eq!((booted.code, booted.mode, booted.stopped_before.as_ref()), (0, Mode::Basic, Some(&first)));
    assert_eq!(out, b"done\n");
}

#[test]
fn sigkill_of_the_harness_leaves_no_process_of_the_guest() {
    // Builds the kernel where there is none, so that what is started below boots at once.
    let kernel = boot(&["/bin/true"]).kernel.path;
    let mark = format!("{}", std::process::id() + 5_000_000);
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().to_str().unwrap();
    // In basic mode a process that computes keeps the guest alive without stopping its clock.
    let script = format!("echo {mark} > {base}/alive; while :; do :; done");
    let mut launch = Launch::new(binary());
    launch = launch.args(["vm", "exec", "--mode", "basic", "--writable", base, "--kernel"]);
    launch = launch.args([kernel.to_str().unwrap(), "--", "/bin/sh", "-c", &script]);
    launch.env.push(("TMPDIR".into(), base.into()));
    launch.stderr = Stream::Inherit;
    let mut harness = launch.spawn().unwrap();
    assert!(within(Duration::from_secs(60), || dir.path().join("alive").exists()), "the guest did not start");
    let guests = || processes_with(&format!("uml_dir={base}/"));
    assert!(!guests().is_empty());
    harness.signal(Signal::SIGKILL).unwrap();
    harness.wait().unwrap();
    assert!(within(Duration::from_secs(10), || guests().is_empty()), "{:?}", guests());
}

const TWO_HOURS: &str = "# Does a guest repeat itself, at full length?
[scenario]
name = \"two-hours\"
horizon = \"8300s\"
trials = 3
seed = 5
[load]
rate = \"1/30s\"
[fault]
profile = \"blackhole\"
phase_window = \"60s\"
[[arm]]
name = \"keepalive\"
subject = \"tcp-reader\"
load = \"off\"
keepalive = { idle = \"7200s\", interval = \"75s\", probes = 9 }
[[arm]]
name = \"retries-15\"
subject = \"tcp-writer\"
[[arm]]
name = \"never\"
subject = \"tcp-reader\"
load = \"off\"
expect = \"censored\"
[[gate]]
metric = \"agreement\"
min = 1.0
";

/// Runs a scenario in a guest with the binary's own command line; returns its exit code and its standard error.
fn run_scenario(dir: &std::path::Path, name: &str, out: &str) -> (Option<i32>, String) {
    boot(&["/bin/true"]);
    let mut launch = Launch::new(binary()).args(["run", name, "--lab", "vm", "--out", out]);
    launch.cwd = Some(dir.to_path_buf());
    launch.stdout = Stream::Null;
    launch.stderr = Stream::File(dir.join(format!("{out}.err")));
    let status = launch.spawn().unwrap().wait().unwrap();
    (status.code(), std::fs::read_to_string(dir.join(format!("{out}.err"))).unwrap())
}

#[test]
fn a_run_of_two_hours_repeats_to_the_byte_and_the_model_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for out in ["one", "two"] {
        std::fs::write(dir.path().join("two-hours.toml"), TWO_HOURS).unwrap();
        let (code, text) = run_scenario(dir.path(), "two-hours.toml", out);
        assert_eq!(code, Some(0), "{text}");
        let read = |file: &str| std::fs::read_to_string(dir.path().join(out).join(file)).unwrap();
        let run: serde_json::Value = serde_json::from_str(&read("run.json")).unwrap();
        assert_eq!((run["lab"].as_str(), run["machine"]["hz"].as_i64()), (Some("vm"), Some(250)));
        let sources = run["sources"].to_string();
        for source in ["kernel_end: tracepoint", "clock: virtual, inf-cpu", "speed: 83"] {
            assert!(sources.contains(source), "{sources}");
        }
        assert!(run["phases_s"]["total"].as_f64().unwrap() > 8300.0);
        seen.push((read("trials.csv"), read("events.jsonl")));
    }
    assert!(seen.iter().all(|s| *s == seen[0]), "{seen:#?}");
    assert_eq!(seen[0].0.lines().count(), 10);
}

#[test]
fn timers_at_full_size_agree_with_the_model() {
    boot(&["/bin/true"]);
    let dir = tempfile::tempdir().unwrap();
    let mut launch = Launch::new(binary());
    launch =
        launch.args(["conformance", "--full-size", "--labs", "model,vm", "--trials", "2", "--json", "--out", "out"]);
    launch.cwd = Some(dir.path().to_path_buf());
    (launch.stdout, launch.stderr) = (Stream::Null, Stream::File(dir.path().join("err")));
    let status = launch.spawn().unwrap().wait().unwrap();
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    assert_eq!(status.code(), Some(0), "{}", read("err"));
    let all: serde_json::Value = serde_json::from_str(&read("out/conformance.json")).unwrap();
    assert_eq!(all["labs"][0]["name"], "vm");
    assert!(all["settings"].as_array().unwrap().len() >= 20, "{all}");
}

/// Airflow's reaper (1200 s, looked at every 120 s) and RabbitMQ's `consumer_timeout` (30 minutes), on the real brokers.
#[test]
fn a_reaper_and_a_broker_take_their_real_time() {
    boot(&["/bin/true"]);
    let dir = tempfile::tempdir().unwrap();
    let scenario = |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name);
    let (reaper, broker) = (scenario("reaper-fallback-1200.toml"), scenario("cases/celery-6760.toml"));
    let mut launch = Launch::new(binary());
    launch = launch
        .args(["run".into(), reaper, broker])
        .args(["--lab", "vm", "--trials", "1", "--jobs", "2", "--out", "out"]);
    launch.cwd = Some(dir.path().to_path_buf());
    (launch.stdout, launch.stderr) = (Stream::File(dir.path().join("said")), Stream::File(dir.path().join("err")));
    let status = launch.spawn().unwrap().wait().unwrap();
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    assert_eq!(status.code(), Some(0), "{}\n{}", read("said"), read("err"));
    for name in ["reaper-fallback-1200", "celery-6760"] {
        let summary: serde_json::Value = serde_json::from_str(&read(&format!("out/{name}/summary.json"))).unwrap();
        assert_eq!(summary["complete"].as_bool(), Some(true), "{summary}");
    }
}

#[test]
fn an_interrupted_guest_ends_in_order_and_leaves_what_was_measured() {
    boot(&["/bin/true"]);
    let dir = tempfile::tempdir().unwrap();
    // A message each 10 ms: the guest is slow enough to be met in mid-run.
    let text = TWO_HOURS.replace("1/30s", "100/s");
    std::fs::write(dir.path().join("long.toml"), text).unwrap();
    let mut launch = Launch::new(binary()).args(["run", "long.toml", "--lab", "vm", "--out", "out"]);
    launch.cwd = Some(dir.path().to_path_buf());
    (launch.stdout, launch.stderr) = (Stream::Null, Stream::File(dir.path().join("err")));
    let mut harness = launch.spawn().unwrap();
    let cut =
        || std::fs::read_to_string(dir.path().join("out/events.jsonl")).is_ok_and(|t| t.contains("fault_applied"));
    assert!(within(Duration::from_secs(120), cut), "nothing was cut");
    harness.signal(Signal::SIGINT).unwrap();
    let status = harness.wait().unwrap();
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    assert_eq!(status.code(), Some(130), "{}", read("err"));
    assert!(read("out/events.jsonl").contains("interrupted") && read("out/trials.csv").lines().count() == 10);
}

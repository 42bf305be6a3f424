//! `halfopen predict` through the built binary: texts, JSON, exit codes, one-line errors.

#![expect(clippy::disallowed_methods, reason = "the test starts the binary under test and times nothing")]

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const STALL: [&str; 3] = [
    "examples/airflow-1283/airflow.env",
    "examples/airflow-1283/rabbitmq.conf",
    "examples/airflow-1283/celery_config.py",
];

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.env_clear().current_dir(env!("CARGO_MANIFEST_DIR")).arg("predict").args(args);
    command
}

fn run(args: &[&str]) -> Output {
    command(args).stdin(Stdio::null()).output().unwrap()
}

fn answer(args: &[&str]) -> String {
    let output = run(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&answer(&args)).unwrap()
}

/// The exit code and the one line on standard error.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = run(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?}");
    (output.status.code(), error.trim_end().to_string())
}

fn set<'a>(pairs: &[&'a str]) -> Vec<&'a str> {
    pairs.iter().flat_map(|pair| ["--set", *pair]).collect()
}

fn stall<'a>(more: &[&'a str]) -> Vec<&'a str> {
    STALL.iter().copied().chain(more.iter().copied()).collect()
}

fn situation<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let all = answer["predictions"].as_array().unwrap();
    all.iter().find(|p| p["situation"] == name).unwrap_or_else(|| panic!("no `{name}` in {all:#?}"))
}

/// The watchers on the subject's side that fire, or would later.
fn firing<'a>(prediction: &'a Value, side: &str) -> Vec<(&'a str, &'a str)> {
    let text = |w: &'a Value, key: &str| w[key].as_str().unwrap();
    prediction["watchers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|w| w["side"] == side && !w["lo_s"].is_null())
        .map(|w| (text(w, "watcher"), text(w, "state")))
        .collect()
}

#[test]
fn the_stall_names_the_only_watcher_of_each_fault() {
    let answer = json(&STALL);
    let idle = situation(&answer, "cut both ways, idle");
    assert_eq!(firing(idle, "subject"), [("amqp_heartbeat", "fires"), ("retransmit", "later")]);
    let busy = situation(&answer, "cut both ways, heartbeat in flight");
    assert_eq!(busy["detection"]["watcher"], "amqp_heartbeat");
    let busy_in_a_call = situation(&answer, "cut both ways, in a synchronous call");
    assert_eq!(firing(busy_in_a_call, "subject"), [("retransmit", "fires")]);
    let (lo, hi) = (&busy_in_a_call["detection"]["lo_s"], &busy_in_a_call["detection"]["hi_s"]);
    assert!(lo.as_f64().unwrap() > 937.0 && hi.as_f64().unwrap() < 940.0, "{lo} {hi}");
    let frozen = situation(&answer, "frozen peer, in a synchronous call");
    assert_eq!(firing(frozen, "subject"), []);
    assert_eq!(frozen["detection"], serde_json::json!({"watcher": null, "lo_s": null, "hi_s": null}));
    assert_eq!(firing(frozen, "broker"), []);
    assert_eq!(firing(frozen, "reaper"), [("queued_timeout", "fires")]);
    assert_eq!(
        (frozen["resolution"]["lo_s"].as_f64(), frozen["resolution"]["hi_s"].as_f64()),
        (Some(1200.0), Some(1320.0))
    );
    let ignored = answer["ignored"].as_array().unwrap();
    let pairs: Vec<(&str, &str)> =
        ignored.iter().map(|i| (i["key"].as_str().unwrap(), i["meant"].as_str().unwrap())).collect();
    assert_eq!(pairs, [("socket_timeout", "read_timeout"), ("socket_connect_timeout", "connect_timeout")]);
}

#[test]
fn the_option_that_was_meant_ends_the_call_and_changes_nothing_else() {
    let meant = stall(&["--set", "read_timeout=60s"]);
    let (before, after) = (json(&STALL), json(&meant));
    let of = |answer: &Value, name: &str| situation(answer, name)["detection"].clone();
    for same in ["cut both ways, idle", "cut both ways, heartbeat in flight", "frozen peer, idle"] {
        assert_eq!(of(&before, same), of(&after, same), "{same}");
    }
    for name in ["frozen peer, in a synchronous call", "cut both ways, in a synchronous call"] {
        let detection = of(&after, name);
        assert_eq!(detection["watcher"], "read_timeout");
        let (lo, hi) = (detection["lo_s"].as_f64().unwrap(), detection["hi_s"].as_f64().unwrap());
        assert!(lo >= 60.0 && hi < 62.2, "{lo} {hi}");
    }
}

#[test]
fn texts() {
    insta::assert_snapshot!("stall-published-fix", answer(&STALL));
    insta::assert_snapshot!("stall-read-timeout", answer(&stall(&["--set", "read_timeout=60s"])));
    insta::assert_snapshot!("stall-two-arms", answer(&stall(&["--set", "read_timeout=none,60s"])));
    insta::assert_snapshot!("celery-redis", answer(&set(&["subject=celery", "broker=redis"])));
    insta::assert_snapshot!("redis-py", answer(&set(&["subject=redis-py"])));
    insta::assert_snapshot!("tcp-reader", answer(&set(&["subject=tcp-reader"])));
    insta::assert_snapshot!("scenario", answer(&["tests/predict/two-readers.toml"]));
    let explained = [set(&["subject=lapin", "read_timeout=5s", "fault=to-client"]), vec!["--explain"]].concat();
    insta::assert_snapshot!("explained", answer(&explained));
    insta::assert_snapshot!("keys", answer(&["--keys"]));
}

#[test]
fn shapes_of_the_json() {
    let text = |args: &[&str]| answer(&args.iter().copied().chain(["--json"]).collect::<Vec<_>>());
    let frozen = ["--set", "fault=frozen-peer", "--set", "call=true"];
    insta::assert_snapshot!("stall-published-fix-json", text(&stall(&frozen)));
    let meant = [&frozen[..], &["--set", "read_timeout=60s"]].concat();
    insta::assert_snapshot!("stall-read-timeout-json", text(&stall(&meant)));
    insta::assert_snapshot!(
        "celery-redis-json",
        text(&set(&["subject=celery", "broker=redis", "fault=blackhole", "state=idle"]))
    );
    insta::assert_snapshot!("redis-py-json", text(&set(&["subject=redis-py", "fault=blackhole", "state=idle"])));
    let reader = ["subject=tcp-reader", "keepalive.idle=5s", "keepalive.interval=1s", "keepalive.probes=3"];
    let conditions = ["fault=blackhole", "state=idle", "age_at_fault=0s"];
    insta::assert_snapshot!("tcp-reader-json", text(&set(&[&reader[..], &conditions[..]].concat())));
    insta::assert_snapshot!(
        "scenario-json",
        text(&["tests/predict/two-readers.toml", "--set", "fault=to-broker", "--set", "state=idle"])
    );
}

#[test]
fn conditions_are_settings_and_narrow_the_question() {
    let one = json(&set(&["state=in-flight", "fault=blackhole", "sysctl.tcp_retries2=5", "rtt=50ms", "cold=true"]));
    let all = one["predictions"].as_array().unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(
        (&all[0]["arm"], &all[0]["fault"], &all[0]["state"]),
        (&"tcp-reader".into(), &"blackhole".into(), &"in-flight".into())
    );
    assert_eq!(all[0]["detection"]["watcher"], "retransmit");
    // Measured with about 50 ms of round trip and 5 retransmissions: 16.6 to 17.1 s; without a round trip 13.3 to 13.5 s.
    let (lo, hi) = (all[0]["detection"]["lo_s"].as_f64().unwrap(), all[0]["detection"]["hi_s"].as_f64().unwrap());
    assert!(lo > 16.0 && hi > 16.6 && hi < 17.1, "{lo} {hi}");
    let four = json(&set(&["state=idle"]));
    let faults: Vec<&str> =
        four["predictions"].as_array().unwrap().iter().map(|p| p["fault"].as_str().unwrap()).collect();
    assert_eq!(faults, ["blackhole", "to-broker", "to-client", "frozen-peer"]);
    let capped = |cap: &str| {
        let cap = format!("sysctl.tcp_rto_max={cap}");
        let answer = json(&set(&["state=in-flight", "fault=blackhole", &cap]));
        answer["predictions"][0]["detection"]["hi_s"].as_f64().unwrap()
    };
    assert!(capped("1s") < 16.0 && capped("120s") > 900.0);
}

#[test]
fn errors_are_one_line_with_the_mend_and_exit_with_2() {
    let of = |pair: &str| refused(&["--set", pair]);
    assert_eq!(
        of("hartbeat=10s"),
        (Some(2), "halfopen: --set hartbeat=10s: unknown key `hartbeat`; did you mean `heartbeat`?".to_string())
    );
    assert_eq!(
        of("keepalive.idle=60"),
        (Some(2), "halfopen: --set keepalive.idle=60: `60` has no unit; write `60s` or `60ms`".to_string())
    );
    assert_eq!(
        of("state=busy"),
        (Some(2), "halfopen: --set state=busy: `busy` is none of idle, in-flight, zero-window".to_string())
    );
    let (code, text) = of("subject=kafka");
    assert!(code == Some(2) && text.contains("`kafka` is not a subject; known are tcp-reader"), "{text}");
    let (code, text) = refused(&[]);
    assert!(code == Some(2) && text.starts_with("halfopen: nothing to predict; give a scenario"), "{text}");
    let (code, text) = refused(&["examples/airflow-1283/rabbitmq.conf"]);
    assert!(
        code == Some(2) && text.contains("no source says which client connects; add --set subject=celery"),
        "{text}"
    );
    let (code, text) = refused(&["no-such-file.cfg"]);
    assert!(code == Some(2) && text.starts_with("halfopen: can't read no-such-file.cfg: No such file"), "{text}");
    let (code, text) = refused(&["LICENSE-MIT"]);
    assert!(code == Some(2) && text.contains("LICENSE-MIT: not recognised; known are"), "{text}");
    let (code, text) = refused(&["--from-env"]);
    assert!(code == Some(2) && text.starts_with("halfopen: environment: nothing that bears on who notices"), "{text}");
    let (code, text) = refused(&["tests/predict/two-readers.toml", "--set", "subject=lapin"]);
    assert!(code == Some(2) && text.contains("a scenario says who consumes"), "{text}");
    let (code, text) = refused(&["tests/predict/two-readers.toml", "--env-file", "examples/airflow-1283/airflow.env"]);
    assert!(code == Some(2) && text.contains("give either a scenario or settings files"), "{text}");
}

#[test]
fn settings_come_from_the_environment_from_standard_input_and_from_addresses() {
    let mut from_env = command(&["--from-env", "--json"]);
    from_env.env("CELERY_BROKER_URL", "redis://:s3cret@cache:6379/0").stdin(Stdio::null());
    let output = from_env.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("s3cret"));
    let parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&parsed["arms"][0]["subject"], &parsed["arms"][0]["broker"]), (&"celery".into(), &"redis".into()));

    let mut child = command(&["-", "--set", "subject=redis-blocking", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"tcp-keepalive\n60\ntimeout\n0\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let parsed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let setting = |name: &str| {
        let all = parsed["arms"][0]["settings"].as_array().unwrap();
        all.iter().find(|s| s["option"] == name).map(|s| (s["value"].clone(), s["place"].clone()))
    };
    assert_eq!(setting("broker_keepalive.idle"), Some(("1m".into(), "standard input:1 tcp-keepalive".into())));

    let address = json(&["redis://:s3cret@cache:6379/0?socket_timeout=7"]);
    assert!(!address.to_string().contains("s3cret"));
    assert_eq!(address["arms"][0]["subject"], "redis-py");
}

#[test]
fn sysctls_alone_describe_a_client_that_sets_nothing() {
    let dump = tempfile::Builder::new().suffix(".conf").tempfile().unwrap();
    std::fs::write(dump.path(), "net.ipv4.tcp_retries2 = 5\nnet.ipv4.tcp_keepalive_time = 30\n").unwrap();
    let path = dump.path().to_str().unwrap();
    let answer = json(&[&[path][..], &set(&["keepalive=on"])].concat());
    assert_eq!(answer["arms"][0]["tcp_retries2"], 5);
    let busy = situation(&answer, "cut both ways, data in flight");
    assert!(busy["detection"]["hi_s"].as_f64().unwrap() < 14.0, "{busy}");
    let idle = answer["arms"][0]["settings"].as_array().unwrap().iter().find(|s| s["option"] == "keepalive.idle");
    assert_eq!(idle.unwrap()["value"], "30s");
}

#[test]
fn what_is_not_known_is_said_with_the_reason() {
    let lines = |file: &str| answer(&[file]).split_whitespace().collect::<Vec<_>>().join(" ");
    let own = lines("scenarios/own-consumer.toml");
    assert!(own.contains("no prediction: the model does not know what a command of your own sets"), "{own}");
    assert!(own.contains("`halfopen inspect --pid`") && !own.contains("first to notice"), "{own}");
    let target = lines("examples/compose-target.toml");
    assert!(target.contains("no prediction:") && target.contains("`halfopen inspect --container`"), "{target}");
    // Said once for all arms.
    let killed = lines("scenarios/faults/killed-broker.toml");
    assert!(killed.contains("killed-broker: no prediction: the broker's kernel ends the connection"), "{killed}");
    assert_eq!(killed.matches("no prediction").count(), 1, "{killed}");
    let of = |file: &str| {
        let answer = json(&[file]);
        let count = |key: &str| answer[key].as_array().unwrap().len();
        (count("not_predicted"), count("predictions"))
    };
    assert_eq!(of("scenarios/own-consumer.toml").1, 0);
    assert_eq!(of("scenarios/faults/killed-broker.toml"), (2, 0));
    // What freezes has a prediction, and not that of a healthy connection.
    let frozen = json(&["scenarios/faults/frozen-broker.toml"]);
    let faults: Vec<&Value> = frozen["predictions"].as_array().unwrap().iter().map(|p| &p["fault"]).collect();
    assert!(!faults.is_empty() && faults.iter().all(|fault| *fault == "frozen-peer"), "{faults:?}");
}

#[test]
fn a_pair_is_all_between_two_hosts_and_nothing_else() {
    let with = |scope: &str| json(&stall(&["--set", &format!("scope={scope}"), "--set", "row=running"]));
    let fires = |answer: &Value, name: &str| {
        let all = answer["predictions"][0]["watchers"].as_array().unwrap().clone();
        all.iter().any(|w| w["watcher"] == name && !w["lo_s"].is_null())
    };
    let (pair, host) = (with("pair"), with("host"));
    assert_eq!((&pair["predictions"][0]["scope"], &host["predictions"][0]["scope"]), (&"pair".into(), &"host".into()));
    assert_eq!(pair["predictions"][0]["situation"], "all to the broker cut, idle, task running");
    // The task's own heartbeat goes to the database, which is another host.
    assert!(!fires(&pair, "task_heartbeat") && fires(&host, "task_heartbeat"));
    assert_eq!(pair["predictions"][0]["detection"], host["predictions"][0]["detection"]);
    let (code, error) = refused(&set(&["subject=lapin", "scope=pairs"]));
    assert!(code == Some(2) && error.contains("pair"), "{error}");
    // On Redis the worker's events go to the same host: they wait for a reply.
    let redis = json(&set(&["subject=celery", "broker=redis", "scope=pair"]));
    let calls: Vec<&Value> = redis["predictions"].as_array().unwrap().iter().collect();
    assert!(calls.iter().all(|p| p["synchronous_call"] == true), "{calls:#?}");
}

#[test]
fn strict_turns_warnings_into_a_failure() {
    assert_eq!(run(&[&STALL[..], &["--strict"]].concat()).status.code(), Some(1));
    let healthy = set(&["subject=lapin", "heartbeat=10s"]);
    assert_eq!(run(&[&healthy[..], &["--strict"]].concat()).status.code(), Some(0));
}

#[test]
fn findings_that_only_the_client_can_tell() {
    let codes = |pairs: &[&str]| -> Vec<String> {
        let answer = json(&set(pairs));
        answer["lints"].as_array().unwrap().iter().map(|l| l["code"].as_str().unwrap().to_string()).collect()
    };
    let has = |pairs: &[&str], code: &str| {
        let found = codes(pairs);
        assert!(found.iter().any(|c| c == code), "{pairs:?}: {found:?}");
    };
    has(&["subject=pika", "read_timeout=60s"], "read-timeout-non-blocking");
    has(&["subject=tcp-reader", "tcp_user_timeout=30s"], "user-timeout-without-keepalive");
    has(&["subject=celery", "read_timeout=5000s"], "milliseconds-for-seconds");
    has(&["subject=celery", "heartbeat=600s", "broker_heartbeat=600s"], "heartbeat-behind-middlebox");
    has(&["subject=celery", "broker=redis", "heartbeat=30s"], "option-of-another-client");
    has(&["subject=celery", "health_check_interval=30s"], "option-of-another-client");
    has(&["subject=tcp-reader", "keepalive=on", "queued_timeout=1200s"], "keepalive-after-reaper");
    has(&["subject=amqp-blocking", "heartbeat=60s", "read_timeout=10s"], "fires-on-a-healthy-link");
    has(&["subject=tcp-reader", "keepalive.idle=400s", "nat_idle=350s"], "forgotten-by-a-middlebox");
    has(&["subject=tcp-reader", "sysctl.tcp_rto_max=20s", "kernel=6.1"], "rto-max-before-6.15");
    has(&["subject=tcp-reader", "keepalive.idle=10s", "keepalive.probes=1"], "one-lost-probe");
    has(&["subject=celery", "heartbeat=none"], "heartbeat-off");
    has(&["subject=celery", "heartbeat=120s"], "heartbeat-negotiated-down");
    // lapin's 0 adopts the broker's value, pika insists on its own.
    for pairs in [["subject=lapin", "heartbeat=none"], ["subject=pika", "heartbeat=120s"]] {
        let found = codes(&pairs);
        assert!(!found.iter().any(|c| c.starts_with("heartbeat-")), "{pairs:?}: {found:?}");
    }
}

#[test]
fn the_help_teaches_and_the_documentation_knows_every_key() {
    let help = answer(&["--help"]);
    for line in ["halfopen predict --from-env", "halfopen predict airflow.cfg rabbitmq.conf", "Exit codes: 0 answered"]
    {
        assert!(help.contains(line), "{line} not in {help}");
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let document = std::fs::read_to_string(format!("{root}/docs/predict.md")).unwrap();
    for key in halfopen::advise::key_lines() {
        assert!(document.contains(&format!("`{}`", key.name)), "docs/predict.md does not name `{}`", key.name);
    }
    let shown = answer(&STALL);
    for line in shown.lines().filter(|l| !l.trim().is_empty()) {
        assert!(document.contains(line), "docs/predict.md shows other output than now: {line}");
    }
}

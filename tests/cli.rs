//! The command as its users meet it: exit codes by the contract, one clear line for each refusal, nothing half-done.

#![expect(clippy::disallowed_methods, reason = "a test starts the program under test")]

#[path = "support/place.rs"]
mod place;

use place::Place;
use std::path::Path;
use std::process::{Command, Output};

fn halfopen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn output(args: &[&str]) -> Output {
    halfopen(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The command is refused with this code and one line that holds each of the words; the directory was not made.
#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str], out: &Path) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let lines: Vec<&str> = said.lines().filter(|l| !l.starts_with("halfopen: building")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    for word in words {
        assert!(lines[0].contains(word), "`{word}` is not in: {said}");
    }
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(!out.exists(), "{} was left behind", out.display());
}

#[test]
fn wrong_usage_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let place = out.to_str().unwrap();
    let scenario = "scenarios/kernel-timers.toml";
    let missing = output(&["run", "nowhere.toml", "--out", place]);
    refused(&missing, 2, &["nowhere.toml", "can't read the scenario", "halfopen list"], &out);
    let long = output(&["run", scenario, "--out", place, "--max-time", "5s"]);
    refused(&long, 2, &["--max-time allows 5s"], &out);
    let mut far = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    far.args(["run", scenario, "--out", place, "--lab", "docker"]).env("DOCKER_HOST", "tcp://192.0.2.1:2375");
    refused(&far.output().unwrap(), 3, &["DOCKER_HOST is tcp://192.0.2.1:2375", "unset DOCKER_HOST"], &out);
    let twice = output(&["run", scenario, scenario, "--out", place]);
    refused(&twice, 2, &["have the same name `kernel-timers`"], &out);
    let unknown = output(&["run", scenario, "--out", place, "--trails", "3"]);
    refused(&unknown, 2, &["'--trails'", "'--trials'", "`halfopen run --help`"], &out);
    let nothing = output(&["run", "--out", place]);
    refused(&nothing, 2, &["<SCENARIO>"], &out);
    for (assumed, words) in [("hz=7", "100, 250, 300, 1000"), ("kernel=0.0", "from 2.6 on")] {
        let result = output(&["run", scenario, "--out", place, "--dry-run", "--assume", assumed]);
        refused(&result, 2, &["--assume", assumed.split_once('=').unwrap().1, words], &out);
    }
    let report = output(&["report", place]);
    refused(&report, 2, &["run.json"], &out);
}

#[test]
fn a_password_that_was_typed_is_not_repeated() {
    let url = "amqp://user:Zq7secret@rabbit:notaport//";
    let calls: [&[&str]; 8] = [
        &["predict", "--set", url],
        &["predict", "--set", &format!("broker={url}")],
        &["predict", "--set", &format!("subject={url}")],
        &["predict", "--set", &format!("password=Zq7secret,{url}")],
        &["predict", &format!("--from-env={url}")],
        &["predict", &format!("--strictly={url}")],
        &["predict", url],
        &["run", "scenarios/control.toml", "--dry-run", "--assume", url],
    ];
    for args in calls {
        let result = output(args);
        let said = text(&result.stderr) + &text(&result.stdout);
        assert!(!said.contains("Zq7secret"), "{args:?}: {said}");
    }
}

#[test]
fn a_broken_scenario_is_one_line_with_file_line_key_and_mend() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let path = dir.path().join("s.toml");
    let good = std::fs::read_to_string("scenarios/kernel-timers.toml").unwrap();
    std::fs::write(&path, good.replacen("horizon", "horison", 1)).unwrap();
    let result = output(&["run", path.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    refused(&result, 2, &["s.toml:", "horison", "did you mean `horizon`?"], &out);
    std::fs::write(&path, [b'#', b' ', 0xff, b'\n']).unwrap();
    let result = output(&["run", path.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    refused(&result, 2, &["s.toml:", "UTF-8"], &out);
}

#[test]
fn somebody_elses_directory_is_never_written_into() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
    let result = output(&["run", "scenarios/kernel-timers.toml", "--out", dir.path().to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(2), "{}", text(&result.stderr));
    assert_eq!(text(&result.stderr).lines().count(), 1);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["thesis.txt"]);
}

#[test]
fn a_missing_broker_is_one_line_and_exit_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["run", "scenarios/first-look.toml", "--out", out.to_str().unwrap()];
    let result = halfopen(&args).env("HALFOPEN_RABBITMQ_SERVER", "/nowhere/rabbitmq-server").output().unwrap();
    refused(&result, 3, &["rabbitmq-server is not installed", "scripts/setup"], &out);
    let result = halfopen(&args).env("HALFOPEN_REDIS_SERVER", "/nowhere/redis-server").output().unwrap();
    refused(&result, 3, &["redis-server is not installed", "scripts/setup"], &out);
    // A file that can't be executed is no program either.
    let plain = dir.path().join("redis-server");
    std::fs::write(&plain, "not a program").unwrap();
    let result = halfopen(&args).env("HALFOPEN_REDIS_SERVER", &plain).output().unwrap();
    refused(&result, 3, &["redis-server is not installed"], &out);
}

/// Runs the command where a limit of a user namespace of the test's own forbids something.
fn limited(limit: &str, drop_privileges: bool, out: &Path) -> Output {
    assert!(nix::unistd::geteuid().is_root(), "this test limits namespaces as root: run the tests as root");
    let drop = if drop_privileges { "setpriv --bounding-set -all --inh-caps -all --ambient-caps -all" } else { "" };
    let script = format!(
        "echo 0 > /proc/sys/user/{limit} && exec {drop} {} run scenarios/kernel-timers.toml --out {}",
        env!("CARGO_BIN_EXE_halfopen"),
        out.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "/bin/sh", "-c", &script]).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.env("HALFOPEN_STATE_DIR", out.with_extension("state")).output().unwrap()
}

#[test]
fn missing_privilege_is_one_line_and_exit_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let words = ["user.max_user_namespaces = 0", "sudo sysctl user.max_user_namespaces", "run it as root"];
    refused(&limited("max_user_namespaces", true, &out), 3, &words, &out);
}

/// A container's filter, in miniature: `clone` with a user namespace is refused with EPERM, all else allowed.
fn without_user_namespaces(command: &mut Command) -> &mut Command {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // `struct seccomp_data`: the number at 0, the low half of the first argument at 16.
    let filter = move || -> std::io::Result<()> {
        let mut program = [
            step(LOAD, 0, 0, 0),
            step(JUMP_EQUAL, 0, 3, libc::SYS_clone as u32),
            step(LOAD, 0, 0, 16),
            step(JUMP_SET, 0, 1, libc::CLONE_NEWUSER as u32),
            step(RETURN, 0, 0, REFUSE),
            step(RETURN, 0, 0, ALLOW),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: system calls only; the program lives until they return.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, filter) }
}

#[test]
fn a_container_s_filter_is_told_from_a_switch() {
    let place = Place::of_nobody();
    let out = place.path("out");
    let scenario = place.scenario("kernel-timers.toml");
    let args = ["run", scenario.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let result = without_user_namespaces(place.halfopen().args(args)).output().unwrap();
    refused(&result, 3, &["seccomp", "--security-opt seccomp=unconfined", "run it as root"], &out);
    let result = without_user_namespaces(place.halfopen().args(["doctor", "--json"])).output().unwrap();
    assert_eq!(result.status.code(), Some(3), "{}", text(&result.stderr));
    let doctor: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
    assert!(doctor["labs"][0]["why"].as_str().unwrap().contains("seccomp"), "{doctor}");
}

#[test]
fn too_few_descriptors_are_said_before_anything_is_made() {
    let place = Place::of_nobody();
    let out = place.path("out");
    let mut command = place.halfopen();
    command.arg("run").arg(place.scenario("kernel-timers.toml")).args(["--trials", "100", "--out"]).arg(&out);
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        let limit = || Ok(nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 100, 300)?);
        std::os::unix::process::CommandExt::pre_exec(&mut command, limit);
    }
    let words = ["kernel-timers.toml", "needs 2664 file descriptors", "limit is 300", "ulimit -Hn", "--trials"];
    refused(&command.output().unwrap(), 3, &words, &out);
}

#[test]
fn a_journal_that_can_not_be_written_is_said_with_the_variable_that_mends_it() {
    let place = Place::of_nobody();
    let out = place.path("out");
    let mut command = place.halfopen();
    command.arg("run").arg(place.scenario("kernel-timers.toml")).arg("--out").arg(&out);
    command.env_remove("HALFOPEN_STATE_DIR").env("HOME", "/");
    refused(&command.output().unwrap(), 3, &["/.local/state/halfopen", "HALFOPEN_STATE_DIR"], &out);
}

#[test]
fn a_missing_kernel_feature_is_one_line_and_exit_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    refused(&limited("max_net_namespaces", false, &out), 3, &["namespaces"], &out);
}

#[test]
fn a_dry_run_says_everything_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["run", "scenarios/first-look.toml", "--dry-run", "--out", out.to_str().unwrap()];
    let result = output(&args);
    assert_eq!(result.status.code(), Some(0));
    let said = text(&result.stdout);
    for word in ["namespaces", "rabbitmq", "redis", "nftables", "needs", "takes about"] {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
    assert!(!out.exists());
    let json = output(&[&args[..], &["--json"]].concat());
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value[0]["scenario"], "first-look", "{value}");
}

#[test]
fn a_dry_run_speaks_of_the_lab_that_was_asked_for() {
    let said = |extra: &[&str], scenario: &str| {
        let result = output(&[&["run", scenario, "--dry-run"], extra].concat());
        assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
        text(&result.stdout).to_string()
    };
    let docker = said(&["--lab", "docker"], "scenarios/first-look.toml");
    for word in [
        "container     server",
        "broker (halfopen/redis:bookworm)",
        "networks      1",
        "family bridge",
        "Docker engine",
    ] {
        assert!(docker.contains(word), "`{word}` is not in: {docker}");
    }
    for word in ["namespaces    ", "veth pairs", "rabbitmq-server (and epmd)"] {
        assert!(!docker.contains(word), "`{word}` is in: {docker}");
    }
    let routed = said(&["--lab", "docker"], "scenarios/faults/nat-expired.toml");
    assert!(routed.contains("container     router") && routed.contains("veth pairs"), "{routed}");
    let pulled = said(&["--lab", "docker"], "examples/pulled-images.toml");
    assert!(
        pulled.contains("broker (rabbitmq:3.13-management)") && pulled.contains("broker (rabbitmq:4.0)"),
        "{pulled}"
    );
    let guest = said(&["--lab", "vm"], "scenarios/first-look.toml");
    assert!(guest.contains("of the guest's own time") && guest.contains("vm build"), "{guest}");
    let iptables = said(&["--firewall", "iptables-nft"], "scenarios/control.toml");
    assert!(iptables.contains("packet filter iptables-nft") && !iptables.contains("nftables table"), "{iptables}");
}

#[test]
fn a_command_whose_program_is_not_there_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("own.toml"), dir.path().join("out"));
    let said = |subject: &str| {
        let scenario = format!(
            "# Who notices?\n[scenario]\nname = \"own\"\nhorizon = \"9s\"\n[load]\nrate = \"1/s\"\n[fault]\nprofile = \"blackhole\"\n\
             [[arm]]\nname = \"a\"\nsubject = {{ broker = \"redis\", {subject} }}\n"
        );
        std::fs::write(&file, scenario).unwrap();
        let result = output(&["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        assert_eq!(result.status.code(), Some(3), "{}", text(&result.stderr));
        assert!(!out.exists());
        text(&result.stderr).to_string()
    };
    let absent = said("command = [\"/nonexistent/python3\", \"{queue}\"]");
    assert!(absent.contains("arm `a`: its command's program `/nonexistent/python3` is not there"), "{absent}");
    let unknown = said("command = [\"no-such-program\", \"{queue}\"]");
    assert!(unknown.contains("`no-such-program` is not there or may not be executed"), "{unknown}");
    let nowhere = said("command = [\"sh\", \"{queue}\"], cwd = \"/nonexistent\"");
    assert!(nowhere.contains("no directory /nonexistent"), "{nowhere}");
}

#[test]
fn tables_have_a_form_for_machines() {
    let list: serde_json::Value = serde_json::from_slice(&output(&["list", "--json"]).stdout).unwrap();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"first-look") && names.contains(&"control"), "{names:?}");
    let schema: serde_json::Value = serde_json::from_slice(&output(&["schema"]).stdout).unwrap();
    assert_eq!(schema["type"], "object");
    let doctor: serde_json::Value = serde_json::from_slice(&output(&["doctor", "--json"]).stdout).unwrap();
    assert!(doctor["lines"].as_array().unwrap().len() > 5);
    assert_eq!(doctor["labs"][0]["way"], "root", "{doctor}");
    assert!(doctor["lines"].as_array().unwrap().iter().all(|l| l["ok"] == true || !l["mend"].is_null()), "{doctor}");
    let dir = tempfile::tempdir().unwrap();
    let clean = halfopen(&["clean", "--json"]).env("HALFOPEN_STATE_DIR", dir.path()).output().unwrap();
    let clean: serde_json::Value = serde_json::from_slice(&clean.stdout).unwrap();
    assert_eq!(clean["runs"], serde_json::json!([]));
}

#[test]
fn help_teaches_with_examples() {
    for args in [&["--help"][..], &["run", "--help"], &["report", "--help"]] {
        let help = output(args);
        assert_eq!(help.status.code(), Some(0));
        assert!(text(&help.stdout).contains("Example"), "{args:?}");
    }
    assert_eq!(output(&[]).status.code(), Some(2));
}

#[test]
fn a_directory_of_a_run_that_is_going_on_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let held = halfopen::store::RunDir::create(dir.path()).unwrap();
    let result = output(&["run", "scenarios/kernel-timers.toml", "--out", dir.path().to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(2));
    assert!(text(&result.stderr).contains("belongs to a run that is going on"), "{}", text(&result.stderr));
    drop(held);
    assert!(halfopen::store::RunDir::create(dir.path()).is_ok());
}

#[test]
fn files_are_never_written_through_somebodys_link() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "mine").unwrap();
    let run = halfopen::store::RunDir::create(&dir.path().join("run")).unwrap();
    std::os::unix::fs::symlink(&precious, run.path().join(".trials.csv.tmp")).unwrap();
    std::os::unix::fs::symlink(&precious, run.path().join("trials.csv")).unwrap();
    run.write("trials.csv", b"rows").unwrap();
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
    assert_eq!(std::fs::read_to_string(run.path().join("trials.csv")).unwrap(), "rows");
}

#[test]
fn a_list_survives_circles_and_broken_files() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(".", dir.path().join("circle")).unwrap();
    std::fs::copy("scenarios/control.toml", dir.path().join("control.toml")).unwrap();
    std::fs::write(dir.path().join("broken.toml"), "# ?\n[scenario]\n").unwrap();
    let result = output(&["list", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(result.status.code(), Some(2));
    assert!(text(&result.stderr).contains("broken.toml"));
    let rows: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
}

#[test]
fn a_standard_error_that_takes_nothing_changes_no_exit_code() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = halfopen(&["run", "nowhere.toml"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn somebody_elses_run_can_be_read_without_the_right_to_write() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test reads a run of root as an ordinary user: run the tests as root"
    );
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let place = out.to_str().unwrap();
    let run = output(&["run", "scenarios/kernel-timers.toml", "--engine", "model", "--trials", "2", "--out", place]);
    assert!(matches!(run.status.code(), Some(0 | 1 | 4)), "{}", text(&run.stderr));
    let binary = dir.path().join("halfopen");
    std::fs::copy(env!("CARGO_BIN_EXE_halfopen"), &binary).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&binary).args(["report", place]);
    let result = command.output().unwrap();
    assert_eq!(result.status.code(), run.status.code(), "{}", text(&result.stderr));
    assert!(text(&result.stdout).contains("kernel-timers:"));
    assert!(text(&result.stderr).contains("left as they are"));
}

#[test]
fn predict_takes_what_the_kernel_takes_and_nothing_else() {
    let refused = |sets: &[&str], words: &str| {
        let mut args = vec!["predict"];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let result = output(&args);
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(2), "{sets:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{sets:?}: {said}");
    };
    refused(&["subject=tcp-reader", "keepalive.idle=60ms"], "not whole seconds");
    refused(&["subject=tcp-reader", "keepalive.idle=0s"], "1s to 32767s");
    refused(&["subject=tcp-reader", "keepalive.idle=5s", "keepalive.probes=0"], "1 to 127");
    refused(&["subject=tcp-writer", "tcp_rto_max=500s"], "1s to 120s");
    refused(&["subject=tcp-writer", "sysctl.tcp_retries2=300"], "0 to 255");
    refused(&["subject=tcp-writer", "tcp_user_timeout=0.1ms"], "below a millisecond");
    refused(&["subject=lapin", "heartbeat=1ms"], "whole seconds");
    refused(&["subject=celery", "age_at_fault=90s"], "write at most 1m");
}

#[test]
fn predict_knows_celery_behind_a_redis_address() {
    let with_address = output(&["predict", "redis://h", "--set", "subject=celery"]);
    let without = output(&["predict", "--set", "subject=celery", "--set", "broker=redis"]);
    let verdict = |output: &Output| text(&output.stdout).lines().next().unwrap_or_default().to_string();
    assert_eq!(verdict(&with_address), verdict(&without));
    assert!(verdict(&without).contains("busy in a call: retransmission after 937–940 s"), "{}", verdict(&without));
}

#[test]
fn predict_reads_versions_and_says_when_sources_disagree() {
    let dir = tempfile::tempdir().unwrap();
    let report = |kombu: &str| {
        let path = dir.path().join(format!("report-{kombu}.txt"));
        let text = format!(
            "software -> celery:{kombu} (x) kombu:{kombu} py:3.11.7\n            billiard:4.2.1 redis:5.2.1\n\
             broker_url: 'redis://h:6379//'\nbroker_transport_options: {{'health_check_interval': 5}}\n"
        );
        std::fs::write(&path, text).unwrap();
        text_of(&output(&["predict", path.to_str().unwrap()]))
    };
    let (old, new) = (report("5.5.4"), report("5.7.0"));
    assert!(new.starts_with("idle: health check after 5–11 s"), "{new}");
    assert!(!old.lines().next().unwrap().contains("health check"), "{old}");
    assert!(old.contains("does not ping while it waits"), "{old}");
    let module = |name: &str, url: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("broker_url = '{url}'\n")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (one, two) = (module("one.py", "amqp://h"), module("two.py", "redis://h"));
    // Long paths wrap.
    let both = text_of(&output(&["predict", &one, &two])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(both.contains("one.py:1") && both.contains("names the broker that is used"), "{both}");
}

fn text_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

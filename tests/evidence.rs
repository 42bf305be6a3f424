//! Gates that ask how sure, on simulated runs: how often they cry wolf, how often they miss one, and what they say.

use halfopen::engine::model;
use halfopen::plan::{self, Overrides};
use halfopen::scenario::{Scenario, read};
use halfopen::verdict::gate::{GateResult, Verdict, judge_gates};
use halfopen::verdict::{TrialRow, judge};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Keepalive of an idle reader, which is noticed 3 to 7 s after a cut that comes at any phase. The smallest effect that the
/// gate declares is a second.
fn scenario(own: &str, trials: u32) -> Scenario {
    let text = format!(
        "# Is it worse?\n[scenario]\nname = \"power\"\nhorizon = \"30s\"\ntrials = {trials}\n[[fault]]\nprofile = \"blackhole\"\n\
         phase_window = \"10s\"\n[[arm]]\nname = \"current\"\nsubject = \"tcp-reader\"\n\
         keepalive = {{ idle = \"4s\", interval = \"1s\", probes = 3 }}\n[[arm]]\nname = \"proposed\"\nsubject = \"tcp-reader\"\n\
         {own}\n[[gate]]\narm = \"proposed\"\nmetric = \"ttd_s\"\nmean = true\nno_worse_than = \"current\"\nmargin = \"1s\"\n"
    );
    read("power.toml", &text).unwrap_or_else(|e| panic!("{e}"))
}

/// What the model engine makes of a seed.
fn rows(scenario: &Scenario, seed: u64) -> Vec<TrialRow> {
    let plan = plan::build(scenario.clone(), &Overrides { seed: Some(seed), ..Overrides::default() }).unwrap();
    judge(&plan, &model::simulate(&plan, &model::reference_machine()).unwrap()).trials
}

fn judged(scenario: &Scenario, rows: &[TrialRow]) -> GateResult {
    judge_gates(&scenario.gates, rows, None).remove(0)
}

/// Numbers that a seed gives (Steele, Lea and Flood 2014, SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// How many of so many seeds fail the gate. The trials of each arm are those of 30 seeds of the model engine; each of the seeds
/// here draws the arm's number of them anew (equal arms from all of them), so that a thousand runs cost what thirty do.
fn failures(scenario: &Scenario, seeds: u64) -> usize {
    let all: Vec<TrialRow> = (0..30).flat_map(|seed| rows(scenario, seed)).collect();
    let alike = scenario.arms.iter().all(|arm| arm.settings == scenario.arms[0].settings);
    let pool = |name: &str| -> Vec<&TrialRow> { all.iter().filter(|r| alike || r.arm == name).collect() };
    let arms: Vec<(&str, Vec<&TrialRow>)> =
        scenario.arms.iter().map(|arm| (arm.name.as_str(), pool(&arm.name))).collect();
    let one = |seed: u64| {
        let mut draw = Draw(seed);
        let mut drawn = Vec::new();
        for (name, pool) in &arms {
            for _ in 0..scenario.arms[0].trials {
                drawn.push(TrialRow { arm: (*name).to_string(), ..pool[draw.below(pool.len())].clone() });
            }
        }
        judged(scenario, &drawn).verdict == Verdict::Failed
    };
    (0..seeds).filter(|seed| one(*seed)).count()
}

const SAME: &str = "keepalive = { idle = \"4s\", interval = \"1s\", probes = 3 }";

/// One probe more is one second more: the smallest effect that the gate declares.
const WORSE: &str = "keepalive = { idle = \"4s\", interval = \"1s\", probes = 4 }";

/// What the gate itself recommends after a first look that was too short to decide.
fn recommended() -> u32 {
    let needed = {
        let first = scenario(SAME, 10);
        (9_000..9_050).find_map(|seed| judged(&first, &rows(&first, seed)).needed)
    };
    u32::try_from(needed.expect("ten trials are too few in one of fifty looks")).unwrap()
}

#[test]
fn equal_arms_fail_their_gate_in_at_most_7_percent_of_1_000_seeds() {
    let scenario = scenario(SAME, recommended());
    let failed = failures(&scenario, 1_000);
    println!("A/A with {} trials an arm: {failed} of 1,000 fail", scenario.arms[0].trials);
    assert!(failed <= 70, "{failed}");
    assert!(failed > 0, "a gate that never fails can't pass");
}

#[test]
fn the_smallest_declared_effect_is_caught_in_at_least_80_percent() {
    let scenario = scenario(WORSE, recommended());
    let failed = failures(&scenario, 1_000);
    println!("A/B with {} trials an arm: {failed} of 1,000 fail", scenario.arms[0].trials);
    assert!(failed >= 800, "{failed}");
}

#[expect(clippy::disallowed_methods, reason = "the binary under test")]
fn halfopen(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The stall of the report: three tasks in 200,000 meet it. The comparison says how many trials it takes, and with these the
/// improvement passes.
#[test]
fn the_improvement_of_airflow_1283_passes_with_the_recommended_sample() {
    let tmp = tempfile::tempdir().unwrap();
    let (small, large) = (tmp.path().join("small"), tmp.path().join("large"));
    let file = "scenarios/airflow-1283-model.toml";
    assert_eq!(halfopen(&["run", file, "--engine", "model", "--out", str(&small)]).status.code(), Some(0));
    let compare = |run: &Path| {
        let args = ["compare", str(run), "--arms", "current,heartbeat-120", "--margin", "stuck_mean=60s", "--json"];
        let all = halfopen(&args);
        let value: serde_json::Value =
            serde_json::from_slice(&all.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&all.stderr)));
        (all.status.code(), value)
    };
    let stuck = |value: &serde_json::Value, pair: usize| {
        let metrics = value["pairs"][pair]["metrics"].as_array().unwrap().clone();
        metrics.into_iter().find(|m| m["metric"] == "stuck_mean").unwrap()
    };
    let (_, first) = compare(&small);
    let needed = stuck(&first, 0)["needed"].as_u64().unwrap().max(stuck(&first, 1)["needed"].as_u64().unwrap());
    let affected = stuck(&first, 0)["a_n"].as_u64().unwrap();
    assert!(needed > affected, "three events are not enough by anybody's count: {needed} of {affected}");
    // As many months as it takes: the same share of more tasks.
    let scenario = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let tasks = format!("count = {}", (needed as f64 * 2.0 / 0.000_015).ceil());
    let more = tmp.path().join("more.toml");
    std::fs::write(&more, scenario.replace("count = 200000", &tasks)).unwrap();
    let ran = halfopen(&["run", str(&more), "--engine", "model", "--out", str(&large)]);
    assert_eq!(ran.status.code(), Some(0), "{}{}", text(&ran.stdout), text(&ran.stderr));
    let (code, all) = compare(&large);
    let flow = stuck(&all, 0);
    println!("needed {needed}, had {}: {}", flow["a_n"], flow["interval"]);
    assert!(flow["a_n"].as_u64().unwrap() >= needed, "{flow}");
    assert_eq!(flow["verdict"], "better", "{flow}");
    // Where the worker's host is cut off nobody consumes again, whatever the heartbeat: the reaper ends both alike.
    assert_eq!(stuck(&all, 1)["verdict"], "equal", "{}", stuck(&all, 1));
    assert_eq!(code, Some(0), "{all}");
}

/// A file whose gates ask how sure, in every way.
fn gates(extra: &str) -> String {
    format!(
        "# How sure?\n[scenario]\nname = \"sure\"\nhorizon = \"60s\"\ntrials = 40\nseed = 5\n[load]\nrate = \"1/10s\"\n[[fault]]\n\
         profile = \"blackhole\"\n[[arm]]\nname = \"current\"\nsubject = \"tcp-reader\"\n\
         keepalive = {{ idle = \"20s\", interval = \"1s\", probes = 3 }}\n[[arm]]\nname = \"proposed\"\nsubject = \"tcp-reader\"\n\
         keepalive = {{ idle = \"5s\", interval = \"1s\", probes = 3 }}\n{extra}"
    )
}

const MANY: &str = "[[gate]]\narm = \"proposed\"\nmetric = \"ttd_s\"\nquantile = 0.5\nmax = \"10s\"\nconfidence = \"95%\"\n\
    [[gate]]\narm = \"proposed\"\nmetric = \"ttd_s\"\nquantile = 0.99\nmax = \"70s\"\nconfidence = \"95%\"\n\
    [[gate]]\narm = \"proposed\"\nmetric = \"ttd_s\"\nmean = true\nno_worse_than = \"current\"\nmargin = \"10%\"\n\
    [[gate]]\nmetric = \"false_alarm\"\nrate = true\nmax = \"1/1000h\"\nconfidence = \"95%\"\n\
    [[gate]]\narm = \"proposed\"\nmetric = \"ttd_s\"\nmean = true\nno_worse_than = \"baseline\"\nmargin = \"2s\"\n";

#[test]
fn gates_say_how_sure_they_are_and_how_many_trials_would_do() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, first, second) = (tmp.path().join("sure.toml"), tmp.path().join("first"), tmp.path().join("second"));
    std::fs::write(&file, gates(MANY)).unwrap();
    let run = |out: &Path, more: &[&str]| {
        let args = [&["run", str(&file), "--engine", "model", "--out", str(out)], more].concat();
        let ran = halfopen(&args);
        (ran.status.code(), text(&ran.stdout) + &text(&ran.stderr))
    };
    let (code, says) = run(&first, &[]);
    assert_eq!(code, Some(4), "{says}");
    let lines: Vec<String> = json(&first.join("summary.json"))["gates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| {
            let numbers = ["value", "interval", "level", "needed", "why"].map(|key| g[key].to_string());
            format!("{}: {}: {}", g["verdict"].as_str().unwrap(), g["text"].as_str().unwrap(), numbers.join(" | "))
        })
        .collect();
    insta::assert_snapshot!("gates", lines.join("\n"));
    let junit = std::fs::read_to_string(first.join("junit.xml")).unwrap();
    assert_eq!(junit.matches("<skipped").count(), 3, "noise is no error: {junit}");
    // The same again, held to the first run: the same machine, so it decides.
    let (_, says) = run(&second, &["--baseline", str(&first), "--seed", "6"]);
    assert!(says.contains("held: mean of ttd_s no worse than the baseline by 2, arm proposed"), "{says}");
    let recorded = json(&second.join("run.json"));
    assert_eq!(recorded["baseline"]["differences"], serde_json::json!([]));
    // Judged again from the run directory alone.
    std::fs::remove_dir_all(&first).unwrap();
    let again = text(&halfopen(&["report", str(&second)]).stdout);
    assert!(again.contains("held: mean of ttd_s no worse than the baseline"), "{again}");
    let (code, says) = run(&tmp.path().join("third"), &["--baseline", str(&first)]);
    assert_eq!(code, Some(2), "{says}");
    assert!(says.contains("the baseline: ") && says.contains("it has no run.json"), "{says}");
}

#[test]
fn a_baseline_of_another_kernel_informs_and_decides_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, first) = (tmp.path().join("sure.toml"), tmp.path().join("first"));
    std::fs::write(&file, gates(MANY)).unwrap();
    halfopen(&["run", str(&file), "--engine", "model", "--out", str(&first)]);
    let head = first.join("run.json");
    let mut run = json(&head);
    run["machine"]["kernel"] = "6.1.0".into();
    std::fs::write(&head, run.to_string()).unwrap();
    let out = tmp.path().join("second");
    let ran = halfopen(&["run", str(&file), "--engine", "model", "--out", str(&out), "--baseline", str(&first)]);
    let says = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(4));
    assert!(says.contains("it only informs, because the baseline is another: kernel: 6.1.0 against 6.18"), "{says}");
}

fn parts(tmp: &Path, scenario: &str, n: u32) -> Vec<PathBuf> {
    let part = |i: u32| {
        let out = tmp.join(format!("part-{i}"));
        let share = format!("{i}/{n}");
        let ran = halfopen(&["run", scenario, "--engine", "model", "--partition", &share, "--out", str(&out)]);
        assert!(ran.status.code().is_some_and(|code| [0, 1, 4].contains(&code)), "{}", text(&ran.stderr));
        out
    };
    (1..=n).map(part).collect()
}

#[test]
fn joined_parts_are_the_run_that_was_never_split() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("whole.toml");
    std::fs::write(&file, gates(MANY)).unwrap();
    let (whole, joined) = (tmp.path().join("whole"), tmp.path().join("joined"));
    halfopen(&["run", str(&file), "--engine", "model", "--out", str(&whole)]);
    let parts = parts(tmp.path(), str(&file), 3);
    let args = ["merge", str(&parts[2]), str(&parts[0]), str(&parts[1]), "--out", str(&joined)];
    let merged = halfopen(&args);
    assert_eq!(merged.status.code(), Some(4), "as the whole: {}", text(&merged.stderr));
    for name in ["trials.csv", "connections.csv", "messages.csv", "ttd.hlog", "stuck.hlog", "junit.xml", "report.md"] {
        let of = |dir: &Path| {
            let text = std::fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            // The one line that says when it was made.
            text.lines().filter(|line| !line.contains("; started ")).collect::<Vec<_>>().join("\n")
        };
        assert!(of(&whole) == of(&joined), "{name} differs");
    }
    let numbers = |dir: &Path| {
        let mut summary = json(&dir.join("summary.json"));
        summary["started_unix_s"] = 0.into();
        summary
    };
    assert_eq!(numbers(&whole), numbers(&joined));
    // A part that is missing, one that is there twice, one of another plan.
    let two = tmp.path().join("two");
    let missing = halfopen(&["merge", str(&parts[0]), str(&parts[1]), "--out", str(&two)]);
    assert_eq!(missing.status.code(), Some(4));
    assert!(text(&missing.stderr).contains("a part is missing"), "{}", text(&missing.stderr));
    let says = |runs: [&Path; 2]| {
        let refused = halfopen(&["merge", str(runs[0]), str(runs[1]), "--out", str(&tmp.path().join("no"))]);
        assert_eq!(refused.status.code(), Some(2));
        text(&refused.stderr)
    };
    let twice = says([&parts[0], &parts[0]]);
    assert!(twice.contains("is in run 1 and in run 2; each part of --partition I/N is needed once"), "{twice}");
    let other = tmp.path().join("other");
    halfopen(&["run", str(&file), "--engine", "model", "--seed", "9", "--partition", "2/3", "--out", str(&other)]);
    assert!(says([&parts[0], &other]).contains("they differ in the seed"));
}

//! `halfopen compare` through the built binary, on simulated runs and on such as the simulator does not make.

use halfopen::plan::{self, Overrides};
use halfopen::scenario::read;
use halfopen::stats::read_hlog;
use halfopen::store::{Machine, RunDir, RunInfo, ScenarioSource};
use halfopen::units::Offset;
use halfopen::verdict::{Outcome, TrialRow};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[expect(clippy::disallowed_methods, reason = "the binary under test")]
fn halfopen(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfopen"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two arms under a black hole and a control; the second arm's heartbeat is the one that is given.
fn scenario(heartbeat: &str, trials: u32) -> String {
    format!(
        "# Is a heartbeat of {heartbeat} better than one of 20 s?\n[scenario]\nname = \"hb\"\nhorizon = \"80s\"\ntrials = {trials}\n\
         seed = 3\n[load]\nrate = \"1/2s\"\n[[fault]]\nprofile = \"blackhole\"\n[[fault]]\nprofile = \"none\"\n[[arm]]\n\
         name = \"current\"\nsubject = \"lapin\"\nheartbeat = \"20s\"\nkeepalive = \"off\"\n[[arm]]\nname = \"proposed\"\n\
         subject = \"lapin\"\nheartbeat = \"{heartbeat}\"\nkeepalive = \"off\"\n"
    )
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A simulated run.
    fn run(&self, name: &str, scenario: &str, seed: u64) -> String {
        let (file, out) = (self.path(&format!("{name}.toml")), self.path(name));
        std::fs::write(&file, scenario).unwrap();
        let (file, out) = (file.to_str().unwrap().to_string(), out.to_str().unwrap().to_string());
        let seed = seed.to_string();
        let ran = halfopen(&["run", &file, "--engine", "model", "--out", &out, "--seed", &seed]);
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        out
    }

    /// The same run with its `run.json` changed.
    fn changed(&self, run: &str, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let out = self.path(name);
        std::fs::create_dir(&out).unwrap();
        for file in ["run.json", "trials.csv", "messages.csv"] {
            std::fs::copy(Path::new(run).join(file), out.join(file)).unwrap();
        }
        let file = out.join("run.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        change(&mut json);
        std::fs::write(&file, json.to_string()).unwrap();
        out.to_str().unwrap().to_string()
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)))
}

fn metric<'v>(comparison: &'v Value, pair: usize, name: &str) -> &'v Value {
    let metrics = comparison["pairs"][pair]["metrics"].as_array().unwrap();
    metrics.iter().find(|m| m["metric"] == name).unwrap_or_else(|| panic!("no {name} in {comparison}"))
}

#[test]
fn arms_of_one_run_are_compared_with_the_price_beside_the_gain() {
    let place = Place::new();
    let run = place.run("a", &scenario("5s", 24), 1);
    let out = place.path("cmp");
    let compared = halfopen(&["compare", &run, "--json", "--out", out.to_str().unwrap()]);
    let all = json(&compared);
    assert_eq!(compared.status.code(), Some(0), "{all}");
    let stuck = metric(&all, 0, "stuck_mean");
    assert_eq!((&stuck["verdict"], &stuck["decides"]), (&"better".into(), &true.into()), "{stuck}");
    assert!(stuck["interval"][1].as_f64().unwrap() < 0.0 && stuck["p_adjusted"].as_f64().unwrap() < 1e-6, "{stuck}");
    assert!(all["pairs"][0]["interleaved"].as_bool().unwrap());
    let price = |side: &str| all["pairs"][0][side]["price"]["heartbeats_per_s"].as_f64().unwrap();
    assert!((price("b") / price("a") - 4.0).abs() < 1e-9, "{all}");
    // Nothing was cut in the control: more false alarms would fail it, and their absence over half an hour shows little.
    let alarms = metric(&all, 1, "false_alarms");
    assert!(!alarms["decides"].as_bool().unwrap() && alarms["verdict"] == "inconclusive", "{alarms}");
    assert!(all["pairs"][1]["a"]["healthy_h"].as_f64().unwrap() > 0.5, "{all}");
    let page = std::fs::read_to_string(out.join("compare.md")).unwrap();
    for words in ["proposed against current", "heartbeat: 20s → 5s", "One run a side", "**held**"] {
        assert!(page.contains(words), "`{words}` is not in:\n{page}");
    }
    let shown = text(&halfopen(&["compare", &run]).stdout);
    assert!(shown.contains("better ◂") && shown.contains("heartbeat frames a second"), "{shown}");
}

#[test]
fn what_is_worse_fails_and_what_is_noise_is_open() {
    let place = Place::new();
    let (run, worse) = (place.run("a", &scenario("5s", 24), 1), place.run("b", &scenario("10s", 24), 2));
    let out = place.path("cmp");
    let out = out.to_str().unwrap();
    let compared = halfopen(&["compare", &run, &worse, "--arms", "proposed,proposed", "--out", out]);
    assert_eq!(compared.status.code(), Some(1), "{}{}", text(&compared.stdout), text(&compared.stderr));
    let junit = std::fs::read_to_string(Path::new(out).join("junit.xml")).unwrap();
    assert!(junit.contains("<failure") && !junit.contains("<error"), "{junit}");
    // The same settings with few trials: nobody can say.
    let few = [place.run("c", &scenario("5s", 4), 4), place.run("d", &scenario("5s", 4), 5)];
    let args = [
        "compare",
        &few[0],
        &few[1],
        "--arms",
        "proposed,proposed",
        "--margin",
        "stuck_mean=50ms",
        "--json",
        "--out",
        out,
    ];
    let open = halfopen(&args);
    let all = json(&open);
    assert_eq!(open.status.code(), Some(4), "{all}");
    let stuck = metric(&all, 0, "stuck_mean");
    assert!(stuck["verdict"] == "inconclusive" && stuck["needed"].as_u64().unwrap() > 1000, "{stuck}");
    let junit = std::fs::read_to_string(Path::new(out).join("junit.xml")).unwrap();
    assert!(junit.contains("<skipped") && !junit.contains("<failure") && !junit.contains("<error"), "{junit}");
}

#[test]
fn several_runs_a_side_widen_the_interval_by_what_runs_differ() {
    let place = Place::new();
    let runs: Vec<String> = (0..4).map(|i| place.run(&format!("r{i}"), &scenario("10s", 12), 10 + i)).collect();
    let one = json(&halfopen(&["compare", &runs[0], "--json"]));
    let out = place.path("cmp");
    let args = [
        "compare",
        &runs[0],
        "--also-a",
        &runs[1],
        "--also-a",
        &runs[2],
        "--also-a",
        &runs[3],
        "--json",
        "--out",
        out.to_str().unwrap(),
    ];
    let all = json(&halfopen(&args));
    assert_eq!((&all["pairs"][0]["a"]["runs"], &all["pairs"][0]["a"]["trials"]), (&4.into(), &48.into()));
    let log = read_hlog(&std::fs::read(out.join("ttd-a.hlog")).unwrap()).unwrap();
    assert_eq!(
        log.iter().map(|e| (e.tag.as_str(), e.histogram.len())).collect::<Vec<_>>(),
        [("current", 48), ("proposed", 48)]
    );
    let notes = |v: &Value| v["notes"].to_string();
    assert!(notes(&one).contains("One run a side") && notes(&all).contains("4 runs a side"), "{}", notes(&all));
    let apart = json(&halfopen(&["compare", &runs[0], &runs[2], "--also-a", &runs[1], "--also-b", &runs[3], "--json"]));
    assert!(notes(&apart).contains("not interleaved") && notes(&apart).contains("2 runs a side"), "{}", notes(&apart));
}

#[test]
fn runs_that_answer_different_questions_are_refused_and_other_kernels_decide_nothing() {
    let place = Place::new();
    let run = place.run("a", &scenario("5s", 24), 1);
    let longer = place.run("b", &scenario("5s", 24).replace("80s", "90s").replace("1/2s", "1/s"), 1);
    let refused = halfopen(&["compare", &run, &longer]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        text(&refused.stderr),
        "halfopen: the runs answer different questions: horizon: 80s against 90s; load: a message every 2s against a \
         message every 1s; if that is meant: --allow horizon,load\n"
    );
    let allowed = json(&halfopen(&["compare", &run, &longer, "--allow", "horizon,load", "--json"]));
    assert_eq!((allowed["allowed"].as_array().unwrap().len(), &allowed["refused"]), (2, &serde_json::json!([])));
    let worse = place.run("c", &scenario("10s", 24), 2);
    let kernel = place.changed(&worse, "d", |json| json["machine"]["kernel"] = "6.1.0".into());
    let args = ["compare", &run, &kernel, "--arms", "proposed,proposed", "--json"];
    let doubted = halfopen(&args);
    let all = json(&doubted);
    assert_eq!(doubted.status.code(), Some(4), "{all}");
    assert_eq!(all["doubts"][0]["what"], "kernel");
    assert!(all["gates"].to_string().contains("differ in kernel"), "{}", all["gates"]);
    assert_eq!(halfopen(&[&args[..], &["--allow", "kernel"]].concat()).status.code(), Some(1));
}

#[test]
fn trouble_is_an_error_and_no_verdict() {
    let place = Place::new();
    let run = place.run("a", &scenario("5s", 24), 1);
    let killed = place.changed(&run, "b", |json| json["complete"] = false.into());
    let out = place.path("cmp");
    let out = out.to_str().unwrap();
    assert_eq!(halfopen(&["compare", &killed, "--out", out]).status.code(), Some(4));
    let junit = std::fs::read_to_string(Path::new(out).join("junit.xml")).unwrap();
    assert!(junit.contains("<error") && !junit.contains("<failure"), "{junit}");
    let empty = place.path("nothing");
    std::fs::create_dir(&empty).unwrap();
    let none = halfopen(&["compare", empty.to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("is not a run of halfopen: it has no run.json"), "{}", text(&none.stderr));
    let line = text(&halfopen(&["compare", &run, "--margin", "ttd_mean=2"]).stderr);
    assert_eq!(
        line,
        "halfopen: --margin ttd_mean=2: `2` has no unit; write `2s` or `2ms`, or a percentage of A's value\n"
    );
    let line = text(&halfopen(&["compare", &run, "--arms", "current,porposed"]).stderr);
    assert_eq!(line, "halfopen: --arms: no arm is named `porposed`; arms are current, proposed\n");
    let line = text(&halfopen(&["compare", "--field", "3/200000", "0"]).stderr);
    assert_eq!(line, "halfopen: --field: `0` is not EVENTS/EXPOSURE; write for example 3/200000 0/200000\n");
}

#[test]
fn counts_from_the_field() {
    let said = halfopen(&["compare", "--field", "3/200000", "0/200_000"]);
    assert_eq!(said.status.code(), Some(0));
    insta::assert_snapshot!("field", text(&said.stdout));
}

/// A run that no simulator would make in a moment: the rows of a plan, drawn by a formula, so many times over.
fn written(dir: &Path, arms: usize, trials: u32, copies: u32, late_s: f64, long_names: bool) {
    let mut file = String::from(
        "# Many trials?\n[scenario]\nname = \"many\"\nhorizon = \"60s\"\n[[fault]]\nprofile = \"blackhole\"\n",
    );
    for arm in 0..arms {
        let name = if long_names {
            format!("{}{arm:03}", "<b>_*|[x](y)".repeat(4).replace(['<', '>', '*', '|', '[', ']', '(', ')'], "-"))
        } else {
            format!("arm-{arm}")
        };
        // Writing to a String can't fail.
        let _ = write!(
            file,
            "[[arm]]\nname = \"{name}\"\nsubject = \"tcp-reader\"\nkeepalive = {{ idle = \"{}s\", interval = \"1s\", probes = 3 }}\ntrials = {trials}\n",
            5 + arm % 40
        );
    }
    let scenario = read("many.toml", &file).unwrap_or_else(|e| panic!("{e}"));
    let plan = plan::build(scenario, &Overrides::default()).unwrap();
    let planned: Vec<(u32, usize)> = plan.trials.iter().map(|t| (t.id, t.arm)).collect();
    let names: Vec<String> = plan.scenario.arms.iter().map(|arm| arm.name.clone()).collect();
    let of = |name: &str| TrialRow::COLUMNS.iter().position(|c| *c == name).unwrap();
    let cells = ["trial", "arm", "fault_applied_s", "detected_s", "ttd_s", "outcome"].map(of);
    let usual = TrialRow {
        subject: "tcp-reader".into(),
        broker: "none".into(),
        lab: "netns".into(),
        fault: "blackhole".into(),
        scope: "flow".into(),
        conn_id: "7.0".into(),
        watcher: "keepalive".into(),
        horizon_s: Offset::from_secs(60.0),
        healthy_s: Some(Offset::from_secs(5.0)),
        ended_s: Some(Offset::from_secs(80.0)),
        attempts: 2,
        ..TrialRow::default()
    };
    // Each row is its own text: a hundred thousand of the real thing are slow to make.
    let mut row = usual.cells();
    let mut csv = TrialRow::COLUMNS.join(",") + "\n";
    for copy in 0..copies {
        for (id, arm) in &planned {
            let id = id + copy * u32::try_from(planned.len()).unwrap();
            let x = f64::from(id.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24);
            let (cut, ttd) = (10.0 + x, 8.0 + late_s + 0.256 * x);
            let (at, after, outcome) = match x < 0.999 {
                true => (format!("{:.6}", cut + ttd), format!("{ttd:.6}"), Outcome::Detected),
                false => (String::new(), String::new(), Outcome::Censored),
            };
            let values =
                [id.to_string(), names[*arm].clone(), format!("{cut:.6}"), at, after, outcome.name().to_string()];
            cells.iter().zip(values).for_each(|(cell, value)| row[*cell] = value);
            csv.push_str(&row.join(","));
            csv.push('\n');
        }
    }
    let trial = serde_json::to_string_pretty(&plan.trials[0]).unwrap();
    let mut run = RunInfo::new(plan, ScenarioSource::new("many.toml", &file), "netns", 0);
    run.machine = Machine { kernel: "6.18.0".into(), hz: Some(250), ..Machine::default() };
    run.complete = true;
    run.plan.trials.truncate(1);
    let out = RunDir::create(dir).unwrap();
    let text = serde_json::to_string_pretty(&run).unwrap();
    let all = format!("\"trials\": [{}]", vec![trial; planned.len() * copies as usize].join(","));
    let (start, end) = (text.find("\"trials\": [\n").unwrap(), text.find("\"estimate\"").unwrap());
    out.write("run.json", format!("{}{all},{}", &text[..start], &text[end..]).as_bytes()).unwrap();
    out.write("trials.csv", csv.as_bytes()).unwrap();
}

/// The bound is for a machine that builds at the same time, without optimisation: it took 2.7 s on an idle one.
#[test]
fn two_runs_of_100_000_trials_compare_in_a_moment() {
    let place = Place::new();
    let (a, b) = (place.path("a"), place.path("b"));
    written(&a, 4, 250, 100, 0.0, false);
    written(&b, 4, 250, 100, 0.001, false);
    let clock = halfopen::host::clock::Clock::start();
    let compared = halfopen(&["compare", a.to_str().unwrap(), b.to_str().unwrap(), "--json"]);
    let took = clock.now().as_secs();
    let all = json(&compared);
    assert_eq!(all["pairs"].as_array().unwrap().len(), 4);
    assert_eq!(metric(&all, 0, "ttd_mean")["a_n"], 25_000);
    println!("2 × 100,000 trials compared in {took:.2} s");
    assert!(took < 60.0, "{took}");
}

#[test]
fn the_page_stays_below_what_a_ci_summary_takes() {
    let place = Place::new();
    let run = place.path("wide");
    written(&run, 64, 20, 1, 0.0, true);
    let out = place.path("cmp");
    let mut args = vec!["compare".to_string(), run.display().to_string(), "--out".into(), out.display().to_string()];
    // Every arm against every other.
    let json: Value = serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap();
    let arms: Vec<&str> =
        json["plan"]["scenario"]["arms"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
    for (i, a) in arms.iter().enumerate().take(6) {
        args.extend(arms.iter().skip(i + 1).flat_map(|b| ["--arms".to_string(), format!("{a},{b}")]));
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert!(halfopen(&args).status.code().is_some_and(|code| [0, 1, 4].contains(&code)));
    let page = std::fs::read(out.join("compare.md")).unwrap();
    println!("{} bytes", page.len());
    assert!(page.len() < 1 << 20 && text(&page).contains("more pairs"), "{}", page.len());
}

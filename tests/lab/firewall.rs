//! The same cut by each firewall, and the cuts that are distorted: what runs, what is refused, and what a run says of itself.

use crate::common::{binary, require_root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn scenario(dir: &Path, fault: &str) -> PathBuf {
    let text = format!(
        "# Does it matter which firewall drops?\n[scenario]\nname = \"firewall\"\nhorizon = \"5s\"\ntrials = 3\nsettle = \"1s\"\n\
         [load]\nrate = \"2/s\"\n[fault]\nprofile = \"blackhole\"\nat = \"500ms\"\n{fault}\n\
         [[arm]]\nname = \"keepalive\"\nsubject = \"tcp-reader\"\nload = \"off\"\nkeepalive = {{ idle = \"1s\", interval = \"1s\", \
         probes = 1 }}\n[[arm]]\nname = \"user-timeout\"\nsubject = \"tcp-writer\"\ntcp_user_timeout = \"1s\"\n\
         [[gate]]\nmetric = \"agreement\"\nmin = \"97%\"\n[[gate]]\nmetric = \"outcome\"\nfraction = \"detected\"\nmin = \"100%\"\n"
    );
    let file = dir.join("firewall.toml");
    std::fs::write(&file, text).expect("the scenario");
    file
}

fn start(file: &Path, out: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(binary());
    command.arg("run").arg(file).arg("--out").arg(out).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("halfopen")
}

fn ended(child: Child) -> Output {
    child.wait_with_output().expect("halfopen ends")
}

fn summary(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("summary.json")).expect("summary.json")).expect("JSON")
}

#[test]
fn every_firewall_makes_the_same_cut() {
    require_root();
    let dir = tempfile::tempdir().expect("a directory");
    let file = scenario(dir.path(), "");
    let kinds = ["nftables", "iptables", "iptables-nft", "iptables-legacy"];
    let runs = kinds.map(|kind| (kind, dir.path().join(kind))).map(|(kind, out)| {
        let child = start(&file, &out, &["--firewall", kind]);
        (kind, out, child)
    });
    for (kind, out, child) in runs {
        let output = ended(child);
        assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
        let summary = summary(&out);
        let watcher = |cell: usize| summary["cells"][cell]["watchers"][0]["name"].as_str().map(String::from);
        assert_eq!((watcher(0).as_deref(), watcher(1).as_deref()), (Some("keepalive"), Some("user_timeout")), "{kind}");
        let said = summary["sources"].to_string().contains(&format!("cuts: {kind},"));
        assert_eq!(said, kind != "nftables", "{kind}: {}", summary["sources"]);
    }
}

/// What is made in several steps, or ends: once and again, by a lease of the kernel's; on a connection that is forgotten; on
/// one that has just been made; and a router that is a middlebox and answers, forgets in silence, or takes up again.
#[test]
fn iptables_heals_comes_again_forgets_meets_a_reconnect_and_makes_middleboxes() {
    require_root();
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scenarios/faults/{name}.toml"));
    let all = [
        ("healed", "iptables-nft"),
        ("healed", "iptables-legacy"),
        ("rebooted-host", "iptables-nft"),
        ("reconnect", "iptables-legacy"),
        ("nat-reset", "iptables-nft"),
        ("nat-loose", "iptables-legacy"),
        ("firewall-forgets", "iptables-legacy"),
    ];
    let runs = all.map(|(name, kind)| {
        let out = dir.path().join(format!("{name}-{kind}"));
        (name, kind, start(&file(name), &out, &["--firewall", kind, "--trials", "3"]), out)
    });
    for (name, kind, child, out) in runs {
        let output = ended(child);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{name}, {kind}: {}", text.concat());
        assert_eq!(summary(&out)["totals"]["void"], 0, "{name}, {kind}");
    }
}

#[test]
fn what_iptables_has_no_means_for_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (scenario(dir.path(), ""), dir.path().join("out"));
    let text = std::fs::read_to_string(&file).expect("the scenario");
    std::fs::write(&file, text.replace("trials = 3", "trials = 126")).expect("the scenario");
    let output = ended(start(&file, &out, &["--firewall", "iptables"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("252 trials are too many for iptables") && said.contains("without --firewall"), "{said}");
    assert!(!out.exists());
}

#[test]
fn a_distorted_cut_is_refused_or_labelled() {
    require_root();
    let dir = tempfile::tempdir().expect("a directory");
    let file = scenario(dir.path(), "name = \"own-egress\"\ninjection = \"client-egress\"");
    let out = dir.path().join("out");
    let refused = ended(start(&file, &out, &[]));
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("[fault] injection") && said.contains("--allow-distorted"), "{said}");
    assert!(!out.exists());
    // A cut that answers is made by whichever firewall it is to be.
    let other = tempfile::tempdir().expect("a directory");
    let rejects = scenario(other.path(), "name = \"rejected\"\ninjection = \"reject-reset\"");
    let answers = start(&rejects, &dir.path().join("answers"), &["--allow-distorted", "--firewall", "iptables-nft"]);
    // The gates are those of a faithful cut: no agreement can be had where the model knows nothing.
    let run = ended(start(&file, &out, &["--allow-distorted"]));
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("DISTORTED"), "{said}{}", String::from_utf8_lossy(&run.stderr));
    let answered = ended(answers);
    assert!(String::from_utf8_lossy(&answered.stdout).contains("DISTORTED"));
    let told = summary(&dir.path().join("answers"));
    assert_eq!(
        (&told["totals"]["void"], &told["cells"][0]["watchers"][0]["name"]),
        (&0.into(), &"reset".into()),
        "{told}"
    );
    let summary = summary(&out);
    assert_eq!(summary["distorted"][0], "own-egress: dropped on the subject's own egress");
    assert_eq!(summary["totals"]["void"], 0, "nothing of the clients came as far as the router");
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(out.join("run.json")).expect("run.json")).expect("JSON");
    assert_eq!(recorded["distorted"][0], "own-egress");
    for page in ["report.html", "report.md"] {
        assert!(std::fs::read_to_string(out.join(page)).expect("a page").contains("DISTORTED"), "{page}");
    }
}

/// The first connection is ended by the broker's kernel; the reconnect is what is under test, before its SYN and after.
#[test]
fn a_reconnect_meets_the_cut() {
    require_root();
    let dir = tempfile::tempdir().expect("a directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/faults/reconnect.toml");
    let out = dir.path().join("out");
    let output = ended(start(&file, &out, &["--trials", "3"]));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", text.concat());
    let events = std::fs::read_to_string(out.join("events.jsonl")).expect("events.jsonl");
    let hung_up = events.lines().filter(|line| line.contains("\"hung_up\"")).count();
    assert_eq!(hung_up, summary(&out)["totals"]["trials"].as_u64().expect("a number") as usize);
}

//! The table of broken scenarios in `broken.txt`, each with the exact words of its errors.

use halfopen::scenario::{from_sets, read, read_bytes};

const TABLE: &str = include_str!("broken.txt");

struct Case<'a> {
    name: &'a str,
    text: &'a str,
    says: &'a str,
}

fn cases(table: &str) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for block in table.split("\n=== ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap_or((block, ""));
        // The text may be empty, and then the separator follows at once.
        let (text, says) = match rest.strip_prefix("--- says\n") {
            Some(says) => ("", says),
            None => rest.split_once("\n--- says\n").map_or((rest, ""), |(text, says)| (text, says)),
        };
        cases.push(Case { name, text, says: says.trim_end() });
    }
    cases
}

#[test]
fn every_broken_scenario_is_refused_in_exactly_these_words() {
    let cases = cases(TABLE);
    assert!(cases.len() >= 30, "only {} cases were found", cases.len());
    let bless = std::env::var_os("HALFOPEN_BLESS").is_some();
    let mut anew = TABLE.split("\n=== ").next().unwrap_or("").to_string();
    let mut wrong = Vec::new();
    for case in &cases {
        let text = if case.text.is_empty() { String::new() } else { format!("{}\n", case.text) };
        let says = match read("x.toml", &text) {
            Ok(_) => "(accepted)".to_string(),
            Err(errors) => errors.to_string(),
        };
        anew.push_str(&format!("\n=== {}\n{text}--- says\n{says}", case.name));
        if says != case.says {
            wrong.push(format!("{}:\nexpected\n{}\nfound\n{says}\n", case.name, case.says));
        }
        // Stable: the same text gives the same words.
        assert_eq!(read("x.toml", &text).map_err(|e| e.to_string()).err(), Some(says), "{}", case.name);
    }
    if bless {
        anew.push('\n');
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plan/broken.txt"), anew)
            .expect("the table is writable");
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_utf8_is_refused_with_its_place() {
    let errors = read_bytes("x.toml", b"# Who\n[scen\xffario]\n").expect_err("is not UTF-8");
    assert_eq!(errors.to_string(), "x.toml:2:6: byte 0xff is not UTF-8; save the file as UTF-8");
}

fn sets(text: &str) -> Vec<(String, String)> {
    text.split_whitespace()
        .map(|set| set.split_once('=').map_or((set.into(), String::new()), |(key, value)| (key.into(), value.into())))
        .collect()
}

#[test]
fn overrides_are_refused_in_the_same_words() {
    let says = |text: &str| from_sets(&sets(text)).expect_err("is wrong").to_string();
    assert_eq!(
        says("subject=lapin heartbeet=10s"),
        "--set heartbeet=10s: heartbeet: unknown key; did you mean `heartbeat`?"
    );
    assert_eq!(
        says("subject=lapin heartbeat=60"),
        "--set heartbeat=60: heartbeat: `60` has no unit; write `60s` or `60ms`"
    );
    assert_eq!(says("heartbeat=60s"), "--set: subject: missing; write `--set subject=tcp-reader`");
    assert_eq!(
        says("subject=tcp-reader keepalive=off keepalive.idle=5s"),
        "--set keepalive.idle=5s: keepalive.idle: `keepalive` is already set as a whole; write it once"
    );
    assert_eq!(
        says("subject=tcp-reader heartbeat=5s"),
        "--set heartbeat=5s: heartbeat: does not apply to tcp-reader: bare TCP has no heartbeat; `keepalive` is the \
         kernel's nearest"
    );
}

#[test]
fn overrides_become_the_options_of_an_arm() {
    let settings = from_sets(&sets(
        "subject=tcp-reader keepalive.idle=60s keepalive.probes=3 tcp_user_timeout=30s sysctl.tcp_retries2=5 \
         sysctl.tcp_keepalive_intvl=7",
    ))
    .expect("is right");
    let keepalive = settings.keepalive.expect("is on");
    assert_eq!((keepalive.idle.as_secs(), keepalive.interval.as_secs(), keepalive.probes), (60, 7, 3));
    assert_eq!(settings.tcp_user_timeout.to_string(), "30s");
    assert_eq!(settings.sysctl.get("tcp_retries2"), Some(&5));
    assert_eq!(settings.heartbeat, None);
}

/// The first case of the table, made right and changed in one place.
fn warnings(arm: &str) -> Vec<String> {
    let text = format!(
        "# Who?\n[scenario]\nname = \"x\"\nhorizon = \"1h\"\n[fault]\nprofile = \"blackhole\"\n[[arm]]\nname = \"a\"\n{arm}\n"
    );
    read("x.toml", &text).unwrap_or_else(|errors| panic!("{errors}")).warnings
}

#[test]
fn what_looks_like_a_mistake_is_said_and_not_refused() {
    assert_eq!(
        warnings("subject = \"redis-blocking\"\nread_timeout = \"60ms\""),
        ["x.toml:10:16: [[arm]] read_timeout: `60ms` is unusually short; was `60s` meant?"]
    );
    assert_eq!(
        warnings("subject = \"lapin\"\nheartbeat = \"10s\"\ntcp_user_timeout = \"30000s\""),
        ["x.toml:11:20: [[arm]] tcp_user_timeout: `30000s` is unusually long; was `30000ms` meant?"]
    );
    assert_eq!(
        warnings("subject = \"redis-blocking\""),
        ["x.toml:7:1: [[arm]]: arm `a` has no timer that could notice; write `expect = \"censored\"` if that is meant"]
    );
    assert_eq!(warnings("subject = \"redis-blocking\"\nexpect = \"censored\""), Vec::<String>::new());
}

//! Clients from outside: a command line of the user's own on Redis and pika on RabbitMQ, cut side by side.

use crate::common::{binary, require_root};
use halfopen::store::{self, Recorded};
use halfopen::verdict::{Judged, Outcome, judge};
use std::path::Path;
use std::process::{Command, Stdio};

const SCENARIO: &str = r#"# Do a script and pika, neither of which knows of this run, come back?
[scenario]
name = "clients"
horizon = "30s"
trials = 2
seed = 5
settle = "1s"
[load]
rate = "1/s"
[[fault]]
profile = "blackhole"
phase_window = "1s"
[[arm]]
name = "script"
subject = { command = ["python3", "examples/own-consumer/worker.py", "{host}", "{port}", "{password}", "{db}", "{queue}", "{client.limit}"], broker = "redis", done = "done {message}", lost = "lost the connection" }
client = { limit = 4 }
[[arm]]
name = "dies"
expect = "censored"
subject = { command = ["sh", "-c", "echo started; sleep 1; exit 7"], ready = "log: started" }
[[arm]]
name = "pika"
subject = "pika"
heartbeat = "5s"
[[arm]]
name = "pika-tls"
subject = "pika"
heartbeat = "5s"
tls = true
"#;

fn run(file: &Path, out: &Path) -> (Recorded, Judged) {
    let status = Command::new(binary())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run".as_ref(), file.as_os_str(), "--out".as_ref(), out.as_os_str()])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.code().is_some_and(|code| code <= 1), "{status}");
    let recorded = store::read(out).unwrap();
    let judged = judge(&recorded.run.plan, &recorded.events);
    (recorded, judged)
}

#[test]
fn clients_that_know_nothing_of_the_run_are_seen_to_consume_notice_and_come_back() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("clients.toml"), dir.path().join("out"));
    std::fs::write(&file, SCENARIO).unwrap();
    let (recorded, judged) = run(&file, &out);
    for row in judged.trials.iter().filter(|row| row.arm != "dies") {
        assert_eq!(row.outcome, Outcome::Detected, "{}: {:?} {}", row.arm, row.void_reason, row.error);
        let ttd = row.ttd_s.unwrap().as_secs();
        // pika looks every heartbeat + 5 s, or half of that; the script's reads end after 4 s.
        let (least, most) = if row.arm.starts_with("pika") { (4.0, 21.0) } else { (2.5, 5.0) };
        assert!((least..most).contains(&ttd), "{}: noticed after {ttd} s", row.arm);
        assert!(row.ttr_s.is_some(), "{}: no message was done again", row.arm);
        assert!(row.client_rss_mib.is_some_and(|mib| mib > 1.0) && row.client_exited_s.is_none());
        let consumer = judged.connections.iter().find(|c| c.conn_id == row.conn_id).unwrap();
        // Nobody hears what an encrypted connection is for: the broker is asked.
        let from = if row.arm == "pika-tls" { "rabbitmqctl" } else { "traffic" };
        let told = (consumer.role.as_str(), consumer.role_from.as_str(), consumer.cut);
        assert_eq!(told, ("consumer", from, true), "{}", row.arm);
    }
    // A BRPOP takes a message from the list for a connection that is dead: it is gone.
    let script = judged.trials.iter().filter(|row| row.arm == "script");
    assert!(script.clone().any(|row| row.messages_missing.is_some_and(|n| n > 0)), "{:?}", script.collect::<Vec<_>>());
    for row in judged.trials.iter().filter(|row| row.arm == "dies") {
        assert_eq!(row.outcome, Outcome::SubjectExited, "{:?}", row.void_reason);
        assert!(row.client_exit.contains('7'), "{}", row.client_exit);
    }
    let asked = |source: &String| source.starts_with("role where the traffic can't be read: RabbitMQ's consumers");
    assert!(recorded.run.sources.iter().any(asked), "{:?}", recorded.run.sources);
    assert!(recorded.run.clients.contains_key("pika"), "{:?}", recorded.run.clients);
    let log = std::fs::read_to_string(out.join("logs/trial-0.log")).unwrap();
    assert!(log.contains("done "), "{log}");
}

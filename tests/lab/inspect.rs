//! `inspect` on live processes: what it reads from them, what it says where it may not read, and what it leaves alone.

use crate::common::{binary, require_root, within};
use crate::support::Lab;
use halfopen::host::process::{Launch, Stream};
use halfopen::inspect::{Inspector, Target, Wait};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The binary's answer as JSON.
pub fn inspect(args: &[&str]) -> Value {
    let output = Command::new(binary()).arg("inspect").args(args).arg("--json").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The row of the connection that has this local address.
pub fn row<'a>(answer: &'a Value, local: &str) -> &'a Value {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().find(|row| row["local"] == local).unwrap_or_else(|| panic!("{local} is not in {answer}"))
}

/// Window and knowledge of one class.
pub fn window(row: &Value, class: &str) -> (Option<f64>, Option<f64>, String) {
    let answer = row["answers"].as_array().unwrap().iter().find(|a| a["class"] == class).unwrap();
    (answer["lo_s"].as_f64(), answer["hi_s"].as_f64(), answer["knowledge"].as_str().unwrap().to_string())
}

#[test]
fn sockets_of_another_namespace_are_found_with_their_options_and_waits() {
    require_root();
    let lab = Lab::build();
    let [quiet, kept, reading, timed] = [1, 2, 3, 4].map(|j| lab.connect(j).unwrap());
    kept.keepalive(5, 1, 3);
    reading.near.set_read_timeout(None).unwrap();
    timed.near.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let local = |c: &crate::support::Connection| c.tuple.local.to_string();
    let me = std::process::id().to_string();
    let (both_wait, answer) = std::thread::scope(|scope| {
        for connection in [&reading, &timed] {
            scope.spawn(|| (&connection.near).read_exact(&mut [0; 1]).unwrap());
        }
        let mut answer = Value::Null;
        let both_wait = within(Duration::from_secs(20), || {
            answer = inspect(&["--pid", &me]);
            [&reading, &timed].iter().all(|c| row(&answer, &local(c))["wait"]["how"] == "read")
        });
        // Nothing may fail before the readers are let go.
        for connection in [&reading, &timed] {
            (&connection.far).write_all(b"x").unwrap();
        }
        (both_wait, answer)
    });
    assert!(both_wait, "{answer}");
    // A descriptor in which nobody waits may be read with any deadline later on: that is an upper bound, and said.
    assert_eq!(window(row(&answer, &local(&quiet)), "idle"), (None, None, "at_most".into()));
    assert_eq!(window(row(&answer, &local(&reading)), "idle"), (None, None, "exact".into()));
    let (lo, hi, knowledge) = window(row(&answer, &local(&timed)), "idle");
    // The wheel turns in steps of 2.048 s there.
    assert!(
        lo == Some(0.0) && hi.is_some_and(|hi| (60.0..62.1).contains(&hi)) && knowledge == "exact",
        "{lo:?} {hi:?}"
    );
    let of_kept = row(&answer, &local(&kept));
    assert_eq!(of_kept["options"]["keepalive_idle_s"], 5);
    assert_eq!(of_kept["timer"], "keepalive");
    let (_, hi, _) = window(of_kept, "idle");
    assert!(hi.is_some_and(|hi| (8.0..9.0).contains(&hi)), "{of_kept}");
    assert_eq!(of_kept["owner"]["pid"], std::process::id());
}

#[test]
fn without_the_right_to_look_columns_stay_open_and_nothing_is_guessed() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where the build lies a stranger may not be allowed to read.
    let copy = dir.path().join("halfopen");
    std::fs::copy(binary(), &copy).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let kept = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    socket2::SockRef::from(&kept).set_tcp_keepalive(&keepalive).unwrap();
    let plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let ask = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command.arg("inspect").args(args).arg("--json").uid(65_534).gid(65_534);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
        (output.status.code(), answer)
    };
    let (_, answer) = ask(&["--port", &port]);
    let of_kept = row(&answer, &kept.local_addr().unwrap().to_string());
    assert_eq!((&of_kept["owner"], &of_kept["options"]), (&Value::Null, &Value::Null));
    for class in ["idle", "in_flight", "to_peer", "from_peer", "frozen"] {
        assert_eq!(window(of_kept, class), (None, None, "unknown".into()), "{class}");
    }
    // That no keepalive timer runs is the kernel's own word to everybody.
    let of_plain = row(&answer, &plain.local_addr().unwrap().to_string());
    assert_eq!(window(of_plain, "idle"), (None, None, "at_most".into()));
    assert_eq!(of_plain["risk"], "open");
    assert!(answer["notes"].to_string().contains("may not be seen"), "{}", answer["notes"]);
    // What can't be told fails no check, and passes none.
    let (code, _) = ask(&["--port", &port, "--fail-over", "60s"]);
    assert_eq!(code, Some(4));
}

#[test]
fn a_process_that_ends_is_a_row_and_one_that_never_was_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut launch = Launch::new("/bin/cat");
    launch.stdin = Stream::Fd(Arc::new(near.into()));
    let mut process = launch.spawn().unwrap();
    let mut inspector = Inspector::new(Target::Process(process.pid()));
    let reads = within(Duration::from_secs(20), || {
        let look = inspector.look().unwrap();
        look.connections.iter().any(|c| c.wait == Wait::Read)
    });
    assert!(reads, "cat reads its standard input");
    let pid = process.pid();
    process.kill().unwrap();
    let look = inspector.look().unwrap();
    assert_eq!((look.connections.len(), look.ended[0].pid), (0, pid));
    let output = Command::new(binary()).args(["inspect", "--pid", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains(&format!("no process {pid} runs")), "{text}");
}

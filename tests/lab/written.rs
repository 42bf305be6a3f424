//! The scenarios that come with the project, run as they are written or with a change.

use crate::common::binary;
use halfopen::store::{self, Recorded};
use halfopen::verdict::{Judged, judge};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A run of a scenario that is on its way.
pub struct Running {
    name: &'static str,
    dir: tempfile::TempDir,
    child: Child,
}

/// Starts a scenario of `scenarios/faults/`, its text changed.
pub fn start(name: &'static str, change: impl Fn(String) -> String) -> Running {
    let file = format!("{}/scenarios/faults/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = change(std::fs::read_to_string(file).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("scenario.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(binary());
    command.arg("run").arg(&file).arg("--out").arg(dir.path().join("run")).env("HOME", dir.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Running { name, dir, child }
}

impl Running {
    /// How it was judged, once it has ended with this exit code.
    pub fn ends(self, code: i32) -> Judged {
        self.ends_with(code).1
    }

    /// What was recorded, and how it was judged, once it has ended with this exit code.
    pub fn ends_with(self, code: i32) -> (Recorded, Judged) {
        self.ends_and(code, |_| {})
    }

    /// The same, where every gate held, and none does once another fault was asked for.
    pub fn ends_like_no_other(self) -> (Recorded, Judged) {
        self.ends_and(0, |run| {
            let unnoticed = crate::changed::unnoticed(run);
            assert!(unnoticed.is_empty(), "{unnoticed}");
        })
    }

    fn ends_and(self, code: i32, look: impl FnOnce(&Path)) -> (Recorded, Judged) {
        let output = self.child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{}:\n{text}", self.name);
        let run = self.dir.path().join("run");
        look(&run);
        let recorded = store::read(&run).unwrap();
        let judged = judge(&recorded.run.plan, &recorded.events);
        (recorded, judged)
    }
}

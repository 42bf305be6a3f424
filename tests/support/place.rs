//! A directory of a test's own in which `halfopen` runs, as root or as an ordinary user.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `nobody`.
pub const NOBODY: u32 = 65534;

/// The directory, and who works in it. Its name stands in every command line and environment of what is started.
pub struct Place {
    dir: tempfile::TempDir,
    user: Option<u32>,
}

impl Place {
    /// Everything runs as the test does.
    pub fn of_root() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), user: None }
    }

    /// Everything runs as `nobody`, to whom the directory belongs. The build directory may be closed to others, so the
    /// program lies here, too.
    pub fn of_nobody() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this test becomes an ordinary user: run the tests as root");
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_halfopen"), dir.path().join("halfopen")).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { dir, user: Some(NOBODY) }
    }

    /// A file in it; the directory itself for the empty name.
    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.path().to_path_buf() } else { self.dir.path().join(name) }
    }

    /// The command without arguments. As `nobody` it has its home and its journal here.
    pub fn halfopen(&self) -> Command {
        let mut command = match self.user {
            None => Command::new(env!("CARGO_BIN_EXE_halfopen")),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
                command.arg(self.path("halfopen")).env("HOME", self.path(""));
                command
            }
        };
        command.env("HALFOPEN_STATE_DIR", self.path("state")).env_remove("XDG_STATE_HOME");
        command.current_dir(self.path(""));
        command
    }

    /// A scenario of the repository, copied into it.
    pub fn scenario(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name), &path).unwrap();
        path
    }

    /// What `halfopen clean --json` says and does.
    pub fn clean(&self) -> serde_json::Value {
        let output = self.halfopen().args(["clean", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// What lies below the run directory and the journal and belongs to somebody else than the user.
    pub fn strangers(&self) -> Vec<PathBuf> {
        let Some(user) = self.user else { return Vec::new() };
        let mut found = Vec::new();
        for name in ["out", "state"] {
            below(&self.path(name), &mut found);
        }
        found.retain(|path| std::fs::symlink_metadata(path).is_ok_and(|m| m.uid() != user));
        found
    }
}

fn below(path: &Path, found: &mut Vec<PathBuf>) {
    if path.exists() {
        found.push(path.to_path_buf());
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        below(&entry.path(), found);
    }
}

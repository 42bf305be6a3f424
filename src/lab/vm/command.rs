//! Pure: what a guest is asked to do, and the kernel's command line.

use super::error::VmError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How the guest's clock moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Computing costs no time at all; the clock moves when everything is idle. Repeatable.
    #[default]
    InfCpu,
    /// Computing costs what it costs; idle time is skipped.
    Basic,
}

impl Mode {
    /// The word in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InfCpu => "inf-cpu",
            Self::Basic => "basic",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::InfCpu => "time-travel=inf-cpu",
            Self::Basic => "time-travel",
        }
    }
}

/// Buckets of the table of connections, where the kernel would take 8192 by the guest's memory.
const BUCKETS: u32 = 512;

/// Every guest's clock starts at 2025-01-01 00:00 UTC, so that two runs are equal to the byte.
pub const START_UNIX_S: i64 = 1_735_689_600;

/// What init reads in the guest: `spec.json` of the run's own directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// All of its environment.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// The guest's name.
    pub hostname: String,
    /// Directories of the host that are writable inside, under the same path.
    pub writable: Vec<PathBuf>,
    /// Directories of the host that stay visible (read-only) although they lie below one that gets a fresh tmpfs.
    pub visible: Vec<PathBuf>,
    /// Where init writes: the program's output, its end, and the beat. One of `writable`.
    pub report: PathBuf,
    /// Every how many virtual seconds init shows that the clock moves.
    pub beat_s: u32,
    /// Whether the program gets the console as its terminal.
    pub interactive: bool,
}

/// Init's last word: `end.json` of the report directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestEnd {
    /// The program's exit code, or 128 + the signal that ended it; 127 when it could not be started.
    pub code: i32,
    /// Why it could not be started or the guest not be prepared.
    pub error: Option<String>,
    /// Virtual nanoseconds from the guest's boot to the program's end.
    pub uptime_ns: i64,
    /// Release of the guest's kernel.
    pub release: String,
    /// Features that the faults need and this kernel lacks.
    pub lacks: Vec<String>,
}

/// What the kernel's command line is made of.
#[derive(Debug, Clone)]
pub struct CommandLine<'a> {
    /// The kernel's binary.
    pub kernel: &'a Path,
    /// How its clock moves.
    pub mode: Mode,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// The harness's binary: the guest's init.
    pub init: &'a Path,
    /// The run's own directory, which holds `spec.json` and the kernel's control socket.
    pub dir: &'a Path,
    /// Whether the console is the caller's terminal.
    pub interactive: bool,
}

impl CommandLine<'_> {
    /// The arguments, the program first.
    ///
    /// # Errors
    /// [`VmError::Path`] for a path with a space or a quote: the kernel splits its command line there.
    pub fn argv(&self) -> Result<Vec<String>, VmError> {
        let (kernel, init, dir) = (plain(self.kernel)?, plain(self.init)?, plain(self.dir)?);
        let console = if self.interactive { "con0=fd:0,fd:1" } else { "con0=null,fd:1" };
        Ok([
            kernel.to_string(),
            self.mode.option().into(),
            format!("time-travel-start={}", i128::from(START_UNIX_S) * 1_000_000_000),
            format!("mem={}M", self.memory_mib),
            "root=/dev/root".into(),
            "rootfstype=hostfs".into(),
            "rootflags=/".into(),
            "ro".into(),
            format!("init={init}"),
            // Where the control socket is; the directory must be writable or the kernel panics.
            format!("uml_dir={dir}/"),
            "umid=uml".into(),
            "con=null".into(),
            console.into(),
            // The name of a spinning process is told at the level of information; `quiet` would hide it.
            "loglevel=7".into(),
            "norandmaps".into(),
            // A list of the sockets walks through all buckets of the machine's one table.
            format!("thash_entries={BUCKETS}"),
            "panic=-1".into(),
            "sysrq_always_enabled".into(),
            // Everything after this is init's.
            "--".into(),
            super::guest::SUBCOMMAND.into(),
            format!("{dir}/spec.json"),
        ]
        .into())
    }
}

fn plain(path: &Path) -> Result<&str, VmError> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '\\');
    path.to_str().filter(|p| p.starts_with('/') && !p.contains(bad)).ok_or_else(|| VmError::Path(path.to_path_buf()))
}

/// Where init mounts a fresh tmpfs: what the host has below is not seen inside, unless it is asked for.
pub(super) const FRESH: [&str; 3] = ["/run", "/tmp", "/dev"];

/// Whether a path of the host would be hidden inside.
#[must_use]
pub fn is_hidden(path: &Path) -> bool {
    FRESH.iter().any(|f| path.starts_with(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mode: Mode, dir: &str, interactive: bool) -> Result<String, VmError> {
        let (kernel, init) = (Path::new("/c/linux"), Path::new("/b/halfopen"));
        CommandLine { kernel, mode, memory_mib: 512, init, dir: Path::new(dir), interactive }
            .argv()
            .map(|a| a.join(" "))
    }

    #[test]
    fn the_command_line_is_the_one_that_was_measured() {
        assert_eq!(
            line(Mode::InfCpu, "/tmp/d", false).unwrap(),
            "/c/linux time-travel=inf-cpu time-travel-start=1735689600000000000 mem=512M root=/dev/root \
             rootfstype=hostfs rootflags=/ ro init=/b/halfopen uml_dir=/tmp/d/ umid=uml con=null con0=null,fd:1 loglevel=7 \
             norandmaps thash_entries=512 panic=-1 sysrq_always_enabled -- __guest /tmp/d/spec.json"
        );
        let basic = line(Mode::Basic, "/tmp/d", true).unwrap();
        assert!(basic.contains(" time-travel time-travel-start=") && basic.contains("con0=fd:0,fd:1"), "{basic}");
    }

    #[test]
    fn a_path_that_the_kernel_would_split_is_refused() {
        for dir in ["/tmp/a b", "/tmp/\"a", "relative", "/tmp/a\nb"] {
            assert!(matches!(line(Mode::Basic, dir, false), Err(VmError::Path(_))), "{dir}");
        }
    }

    #[test]
    fn paths_below_a_fresh_tmpfs_are_hidden() {
        assert!(is_hidden(Path::new("/tmp/x")) && is_hidden(Path::new("/run")) && is_hidden(Path::new("/dev/shm/x")));
        assert!(!is_hidden(Path::new("/tmpx")) && !is_hidden(Path::new("/home/me/tmp")));
    }
}

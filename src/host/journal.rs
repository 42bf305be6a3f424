//! The journal of runs on disk, and `clean`: what a killed run could have left.
//!
//! One small JSON file a run, written before anything of the run exists and struck when all of it is gone. It lies in
//! `/var/lib/halfopen` for root, else in `$XDG_STATE_HOME/halfopen` or `~/.local/state/halfopen`; `HALFOPEN_STATE_DIR`
//! overrides both. What is left out: any search for things to remove. Only what the journal names is looked at, and
//! only a process that is provably the run's own init is ended; the kernel removes the rest with it.

use crate::host::init::is_init_of;
use crate::host::process::{pidfd_open, pidfd_signal, pidfd_wait};
use crate::host::procfs::{self, Identity};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

const FORMAT: u32 = 1;
const SUFFIX: &str = ".run.json";
/// A write that is not finished: `RUN.PID-START.new`, so that its writer can be told from a dead one.
const HALF: &str = ".new";

/// The journal can't be used. The message names the path and the operation.
#[derive(Debug, Error)]
#[error("can't {what} {path}: {source}")]
pub struct JournalError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError { what, path: path.to_path_buf(), source }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Version of this file.
    pub format: u32,
    /// The run's id.
    pub run_id: String,
    /// The boot in which the process ids are meant.
    pub boot_id: String,
    /// The outer process.
    pub outer: Identity,
    /// PID 1 of the run; `None` between the intent and its start.
    pub init: Option<Identity>,
    /// The run directory.
    pub out_dir: PathBuf,
    /// What of it the kernel does not remove with its processes, named before it is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<Outside>,
}

/// Something that outlives the processes of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// A container of the Docker engine on this machine, by name.
    Container(String),
    /// A network of the same, by name.
    Network(String),
    /// A directory with the run's working files.
    Directory(PathBuf),
}

impl Entry {
    /// The intent to start a run: nothing of it exists yet.
    #[must_use]
    pub fn new(run_id: &str, outer: Identity, out_dir: &Path) -> Self {
        let (run_id, out_dir) = (run_id.to_string(), out_dir.to_path_buf());
        Self { format: FORMAT, run_id, boot_id: procfs::boot_id(), outer, init: None, out_dir, outside: Vec::new() }
    }
}

/// The directory of the journal for this user: see the module's words.
#[must_use]
pub fn state_dir() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = variable("HALFOPEN_STATE_DIR") {
        return dir;
    }
    if geteuid().is_root() {
        return "/var/lib/halfopen".into();
    }
    let home =
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME").filter(|h| h.is_dir())?.join(".local/state")));
    // A user without a home (`nobody`) still needs a place of its own.
    home.map_or_else(|| std::env::temp_dir().join(format!("halfopen-{}", geteuid())), |state| state.join("halfopen"))
}

/// The journal's directory.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
}

impl Journal {
    /// Opens the journal, creating its directory (mode 0700) where it is missing.
    ///
    /// # Errors
    /// When the directory can't be made, or belongs to somebody else.
    pub fn open(dir: &Path) -> Result<Self, JournalError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create", dir))?;
        let owner = fs::metadata(dir).map_err(failed("look at", dir))?.uid();
        if owner != geteuid().as_raw() {
            let not_ours = io::Error::new(io::ErrorKind::PermissionDenied, format!("it belongs to user {owner}"));
            return Err(failed("use", dir)(not_ours));
        }
        Ok(Self { dir: dir.to_path_buf() })
    }

    fn path(&self, run_id: &str) -> PathBuf {
        self.dir.join(format!("{run_id}{SUFFIX}"))
    }

    /// Writes or replaces a run's entry; on disk when it returns.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, entry: &Entry) -> Result<(), JournalError> {
        let path = self.path(&entry.run_id);
        let Identity { pid, start_ticks } = entry.outer;
        let fresh = self.dir.join(format!("{}.{pid}-{start_ticks}{HALF}", entry.run_id));
        let bytes = serde_json::to_vec_pretty(entry).map_err(|e| failed("write", &path)(e.into()))?;
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)
        };
        write().map_err(failed("write", &path))
    }

    /// Strikes a run; a run that is not in the journal is fine.
    ///
    /// # Errors
    /// When the file can't be removed.
    pub fn strike(&self, run_id: &str) -> Result<(), JournalError> {
        let path = self.path(run_id);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("strike", &path)(e)),
            _ => Ok(()),
        }
    }

    /// All entries, and the files that can't be read as one. Halves of a write that was cut off are not listed.
    ///
    /// # Errors
    /// When the directory can't be listed.
    pub fn entries(&self) -> Result<(Vec<Entry>, Vec<JournalError>), JournalError> {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for file in fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?.flatten() {
            let path = file.path();
            if !path.to_string_lossy().ends_with(SUFFIX) {
                continue;
            }
            match fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice::<Entry>(&bytes)?)) {
                Ok(entry) if self.path(&entry.run_id) == path => entries.push(entry),
                Ok(_) => errors.push(failed("trust", &path)(io::Error::other("it names another run than its file"))),
                // Struck meanwhile by the run itself.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => errors.push(failed("read", &path)(e)),
            }
        }
        entries.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        Ok((entries, errors))
    }
}

impl Journal {
    /// Removes what a writer that was killed left of its write.
    fn remove_halves(&self) -> Result<(), JournalError> {
        for file in fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?.flatten() {
            let path = file.path();
            let writer = path.to_str().and_then(|p| {
                let (pid, start_ticks) = p.strip_suffix(HALF)?.rsplit_once('.')?.1.split_once('-')?;
                Some(Identity { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
            });
            if writer.is_some_and(|w| !procfs::is_running(w)) {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// What `clean` found of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Its outer process still runs: nothing is touched.
    Running,
    /// Nothing of it is left but the entry, which is struck.
    OnlyEntry,
    /// Its init was still there: killed, and with it all that was inside. In a dry run: would be.
    InitKilled,
    /// Things outside of its processes were still there: removed. In a dry run: would be.
    OutsideRemoved,
}

/// One run in `clean`'s report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// The run.
    pub run_id: String,
    /// Its directory, which is never removed.
    pub out_dir: PathBuf,
    /// What was found.
    pub finding: Finding,
    /// The things outside of its processes that were still there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// Removes what a run named outside of its processes; with `true` it only says what is there. Returns what it was, in words.
pub type RemoveOutside<'a> = &'a dyn Fn(&Entry, bool) -> io::Result<Vec<String>>;

/// What `clean` found and did.
#[derive(Debug, Default)]
pub struct CleanReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The runs of the journal.
    pub runs: Vec<Cleaned>,
    /// What went wrong; cleaning goes on past an error.
    pub errors: Vec<JournalError>,
}

impl CleanReport {
    /// Whether there was nothing to do.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty() && self.runs.iter().all(|r| r.finding == Finding::Running)
    }
}

/// Ends what killed runs left and strikes their entries; with `dry_run` it only says what it would do.
#[must_use]
pub fn clean(state_dir: &Path, dry_run: bool, outside: RemoveOutside<'_>) -> CleanReport {
    let mut report = CleanReport { dry_run, ..CleanReport::default() };
    if !state_dir.exists() {
        return report;
    }
    let read = Journal::open(state_dir).and_then(|journal| Ok((journal.entries()?, journal)));
    let ((entries, errors), journal) = match read {
        Ok(read) => read,
        Err(e) => {
            report.errors.push(e);
            return report;
        }
    };
    report.errors.extend(errors);
    if !dry_run {
        report.errors.extend(journal.remove_halves().err());
    }
    let boot_id = procfs::boot_id();
    for entry in entries {
        let path = journal.path(&entry.run_id);
        let found = if entry.boot_id == boot_id && procfs::is_running(entry.outer) {
            Ok((Finding::Running, Vec::new()))
        } else {
            end_init(&entry, &boot_id, dry_run)
                .map_err(failed("end the init of the run in", &path))
                .and_then(|finding| Ok((finding, remove_outside(&entry, dry_run, outside, &path)?)))
                .and_then(|found| if dry_run { Ok(()) } else { journal.strike(&entry.run_id) }.map(|()| found))
        };
        match found {
            Ok((finding, removed)) => {
                let finding = match finding {
                    Finding::OnlyEntry if !removed.is_empty() => Finding::OutsideRemoved,
                    other => other,
                };
                report.runs.push(Cleaned { run_id: entry.run_id, out_dir: entry.out_dir, finding, removed });
            }
            Err(e) => report.errors.push(e),
        }
    }
    report
}

fn remove_outside(
    entry: &Entry,
    dry_run: bool,
    outside: RemoveOutside<'_>,
    path: &Path,
) -> Result<Vec<String>, JournalError> {
    if entry.outside.is_empty() {
        return Ok(Vec::new());
    }
    outside(entry, dry_run).map_err(failed("remove what is named in", path))
}

/// Kills the run's init if number, start time and command line all say that it is.
fn end_init(entry: &Entry, boot_id: &str, dry_run: bool) -> io::Result<Finding> {
    let Some(init) = entry.init.filter(|_| entry.boot_id == boot_id) else { return Ok(Finding::OnlyEntry) };
    // The descriptor first: what is checked afterwards is then true of the process that it names, or that is gone.
    let pidfd = match pidfd_open(init.pid) {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(Finding::OnlyEntry),
        other => other?,
    };
    if !procfs::is_running(init) || !is_init_of(&procfs::command_line(init.pid), &entry.run_id) {
        return Ok(Finding::OnlyEntry);
    }
    if !dry_run {
        match pidfd_signal(pidfd.as_fd(), Signal::SIGKILL) {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            other => other?,
        }
        if !pidfd_wait(pidfd.as_fd(), Duration::from_secs(10))? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", init.pid)));
        }
    }
    Ok(Finding::InitKilled)
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;

//! The directory itself.

use super::secrets;
use super::{EventLog, RUN_FORMAT, ReadEvents, RunInfo, StoreError, read_events};
use crate::events::{EVENTS_VERSION, Event};
use crate::host::clock::Clock;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that says "made by halfopen": only a directory that has it is ever cleared.
pub const MARKER: &str = ".halfopen-run";

pub(super) const RUN: &str = "run.json";
/// One row a trial.
pub(super) const TRIALS: &str = "trials.csv";
/// One row a message.
pub(super) const MESSAGES: &str = "messages.csv";
const EVENTS: &str = "events.jsonl";
/// The same, compressed by somebody who keeps the run.
const EVENTS_GZ: &str = "events.jsonl.gz";
/// The folder of the clients' and brokers' logs.
pub const LOGS: &str = "logs";

/// What a run writes, so that clearing an earlier run touches nothing else.
const OWN: [&str; 16] = [
    RUN,
    EVENTS,
    EVENTS_GZ,
    TRIALS,
    "connections.csv",
    MESSAGES,
    "summary.json",
    "ttd.hlog",
    "stuck.hlog",
    "report.md",
    "report.html",
    "junit.xml",
    "report.txt",
    "plots/ttd.svg",
    "plots/stuck.svg",
    "plots/trials.svg",
];

/// The folder of the pictures: gone with the last of them.
const PLOTS: &str = "plots";

/// A run directory that is being written.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
    /// Held from [`RunDir::create`] on, so that a second run can't clear the directory of one that is going on.
    _lock: Option<Arc<Flock<File>>>,
}

impl RunDir {
    /// Makes the directory, or takes an empty one, or clears the files of an earlier run of this tool.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when it holds anything else; [`StoreError::Io`] when the system refuses.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(StoreError::io("create", path))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(StoreError::io("read", path))? {
            names.push(entry.map_err(StoreError::io("read", path))?.file_name());
        }
        if !names.is_empty() && !names.iter().any(|name| name == MARKER) {
            return Err(StoreError::Foreign { path: path.to_path_buf() });
        }
        let marker = path.join(MARKER);
        let lock = Flock::lock(open_marker(&marker)?, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| match errno {
            nix::errno::Errno::EWOULDBLOCK => StoreError::InUse { path: path.to_path_buf() },
            other => StoreError::io("lock", &marker)(other.into()),
        })?;
        let dir = Self { path: path.to_path_buf(), _lock: Some(Arc::new(lock)) };
        dir.clear()?;
        Ok(dir)
    }

    /// A directory that [`RunDir::create`] made in another process, or a recorded run that is rendered again.
    #[must_use]
    pub fn existing(path: &Path) -> Self {
        Self { path: path.to_path_buf(), _lock: None }
    }

    /// Takes back what [`RunDir::create`] made, for a run that never began. Other files stay.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn discard(self) -> Result<(), StoreError> {
        self.clear()?;
        remove(&self.path.join(MARKER))?;
        // Fails where somebody else's files are, which is right.
        let _ = fs::remove_dir(&self.path);
        Ok(())
    }

    /// The logs of clients and brokers: the files of a run in its folder for them, and the folder if nothing is left.
    fn remove_logs(&self) -> Result<(), StoreError> {
        let logs = self.path.join(LOGS);
        for entry in fs::read_dir(&logs).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                remove(&entry.path())?;
            }
        }
        let _ = fs::remove_dir(&logs);
        Ok(())
    }

    fn clear(&self) -> Result<(), StoreError> {
        OWN.iter().try_for_each(|name| remove(&self.path.join(name)))?;
        // Fails where there is none, or where somebody else's pictures are.
        let _ = fs::remove_dir(self.path.join(PLOTS));
        self.remove_logs()?;
        Ok(())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens `events.jsonl`, empty.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn event_log(&self, clock: Clock) -> Result<EventLog, StoreError> {
        EventLog::create(&self.path.join(EVENTS), clock)
    }

    /// Writes `run.json`: once before anything starts, once more at the end. Logins and passwords in the scenario are not
    /// written; the hash of its text is that of the file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write_run(&self, run: &RunInfo) -> Result<(), StoreError> {
        let malformed =
            |e: serde_json::Error| StoreError::Malformed { path: self.path.join(RUN), line: None, why: e.to_string() };
        let mut value = serde_json::to_value(run).map_err(malformed)?;
        secrets::hide(&mut value);
        let mut text = serde_json::to_string_pretty(&value).map_err(malformed)?;
        text.push('\n');
        self.write(RUN, text.as_bytes())
    }

    /// Writes a file whole or not at all: under another name first, on disk, then renamed.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let target = self.path.join(name);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(StoreError::io("create", parent))?;
        }
        let temporary = self.path.join(format!(".{}.tmp", name.replace('/', "-")));
        // A new file, never one that somebody put there: a link would lead the bytes elsewhere.
        remove(&temporary)?;
        let mut file = File::create_new(&temporary).map_err(StoreError::io("create", &temporary))?;
        if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
            let _ = remove(&temporary);
            return Err(StoreError::io("write", &temporary)(error));
        }
        fs::rename(&temporary, &target).map_err(StoreError::io("rename to", &target))
    }

    /// Writes several files, each whole or not at all.
    ///
    /// # Errors
    /// The first refusal; the files before it are in place.
    pub fn write_all(&self, files: &[(String, Vec<u8>)]) -> Result<(), StoreError> {
        files.iter().try_for_each(|(name, bytes)| self.write(name, bytes))
    }
}

/// Opens the marker of an earlier run, or makes one; never follows a link.
fn open_marker(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(nix::libc::O_NOFOLLOW);
    let mut file = options.open(path).map_err(StoreError::io("create", path))?;
    let text = b"A run of halfopen. The files beside this one are replaced by the next run with this --out.\n";
    file.write_all(text).map_err(StoreError::io("write", path))?;
    Ok(file)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// A run, read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// `run.json`.
    pub run: RunInfo,
    /// `events.jsonl`.
    pub events: Vec<Event>,
    /// Events that this version does not know.
    pub unknown_events: usize,
    /// Whether the writer was killed in the middle of a line.
    pub truncated: bool,
}

/// Reads a run of this version or an older one.
///
/// # Errors
/// [`StoreError::NotARun`], [`StoreError::Newer`] for a later format, [`StoreError::Malformed`] with file and line.
pub fn read(path: &Path) -> Result<Recorded, StoreError> {
    let run = read_run(path)?;
    let (file, bytes) = events_of(path)?;
    // A line cut in the middle of a character is still only an incomplete last line.
    let text = String::from_utf8_lossy(&bytes);
    let ReadEvents { events, unknown, truncated } = read_events(&file, &text)?;
    Ok(Recorded { run, events, unknown_events: unknown, truncated })
}

/// The events' text: of `events.jsonl`, else of its compressed form, else nothing.
fn events_of(path: &Path) -> Result<(PathBuf, Vec<u8>), StoreError> {
    let file = path.join(EVENTS);
    match fs::read(&file) {
        Ok(bytes) => return Ok((file, bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("read", file)(error)),
    }
    let compressed = path.join(EVENTS_GZ);
    match File::open(&compressed) {
        Ok(opened) => {
            let mut bytes = Vec::new();
            let read = flate2::read::GzDecoder::new(opened).read_to_end(&mut bytes);
            read.map_err(StoreError::io("read", &compressed))?;
            Ok((compressed, bytes))
        }
        // Killed between the two files: a run without events.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok((file, Vec::new())),
        Err(error) => Err(StoreError::io("read", compressed)(error)),
    }
}

fn read_run(path: &Path) -> Result<RunInfo, StoreError> {
    let file = path.join(RUN);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(StoreError::NotARun { path: path.to_path_buf(), missing: RUN });
        }
        Err(error) => return Err(StoreError::io("read", file)(error)),
    };
    let malformed = |why: String| StoreError::Malformed { path: file.clone(), line: None, why };
    // The versions first: a later format may differ in everything else.
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    for (what, known) in [("format", RUN_FORMAT), ("events_version", EVENTS_VERSION)] {
        let found = value.get(what).and_then(serde_json::Value::as_u64);
        match found {
            None | Some(0) => return Err(malformed(format!("`{what}` is missing or not a version"))),
            Some(found) if found > u64::from(known) => {
                return Err(StoreError::Newer { path: file.clone(), what, found, known });
            }
            Some(_) => {}
        }
    }
    serde_json::from_value(value).map_err(|e| malformed(e.to_string()))
}

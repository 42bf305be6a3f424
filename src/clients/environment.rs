//! The environment of an adapter: a Python virtual environment with the packages of its lock file, and its scripts.
//!
//! Kept under `$XDG_CACHE_HOME` (or `~/.cache`) `/halfopen/clients/<name>-<key>/`, keyed by lock file, scripts and
//! interpreter. It is there when its directory is: it is made under another name and renamed at the end.

use super::Adapter;
use crate::host::process::output;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How long the packages may take to arrive.
const INSTALL: Duration = Duration::from_secs(600);
const QUICK: Duration = Duration::from_secs(60);

/// Why there is no environment. The message ends with the mend.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No interpreter, or one that makes no virtual environments.
    #[error("{client} needs {what}; scripts/setup (or: apt-get install python3 python3-venv)")]
    NoPython {
        /// The adapter.
        client: String,
        /// What is missing.
        what: String,
    },
    /// The packages could not be installed.
    #[error(
        "{client}: its packages could not be installed ({what}); the log is {log}; check the network and run again"
    )]
    Install {
        /// The adapter.
        client: String,
        /// The last line of the log.
        what: String,
        /// The log.
        log: PathBuf,
    },
    /// Neither a cache nor a home directory is named.
    #[error("neither XDG_CACHE_HOME nor HOME names a directory for the clients' environments; set one of them")]
    NoCache,
    /// A file could not be made.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ClientError + '_ {
    move |source| ClientError::Io { path: path.to_path_buf(), source }
}

/// The environment's directory, made now if it is not there yet; `say` is told what takes time.
///
/// # Errors
/// [`ClientError`], which ends with the mend.
pub fn ensure(adapter: &Adapter, say: &mut dyn FnMut(&str)) -> Result<PathBuf, ClientError> {
    let base = cache()?;
    let python =
        python().ok_or_else(|| ClientError::NoPython { client: adapter.name.clone(), what: "python3".into() })?;
    let version = output(&python, &["-V"], QUICK).map(|(_, text)| text).unwrap_or_default();
    let dir = base.join(format!("{}-{}", adapter.environment, key(adapter, version.trim())));
    if dir.is_dir() {
        return Ok(dir);
    }
    say(&format!("installing {} into {} (once)", adapter.name, dir.display()));
    let partial = base.join(format!(".{}-{}", adapter.environment, std::process::id()));
    let made = make(adapter, &python, &partial, &base.join(format!("{}.log", adapter.name)));
    let kept = made.and_then(|()| match fs::rename(&partial, &dir) {
        // Another run was quicker.
        Err(_) if dir.is_dir() => Ok(()),
        renamed => renamed.map_err(at(&dir)),
    });
    let _ = fs::remove_dir_all(&partial);
    kept.map(|()| dir)
}

fn make(adapter: &Adapter, python: &Path, dir: &Path, log: &Path) -> Result<(), ClientError> {
    let no_venv = |what: String| ClientError::NoPython { client: adapter.name.clone(), what };
    fs::create_dir_all(dir).map_err(at(dir))?;
    let place = dir.to_string_lossy().into_owned();
    match output(python, &["-m", "venv", &place], INSTALL) {
        Ok((status, _)) if status.success() => {}
        Ok((_, text)) => return Err(no_venv(format!("Python's venv module ({})", last_line(&text)))),
        Err(error) => return Err(no_venv(format!("Python's venv module ({error})"))),
    }
    let lock = dir.join("requirements.lock");
    fs::write(&lock, adapter.lock).map_err(at(&lock))?;
    let scripts = dir.join("scripts");
    fs::create_dir_all(&scripts).map_err(at(&scripts))?;
    for (name, text) in adapter.scripts {
        fs::write(scripts.join(name), text).map_err(at(&scripts))?;
    }
    let lock = lock.to_string_lossy().into_owned();
    // Nothing is built here: what has no wheel is not in the lock file.
    let args = ["-m", "pip", "install", "--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", &lock];
    let installed = output(&dir.join("bin/python"), &args, INSTALL).map_err(at(log))?;
    fs::write(log, &installed.1).map_err(at(log))?;
    if !installed.0.success() {
        let what = last_line(&installed.1);
        return Err(ClientError::Install { client: adapter.name.clone(), what, log: log.to_path_buf() });
    }
    // Where the file tree is read-only, nobody could do it later.
    let scripts = scripts.to_string_lossy().into_owned();
    output(&dir.join("bin/python"), &["-m", "compileall", "-q", &scripts], QUICK).map(drop).map_err(at(dir))
}

fn last_line(text: &str) -> String {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no word why").to_string()
}

/// The distribution's own interpreter before those of a version manager, which are scripts that look elsewhere.
fn python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
    usual.into_iter().chain(std::env::split_paths(&path).map(|dir| dir.join("python3"))).find(|file| file.is_file())
}

fn key(adapter: &Adapter, python: &str) -> String {
    let mut hash = Sha256::new();
    let scripts = adapter.scripts.iter().flat_map(|(name, text)| [*name, *text]);
    for part in [adapter.lock, python].into_iter().chain(scripts) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn cache() -> Result<PathBuf, ClientError> {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|h| h.join(".cache"))).ok_or(ClientError::NoCache)?;
    Ok(base.join("halfopen/clients"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::SubjectKind;

    #[test]
    fn the_key_follows_lock_scripts_and_interpreter() {
        let adapter = super::super::adapter_of(SubjectKind::Celery).unwrap();
        let base = key(&adapter, "Python 3.11.2");
        assert_eq!(base.len(), 12);
        assert_ne!(base, key(&adapter, "Python 3.12.0"));
        assert_ne!(base, key(&Adapter { lock: "", ..adapter.clone() }, "Python 3.11.2"));
        assert_ne!(base, key(&Adapter { scripts: &[], ..adapter }, "Python 3.11.2"));
    }
}

//! A PostgreSQL of the run's own, for the task store: reached by its socket file, and on no network at all unless the workers
//! are to reach it at the trials' own addresses. In the docker lab it is in a container (`docker/database.rs`).
//!
//! PostgreSQL refuses to run as root. Where there are other users it becomes *nobody* (`setpriv`); in a user namespace that
//! has root alone it gets one of its own inside, in which the same user has another number (`unshare`).

use super::broker::{Patience, Waiter};
use super::running::{Recipe, Running};
use super::{LabError, LabSpec};
use crate::host::netns::NetNs;
use crate::host::process::{Launch, Stream};
use crate::host::programs::Program;
use crate::host::userns::mapped_user;
use crate::units::Pace;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where it listens, where the workers reach it over the network.
pub const POSTGRES_PORT: u16 = 5432;

/// The superuser of the run's own server.
pub(super) const USER: &str = "halfopen";

/// How its files are made. Its data dies with the run: nothing has to survive a loss of power.
pub(super) const INITDB: &str = "--no-sync --locale=C -E UTF8";

/// What it is started with, beside the folder of its socket.
pub(super) fn settings(spec: &LabSpec<'_>) -> [String; 4] {
    let listens = if spec.database_clients > 0 { "0.0.0.0" } else { "" };
    [
        "fsync=off".to_string(),
        "unix_socket_permissions=0777".to_string(),
        format!("max_connections={}", 60 + spec.database_clients),
        format!("listen_addresses={listens}"),
    ]
}

const NOBODY: u32 = 65_534;

/// How long making its files and starting it may each take.
const READY_WITHIN: Duration = Duration::from_secs(60);

const PACE: Pace = Pace::new(Duration::from_millis(20), 20).at_most(Duration::from_millis(500));

/// A server that answers. Dropped, it is killed.
#[derive(Debug)]
pub struct Postgres {
    /// The folder of its socket.
    pub sockets: PathBuf,
    /// Its version, where it tells.
    pub version: Option<String>,
    process: Running,
    /// How it was started.
    recipe: Recipe,
    dir: PathBuf,
}

impl Postgres {
    /// The process that all of its others descend from.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills its process, where that still runs, and starts it again on the same files; returns what waits until it answers.
    ///
    /// # Errors
    /// When the old one does not go or the new one can't be started.
    pub fn restart(&mut self) -> io::Result<Waiter> {
        self.recipe.start_again(&mut self.process)?;
        let sockets = self.sockets.clone();
        Ok(Waiter::new("PostgreSQL".to_string(), move |_| log_in(&sockets)))
    }

    /// Makes its files, starts it and waits until it lets the superuser in.
    pub(super) fn start(spec: &LabSpec<'_>, ns: &NetNs, patience: &Patience) -> Result<Self, LabError> {
        let missing = || LabError::NoProgram { program: Program::Postgres.name(), mend: Program::Postgres.mend() };
        let postgres = Program::Postgres.locate().ok_or_else(missing)?;
        let initdb = postgres.with_file_name("initdb");
        let failed = |what: &'static str| move |source: io::Error| LabError::Database { what, why: source.to_string() };
        let dir = spec.work_dir.join("postgres");
        let data = dir.join("data");
        std::fs::create_dir_all(&dir).map_err(failed("make its folder"))?;
        if mapped_user().is_none() {
            // Nobody has to get to his own folder through the run's, in a mount namespace that is the run's alone.
            std::fs::set_permissions(&spec.work_dir, Permissions::from_mode(0o711))
                .and_then(|()| std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)))
                .map_err(failed("make its folder"))?;
        }
        let output = dir.join("output");
        let launch = |program: &Path, args: &[&str]| {
            let mut launch = unprivileged(program).args(args);
            launch.args.extend(["-D".into(), data.clone().into()]);
            launch.env = vec![
                ("TZ".into(), "UTC".into()),
                ("LC_ALL".into(), "C".into()),
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HALFOPEN_RUN_ID".into(), spec.run_id.clone().into()),
            ];
            launch.only_env = true;
            launch.cwd = Some(dir.clone());
            (launch.stdout, launch.stderr) = (Stream::File(output.clone()), Stream::File(output.clone()));
            launch
        };
        let words = |what: &'static str, why: &str| LabError::Database {
            what,
            why: format!("{why}; {}", std::fs::read_to_string(&output).unwrap_or_default().trim()),
        };
        let make: Vec<&str> = ["-A", "trust", "-U", USER].into_iter().chain(INITDB.split(' ')).collect();
        let mut made = launch(&initdb, &make).spawn().map_err(failed("make its files"))?;
        match made.wait_at_most(READY_WITHIN).map_err(failed("make its files"))? {
            Some(status) if status.success() => {}
            Some(status) => return Err(words("make its files", &status.to_string())),
            None => return Err(words("make its files", "took too long")),
        }
        if spec.database_clients > 0 {
            // Whoever is in the run's namespaces is one of the run.
            let host = "host all all 10.0.0.0/8 trust\n";
            let hba = std::fs::OpenOptions::new().append(true).open(data.join("pg_hba.conf"));
            hba.and_then(|mut file| file.write_all(host.as_bytes())).map_err(failed("let the workers in"))?;
        }
        let settings = settings(spec);
        let mut args: Vec<&str> = settings.iter().flat_map(|setting| ["-c", setting]).collect();
        let folder = dir.display().to_string();
        args.extend(["-k", &folder]);
        let mut launch = launch(&postgres, &args);
        launch.netns = Some(ns.clone());
        let process = launch.clone().spawn().map_err(failed("start it"))?.into();
        let version = Program::Postgres.version(&postgres);
        answering(process, Recipe::Own(launch), version, dir, &output, patience)
    }

    pub(super) fn close(mut self) -> Vec<LabError> {
        let failed = |what: &'static str| move |source: io::Error| LabError::Database { what, why: source.to_string() };
        let ended = self.process.kill().map(drop).map_err(failed("end it"));
        let removed = std::fs::remove_dir_all(&self.dir).map_err(failed("remove its files"));
        [ended, removed].into_iter().filter_map(Result::err).collect()
    }
}

/// A server that was started, once it lets its superuser in.
pub(super) fn answering(
    mut process: Running,
    recipe: Recipe,
    version: Option<String>,
    dir: PathBuf,
    output: &Path,
    patience: &Patience,
) -> Result<Postgres, LabError> {
    let words = |what: &'static str, why: &str| LabError::Database {
        what,
        why: format!("{why}; {}", std::fs::read_to_string(output).unwrap_or_default().trim()),
    };
    let started = patience.clock.now();
    while let Err(error) = log_in(&dir) {
        let took = patience.clock.now().since(started);
        let ended = process.wait_at_most(PACE.after(took));
        if let Some(status) = ended.map_err(|source| words("wait for it", &source.to_string()))? {
            return Err(words("start it", &format!("it ended ({status})")));
        }
        if patience.interrupted.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        if took > READY_WITHIN {
            return Err(words("start it", &format!("it did not answer ({error})")));
        }
    }
    Ok(Postgres { sockets: dir.clone(), version, process, recipe, dir })
}

/// A program that is started as somebody else than root.
fn unprivileged(program: &Path) -> Launch {
    let launch = match mapped_user() {
        None => {
            let id = NOBODY.to_string();
            Launch::new("/usr/bin/setpriv").args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        }
        Some(_) => Launch::new("/usr/bin/unshare").args(["--map-user=1000", "--map-group=1000"]),
    };
    launch.args([program])
}

/// The start of its protocol, version 3.0: the answer to the name of a user and a database is `R` once it is up.
fn greet(sockets: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(sockets.join(".s.PGSQL.5432"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for word in ["user", USER, "database", "postgres", ""] {
        body.extend(word.as_bytes());
        body.push(0);
    }
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    stream.write_all(&[&length.to_be_bytes(), body.as_slice()].concat())?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == *b"R" { Ok(stream) } else { Err(io::Error::other("it is still starting")) }
}

fn log_in(sockets: &Path) -> io::Result<()> {
    greet(sockets).map(drop)
}

/// The version that it tells whoever was let in, where it is no program of this machine that could be asked.
pub(super) fn version(sockets: &Path) -> Option<String> {
    let (mut stream, mut said, mut piece) = (greet(sockets).ok()?, Vec::new(), [0; 1024]);
    loop {
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        said.extend_from_slice(&piece[..length]);
        if let Some(version) = version_in(&said) {
            return Some(version);
        }
    }
}

/// The parameter of that name, once it is whole.
fn version_in(said: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"server_version\0";
    let from = said.windows(NAME.len()).position(|bytes| bytes == NAME)? + NAME.len();
    let length = said[from..].iter().position(|byte| *byte == 0)?;
    let text = String::from_utf8_lossy(&said[from..from + length]).into_owned();
    text.split(' ').next().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_once_it_is_whole() {
        let said = b"\0\0\0\x08\0\0\0\0S\0\0\0\x19server_encoding\0UTF8\0S\0\0\0\x32server_version\x0015.14 (Debian 15.14-0+deb12u1)\0Z";
        assert_eq!(version_in(said).as_deref(), Some("15.14"));
        assert_eq!(version_in(&said[..said.len() - 4]), None);
        assert_eq!(version_in(b""), None);
    }
}

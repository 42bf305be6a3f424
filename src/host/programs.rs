//! Where the programs are that a lab starts, and which versions.
//!
//! What is left out: how they are configured and started, which is the lab's.

use crate::host::process::output;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program outside of the harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// RabbitMQ's own start script; never Debian's wrapper in `/usr/sbin`, which calls `su` and fails in a user namespace.
    RabbitmqServer,
    /// Redis.
    RedisServer,
    /// Erlang's port mapper, which RabbitMQ needs.
    Epmd,
    /// PostgreSQL's server itself; `initdb` is beside it.
    Postgres,
}

/// A file that this process may execute: one that it may not is as good as none.
fn can_run(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// A program by the name that somebody gave it, as a shell finds it: one with a `/` counts from the directory, any other is in one
/// of `path`'s.
#[must_use]
pub fn find(program: &str, directory: &Path, path: &OsStr) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(directory.join(program)).filter(|file| can_run(file));
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| can_run(file))
}

impl Program {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RabbitmqServer => "rabbitmq-server",
            Self::RedisServer => "redis-server",
            Self::Epmd => "epmd",
            Self::Postgres => "postgres",
        }
    }

    /// The command that installs it.
    #[must_use]
    pub fn mend(self) -> &'static str {
        match self {
            Self::RabbitmqServer | Self::Epmd => "scripts/setup (or: apt-get install rabbitmq-server)",
            Self::RedisServer => "scripts/setup (or: apt-get install redis-server)",
            Self::Postgres => "scripts/setup --for test (or: apt-get install postgresql)",
        }
    }

    /// The environment variable that names another file for it.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::RabbitmqServer => "HALFOPEN_RABBITMQ_SERVER",
            Self::RedisServer => "HALFOPEN_REDIS_SERVER",
            Self::Epmd => "HALFOPEN_EPMD",
            Self::Postgres => "HALFOPEN_POSTGRES",
        }
    }

    fn places(self) -> &'static [&'static str] {
        match self {
            // Debian's and the vendor's packages; the official container image and the generic archive.
            Self::RabbitmqServer => &["/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/rabbitmq/sbin/rabbitmq-server"],
            Self::RedisServer => &["/usr/bin/redis-server", "/usr/local/bin/redis-server", "/usr/sbin/redis-server"],
            Self::Epmd => &["/usr/bin/epmd", "/usr/local/bin/epmd", "/usr/lib/erlang/bin/epmd"],
            // Debian's and the vendor's packages, the newest first; where others put it.
            Self::Postgres => &[
                "/usr/lib/postgresql/18/bin/postgres",
                "/usr/lib/postgresql/17/bin/postgres",
                "/usr/lib/postgresql/16/bin/postgres",
                "/usr/lib/postgresql/15/bin/postgres",
                "/usr/lib/postgresql/14/bin/postgres",
                "/usr/local/pgsql/bin/postgres",
            ],
        }
    }

    /// Finds it: the file named by [`Program::variable`] alone where that is set, else the usual places.
    #[must_use]
    pub fn locate(self) -> Option<PathBuf> {
        self.locate_with(std::env::var_os(self.variable()), can_run)
    }

    fn locate_with(self, named: Option<OsString>, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        match named.filter(|n| !n.is_empty()) {
            Some(named) => Some(PathBuf::from(named)).filter(|p| exists(p)),
            None => self.places().iter().map(PathBuf::from).find(|p| exists(p)),
        }
    }

    /// Its version; `None` where it does not tell.
    ///
    /// RabbitMQ's is read from the name of its library directory, since asking it would start an Erlang machine.
    #[must_use]
    pub fn version(self, file: &Path) -> Option<String> {
        match self {
            Self::RabbitmqServer => rabbitmq_version(file),
            Self::RedisServer => {
                let (status, text) = output(file, &["--version"], Duration::from_secs(5)).ok()?;
                status.success().then(|| redis_version(&text))?
            }
            Self::Epmd => None,
            Self::Postgres => {
                let (status, text) = output(file, &["--version"], Duration::from_secs(5)).ok()?;
                status.success().then(|| Some(text.split_whitespace().nth(2)?.to_string()))?
            }
        }
    }
}

fn rabbitmq_version(file: &Path) -> Option<String> {
    let real = fs::canonicalize(file).ok()?;
    // bin/rabbitmq-server beside lib/rabbitmq_server-V (Debian), or rabbitmq_server-V/sbin/rabbitmq-server itself.
    let above = real.parent()?.parent()?;
    let candidates = [above.join("plugins"), above.join("lib")];
    let names = candidates.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    names.filter_map(|e| version_in_name(e.file_name().to_str()?)).next()
}

fn version_in_name(name: &str) -> Option<String> {
    let version = name.strip_prefix("rabbitmq_server-").or_else(|| name.strip_prefix("rabbit-"))?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.trim_end_matches(".ez").to_string())
}

fn redis_version(text: &str) -> Option<String> {
    Some(text.split_once("v=")?.1.split_whitespace().next()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=3e4f1b4b1f7c5b6c";
        assert_eq!(redis_version(redis).as_deref(), Some("7.0.15"));
        assert_eq!(version_in_name("rabbitmq_server-3.10.8").as_deref(), Some("3.10.8"));
        assert_eq!(version_in_name("rabbit-4.0.5").as_deref(), Some("4.0.5"));
        assert_eq!(version_in_name("rabbit_common-3.10.8"), None);
    }

    #[test]
    fn a_named_file_is_used_or_missed_but_never_replaced() {
        let all = |_: &Path| true;
        let usual = Program::RabbitmqServer.locate_with(None, all);
        assert_eq!(usual, Some("/usr/lib/rabbitmq/bin/rabbitmq-server".into()));
        assert_eq!(Program::Epmd.locate_with(Some("/x/epmd".into()), all), Some("/x/epmd".into()));
        assert_eq!(Program::Epmd.locate_with(Some("/x/epmd".into()), |p| p != Path::new("/x/epmd")), None);
    }
}

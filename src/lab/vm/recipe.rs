//! What the virtual-time kernel is made of: the embedded configuration and edits, and the source package.
//!
//! A kernel is known by its *key*: the version of the source and a hash of configuration and edits. What is left out:
//! making it (`build`) and keeping it (`cache`).

use crate::host::process::output;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Configuration, merged over user-mode Linux's own default.
pub const CONFIG: &str = include_str!("../../../vm/kernel.config");
/// The edits to the source, each explained there.
pub const PATCH: &str = include_str!("../../../vm/patch.sh");
/// The tick that the edits give to the guest, in Hz.
pub const HZ: u32 = 250;
/// The series that reference numbers exist for; taken before any other that is installed.
const TRIED_SERIES: &str = "6.1";

/// Options without which a guest is of no use; the build fails when the source does not know one.
pub const REQUIRED: &[&str] = &[
    "UML_TIME_TRAVEL_SUPPORT",
    "HOSTFS",
    "TMPFS",
    "DEVTMPFS",
    "UNIX",
    "INET",
    "INET_DIAG",
    "INET_TCP_DIAG",
    "NET_NS",
    "PID_NS",
    "USER_NS",
    "VETH",
    "NF_TABLES",
    "NF_TABLES_IPV4",
    "NET_SCH_NETEM",
    "HIGH_RES_TIMERS",
    "EPOLL",
    "EVENTFD",
    "TIMERFD",
    "SIGNALFD",
];

/// First 12 hexadecimal digits of the hash of configuration and edits.
#[must_use]
pub fn recipe_hash() -> String {
    hash_of(CONFIG, PATCH)
}

fn hash_of(config: &str, patch: &str) -> String {
    let mut hash = Sha256::new();
    for part in [config, patch] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(6).map(|b| format!("{b:02x}")).collect()
}

/// The name of the directory in the cache.
#[must_use]
pub fn key(source_version: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+') { c } else { '_' };
    format!("{}-{}", source_version.chars().map(safe).collect::<String>(), recipe_hash())
}

/// A packed kernel source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The archive.
    pub archive: PathBuf,
    /// Package and version, or the file's name and a hash of its size where no package owns it.
    pub version: String,
}

/// The source to build from: `given`, or the best one below `/usr/src`.
#[must_use]
pub fn find_source(given: Option<&Path>) -> Option<Source> {
    let archive = match given {
        Some(path) => path.canonicalize().ok().filter(|p| p.is_file())?,
        None => best_archive(archives_below(Path::new("/usr/src")))?,
    };
    let version = package_version(&archive).unwrap_or_else(|| {
        let bytes = archive.metadata().map_or(0, |m| m.len());
        format!("{}-{bytes}", stem(&archive))
    });
    Some(Source { archive, version })
}

/// Debian puts the archive there; Ubuntu puts it into a folder of the same name.
fn archives_below(dir: &Path) -> Vec<PathBuf> {
    let list = |dir: &Path| std::fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    let mut found: Vec<PathBuf> = list(dir);
    let folders: Vec<PathBuf> = found.iter().filter(|p| p.is_dir() && !p.is_symlink()).cloned().collect();
    found.extend(folders.iter().filter(|f| series(f).is_some()).flat_map(|f| list(f)));
    found.retain(|p| p.is_file() && series(p).is_some() && p.to_string_lossy().contains(".tar."));
    found.sort();
    found
}

fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(".tar").next().unwrap_or_default().to_string()
}

fn series(path: &Path) -> Option<Vec<u32>> {
    stem(path).strip_prefix("linux-source-")?.split('.').map(|n| n.parse().ok()).collect()
}

fn best_archive(archives: Vec<PathBuf>) -> Option<PathBuf> {
    let tried = archives.iter().find(|a| stem(a) == format!("linux-source-{TRIED_SERIES}")).cloned();
    tried.or_else(|| archives.into_iter().max_by_key(|a| series(a)))
}

fn package_version(archive: &Path) -> Option<String> {
    let path = archive.to_str()?;
    let run = |program: &str, args: &[&str]| {
        let (status, text) = output(Path::new(program), args, Duration::from_secs(20)).ok()?;
        status.success().then_some(text)
    };
    let owner = run("/usr/bin/dpkg", &["-S", path])?;
    let package = owner.lines().last()?.split(':').next()?.trim().to_string();
    let version = run("/usr/bin/dpkg-query", &["-W", "-f", "${Version}", &package])?;
    Some(format!("{package}_{}", version.trim()))
}

/// Options of [`REQUIRED`] that a finished `.config` lacks.
#[must_use]
pub fn missing_options(dot_config: &str) -> Vec<&'static str> {
    let has = |option: &str| dot_config.lines().any(|l| l == format!("CONFIG_{option}=y"));
    REQUIRED.iter().copied().filter(|o| !has(o)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_source_configuration_and_edits() {
        assert_ne!(key("6.1.1"), key("6.1.2"));
        assert_ne!(hash_of("a", "b"), hash_of("ab", ""));
        assert_ne!(hash_of("a", "b"), hash_of("a", "c"));
        let key = key("linux-source-6.1_6.1.192-3/..~x");
        assert!(!key.contains('/') && !key.contains('~') && key.ends_with(&recipe_hash()), "{key}");
        assert_eq!(recipe_hash().len(), 12);
    }

    #[test]
    fn the_tried_series_comes_first_then_the_newest_by_number() {
        let paths = |names: &[&str]| names.iter().map(|n| PathBuf::from(format!("/usr/src/{n}"))).collect::<Vec<_>>();
        let both = paths(&["linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz"]);
        assert_eq!(best_archive(both.clone()), Some(both[0].clone()));
        let ubuntu = paths(&["linux-source-6.8.0.tar.bz2", "linux-source-6.11.0.tar.bz2"]);
        assert_eq!(best_archive(ubuntu.clone()), Some(ubuntu[1].clone()));
        assert_eq!(best_archive(Vec::new()), None);
    }

    #[test]
    fn archives_are_found_where_either_distribution_puts_them() {
        let dir = tempfile::tempdir().unwrap();
        let ubuntu = dir.path().join("linux-source-6.8.0");
        std::fs::create_dir_all(&ubuntu).unwrap();
        for file in [
            "linux-source-6.1.tar.xz",
            "linux-source-6.8.0/linux-source-6.8.0.tar.bz2",
            "linux-patch.xz",
            "notes.tar.xz",
        ] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let names: Vec<String> = archives_below(dir.path()).iter().map(|p| stem(p)).collect();
        assert_eq!(names, ["linux-source-6.1", "linux-source-6.8.0"]);
    }

    #[test]
    fn every_required_option_is_asked_for_or_a_default_of_the_architecture() {
        let config = format!("{CONFIG}\n");
        assert_eq!(missing_options(&config), Vec::<&str>::new());
        assert_eq!(missing_options(&config.replace("CONFIG_VETH=y", "# CONFIG_VETH is not set")), ["VETH"]);
    }
}

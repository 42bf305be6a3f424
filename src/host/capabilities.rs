//! What this machine says of itself: its kernel, and the programs that a lab starts.
//!
//! What is left out: whether that is enough, which is `doctor`'s to judge.

use crate::host::process::output;
use crate::host::programs::Program;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

/// A program of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// Its file.
    pub path: PathBuf,
    /// Its version, where it tells.
    pub version: Option<String>,
}

/// What the kernel says of itself; the timer model depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// Timer ticks a second (`CONFIG_HZ`), where the kernel's configuration can be read. `getconf CLK_TCK` is *not*
    /// it: that is a constant of the interface.
    pub hz: Option<u32>,
    /// Where it was read.
    pub hz_from: Option<String>,
}

impl Installed {
    /// Looks for a program in its places and asks for its version.
    #[must_use]
    pub fn find(program: Program) -> Option<Self> {
        let path = program.locate()?;
        Some(Self { version: program.version(&path), path })
    }
}

/// What the kernel says of itself.
#[must_use]
pub fn kernel() -> Kernel {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    let read = kernel_config().and_then(|(from, text)| Some((from, config_value(&text, "CONFIG_HZ")?.parse().ok()?)));
    let (hz_from, hz) = read.unzip();
    Kernel { release, hz, hz_from }
}

/// The kernel's configuration and where it was found.
fn kernel_config() -> Option<(String, String)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let release = release.trim();
    let plain = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    if let Some(found) = plain.into_iter().find_map(|p| Some((p.clone(), fs::read_to_string(&p).ok()?))) {
        return Some(found);
    }
    let packed = PathBuf::from("/proc/config.gz");
    let gzip = ["/bin/gzip", "/usr/bin/gzip"].map(PathBuf::from).into_iter().find(|p| p.exists())?;
    packed.exists().then_some(())?;
    let limit = std::time::Duration::from_secs(5);
    let (status, text) = output(&gzip, &["-dc", "/proc/config.gz"], limit).ok()?;
    status.success().then(|| ("/proc/config.gz".to_string(), text))
}

/// The value of an option that is set.
fn config_value(config: &str, option: &str) -> Option<String> {
    config.lines().find_map(|l| Some(l.strip_prefix(option)?.strip_prefix('=')?.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_found_by_its_whole_name() {
        let config = "# CONFIG_HZ_100 is not set\nCONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_X is not set\n";
        assert_eq!(config_value(config, "CONFIG_HZ").as_deref(), Some("250"));
        assert_eq!(config_value(config, "CONFIG_X"), None);
    }
}

//! What this machine can do for a run, and the command that mends each lack.
//!
//! Nothing on the machine is changed: namespaces are made and dropped again. What is left out: printing it, and the
//! decision which lacks matter for which scenario.

use crate::host::netlink::{Op, apply};
use crate::host::netns::NetNs;
use crate::host::process::output;
use crate::host::programs::Program;
use crate::host::supervise::{has_sys_admin, user_namespace_mend};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One thing that a run needs or can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Short name, stable: a key in `doctor --json`.
    pub name: &'static str,
    /// Whether it is there.
    pub ok: bool,
    /// Whether no run with real sockets is possible without it.
    pub required: bool,
    /// What was found.
    pub found: String,
    /// The command that mends a lack; `None` where there is none, or nothing to mend.
    pub mend: Option<String>,
}

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

/// Everything that `doctor` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// One line each.
    pub lines: Vec<Capability>,
    /// The kernel.
    pub kernel: Kernel,
    /// RabbitMQ, where it is installed.
    pub rabbitmq: Option<Installed>,
    /// Redis, where it is installed.
    pub redis: Option<Installed>,
}

/// Looks at the machine; takes some milliseconds, and some more for the brokers' versions.
#[must_use]
pub fn capabilities() -> Capabilities {
    let installed = |program: Program| {
        let path = program.locate()?;
        Some(Installed { version: program.version(&path), path })
    };
    let (rabbitmq, redis) = (installed(Program::RabbitmqServer), installed(Program::RedisServer));
    let kernel = kernel();
    let root = has_sys_admin();
    let mut lines = vec![privilege(root), veth(root), nftables(root), tracepoints(root), nofile(), hz_line(&kernel)];
    lines.push(program_line(Program::RabbitmqServer, rabbitmq.as_ref()));
    lines.push(program_line(Program::RedisServer, redis.as_ref()));
    Capabilities { lines, kernel, rabbitmq, redis }
}

fn line(name: &'static str, required: bool, found: Result<String, String>, mend: &str) -> Capability {
    let ok = found.is_ok();
    let mend = (!ok && !mend.is_empty()).then(|| mend.to_string());
    Capability { name, ok, required, found: found.unwrap_or_else(|e| e), mend }
}

fn privilege(root: bool) -> Capability {
    if root {
        return line("namespaces", true, Ok("root (CAP_SYS_ADMIN)".into()), "");
    }
    let refused =
        |path: &str, value: i64| fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()) == Some(value);
    let found = if refused("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1) {
        Err("AppArmor restricts user namespaces of ordinary users".into())
    } else if refused("/proc/sys/kernel/unprivileged_userns_clone", 0)
        || refused("/proc/sys/user/max_user_namespaces", 0)
        || !PathBuf::from("/proc/self/ns/user").exists()
    {
        Err("user namespaces are turned off".into())
    } else {
        Ok("ordinary user with user namespaces (no tracepoints)".into())
    };
    line("namespaces", true, found, &user_namespace_mend())
}

/// Makes a pair of links in a namespace that is dropped again; without root only the module is looked for.
fn veth(root: bool) -> Capability {
    let mend = "modprobe veth (or a kernel with CONFIG_VETH)";
    if !root {
        return line("veth", true, Ok("not tried without root".into()), mend);
    }
    let attempt = || -> io::Result<()> {
        let (a, b) = (NetNs::create("doctor-a")?, NetNs::create("doctor-b")?);
        let op = Op::Veth {
            name: "a".into(),
            mac: [2, 0, 0, 0, 0, 1],
            peer: "b".into(),
            peer_mac: [2, 0, 0, 0, 0, 2],
            peer_ns: b,
        };
        apply(&a, &[op])
    };
    line(
        "veth",
        true,
        attempt().map(|()| "a pair between two namespaces works".into()).map_err(|e| e.to_string()),
        mend,
    )
}

/// As root, a table that its maker owns (`flags owner`, Linux 5.12) is tried in a namespace that is dropped again, where
/// the `nft` program is there to do it; otherwise the kernel's configuration is asked.
fn nftables(root: bool) -> Capability {
    let mend = "modprobe nf_tables (or a kernel of at least 5.12 with CONFIG_NF_TABLES)";
    let nft = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"].map(PathBuf::from).into_iter().find(|p| p.exists());
    let found = match nft.filter(|_| root) {
        Some(nft) => owner_table(&nft).map(|()| "a table with `flags owner` works".into()).map_err(|e| e.to_string()),
        None => match kernel_config().map(|(_, text)| config_value(&text, "CONFIG_NF_TABLES")) {
            Some(Some(value)) => Ok(format!("CONFIG_NF_TABLES={value} (not tried)")),
            Some(None) => Err("CONFIG_NF_TABLES is not set".into()),
            None if PathBuf::from("/sys/module/nf_tables").exists() => {
                Ok("module nf_tables is loaded (not tried)".into())
            }
            None => Err("module nf_tables is not loaded, and the kernel's configuration can't be read".into()),
        },
    };
    line("nftables", true, found, mend)
}

fn owner_table(nft: &Path) -> io::Result<()> {
    let limit = std::time::Duration::from_secs(5);
    // The process starts in the namespace of the thread that asks for it.
    let (status, text) =
        NetNs::create("doctor")?.run(|| output(nft, &["add table ip doctor { flags owner; }"], limit))?;
    if status.success() { Ok(()) } else { Err(io::Error::other(text.trim().to_string())) }
}

fn tracepoints(root: bool) -> Capability {
    let mend = "run as root (a run without them polls sock_diag instead)";
    let place = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .find(|p| PathBuf::from(p).join("events/sock/inet_sock_set_state").exists());
    let found = match (root, place) {
        (true, Some(place)) => Ok(format!("{place}/events/sock")),
        // A run mounts it for itself, in a mount namespace of its own.
        (true, None) if PathBuf::from("/sys/kernel/tracing").exists() => {
            Ok("the kernel has tracefs; a run mounts it privately".into())
        }
        (true, None) => {
            return line(
                "tracepoints",
                false,
                Err("tracefs is not mounted, or the kernel has no sock events".into()),
                "mount -t tracefs tracefs /sys/kernel/tracing",
            );
        }
        (false, _) => Err("an ordinary user may not use them".into()),
    };
    line("tracepoints", false, found, mend)
}

/// A trial takes a descriptor in the subject and one in the broker.
fn nofile() -> Capability {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    let found = if hard >= 4_096 { Ok(format!("hard limit {hard}")) } else { Err(format!("hard limit {hard}")) };
    line("nofile", false, found, "ulimit -Hn 65536 (or LimitNOFILE= of the service), as root")
}

fn hz_line(kernel: &Kernel) -> Capability {
    let found = match (kernel.hz, &kernel.hz_from) {
        (Some(hz), Some(from)) => Ok(format!("{}, HZ={hz} from {from}", kernel.release)),
        _ => Err(format!("{}, HZ unknown: predictions assume a value and say so", kernel.release)),
    };
    line("kernel", false, found, "modprobe configs (or install the kernel's /boot/config file)")
}

fn program_line(program: Program, installed: Option<&Installed>) -> Capability {
    let found = installed.map_or(Err("not installed".to_string()), |i| {
        Ok(format!("{} {}", i.path.display(), i.version.as_deref().unwrap_or("(version unknown)")))
    });
    line(program.name(), false, found, program.mend())
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

    #[test]
    fn every_lack_that_can_be_mended_says_how() {
        let found = capabilities();
        assert!(!found.kernel.release.is_empty());
        for line in &found.lines {
            assert!(line.ok || line.mend.is_some(), "{line:?}");
            assert!(!line.found.is_empty());
        }
        let names: std::collections::BTreeSet<_> = found.lines.iter().map(|l| l.name).collect();
        assert_eq!(names.len(), found.lines.len());
    }
}

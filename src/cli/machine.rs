//! What `run.json` says of the machine: everything that decides how timers behave here.

use crate::host::capabilities;
use crate::lab::vm::recipe;
use crate::store::Machine;
use std::collections::BTreeMap;
use std::fs;

/// The sysctls of which a new network namespace starts with the kernel's own defaults, or that it inherits.
const SYSCTLS: [&str; 9] = [
    "tcp_keepalive_time",
    "tcp_keepalive_intvl",
    "tcp_keepalive_probes",
    "tcp_retries2",
    "tcp_syn_retries",
    "tcp_syn_linear_timeouts",
    "tcp_rto_max_ms",
    "tcp_rto_min_us",
    "tcp_early_retrans",
];

/// Reads it; what can't be read is left out.
pub fn machine() -> Machine {
    let kernel = capabilities::kernel();
    let text = |path: &str| fs::read_to_string(path).ok().map(|t| t.trim().to_string());
    let memory = text("/proc/meminfo").and_then(|t| {
        let kib: u64 =
            t.lines().find_map(|l| l.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    });
    let os = text("/etc/os-release")
        .and_then(|t| Some(t.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?.trim_matches('"').to_string()));
    let sysctls: BTreeMap<String, String> = SYSCTLS
        .iter()
        .filter_map(|name| Some(((*name).to_string(), text(&format!("/proc/sys/net/ipv4/{name}"))?)))
        .collect();
    Machine {
        kernel: kernel.release,
        arch: std::env::consts::ARCH.to_string(),
        hz: kernel.hz,
        cpus: std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()),
        memory_bytes: memory,
        os: os.unwrap_or_default(),
        sysctls,
    }
}

/// What the timer model has to know of this machine. Sysctls are left to the model: a run's network namespaces start with
/// the kernel's own values, not with the host's.
pub fn for_the_model() -> crate::plan::Machine {
    let kernel = capabilities::kernel();
    crate::plan::Machine { hz: kernel.hz, kernel: kernel.release.parse().ok(), ..crate::plan::Machine::default() }
}

/// The machine of the model engine: the one on which the model was measured.
pub fn reference() -> crate::plan::Machine {
    let machine = crate::engine::model::reference_machine();
    crate::plan::Machine { hz: machine.hz, kernel: machine.kernel.parse().ok(), ..crate::plan::Machine::default() }
}

/// The machine of the virtual-time lab: Debian's source for user-mode Linux, at the tick that it is built with.
pub fn guest() -> crate::plan::Machine {
    crate::plan::Machine { hz: Some(recipe::HZ), kernel: "6.1".parse().ok(), ..crate::plan::Machine::default() }
}

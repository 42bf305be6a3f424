//! What the facts mean for a run. Pure.

use super::facts::Facts;
use crate::host::capabilities::{Installed, Kernel};
use crate::host::iptables::Kind;
use crate::host::programs::Program;
use serde::Serialize;

/// Fewer descriptors than this are worth a line: some scenarios ask for more, and are refused.
const FEW_DESCRIPTORS: u64 = 4_096;

/// How a lab gets its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// With root's own.
    Root,
    /// In a user namespace.
    UserNamespace,
    /// It needs none.
    None,
}

/// One lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabLine {
    /// As in `run --lab`.
    pub name: &'static str,
    /// Whether a run would work.
    pub ok: bool,
    /// Which way it goes.
    pub way: Way,
    /// Why so, or why not.
    pub why: String,
    /// The command that mends a lack.
    pub mend: Option<String>,
}

/// One thing that a run needs or can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Short name, stable: a key in `doctor --json`.
    pub name: &'static str,
    /// Whether it is there.
    pub ok: bool,
    /// Whether no run with `--lab netns` is possible without it.
    pub required: bool,
    /// What was found.
    pub found: String,
    /// The command that mends a lack; `None` where there is none, or nothing to mend.
    pub mend: Option<String>,
}

/// Everything that `doctor` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether scenarios with real sockets can run: the exit code.
    pub able: bool,
    /// The labs.
    pub labs: Vec<LabLine>,
    /// What they need, one line each.
    pub lines: Vec<Line>,
    /// The kernel.
    pub kernel: Kernel,
    /// RabbitMQ, where it is installed.
    pub rabbitmq: Option<Installed>,
    /// Redis, where it is installed.
    pub redis: Option<Installed>,
}

/// Judges.
#[must_use]
pub fn judge(facts: &Facts) -> Answer {
    let lines = lines(facts);
    let netns = netns(facts, &lines);
    Answer {
        able: netns.ok,
        labs: vec![netns, docker(facts), vm(facts)],
        lines,
        kernel: facts.kernel.clone(),
        rabbitmq: facts.rabbitmq.clone(),
        redis: facts.redis.clone(),
    }
}

fn netns(facts: &Facts, lines: &[Line]) -> LabLine {
    let way = if facts.root { Way::Root } else { Way::UserNamespace };
    let lab = |ok, why: String, mend| LabLine { name: "netns", ok, way, why, mend };
    if let Err(refused) = &facts.inside {
        return lab(false, refused.why.clone(), some(&refused.mend));
    }
    if let Some(lack) = lines.iter().find(|line| line.required && !line.ok) {
        return lab(false, format!("{}: {}", lack.name, lack.found), lack.mend.clone());
    }
    let why = match (facts.root, facts.mapped_user) {
        (true, None) => "it has CAP_SYS_ADMIN".to_string(),
        (true, Some(user)) => format!("it has CAP_SYS_ADMIN in a user namespace of user {user}"),
        (false, _) => "an ordinary user is root in a user namespace of the run's own".to_string(),
    };
    lab(true, why, None)
}

fn docker(facts: &Facts) -> LabLine {
    let (ok, why, mend) = match &facts.docker {
        Ok(found) => (true, found.clone(), None),
        Err(refused) => (false, refused.why.clone(), some(&refused.mend)),
    };
    LabLine { name: "docker", ok, way: Way::Root, why, mend }
}

fn vm(facts: &Facts) -> LabLine {
    let vm = &facts.vm;
    let lab = |ok, why: String, mend| LabLine { name: "vm", ok, way: Way::None, why, mend };
    if let Some(why) = &vm.cannot_run {
        // The reason has its mend in it.
        return lab(false, why.clone(), None);
    }
    if let Some(kernel) = &vm.kernel {
        return lab(true, format!("{kernel}, in {}; ptrace works", vm.place), None);
    }
    if let Some(closed) = &vm.closed_cache {
        let why = format!("no virtual-time kernel, and no place for one: {} can't be written", closed.display());
        return lab(false, why, Some("set HOME or XDG_CACHE_HOME to a directory of your own".into()));
    }
    let build = "halfopen vm build".to_string();
    let mend = match &vm.packages[..] {
        [] => build,
        packages => format!("{} && {build}", crate::lab::vm::needs::apt_command(packages)),
    };
    lab(false, format!("no virtual-time kernel in {}", vm.place), Some(mend))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

fn lines(facts: &Facts) -> Vec<Line> {
    let mut lines = Vec::new();
    match &facts.inside {
        Err(refused) => lines.push(line("namespaces", true, Err(refused.why.clone()), &refused.mend)),
        Ok(inside) => {
            lines.push(line("namespaces", true, Ok("PID, mount, IPC, network".into()), ""));
            let tried = [
                ("veth", true, &inside.veth, "links between namespaces", "sudo modprobe veth"),
                (
                    "nftables",
                    true,
                    &inside.nftables,
                    "a table with an owner, counters an element, three hooks",
                    "sudo modprobe nf_tables (or a kernel from 5.12 on with CONFIG_NF_TABLES_INET)",
                ),
                ("sock_diag", true, &inside.sock_diag, "sockets can be looked at", "sudo modprobe tcp_diag"),
                (
                    "tracepoints",
                    false,
                    &inside.tracepoints,
                    "the kernel's own instants of the ends",
                    "run as root; without, ends are polled and lie between two looks",
                ),
                (
                    "netem",
                    false,
                    &inside.netem,
                    "delays and losses",
                    "sudo modprobe sch_netem (or --lab vm, whose kernel has it); no cut needs it, nor loss or rate alone",
                ),
                (
                    "real-time",
                    false,
                    &inside.real_time,
                    "the thread that cuts goes first",
                    "run as root, or allow `rtprio 1`; without, brackets of cuts get wider and say so",
                ),
            ];
            for (name, required, lack, found, mend) in tried {
                lines.push(line(name, required, lack.clone().map_or(Ok(found.to_string()), Err), mend));
            }
        }
    }
    lines.extend([descriptors(facts.descriptors), hz(&facts.kernel)]);
    lines.push(program(Program::RabbitmqServer, facts.rabbitmq.as_ref()));
    lines.push(program(Program::RedisServer, facts.redis.as_ref()));
    let tools = match &facts.iptables[..] {
        [] => Err("not installed: no run needs it but one with --firewall iptables".to_string()),
        kinds => Ok(format!("{}: for run --firewall", kinds.join(", "))),
    };
    lines.push(line("iptables", false, tools, Kind::MEND));
    lines
}

fn line(name: &'static str, required: bool, found: Result<String, String>, mend: &str) -> Line {
    let (ok, found) = match found {
        Ok(found) => (true, found),
        Err(lack) => (false, lack),
    };
    Line { name, ok, required, found, mend: some(mend).filter(|_| !ok) }
}

/// A trial takes a few descriptors in the subject and one in the broker.
fn descriptors(limit: u64) -> Line {
    let found = format!("{limit} a process");
    let found = if limit >= FEW_DESCRIPTORS { Ok(found) } else { Err(found) };
    line(
        "descriptors",
        false,
        found,
        "ulimit -Hn 65536 as root, or LimitNOFILE= of the service, or `nofile` of limits.conf",
    )
}

fn hz(kernel: &Kernel) -> Line {
    let found = match (kernel.hz, &kernel.hz_from) {
        (Some(hz), Some(from)) => Ok(format!("{}, HZ={hz} from {from}", kernel.release)),
        _ => Err(format!("{}, HZ unknown: predictions assume a value and say so", kernel.release)),
    };
    line("kernel", false, found, "sudo modprobe configs (or install the kernel's /boot/config file)")
}

fn program(program: Program, installed: Option<&Installed>) -> Line {
    let found = installed.map_or(Err("not installed".to_string()), |i| {
        Ok(format!("{} {}", i.path.display(), i.version.as_deref().unwrap_or("(version unknown)")))
    });
    line(program.name(), false, found, program.mend())
}

//! Looks at the machine. Takes some tens of milliseconds, and some more for the brokers' versions.

use super::probe::{Inside, PROBE};
use crate::host::capabilities::{Installed, Kernel, kernel};
use crate::host::iptables::Kind;
use crate::host::journal;
use crate::host::process::nofile_within_reach;
use crate::host::programs::Program;
use crate::host::supervise::{InitError, Supervise, UserNamespace, has_sys_admin, supervise};
use crate::host::userns::mapped_user;
use crate::lab::docker;
use crate::lab::vm::{Cache, VmError, needs, recipe};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

/// Descriptors that a process of a run asks for.
const DESCRIPTORS: u64 = 65_536;

/// Memory of a guest in MiB.
const GUEST_MIB: u32 = 1024;

/// Why no namespaces could be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What is the case.
    pub why: String,
    /// What mends it.
    pub mend: String,
}

/// What concerns the virtual-time guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmFacts {
    /// The kernel that would be booted, in words.
    pub kernel: Option<String>,
    /// Where it was looked for, or why it can't be.
    pub place: String,
    /// What stands against running a guest: ptrace, room for its memory, a temporary directory, the processor.
    pub cannot_run: Option<String>,
    /// Packages that a build would need.
    pub packages: Vec<String>,
    /// The directory of the cache, where it can't be written.
    pub closed_cache: Option<PathBuf>,
}

/// All that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Whether the process has `CAP_SYS_ADMIN`, as root outside of a container has.
    pub root: bool,
    /// The user of the machine whose user namespace this process is in already.
    pub mapped_user: Option<u32>,
    /// What was found in a run's namespaces, or why there are none.
    pub inside: Result<Inside, Refused>,
    /// Descriptors that a process may have.
    pub descriptors: u64,
    /// The kernel.
    pub kernel: Kernel,
    /// RabbitMQ, where it is installed.
    pub rabbitmq: Option<Installed>,
    /// Redis, where it is installed.
    pub redis: Option<Installed>,
    /// The kinds of iptables that are installed, for `run --firewall`.
    pub iptables: Vec<String>,
    /// The Docker engine in words, or why it can't carry the docker lab.
    pub docker: Result<String, Refused>,
    /// The virtual-time guest.
    pub vm: VmFacts,
}

/// Looks. Call it before any other thread exists: it supervises a probe as a run is supervised.
#[must_use]
pub fn gather() -> Facts {
    let inside = inside();
    Facts {
        root: has_sys_admin(),
        mapped_user: mapped_user(),
        inside,
        descriptors: nofile_within_reach(DESCRIPTORS),
        kernel: kernel(),
        rabbitmq: Program::Epmd.locate().and_then(|_| Installed::find(Program::RabbitmqServer)),
        redis: Installed::find(Program::RedisServer),
        iptables: Kind::ALL.iter().filter(|kind| kind.is_installed()).map(ToString::to_string).collect(),
        docker: docker(),
        vm: vm(),
    }
}

/// The way that a run goes, with a probe in place of the engine.
fn inside() -> Result<Inside, Refused> {
    let unknown = |why: String| Refused { why, mend: String::new() };
    let mut answer = answer_file().map_err(|e| unknown(format!("memory for the probe's answer: {e}")))?;
    let state_dir = journal::state_dir();
    let supervised = supervise(&Supervise {
        run_id: format!("doctor-{}", std::process::id()),
        program: "/proc/self/exe".into(),
        args: vec![PROBE.into(), answer.as_raw_fd().to_string().into()],
        out_dir: state_dir.clone(),
        keep: Vec::new(),
        user_namespace: UserNamespace::Auto,
        state_dir,
    });
    let ended = supervised.map_err(refused)?;
    let mut text = String::new();
    let read = answer.rewind().and_then(|()| answer.read_to_string(&mut text));
    read.and_then(|_| Ok(serde_json::from_str(&text)?))
        .map_err(|e| unknown(format!("the probe ended with code {} and said nothing ({e})", ended.code)))
}

/// A nameless file that stays open across `exec`: nothing of it is left, however this process ends.
fn answer_file() -> io::Result<File> {
    // SAFETY: a NUL-terminated name and no flags; the descriptor that comes back is nobody else's.
    unsafe {
        match libc::memfd_create(c"probe".as_ptr(), 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

fn refused(error: InitError) -> Refused {
    match error {
        InitError::UserNamespace(refusal) => Refused { why: refusal.why(), mend: refusal.mend() },
        InitError::Namespaces { mend, source } => Refused { why: format!("no namespaces: {source}"), mend },
        InitError::Journal(error) => {
            Refused { why: error.to_string(), mend: "name a directory of your own in HALFOPEN_STATE_DIR".into() }
        }
        other => Refused { why: other.to_string(), mend: String::new() },
    }
}

/// What a run would find; its words end with the mend.
fn docker() -> Result<String, Refused> {
    docker::look().map_err(|e| {
        let text = e.to_string();
        let (why, mend) = text.rsplit_once("; ").unwrap_or((&text, ""));
        Refused { why: why.to_string(), mend: mend.to_string() }
    })
}

fn vm() -> VmFacts {
    let cannot_run = needs::check_run(GUEST_MIB).err().map(|e| match e {
        VmError::Unfit(why) => why,
        other => other.to_string(),
    });
    let packages = if recipe::find_source(None).is_some() { Vec::new() } else { vec!["linux-source-6.1".to_string()] };
    let packages = packages.into_iter().chain(needs::missing_packages()).collect();
    let cache = match Cache::of_user() {
        Ok(cache) => cache,
        Err(error) => return VmFacts { place: error.to_string(), cannot_run, packages, ..VmFacts::default() },
    };
    let kernel = cache.kernel(None).ok().map(|kernel| match kernel.info {
        Some(info) => format!("Linux {}, HZ {}", info.release, info.hz),
        None => kernel.path.display().to_string(),
    });
    VmFacts {
        kernel,
        place: cache.root().display().to_string(),
        cannot_run,
        packages,
        closed_cache: closed(cache.root()),
    }
}

/// The nearest directory that exists on the way to a place, where it can't be written.
fn closed(place: &std::path::Path) -> Option<PathBuf> {
    let nearest = place.ancestors().find(|p| p.is_dir())?;
    nix::unistd::access(nearest, nix::unistd::AccessFlags::W_OK).is_err().then(|| nearest.to_path_buf())
}

//! PID 1 of a run: prepares its namespaces, starts the engine, reaps orphans, ends when the engine or the outer process
//! does.
//!
//! Kept tiny, since its death is the death of everything inside. What is left out: starting this process and its
//! namespaces, which `host::supervise` does from outside.

use crate::host::netlink;
use crate::host::netns::NetNs;
use crate::host::process::{Launch, Process, Stream};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, setsid};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

pub use crate::host::supervise::{Ended, InitError, Supervise, UserNamespace, supervise};

/// The environment variable in which the engine finds its private, empty directory.
pub const WORK_DIR_VARIABLE: &str = "HALFOPEN_WORK_DIR";

/// The environment variable in which the engine finds the run's id.
pub const RUN_ID_VARIABLE: &str = "HALFOPEN_RUN_ID";

/// Where preparing a run's namespaces failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Executing `__init`.
    Exec,
    /// Private mounts, `/proc`, the tmpfs of the working directory.
    Mounts,
    /// The loopback of the run's own network namespace.
    Network,
    /// Starting the program.
    Start,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Exec, Self::Mounts, Self::Network, Self::Start];

    fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Mounts => "mounts",
            Self::Network => "network",
            Self::Start => "start",
        }
    }

    pub(super) fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|s| s.name() == name).unwrap_or(Self::Exec)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the outer process tells init in its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InitArgs {
    pub run_id: String,
    pub lifeline: RawFd,
    pub report: RawFd,
    pub keep: Vec<PathBuf>,
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl InitArgs {
    /// `halfopen __init RUN_ID LIFELINE REPORT [KEEP…] -- PROGRAM [ARG…]`.
    pub(super) fn to_argv(&self) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec!["halfopen".into(), "__init".into(), self.run_id.clone().into()];
        argv.push(self.lifeline.to_string().into());
        argv.push(self.report.to_string().into());
        argv.extend(self.keep.iter().map(|p| p.clone().into_os_string()));
        argv.push("--".into());
        argv.push(self.program.clone().into());
        argv.extend(self.args.iter().cloned());
        argv
    }

    /// The same from the arguments after `__init`.
    pub(super) fn from_args(args: &[OsString]) -> Option<Self> {
        let number = |at: usize| args.get(at)?.to_str()?.parse().ok();
        let dashes = args.iter().skip(3).position(|a| a == "--")? + 3;
        Some(Self {
            run_id: args.first()?.to_str()?.to_string(),
            lifeline: number(1)?,
            report: number(2)?,
            keep: args[3..dashes].iter().map(PathBuf::from).collect(),
            program: args.get(dashes + 1)?.into(),
            args: args[dashes + 2..].to_vec(),
        })
    }
}

/// Whether a process with this command line is the init of this run, or the engine of one that has none
/// (`halfopen __engine JOB RUN_ID`).
#[must_use]
pub fn is_init_of(command_line: &[String], run_id: &str) -> bool {
    let word = |at: usize, is: &str| command_line.get(at).is_some_and(|a| a == is);
    (word(1, "__init") && word(2, run_id)) || (word(1, "__engine") && word(3, run_id))
}

/// The hidden `__init`: `args` are those after the word. Returns the process's exit code.
#[must_use]
pub fn init_main(args: &[OsString]) -> i32 {
    let Some(args) = InitArgs::from_args(args).filter(|_| getpid() == Pid::from_raw(1)) else {
        eprintln!("halfopen __init is started by halfopen itself, as PID 1 of a run");
        return 2;
    };
    // SAFETY: both numbers come from the outer process, which made them for this one; nothing else owns them here.
    let (lifeline, report) = unsafe { (OwnedFd::from_raw_fd(args.lifeline), OwnedFd::from_raw_fd(args.report)) };
    match prepare(&args) {
        Ok((signals, engine)) => {
            drop(report);
            watch(&signals, &lifeline, &engine)
        }
        Err((stage, error)) => {
            // With no reader the outer process is gone, and so is everybody who could read it.
            let _ = writeln!(File::from(report), "{stage}\t{error}");
            1
        }
    }
}

type Failed = (Stage, String);

fn prepare(args: &InitArgs) -> Result<(SignalFd, Process), Failed> {
    let failed = |stage: Stage, what: String| move |e: &dyn fmt::Display| (stage, format!("{what}: {e}"));
    let exec = failed(Stage::Exec, "can't set init up".into());
    // Again, since exec clears it for some programs. The lifeline is looked at in `watch` and covers the time before.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| exec(&e))?;
    for fd in [args.lifeline, args.report] {
        // SAFETY: a number and a flag.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // No controlling terminal: Ctrl-C reaches the outer process alone, which forwards it once.
    let _ = setsid();
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM] {
        set.add(signal);
    }
    set.thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(|e| exec(&e))?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(|e| exec(&e))?;
    let work = prepare_mounts(&args.keep).map_err(|(what, e)| failed(Stage::Mounts, what)(&e))?;
    NetNs::current("run")
        .and_then(|ns| netlink::loopback_up(&ns))
        .map_err(|e| failed(Stage::Network, "can't bring the loopback up".into())(&e))?;
    let mut launch = Launch::new(&args.program).args(args.args.iter().cloned());
    launch.env =
        vec![(WORK_DIR_VARIABLE.into(), work.into_os_string()), (RUN_ID_VARIABLE.into(), args.run_id.clone().into())];
    (launch.stdin, launch.stdout, launch.stderr) = (Stream::Inherit, Stream::Inherit, Stream::Inherit);
    let engine = launch.spawn().map_err(|e| (Stage::Start, e.to_string()))?;
    Ok((signals, engine))
}

/// Private mounts, a fresh `/proc`, and a tmpfs over a directory that nobody in the run needs. Returns that directory.
fn prepare_mounts(keep: &[PathBuf]) -> Result<PathBuf, (String, Errno)> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|e| ("can't make the mounts private".to_string(), e))?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("proc"), "/proc", Some("proc"), safe | MsFlags::MS_NOEXEC, none).map_err(|e| {
        let hint = "can't mount a fresh /proc (in a container, unmask it with `--security-opt systempaths=unconfined`)";
        (hint.to_string(), e)
    })?;
    let work =
        work_dir(keep, Path::is_dir).ok_or(("no directory is free for the working files".into(), Errno::ENOENT))?;
    mount(Some("tmpfs"), work, Some("tmpfs"), safe, Some("size=4g,mode=0700"))
        .map_err(|e| (format!("can't mount a tmpfs on {}", work.display()), e))?;
    Ok(work.to_path_buf())
}

/// The first directory of the system that exists and under which nothing lies that must stay visible.
fn work_dir(keep: &[PathBuf], exists: impl Fn(&Path) -> bool) -> Option<&'static Path> {
    ["/run/lock", "/mnt", "/media", "/srv", "/run", "/opt", "/var/tmp", "/tmp"]
        .map(Path::new)
        .into_iter()
        .find(|dir| exists(dir) && !keep.iter().any(|k| k.starts_with(dir)))
}

/// Until the engine ends (its exit code), or the outer process does.
fn watch(signals: &SignalFd, lifeline: &OwnedFd, engine: &Process) -> i32 {
    let engine_pid = Pid::from_raw(i32::try_from(engine.pid()).unwrap_or(0));
    loop {
        let mut fds =
            [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(lifeline.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 5,
        }
        if fds[1].any().unwrap_or(false) {
            return 137;
        }
        while let Ok(Some(info)) = signals.read_signal() {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) | Err(_) => {}
                // ESRCH: it has just ended, and the reaping below says how.
                Ok(signal) => drop(engine.signal(signal)),
            }
        }
        while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            match status {
                WaitStatus::StillAlive => break,
                WaitStatus::Exited(pid, code) if pid == engine_pid => return code,
                WaitStatus::Signaled(pid, signal, _) if pid == engine_pid => return 128 + signal as i32,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_round_trips_and_names_the_run() {
        let args = InitArgs {
            run_id: "r1".into(),
            lifeline: 5,
            report: 7,
            keep: vec!["/a b".into(), "/c".into()],
            program: "/bin/x".into(),
            args: vec!["--".into(), "y".into()],
        };
        let argv = args.to_argv();
        assert_eq!(InitArgs::from_args(&argv[2..]), Some(args));
        let line: Vec<String> = argv.iter().map(|a| a.to_str().unwrap().to_string()).collect();
        assert!(is_init_of(&line, "r1"));
        assert!(!is_init_of(&line, "r"));
        assert!(!is_init_of(&["vim".into(), "x".into(), "__init".into(), "r1".into()], "r1"));
    }

    #[test]
    fn the_working_directory_hides_nothing_that_is_needed() {
        let all = |_: &Path| true;
        assert_eq!(work_dir(&[], all), Some(Path::new("/run/lock")));
        let keep = ["/run/lock/out".into(), "/mnt".into()];
        assert_eq!(work_dir(&keep, all), Some(Path::new("/media")));
        assert_eq!(work_dir(&[], |p| p == Path::new("/tmp")), Some(Path::new("/tmp")));
        assert_eq!(work_dir(&["/tmp/x".into()], |p| p == Path::new("/tmp")), None);
    }

    #[test]
    fn started_by_hand_it_refuses() {
        assert_eq!(init_main(&[]), 2);
    }

    #[test]
    fn stages_round_trip() {
        for stage in Stage::ALL {
            assert_eq!(Stage::from_name(stage.name()), stage);
        }
    }
}

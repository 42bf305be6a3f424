//! The outer process of a run: starts `__init` as PID 1 of fresh namespaces, forwards signals, waits.
//!
//! Everything that a run creates lives below that PID 1, so its end, however it comes, is the end of everything: the
//! kernel kills a PID namespace with its init. Killed itself, the outer process takes init along by two ways, the
//! parent-death signal and the *lifeline*, a pipe whose writing end nobody else holds. The second covers the moments
//! before the first is set. Init does nothing before the journal names it: it waits for a byte on the lifeline.
//!
//! What is left out: what runs inside (`host::init` starts it), and the words and exit code for the user.

use crate::host::init::{InitArgs, Stage};
use crate::host::journal::{Entry, Journal, JournalError};
use crate::host::process::pidfd_signal;
use crate::host::procfs;
use crate::host::userns::{Evidence, Hand, Refusal, Step, diagnose};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{getegid, geteuid, pipe2};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Whether an ordinary user may be given a user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserNamespace {
    /// When the process lacks `CAP_SYS_ADMIN`.
    Auto,
    /// Never: then root is needed.
    Never,
}

/// What to supervise.
#[derive(Debug, Clone)]
pub struct Supervise {
    /// The run's id: letters, digits, `-`, `_`, `.`. It stands in init's command line, which is how `clean` knows it.
    pub run_id: String,
    /// The program that runs inside; `/proc/self/exe` for the harness itself.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The run directory, for the journal. It stays visible and writable inside.
    pub out_dir: PathBuf,
    /// Further paths that must stay visible inside.
    pub keep: Vec<PathBuf>,
    /// Whether an ordinary user may be given a user namespace.
    pub user_namespace: UserNamespace,
    /// Where the journal is; see [`crate::host::journal::state_dir`].
    pub state_dir: PathBuf,
}

/// How a supervised run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The program's exit code; 128 + n when signal n ended it; 137 when init was killed.
    pub code: i32,
    /// Whether SIGINT, SIGTERM or SIGHUP had been received.
    pub interrupted: bool,
    /// Whether a second signal made the supervisor kill everything.
    pub killed: bool,
}

/// Why nothing could be supervised. Nothing is left behind by any of these.
#[derive(Debug, Error)]
pub enum InitError {
    /// Bad run id.
    #[error("`{0}` can't be a run id: letters, digits, `-`, `_` and `.` only")]
    RunId(String),
    /// No `CAP_SYS_ADMIN`, and no user namespace wanted.
    #[error("namespaces need root (CAP_SYS_ADMIN) here; run it as root, or allow a user namespace")]
    NotRoot,
    /// The kernel or its security module refuses user namespaces to this user.
    #[error("{0}")]
    UserNamespace(Refusal),
    /// The kernel refuses the other namespaces.
    #[error("can't create the run's namespaces: {source}; {mend}")]
    Namespaces {
        /// What mends it.
        mend: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// PID 1 of the run could not prepare its place.
    #[error("can't prepare the run's namespaces ({stage}): {message}")]
    Setup {
        /// Where it failed.
        stage: Stage,
        /// Why.
        message: String,
    },
    /// The journal could not be written, so nothing was created.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Anything else from the kernel.
    #[error("can't {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> InitError {
    move |e| InitError::Os { what, source: e.into() }
}

/// Runs a program inside fresh PID, mount, IPC and network namespaces and waits for its end.
///
/// Call it before any other thread exists: SIGINT, SIGTERM and SIGHUP are taken over by blocking them in the calling
/// thread. The first of them is forwarded, the second kills everything inside.
///
/// # Errors
/// See [`InitError`]; after any of them nothing is left behind.
pub fn supervise(spec: &Supervise) -> Result<Ended, InitError> {
    check_run_id(&spec.run_id)?;
    let user_namespace = match (has_sys_admin(), spec.user_namespace) {
        (true, _) => false,
        (false, UserNamespace::Auto) => true,
        (false, UserNamespace::Never) => return Err(InitError::NotRoot),
    };
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).map_err(os("block signals"))?;
    let result = supervise_with(spec, user_namespace, &signals);
    let _ = before.thread_set_mask();
    result
}

fn supervise_with(spec: &Supervise, user_namespace: bool, signals: &SigSet) -> Result<Ended, InitError> {
    let signal_fd = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC).map_err(os("take signals over"))?;
    let journal = Journal::open(&spec.state_dir)?;
    let me = procfs::identity(std::process::id())
        .ok_or_else(|| InitError::Os { what: "read /proc/self/stat", source: io::ErrorKind::NotFound.into() })?;
    let mut entry = Entry::new(&spec.run_id, me, &spec.out_dir);
    journal.write(&entry)?;
    let started = start(spec, user_namespace).and_then(|init| {
        entry.init = procfs::identity(init.pid);
        journal.write(&entry)?;
        Ok(init)
    });
    let ended = started.and_then(|mut init| {
        init.go()?;
        init.wait(&signal_fd)
    });
    let struck = journal.strike(&spec.run_id);
    let ended = ended?;
    struck?;
    Ok(ended)
}

/// PID 1 of a run, seen from outside. Dropped before its end, it is killed with everything inside.
struct Init {
    pid: u32,
    pidfd: OwnedFd,
    lifeline: File,
    report: File,
    user_namespace: bool,
    reaped: bool,
}

fn start(spec: &Supervise, user_namespace: bool) -> Result<Init, InitError> {
    let (lifeline_read, lifeline_write) = pipe2(OFlag::O_CLOEXEC).map_err(os("make a pipe"))?;
    let (report_read, report_write) = pipe2(OFlag::O_CLOEXEC).map_err(os("make a pipe"))?;
    let mut keep = spec.keep.clone();
    keep.push(spec.out_dir.clone());
    let args = InitArgs {
        run_id: spec.run_id.clone(),
        lifeline: lifeline_read.as_raw_fd(),
        report: report_write.as_raw_fd(),
        keep: keep.iter().map(|p| std::path::absolute(p).unwrap_or_else(|_| p.clone())).collect(),
        program: spec.program.clone(),
        args: spec.args.clone(),
    };
    // All that exec needs is made before the fork, so that the child only makes system calls.
    let argv: Vec<CString> =
        args.to_argv().iter().map(|a| CString::new(a.as_bytes())).collect::<Result<_, _>>().map_err(|_| {
            InitError::Os { what: "pass an argument with a NUL", source: io::ErrorKind::InvalidInput.into() }
        })?;
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let fds = InitFds {
        lifeline: lifeline_read.as_raw_fd(),
        lifeline_writer: lifeline_write.as_raw_fd(),
        report: report_write.as_raw_fd(),
    };

    let mut flags =
        libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_PIDFD;
    if user_namespace {
        flags |= libc::CLONE_NEWUSER;
    }
    let mut pidfd: RawFd = -1;
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of everything and runs on in the same function.
    // It only makes system calls on data prepared above, then execs or exits. `pidfd` outlives the call.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags | libc::SIGCHLD),
            std::ptr::null::<libc::c_void>(),
            &raw mut pidfd,
            std::ptr::null::<libc::c_void>(),
            std::ptr::null::<libc::c_void>(),
        )
    };
    if pid == 0 {
        become_init(&pointers, fds);
    }
    if pid < 0 {
        let source = io::Error::last_os_error();
        return Err(if user_namespace {
            refused(Step::Clone, &source)
        } else {
            let closed = Evidence::read().closed_kinds.first().map(|kind| Hand::OtherLimit(kind).mend(Path::new("")));
            let mend = closed.unwrap_or_else(|| {
                "in a container, start it with `--privileged`; else the kernel lacks CONFIG_PID_NS or CONFIG_NET_NS"
                    .into()
            });
            InitError::Namespaces { mend, source }
        });
    }
    // SAFETY: the kernel has just stored a fresh descriptor there.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let init = Init {
        pid: u32::try_from(pid).unwrap_or(0),
        pidfd,
        lifeline: lifeline_write.into(),
        report: report_read.into(),
        user_namespace,
        reaped: false,
    };
    if user_namespace {
        // From outside and before exec: a program that starts with an unmapped user loses its capabilities.
        map_to_root(init.pid).map_err(|e| refused(Step::Map, &e))?;
    }
    Ok(init)
}

#[derive(Clone, Copy)]
struct InitFds {
    lifeline: RawFd,
    lifeline_writer: RawFd,
    report: RawFd,
}

/// In the child: waits for the word to begin, dies with its parent, and becomes `__init`.
fn become_init(argv: &[*const libc::c_char], fds: InitFds) -> ! {
    const NO_EXEC: &[u8] = b"exec\t/proc/self/exe can't be executed\n";
    let mut byte = 0u8;
    // SAFETY: system calls only, on descriptors and strings that live in the copied memory; argv is NULL-terminated.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The copy of the writing end would keep the lifeline open after the parent's death.
        libc::close(fds.lifeline_writer);
        if libc::read(fds.lifeline, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(137);
        }
        libc::fcntl(fds.lifeline, libc::F_SETFD, 0);
        libc::fcntl(fds.report, libc::F_SETFD, 0);
        libc::execv(c"/proc/self/exe".as_ptr(), argv.as_ptr());
        libc::write(fds.report, NO_EXEC.as_ptr().cast(), NO_EXEC.len());
        libc::_exit(127)
    }
}

/// The one mapping that an ordinary user may write: the own user and group become root inside.
fn map_to_root(pid: u32) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    std::fs::write(format!("/proc/{pid}/uid_map"), format!("0 {} 1", geteuid()))?;
    std::fs::write(format!("/proc/{pid}/gid_map"), format!("0 {} 1", getegid()))
}

impl Init {
    /// Lets init begin. It has created nothing yet.
    fn go(&mut self) -> Result<(), InitError> {
        match self.lifeline.write_all(b"g") {
            // It is dead already: its own report, or the lack of one, says why.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(os("let init begin")(e)),
            _ => Ok(()),
        }
    }

    fn wait(&mut self, signals: &SignalFd) -> Result<Ended, InitError> {
        let (mut interrupted, mut killed) = (false, false);
        loop {
            let mut fds =
                [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(os("wait for the run")(e)),
            }
            let ended = fds[0].any().unwrap_or(false);
            if fds[1].any().unwrap_or(false)
                && let Ok(Some(info)) = signals.read_signal()
            {
                let signal = match Signal::try_from(info.ssi_signo as i32) {
                    _ if interrupted => Signal::SIGKILL,
                    Ok(Signal::SIGINT) => Signal::SIGINT,
                    _ => Signal::SIGTERM,
                };
                killed |= interrupted;
                interrupted = true;
                // Only ESRCH can come back, and then the next turn reaps it.
                let _ = pidfd_signal(self.pidfd.as_fd(), signal);
            }
            if ended {
                let code = self.reap()?;
                self.raise_report()?;
                return Ok(Ended { code, interrupted, killed });
            }
        }
    }

    fn reap(&mut self) -> Result<i32, InitError> {
        let status = waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED).map_err(os("reap init"))?;
        self.reaped = true;
        Ok(match status {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            _ => 128,
        })
    }

    /// Init writes one line when it can't prepare its place, and nothing otherwise.
    fn raise_report(&mut self) -> Result<(), InitError> {
        let mut text = String::new();
        self.report.read_to_string(&mut text).map_err(os("read init's report"))?;
        let Some((stage, message)) = text.trim_end().split_once('\t') else {
            return Ok(());
        };
        let stage = Stage::from_name(stage);
        let message = message.to_string();
        if self.user_namespace && stage == Stage::Mounts && Evidence::read().apparmor_switch == Some(1) {
            return Err(refused(Step::Inside, &io::Error::other(message)));
        }
        Err(InitError::Setup { stage, message })
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = pidfd_signal(self.pidfd.as_fd(), Signal::SIGKILL);
            let _ = self.reap();
        }
    }
}

/// The hidden `__supervise RUN_ID OUT_DIR -- PROGRAM [ARG…]`: any program in a run's namespaces, to look around in them
/// and to test them. `args` are those after the word. Returns the process's exit code.
#[must_use]
pub fn supervise_main(args: &[OsString]) -> i32 {
    let [run_id, out_dir, dashes, program, rest @ ..] = args else {
        eprintln!("usage: halfopen __supervise RUN_ID OUT_DIR -- PROGRAM [ARG…]");
        return 2;
    };
    if dashes != "--" {
        eprintln!("usage: halfopen __supervise RUN_ID OUT_DIR -- PROGRAM [ARG…]");
        return 2;
    }
    let spec = Supervise {
        run_id: run_id.to_string_lossy().into_owned(),
        program: program.into(),
        args: rest.to_vec(),
        out_dir: out_dir.into(),
        keep: Vec::new(),
        user_namespace: UserNamespace::Auto,
        state_dir: crate::host::journal::state_dir(),
    };
    match supervise(&spec) {
        Ok(ended) => ended.code,
        Err(e) => {
            eprintln!("halfopen: {e}");
            match e {
                InitError::RunId(_) => 2,
                InitError::NotRoot | InitError::UserNamespace(_) | InitError::Namespaces { .. } => 3,
                _ => 5,
            }
        }
    }
}

fn check_run_id(id: &str) -> Result<(), InitError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() || id.starts_with('.') || !id.chars().all(good) {
        return Err(InitError::RunId(id.to_string()));
    }
    Ok(())
}

/// Whether this process has `CAP_SYS_ADMIN` (number 21 of `CapEff`), as root outside of a container has.
#[must_use]
pub fn has_sys_admin() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caps = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap_or("0");
    u64::from_str_radix(caps.trim(), 16).unwrap_or(0) & (1 << 21) != 0
}

fn refused(step: Step, error: &io::Error) -> InitError {
    InitError::UserNamespace(diagnose(step, error, &Evidence::read()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_can_not_leave_its_directory() {
        assert!(check_run_id("20261130-a_b.c").is_ok());
        for bad in ["", ".", "../x", "a/b", "a b", "ü"] {
            assert!(matches!(check_run_id(bad), Err(InitError::RunId(_))), "{bad}");
        }
    }
}

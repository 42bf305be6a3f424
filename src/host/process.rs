//! Child processes: started in a namespace, watched through a pidfd, ended by number, measured.
//!
//! The only place besides `host::init` that starts a program. What is left out: what the programs are for, and any
//! search by name; a process is only ever signalled through the descriptor that was opened when it was started.

use crate::host::netns::NetNs;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid, setsid};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Where one of the three standard streams goes.
#[derive(Debug, Clone, Default)]
pub enum Stream {
    /// `/dev/null`.
    #[default]
    Null,
    /// The parent's own.
    Inherit,
    /// A pipe to the parent.
    Pipe,
    /// Appended to a file, which is created.
    File(PathBuf),
    /// A descriptor that is open already, such as a connection.
    Fd(std::sync::Arc<OwnedFd>),
}

/// What to start and how. Fill in what differs from [`Launch::new`].
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Additional environment, or all of it with `only_env`.
    pub env: Vec<(String, OsString)>,
    /// Whether the parent's environment is withheld.
    pub only_env: bool,
    /// Working directory; `None` is the parent's.
    pub cwd: Option<PathBuf>,
    /// Network namespace that the process starts in; `None` is that of the calling thread.
    pub netns: Option<NetNs>,
    /// Standard input.
    pub stdin: Stream,
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
    /// `RLIMIT_NOFILE` to ask for; without the right to raise the hard limit, as much of it as there is.
    pub nofile: Option<u64>,
    /// A session of its own: no terminal, no Ctrl-C.
    pub own_session: bool,
    /// SIGKILL when the starting process dies.
    pub die_with_parent: bool,
    /// The user and the group that it becomes; `None` stays who the starting process is.
    pub user: Option<(u32, u32)>,
    /// What it gets instead of SIGKILL, so that it can still put away what the kernel would not.
    pub parent_death: Signal,
}

impl Launch {
    /// Inherits the environment, has its own session, dies with its parent, and is silent.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            only_env: false,
            cwd: None,
            netns: None,
            stdin: Stream::Null,
            stdout: Stream::Null,
            stderr: Stream::Null,
            nofile: None,
            own_session: true,
            die_with_parent: true,
            user: None,
            parent_death: Signal::SIGKILL,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts it.
    ///
    /// The kernel's parent-death signal follows the *thread* that forked, so the fork is made on one thread that lives
    /// as long as this process, whoever calls. With no `netns` the namespace of the *calling* thread is used.
    ///
    /// # Errors
    /// When the program can't be executed, a stream can't be opened or the namespace can't be entered; the message
    /// names the program.
    pub fn spawn(mut self) -> io::Result<Process> {
        if self.netns.is_none() {
            self.netns = Some(NetNs::current("of the caller")?);
        }
        let name = self.program.display().to_string();
        spawn_on_the_lasting_thread(self).map_err(|e| io::Error::new(e.kind(), format!("can't start {name}: {e}")))
    }

    fn spawn_here(mut self) -> io::Result<Process> {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if self.only_env {
            command.env_clear();
        }
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.stdin(self.stdin.open()?).stdout(self.stdout.open()?).stderr(self.stderr.open()?);
        let parent = getpid();
        // Entering the namespace that one is in already takes a privilege, too.
        if self.netns.as_ref().is_some_and(|ns| ns.is_current()) {
            self.netns = None;
        }
        let (netns, nofile) = (self.netns.clone(), self.nofile);
        let (session, die, death) = (self.own_session, self.die_with_parent, self.parent_death);
        // SAFETY: between fork and exec only system calls are made; nothing allocates or takes a lock.
        unsafe {
            command.pre_exec(move || {
                if die {
                    nix::sys::prctl::set_pdeathsig(death)?;
                    // The parent may have died before the line above: then the signal will never come.
                    if getppid() != parent {
                        return Err(Errno::ESRCH.into());
                    }
                }
                if session {
                    setsid()?;
                }
                nix::sys::signal::sigprocmask(
                    nix::sys::signal::SigmaskHow::SIG_SETMASK,
                    Some(&nix::sys::signal::SigSet::empty()),
                    None,
                )?;
                if let Some(ns) = &netns {
                    setns(ns.as_fd(), CloneFlags::CLONE_NEWNET)?;
                }
                if let Some(n) = nofile {
                    raise_nofile(n)?;
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        let pidfd = pidfd_open(child.id())?;
        Ok(Process { child, pidfd })
    }
}

impl Stream {
    fn open(&self) -> io::Result<Stdio> {
        Ok(match self {
            Self::Null => Stdio::null(),
            Self::Inherit => Stdio::inherit(),
            Self::Pipe => Stdio::piped(),
            Self::File(path) => File::options().create(true).append(true).open(path)?.into(),
            Self::Fd(fd) => fd.try_clone()?.into(),
        })
    }
}

type Job = Box<dyn FnOnce() + Send>;

fn spawn_on_the_lasting_thread(launch: Launch) -> io::Result<Process> {
    static SPAWNER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = channel::<Job>();
        std::thread::spawn(move || {
            for job in inbox {
                job();
            }
        });
        Mutex::new(jobs)
    });
    let (answer, result) = channel();
    let job: Job = Box::new(move || {
        // A caller that went away has no use for the answer; dropping the process kills it.
        let _ = answer.send(launch.spawn_here());
    });
    spawner.lock().map_err(|_| gone())?.send(job).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// A process that this one started. Dropped while it runs, it is killed and reaped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl Process {
    /// Its process id, as this PID namespace counts.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A descriptor that names exactly this process and polls readable when it ends.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Its standard input, once, where that is a pipe.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, once, where that is a pipe.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Its standard error, once, where that is a pipe.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// How it ended, without waiting.
    ///
    /// # Errors
    /// When somebody else reaped it.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// How it ended, waiting at most `limit`; `None` when it still runs.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn wait_at_most(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(status));
        }
        let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => self.child.try_wait(),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Sends a signal to this process and no other, even if its number was given away since.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_signal(self.pidfd.as_fd(), signal)
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        match self.signal(Signal::SIGKILL) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e),
            _ => {}
        }
        self.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.kill();
        }
    }
}

/// Calls a function from a thread of its own when a process ends, without reaping it. The thread lives until then.
///
/// # Errors
/// `ESRCH` when there is no such process; when no thread can be started.
pub fn on_end(pid: u32, call: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let fd = pidfd_open(pid)?;
    let wait = move || {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
        call();
    };
    std::thread::Builder::new().name(format!("end of {pid}")).spawn(wait).map(drop)
}

/// Opens a pidfd.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a descriptor that nobody else owns.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above. A descriptor fits.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Another process's descriptor, as a duplicate of our own. It shares the open file: close it at once, and change nothing
/// on it.
///
/// # Errors
/// `EBADF` when there is no such descriptor, `EPERM` without the right to trace the process.
pub fn descriptor_of(pidfd: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes three integers and returns a descriptor that nobody else owns.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above. A descriptor fits.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sends a signal through a pidfd.
///
/// # Errors
/// `ESRCH` when the process is gone, `EPERM` when it is not ours.
pub fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo is allowed; the descriptor is borrowed for the call.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal as i32, no_info, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits at most `limit` for the process of a pidfd to end; whether it did.
///
/// # Errors
/// When the descriptor can't be polled.
pub fn pidfd_wait(pidfd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(pidfd, PollFlags::POLLIN)];
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    Ok(poll(&mut fds, PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX))? > 0)
}

/// Raises the calling process's `RLIMIT_NOFILE` to `wanted`, or as far as it may. Returns the soft limit reached.
///
/// # Errors
/// When not even the soft limit can be set.
pub fn raise_nofile(wanted: u64) -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if wanted > hard && setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_ok() {
        return Ok(wanted);
    }
    let soft = wanted.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    Ok(soft)
}

/// The same for another process: never lowers what it has, and never fails; it may have ended.
pub fn raise_nofile_of(pid: u32, wanted: u64) {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return };
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure that the last pointer names, and reads those that the third names.
    unsafe {
        if libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut now) != 0 || now.rlim_cur >= wanted {
            return;
        }
        let all = libc::rlimit { rlim_cur: wanted, rlim_max: now.rlim_max.max(wanted) };
        if libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const all, std::ptr::null_mut()) != 0 {
            let most = libc::rlimit { rlim_cur: wanted.min(now.rlim_max), rlim_max: now.rlim_max };
            libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const most, std::ptr::null_mut());
        }
    }
}

/// The most descriptors that a child of this process can be given: its hard limit, or `wanted` where it may raise that,
/// which is tried and taken back.
#[must_use]
pub fn nofile_within_reach(wanted: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if wanted <= hard || setrlimit(Resource::RLIMIT_NOFILE, soft, wanted).is_err() {
        return hard;
    }
    // Lowering is always allowed.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    wanted
}

/// Runs a short program to its end and returns what it wrote to standard output and standard error.
///
/// # Errors
/// When it can't be started, or does not end within `limit` (then it is killed).
pub fn output(program: &Path, args: &[&str], limit: Duration) -> io::Result<(ExitStatus, String)> {
    output_of(Launch::new(program).args(args.iter().copied()), limit)
}

/// The same of a program that is started in a certain way.
///
/// # Errors
/// As [`output`].
pub fn output_of(mut launch: Launch, limit: Duration) -> io::Result<(ExitStatus, String)> {
    let program = launch.program.clone();
    launch.stdout = Stream::Pipe;
    launch.stderr = Stream::Pipe;
    let mut process = launch.spawn()?;
    let (out, err) = (process.take_stdout(), process.take_stderr());
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut out) = out {
            let _ = io::Read::read_to_end(&mut out, &mut text);
        }
        if let Some(mut err) = err {
            let _ = io::Read::read_to_end(&mut err, &mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let Some(status) = process.wait_at_most(limit)? else {
        process.kill()?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} did not end in {limit:?}", program.display())));
    };
    Ok((status, reader.join().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_and_still_left_to_its_owner() {
        let mut process = Launch::new("/bin/sh").args(["-c", "exit 3"]).spawn().unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        on_end(process.pid(), move || sender.send(()).unwrap()).unwrap();
        ended.recv().unwrap();
        assert_eq!(process.try_wait().unwrap().and_then(|s| s.code()), Some(3));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Launch::new("/nonexistent/prog").spawn().unwrap_err();
        assert!(error.to_string().contains("/nonexistent/prog"), "{error}");
    }

    #[test]
    fn output_returns_both_streams_and_the_status() {
        let (status, text) =
            output(Path::new("/bin/sh"), &["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(text, "out\nerr\n");
    }

    #[test]
    fn a_dropped_process_is_killed_and_reaped() {
        let process = Launch::new("/bin/sleep").args(["600"]).spawn().unwrap();
        let pid = process.pid();
        let other = pidfd_open(pid).unwrap();
        drop(process);
        assert!(pidfd_wait(other.as_fd(), Duration::from_secs(5)).unwrap());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_deadline_leaves_the_process_running() {
        let mut process = Launch::new("/bin/sleep").args(["600"]).spawn().unwrap();
        assert!(process.wait_at_most(Duration::from_millis(1)).unwrap().is_none());
        assert!(!process.kill().unwrap().success());
    }

    #[test]
    fn the_starting_thread_may_end_and_the_child_lives_on() {
        let mut process =
            std::thread::spawn(|| Launch::new("/bin/sleep").args(["600"]).spawn().unwrap()).join().unwrap();
        assert!(process.wait_at_most(Duration::from_millis(50)).unwrap().is_none());
        process.kill().unwrap();
    }
}

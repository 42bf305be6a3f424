//! Starts a program in a PID namespace of its own, so that its death is the death of all that it started.
//!
//! For a program that needs nothing else from the harness: the virtual-time kernel. `host::supervise` makes the full
//! set of namespaces for a run. Where the machine refuses the namespace the program is started without, and the
//! handle says so. What is left out: what the program is for.

use crate::host::process::{pidfd_open, pidfd_signal, pidfd_wait};
use crate::host::procfs;
use crate::host::supervise::has_sys_admin;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getegid, geteuid, pipe2};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What to start.
#[derive(Debug)]
pub struct Cage {
    /// The program's path, then its arguments.
    pub argv: Vec<CString>,
    /// All of its environment, `NAME=value`.
    pub env: Vec<CString>,
    /// The one processor that it and its children may use; `None` leaves the caller's set.
    pub cpu: Option<usize>,
    /// Standard input, output and error.
    pub stdio: [File; 3],
}

/// A program in its cage. Dropped, it is killed with all that it started.
#[derive(Debug)]
pub struct Caged {
    pid: u32,
    pidfd: OwnedFd,
    pid_namespace: bool,
    status: Option<i32>,
    /// The end of the pipe that tells the child, before its death is tied to ours, that we live.
    _hold: OwnedFd,
}

impl Cage {
    /// Starts it. It dies (SIGKILL) with the calling *thread*, which therefore has to outlive it.
    ///
    /// # Errors
    /// When the kernel refuses to fork. A program that can't be executed ends with code 127.
    pub fn spawn(&self) -> io::Result<Caged> {
        let user = !has_sys_admin();
        let namespaces = libc::CLONE_NEWPID | if user { libc::CLONE_NEWUSER } else { 0 };
        match self.clone_with(namespaces, user) {
            Ok(started) => Ok(Caged::new(started, true)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSPC | libc::EINVAL | libc::EUSERS)) => {
                Ok(Caged::new(self.clone_with(0, false)?, false))
            }
            Err(e) => Err(e),
        }
    }

    fn clone_with(&self, namespaces: libc::c_int, map_user: bool) -> io::Result<(u32, OwnedFd, OwnedFd)> {
        // All that the child needs is made before the fork: the child only makes system calls.
        let pointers = |list: &[CString]| {
            list.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const libc::c_char>>()
        };
        let (argv, env) = (pointers(&self.argv), pointers(&self.env));
        let (alive, hold) = pipe2(OFlag::O_CLOEXEC)?;
        let maps = map_user.then(|| {
            let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
            (format!("{uid} {uid} 1\n").into_bytes(), format!("{gid} {gid} 1\n").into_bytes())
        });
        let child = Child { argv: &argv, env: &env, cpu: self.cpu, alive: alive.as_raw_fd(), hold: hold.as_raw_fd() };
        let stdio = [self.stdio[0].as_raw_fd(), self.stdio[1].as_raw_fd(), self.stdio[2].as_raw_fd()];
        // SAFETY: without CLONE_VM this is a fork; the child only makes system calls on data prepared above.
        let pid = unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::c_long::from(namespaces | libc::SIGCHLD),
                std::ptr::null::<libc::c_void>(),
                std::ptr::null::<libc::c_void>(),
                std::ptr::null::<libc::c_void>(),
                std::ptr::null::<libc::c_void>(),
            )
        };
        if pid == 0 {
            child.become_program(stdio, maps.as_ref().map(|(u, g)| (&u[..], &g[..])));
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = u32::try_from(pid).unwrap_or(0);
        // Not reaped yet, so the number is still its own.
        Ok((pid, pidfd_open(pid)?, hold))
    }
}

struct Child<'a> {
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    cpu: Option<usize>,
    alive: RawFd,
    hold: RawFd,
}

impl Child<'_> {
    /// In the child: system calls only, then exec.
    fn become_program(&self, stdio: [RawFd; 3], maps: Option<(&[u8], &[u8])>) -> ! {
        // SAFETY: system calls on prepared memory; argv and env are NULL-terminated.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The parent may have died before that line: then nobody holds the other end of the pipe.
            libc::close(self.hold);
            let mut poll = libc::pollfd { fd: self.alive, events: libc::POLLIN, revents: 0 };
            if libc::poll(&raw mut poll, 1, 0) != 0 {
                libc::_exit(127);
            }
            libc::setsid();
            if let Some((uid, gid)) = maps {
                write_file(c"/proc/self/setgroups", b"deny");
                write_file(c"/proc/self/uid_map", uid);
                write_file(c"/proc/self/gid_map", gid);
            }
            if let Some(cpu) = self.cpu {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            // Rust ignores SIGPIPE and an ignored signal stays ignored across exec.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            for (to, from) in stdio.into_iter().enumerate() {
                let to = to as RawFd;
                if from == to {
                    libc::fcntl(to, libc::F_SETFD, 0);
                } else {
                    libc::dup2(from, to);
                }
            }
            // PID 1 of a namespace is deaf to signals that it has no handler for, its own abort() included: the program
            // becomes the second process.
            let program = libc::syscall(
                libc::SYS_clone,
                libc::c_long::from(libc::SIGCHLD),
                std::ptr::null::<libc::c_void>(),
                std::ptr::null::<libc::c_void>(),
                std::ptr::null::<libc::c_void>(),
                std::ptr::null::<libc::c_void>(),
            );
            if program == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::execve(self.argv[0], self.argv.as_ptr(), self.env.as_ptr());
                libc::_exit(127)
            }
            for fd in 0..3 {
                libc::close(fd);
            }
            wait_for(program as libc::pid_t)
        }
    }
}

/// In the cage's first process: reaps until the program has ended, then ends as it did.
fn wait_for(program: libc::pid_t) -> ! {
    loop {
        let mut status = 0;
        // SAFETY: system calls only.
        unsafe {
            let pid = libc::waitpid(-1, &raw mut status, 0);
            if pid == program && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
                libc::_exit(if libc::WIFEXITED(status) {
                    libc::WEXITSTATUS(status)
                } else {
                    128 + libc::WTERMSIG(status)
                });
            }
            if pid < 0 && *libc::__errno_location() != libc::EINTR {
                libc::_exit(127);
            }
        }
    }
}

/// # Safety
/// Makes system calls only, so it may be called between fork and exec.
unsafe fn write_file(path: &std::ffi::CStr, bytes: &[u8]) {
    // SAFETY: a NUL-terminated path and a slice with its own length.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, bytes.as_ptr().cast(), bytes.len());
            libc::close(fd);
        }
    }
}

impl Caged {
    fn new((pid, pidfd, hold): (u32, OwnedFd, OwnedFd), pid_namespace: bool) -> Self {
        Self { pid, pidfd, pid_namespace, status: None, _hold: hold }
    }

    /// The program's process id, as this process counts; `None` before it was started and after its end.
    #[must_use]
    pub fn program(&self) -> Option<u32> {
        procfs::children(self.pid).into_iter().min()
    }

    /// Whether all that it starts dies with it by the kernel's hand. Without, only what it does not leave behind.
    #[must_use]
    pub fn has_pid_namespace(&self) -> bool {
        self.pid_namespace
    }

    /// How it ended (exit code, or 128 + the signal), waiting at most `limit`; `None` when it still runs.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn wait_at_most(&mut self, limit: Duration) -> io::Result<Option<i32>> {
        if self.status.is_none() && pidfd_wait(self.pidfd.as_fd(), limit)? {
            self.reap()?;
        }
        Ok(self.status)
    }

    /// Kills it with all that it started, and waits for its end.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn kill(&mut self) -> io::Result<i32> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        match pidfd_signal(self.pidfd.as_fd(), Signal::SIGKILL) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e),
            _ => {}
        }
        self.reap()
    }

    fn reap(&mut self) -> io::Result<i32> {
        let status = match waitpid(Pid::from_raw(self.pid as i32), None)? {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            _ => 128,
        };
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Caged {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cage(argv: &[&str]) -> Caged {
        let null = || File::options().read(true).write(true).open("/dev/null").unwrap();
        Cage {
            argv: argv.iter().map(|a| CString::new(*a).unwrap()).collect(),
            env: vec![c"PATH=/usr/bin:/bin".into()],
            cpu: Some(0),
            stdio: [null(), null(), null()],
        }
        .spawn()
        .unwrap()
    }

    #[test]
    fn the_status_comes_out_and_a_missing_program_is_127() {
        assert_eq!(cage(&["/bin/sh", "-c", "exit 3"]).wait_at_most(Duration::from_secs(10)).unwrap(), Some(3));
        assert_eq!(cage(&["/nonexistent"]).wait_at_most(Duration::from_secs(10)).unwrap(), Some(127));
    }

    #[test]
    fn killed_it_takes_a_grandchild_with_it_that_left_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // The grandchild holds the writing end, so the reader sees the end of file when it is dead, and only then.
        let script = format!("setsid sleep 600 > {} & exec sleep 600", fifo.display());
        let mut caged = cage(&["/bin/sh", "-c", &script]);
        let mut reader = File::open(&fifo).unwrap();
        if !caged.has_pid_namespace() {
            panic!("this machine refuses PID namespaces; see `halfopen doctor`");
        }
        assert_eq!(caged.kill().unwrap(), 128 + 9);
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }
}

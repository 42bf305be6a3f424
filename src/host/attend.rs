//! The outer process of a run that is not in namespaces of its own: the docker lab's.
//!
//! The engine has to see the machine's bridges and the processes of containers, so it stays in the machine's own
//! namespaces, and its death does not end what it made. Two hold on to that instead. The outer process removes what is
//! left when the engine has ended, however it did. The engine, told of the outer's death by a signal, puts everything
//! away itself. Killed at the same instant, both leave what the journal names, for `halfopen clean`. The fault itself
//! never needs any of them: the kernel removes the table with the engine's socket.

use crate::host::init::{RUN_ID_VARIABLE, WORK_DIR_VARIABLE};
use crate::host::journal::{Entry, Journal, Outside};
use crate::host::process::{Launch, Process, Stream, pidfd_signal};
use crate::host::procfs;
use crate::host::supervise::{Ended, InitError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

/// What to attend to.
#[derive(Debug, Clone)]
pub struct Attend {
    /// The run's id.
    pub run_id: String,
    /// Arguments of this same program, without the run's id, which is appended: `__engine JOB`.
    pub args: Vec<OsString>,
    /// The run directory, for the journal.
    pub out_dir: PathBuf,
    /// The engine's private directory; it is made here and is one of `outside`.
    pub work_dir: PathBuf,
    /// All that the engine may make outside of its processes.
    pub outside: Vec<Outside>,
    /// Where the journal is.
    pub state_dir: PathBuf,
}

fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> InitError {
    move |e| InitError::Os { what, source: e.into() }
}

/// Starts the engine, forwards signals to it, waits for its end and has what is left removed.
///
/// Call it before any other thread exists, as [`crate::host::supervise::supervise`].
///
/// # Errors
/// When the journal can't be written, the engine can't be started, or something could not be removed: then the entry
/// stays, and `halfopen clean` tries again.
pub fn attend(spec: &Attend, remove: &dyn Fn(&Entry) -> io::Result<Vec<String>>) -> Result<Ended, InitError> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).map_err(os("block signals"))?;
    let result = attend_with(spec, &signals, remove);
    let _ = before.thread_set_mask();
    result
}

fn attend_with(
    spec: &Attend,
    signals: &SigSet,
    remove: &dyn Fn(&Entry) -> io::Result<Vec<String>>,
) -> Result<Ended, InitError> {
    let signal_fd = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC).map_err(os("take signals over"))?;
    let journal = Journal::open(&spec.state_dir)?;
    let me = procfs::identity(std::process::id())
        .ok_or_else(|| InitError::Os { what: "read /proc/self/stat", source: io::ErrorKind::NotFound.into() })?;
    let mut entry = Entry::new(&spec.run_id, me, &spec.out_dir);
    entry.outside.clone_from(&spec.outside);
    journal.write(&entry)?;
    let ended = start(spec).and_then(|mut engine| {
        entry.init = procfs::identity(engine.pid());
        // Without this entry `clean` would not know whom to end, so the engine must not go on without it.
        journal.write(&entry)?;
        wait(&mut engine, &signal_fd)
    });
    let removed = remove(&entry);
    let ended = ended?;
    removed.map_err(os("remove what the run made (halfopen clean tries again)"))?;
    journal.strike(&spec.run_id)?;
    Ok(ended)
}

fn start(spec: &Attend) -> Result<Process, InitError> {
    use std::os::unix::fs::DirBuilderExt;
    // Open to others: a broker in a container reads its files as a user of its own.
    std::fs::DirBuilder::new().mode(0o711).create(&spec.work_dir).map_err(os("make the run's working directory"))?;
    let mut launch = Launch::new("/proc/self/exe").args(spec.args.iter().cloned());
    launch.args.push(spec.run_id.clone().into());
    launch.env = vec![
        (WORK_DIR_VARIABLE.into(), spec.work_dir.clone().into_os_string()),
        (RUN_ID_VARIABLE.into(), spec.run_id.clone().into()),
    ];
    (launch.stdin, launch.stdout, launch.stderr) = (Stream::Null, Stream::Inherit, Stream::Inherit);
    launch.parent_death = Signal::SIGTERM;
    launch.spawn().map_err(os("start the engine"))
}

fn wait(engine: &mut Process, signals: &SignalFd) -> Result<Ended, InitError> {
    let (mut interrupted, mut killed) = (false, false);
    loop {
        let mut fds = [PollFd::new(engine.pidfd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
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
            let _ = pidfd_signal(engine.pidfd(), signal);
        }
        if ended {
            let status = engine.wait().map_err(os("reap the engine"))?;
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            return Ok(Ended { code, interrupted, killed });
        }
    }
}

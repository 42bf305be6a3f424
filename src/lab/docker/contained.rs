//! A process in a container, started by the harness and attached to.

use super::api::{Api, failed};
use crate::host::process::{pidfd_open, pidfd_signal, pidfd_wait, raise_nofile_of};
use crate::lab::LabError;
use crate::lab::running::Status;
use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use futures::{Stream, StreamExt};
use nix::sys::signal::Signal;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

pub(super) type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// How often a process is looked for that was just started.
const STARTING: u32 = 1000;
const BETWEEN: Duration = Duration::from_millis(10);

/// How long an exit code may take to be known after the end.
const CODE: Duration = Duration::from_secs(5);

/// Where an exit code is asked for.
#[derive(Debug)]
enum Code {
    /// At an exec.
    Exec(String),
    /// Nowhere: the container is gone with its main process.
    None,
}

/// A process in a container. Dropped while it runs, it is killed.
#[derive(Debug)]
pub struct Contained {
    api: Api,
    pid: u32,
    pidfd: OwnedFd,
    code: Code,
    stdin: Option<Input>,
    stdout: Option<Said>,
}

impl Contained {
    /// Starts a command in a container that runs; its standard error goes to the harness' own.
    ///
    /// # Errors
    /// When the engine refuses, or the process is gone before it could be looked at.
    pub(super) fn exec(api: &Api, container: &str, argv: Vec<String>, env: Vec<String>) -> Result<Self, LabError> {
        let what = || format!("start `{}` in {container}", argv.join(" "));
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(argv.clone()),
            env: Some(env),
            // An image's own user may not be allowed what the harness has to do.
            user: Some("0:0".into()),
            ..ExecConfig::default()
        };
        let docker = api.docker();
        let started = api.wait(async {
            let id = docker.create_exec(container, config).await?.id;
            let attached = docker.start_exec(&id, None::<StartExecOptions>).await?;
            let pid = pid_of(docker, &id).await?;
            Ok::<_, Error>((id, attached, pid))
        });
        let (id, attached, pid) = started.map_err(failed(what()))?;
        let StartExecResults::Attached { output, input } = attached else {
            return Err(LabError::Docker { what: what(), source: io::Error::other("it is not attached") });
        };
        let stdout = pump(api, output);
        Self::of(api, pid, Code::Exec(id), Some(Input::new(api, input)), Some(stdout))
            .map_err(|source| LabError::Docker { what: what(), source })
    }

    /// The main process of a container.
    ///
    /// # Errors
    /// When it is gone already.
    pub(super) fn main_process(api: &Api, pid: u32) -> io::Result<Self> {
        Self::of(api, Some(i64::from(pid)), Code::None, None, None)
    }

    fn of(api: &Api, pid: Option<i64>, code: Code, stdin: Option<Input>, stdout: Option<Said>) -> io::Result<Self> {
        let gone = || io::Error::other("it has ended already");
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0).ok_or_else(gone)?;
        Ok(Self { api: api.clone(), pid, pidfd: pidfd_open(pid)?, code, stdin, stdout })
    }

    /// Gives it as many descriptors as are wanted, or as this user may. Engines differ in what they start containers with,
    /// and some may not give more themselves.
    pub(super) fn raise_nofile(&self, wanted: u64) {
        raise_nofile_of(self.pid, wanted);
    }

    /// Its process id, as the machine counts.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub(in crate::lab) fn take_stdin(&mut self) -> Option<Input> {
        self.stdin.take()
    }

    pub(in crate::lab) fn take_stdout(&mut self) -> Option<Said> {
        self.stdout.take()
    }

    pub(in crate::lab) fn wait_at_most(&mut self, limit: Duration) -> io::Result<Option<Status>> {
        if !pidfd_wait(self.pidfd.as_fd(), limit)? {
            return Ok(None);
        }
        Ok(Some(match &self.code {
            Code::None => Status::of_code(None),
            Code::Exec(id) => Status::of_code(self.api.wait(exit_code(&self.api, id))),
        }))
    }

    pub(in crate::lab) fn kill(&mut self) -> io::Result<Status> {
        match pidfd_signal(self.pidfd.as_fd(), Signal::SIGKILL) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e),
            _ => {}
        }
        let ended = self.wait_at_most(Duration::from_secs(10))?;
        ended.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        // What has ended needs no signal.
        let _ = pidfd_signal(self.pidfd.as_fd(), Signal::SIGKILL);
    }
}

/// The engine answers a start before there is a process.
async fn pid_of(docker: &Docker, exec: &str) -> Result<Option<i64>, Error> {
    let mut seen = docker.inspect_exec(exec).await?;
    for _ in 0..STARTING {
        if seen.pid.is_some_and(|pid| pid > 0) || seen.exit_code.is_some() {
            break;
        }
        tokio::time::sleep(BETWEEN).await;
        seen = docker.inspect_exec(exec).await?;
    }
    Ok(seen.pid)
}

/// The engine hears of an end a little after the kernel has told it.
async fn exit_code(api: &Api, exec: &str) -> Option<i64> {
    let asked = async {
        loop {
            match api.docker().inspect_exec(exec).await {
                Ok(seen) if seen.running == Some(true) => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(seen) => return seen.exit_code,
                // Its container was removed, and what it knew with it.
                Err(_) => return None,
            }
        }
    };
    tokio::time::timeout(CODE, asked).await.unwrap_or(None)
}

/// The standard input of something in a container. Dropped, it is closed.
pub struct Input {
    api: Api,
    stream: Pin<Box<dyn AsyncWrite + Send>>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Input")
    }
}

impl Input {
    pub(super) fn new(api: &Api, stream: Pin<Box<dyn AsyncWrite + Send>>) -> Self {
        Self { api: api.clone(), stream }
    }
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.api.clone().wait(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.api.clone().wait(self.stream.flush())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Whoever reads it may be gone.
        let _ = self.api.clone().wait(self.stream.shutdown());
    }
}

/// What something in a container writes to its standard output.
#[derive(Debug)]
pub struct Said {
    pieces: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    read: usize,
}

impl Read for Said {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            match self.pieces.recv() {
                Ok(piece) => (self.piece, self.read) = (piece, 0),
                Err(_) => return Ok(0),
            }
        }
        let n = buffer.len().min(self.piece.len() - self.read);
        buffer[..n].copy_from_slice(&self.piece[self.read..self.read + n]);
        self.read += n;
        Ok(n)
    }
}

/// Reads an attached stream as it comes: standard output for whoever wants it, standard error for the harness' own.
fn pump(api: &Api, mut output: Output) -> Said {
    let (sender, pieces) = channel();
    api.spawn(async move {
        while let Some(Ok(piece)) = output.next().await {
            match piece {
                LogOutput::StdErr { message } => {
                    // Whoever reads ours may be gone; that is no reason to stop.
                    let _ = io::stderr().write_all(&message);
                }
                other => {
                    if sender.send(other.into_bytes().to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    Said { pieces, piece: Vec::new(), read: 0 }
}

/// Appends all that an attached stream says to a file.
pub(super) fn into_file(api: &Api, mut output: Output, mut file: std::fs::File) {
    api.spawn(async move {
        while let Some(Ok(piece)) = output.next().await {
            // It is for a message alone, should the container end early.
            let _ = file.write_all(&piece.into_bytes());
        }
    });
}

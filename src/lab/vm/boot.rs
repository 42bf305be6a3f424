//! Boots a guest, hands its program's output on, watches it, and returns how it ended.
//!
//! What is left out: what the program is for, and where results go (the caller names the directories that are writable
//! inside).

use super::cache::Kernel;
use super::command::{CommandLine, GuestEnd, GuestSpec, Mode, is_hidden};
use super::error::{VmError, io_at};
use super::needs;
use super::watch::{Limits, Rule, Sample, Stall, Watchdog};
use super::{mconsole, tail::Tail};
use crate::host::cage::{Cage, Caged};
use crate::host::clock::Clock;
use crate::host::{procfs, signals};
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What to run in a guest.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The kernel.
    pub kernel: Kernel,
    /// The binary that becomes init: this very program.
    pub init: PathBuf,
    /// How the clock moves.
    pub mode: Mode,
    /// The processor that the guest is pinned to; `None` takes one of those that this process may use.
    pub cpu: Option<usize>,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// All of the program's environment.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Directories of the host that are writable inside under the same path. Everything else is read-only, and `/tmp`,
    /// `/run` and `/dev` are fresh.
    pub writable: Vec<PathBuf>,
    /// The watchdog's patience.
    pub limits: Limits,
    /// Whether the program gets this process's terminal.
    pub interactive: bool,
    /// SIGINT, SIGTERM and SIGHUP that had arrived, by [`signals::arrived`], when the caller began to hold them back:
    /// later ones interrupt the guest.
    pub signals_before: u32,
}

/// The guest's name: one that every machine's `/etc/hosts` knows. A name that it does not know is asked of a name server that
/// the lab does not have: RabbitMQ's start waited 20 virtual seconds for one.
const HOSTNAME: &str = "localhost";

/// How long an interrupted guest may take to end by itself, in time of this machine.
const GRACE: Duration = Duration::from_secs(20);

/// How a guest ended.
#[derive(Debug, Clone)]
pub struct Booted {
    /// The program's exit code, or 128 + the signal that ended it.
    pub code: i32,
    /// How the clock moved in the end.
    pub mode: Mode,
    /// The attempt before, when the watchdog stopped it.
    pub stopped_before: Option<Stall>,
    /// Virtual seconds from the guest's boot to the program's end.
    pub virtual_s: f64,
    /// Seconds of this machine, boot included, of the last attempt.
    pub wall_s: f64,
    /// Release of the guest's kernel.
    pub release: String,
    /// Features that the faults need and the guest lacks.
    pub lacks: Vec<String>,
    /// Whether the guest was inside a PID namespace of its own.
    pub pid_namespace: bool,
}

/// This program's own file, which becomes the guest's init. One that was replaced while this process runs is there no more.
fn own_file() -> Result<PathBuf, VmError> {
    let path = std::env::current_exe().map_err(io_at("find this program's own file"))?;
    if path.is_file() {
        return Ok(path);
    }
    let name = path.to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    Err(VmError::Unfit(format!("{name} was replaced while it runs; start it again")))
}

impl Boot {
    /// A guest for `argv` with this process's environment and working directory, 512 MiB, inf-cpu.
    ///
    /// # Errors
    /// When this process's own binary or working directory can't be named.
    pub fn new(kernel: Kernel, argv: Vec<String>) -> Result<Self, VmError> {
        // TMPDIR names a directory of the host; inside, /tmp is as good as any.
        let env = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .filter(|(k, _)| !matches!(k.as_str(), "TMPDIR" | "TMP" | "TEMP" | "XDG_RUNTIME_DIR"))
            .collect();
        Ok(Self {
            kernel,
            init: own_file()?,
            mode: Mode::default(),
            cpu: None,
            memory_mib: 512,
            argv,
            env,
            cwd: std::env::current_dir().map_err(io_at("find the working directory"))?,
            writable: Vec::new(),
            limits: Limits::default(),
            interactive: false,
            signals_before: signals::arrived(),
        })
    }

    /// Boots it and waits for its end. The program's output goes to `out` and `err` while it runs.
    ///
    /// A guest that the watchdog stops in inf-cpu mode is booted once more in basic mode: before that `retry` is called
    /// with the reason, to empty what the first attempt wrote.
    ///
    /// # Errors
    /// [`VmError::Stopped`] when the watchdog stopped the last attempt, [`VmError::Died`] when the guest left no word.
    pub fn run(
        &self,
        out: &mut dyn Write,
        err: &mut dyn Write,
        retry: &mut dyn FnMut(&Stall),
    ) -> Result<Booted, VmError> {
        needs::check_run(self.memory_mib)?;
        match self.attempt(self.mode, out, err) {
            Err(VmError::Stopped(stall)) if stall.mode == Mode::InfCpu && stall.rule != Rule::WallLimit => {
                retry(&stall);
                let booted = self.attempt(Mode::Basic, out, err)?;
                Ok(Booted { stopped_before: Some(stall), ..booted })
            }
            other => other,
        }
    }

    fn attempt(&self, mode: Mode, out: &mut dyn Write, err: &mut dyn Write) -> Result<Booted, VmError> {
        let clock = Clock::start();
        let dir = RunDir::create()?;
        let spec = self.spec(&dir.path)?;
        let spec_json =
            serde_json::to_vec(&spec).map_err(|e| io_at("write the guest's spec")(std::io::Error::from(e)))?;
        fs::write(dir.path.join("spec.json"), spec_json).map_err(io_at("write the guest's spec"))?;
        let mut caged = self.cage(mode, &dir.path)?.spawn().map_err(io_at("start the kernel"))?;
        let (mut stdout, mut stderr) = (Tail::new(spec.report.join("stdout")), Tail::new(spec.report.join("stderr")));
        let mut eye = Eye { dir: &dir.path, mode, dog: self.watchdog(mode), looked: Duration::ZERO };
        let (before, mut heard, mut give_up) = (self.signals_before, 0, Duration::MAX);
        let status = loop {
            let status = caged.wait_at_most(Duration::from_millis(50)).map_err(io_at("wait for the guest"))?;
            stdout.copy_new(out).and_then(|()| stderr.copy_new(err)).map_err(io_at("hand the guest's output on"))?;
            if let Some(status) = status {
                break status;
            }
            let at = Duration::from_nanos(clock.now().0.unsigned_abs());
            let signals = signals::arrived() - before;
            if signals > heard {
                // The first is handed on; at the second, or when the guest takes too long, everything inside is killed.
                heard = signals;
                if signals > 1 || mconsole::interrupt(&dir.path).is_err() {
                    give_up = at;
                } else {
                    give_up = give_up.min(at + GRACE);
                }
            }
            if heard > 0 && at >= give_up {
                caged.kill().map_err(io_at("kill the guest"))?;
                return Err(VmError::Interrupted);
            }
            if let Some(stall) = eye.look(at, &caged) {
                caged.kill().map_err(io_at("kill the guest"))?;
                return Err(VmError::Stopped(stall));
            }
        };
        let end: GuestEnd =
            fs::read(spec.report.join("end.json"))
                .ok()
                .and_then(|b| serde_json::from_slice(&b).ok())
                .ok_or_else(|| VmError::Died { status, console: last_lines(&dir.path.join("console"), 12) })?;
        if let Some(why) = end.error {
            return Err(VmError::Unfit(format!(
                "the guest can't start {}: {why}",
                self.argv.first().map_or("", |a| a)
            )));
        }
        Ok(Booted {
            code: end.code,
            mode,
            stopped_before: None,
            virtual_s: end.uptime_ns as f64 / 1e9,
            wall_s: clock.now().0 as f64 / 1e9,
            release: end.release,
            lacks: end.lacks,
            pid_namespace: caged.has_pid_namespace(),
        })
    }

    fn watchdog(&self, mode: Mode) -> Watchdog {
        let mut limits = self.limits;
        if self.interactive {
            limits = Limits { spin: Duration::MAX, stall: Duration::MAX, wall: Duration::MAX };
        }
        if mode == Mode::Basic {
            // There the clock moves while a process computes.
            limits.spin = Duration::MAX;
        }
        Watchdog::new(limits)
    }

    fn spec(&self, dir: &Path) -> Result<GuestSpec, VmError> {
        let report = dir.join("report");
        let absolute = |p: &PathBuf| p.canonicalize().map_err(io_at(format!("use {}", p.display())));
        let mut writable = self.writable.iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
        writable.push(report.clone());
        let init_dir = self.init.parent().map(Path::to_path_buf);
        let visible = init_dir.into_iter().chain([self.cwd.clone()]).filter(|p| is_hidden(p)).collect();
        Ok(GuestSpec {
            argv: self.argv.clone(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            hostname: HOSTNAME.into(),
            writable,
            visible,
            report,
            beat_s: 10,
            interactive: self.interactive,
        })
    }

    fn cage(&self, mode: Mode, dir: &Path) -> Result<Cage, VmError> {
        let memory = needs::memory_dir(self.memory_mib)?;
        let line = CommandLine {
            kernel: &self.kernel.path,
            mode,
            memory_mib: self.memory_mib,
            init: &self.init,
            dir,
            interactive: self.interactive,
        };
        let text = |s: String| CString::new(s).map_err(|_| VmError::Path(dir.to_path_buf()));
        // Its own libraries look for a home; everything of the caller's that could change it stays out.
        let env = [
            format!("HOME={}", dir.display()),
            format!("TMPDIR={}", memory.display()),
            format!("PATH={}", needs::PATH),
        ];
        let null = File::options().read(true).write(true).open("/dev/null").map_err(io_at("open /dev/null"))?;
        let stdio = if self.interactive {
            let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
            use std::os::fd::AsFd;
            [own(std::io::stdin().as_fd()), own(std::io::stdout().as_fd()), own(std::io::stderr().as_fd())]
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
                .map_err(io_at("hand the terminal over"))?
                .try_into()
                .map_err(|_| VmError::Unfit("no terminal".into()))?
        } else {
            let console = File::create(dir.join("console")).map_err(io_at("create the console's file"))?;
            let again = console.try_clone().map_err(io_at("create the console's file"))?;
            [null, console, again]
        };
        Ok(Cage {
            argv: line.argv()?.into_iter().map(text).collect::<Result<_, _>>()?,
            env: env.into_iter().map(text).collect::<Result<_, _>>()?,
            cpu: self.cpu.or_else(any_cpu),
            stdio,
        })
    }
}

/// One of the processors that this process may use, another one for each guest that it boots.
fn any_cpu() -> Option<usize> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    let allowed: Vec<usize> = (0..nix::sched::CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false)).collect();
    let turn = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) as usize;
    allowed.get(turn % allowed.len().max(1)).copied()
}

struct Eye<'a> {
    dir: &'a Path,
    mode: Mode,
    dog: Watchdog,
    looked: Duration,
}

impl Eye<'_> {
    /// Looks once a second at most.
    fn look(&mut self, at: Duration, caged: &Caged) -> Option<Stall> {
        if at.saturating_sub(self.looked) < Duration::from_secs(1) {
            return None;
        }
        self.looked = at;
        let beat_ns = fs::read_to_string(self.dir.join("report/beat")).ok().and_then(|t| t.trim().parse().ok());
        let beat_ns = beat_ns.unwrap_or(0);
        let cpu = |pid: u32| procfs::own_cpu_ms(pid).map(Duration::from_millis);
        let kernel = caged.program()?;
        let process_cpu: BTreeMap<u32, Duration> =
            procfs::children(kernel).into_iter().filter_map(|pid| Some((pid, cpu(pid)?))).collect();
        let sample = Sample { at, kernel_cpu: cpu(kernel).unwrap_or_default(), process_cpu, beat_ns };
        let (rule, lasted) = self.dog.judge(sample)?;
        Some(Stall {
            rule,
            wall_s: lasted.as_secs_f64(),
            virtual_s: beat_ns as f64 / 1e9,
            process: self.culprit(),
            mode: self.mode,
        })
    }

    /// Asks the guest's kernel a few times: the process that is found running most often.
    fn culprit(&self) -> Option<String> {
        let mut seen: BTreeMap<u32, (u32, String)> = BTreeMap::new();
        for _ in 0..5 {
            if let Ok(Some(running)) = mconsole::running(self.dir) {
                seen.entry(running.pid).or_insert((0, running.name)).0 += 1;
            }
        }
        let (pid, (_, name)) = seen.into_iter().max_by_key(|(_, (times, _))| *times)?;
        let table = fs::read_to_string(self.dir.join("report/processes")).unwrap_or_default();
        let line = table.lines().find_map(|l| l.strip_prefix(&format!("{pid}\t"))).filter(|l| !l.is_empty());
        Some(line.map_or_else(|| format!("process {pid} ({name})"), |l| format!("process {pid} ({name}: {l})")))
    }
}

/// The run's own directory: spec, report, control socket, console. Removed at the end; one whose harness was killed is
/// removed by the next boot.
struct RunDir {
    path: PathBuf,
    _lock: Flock<File>,
}

const RUN_DIR: &str = "halfopen-vm-";

/// Removes directories of this user whose lock nobody holds: their harness was killed.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let (path, own) = (entry.path(), nix::unistd::geteuid().as_raw());
        let ours = entry.file_name().to_string_lossy().starts_with(RUN_DIR)
            && entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == own);
        let free =
            || File::open(path.join("lock")).is_ok_and(|f| Flock::lock(f, FlockArg::LockExclusiveNonblock).is_ok());
        if ours && free() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

impl RunDir {
    fn create() -> Result<Self, VmError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = needs::temporary_dir();
        sweep(&base);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{RUN_DIR}{}-{n}", std::process::id()));
            match nix::unistd::mkdir(&path, nix::sys::stat::Mode::S_IRWXU) {
                Ok(()) => {
                    for sub in ["report", "uml"] {
                        fs::create_dir(path.join(sub)).map_err(io_at("create the guest's directory"))?;
                    }
                    // Locked before it has its name, so that nobody sweeps it away in between.
                    let lock = File::create(path.join("lock.new")).map_err(io_at("lock the guest's directory"))?;
                    let lock = Flock::lock(lock, FlockArg::LockExclusive)
                        .map_err(|(_, e)| io_at("lock the guest's directory")(e))?;
                    fs::rename(path.join("lock.new"), path.join("lock"))
                        .map_err(io_at("lock the guest's directory"))?;
                    return Ok(Self { path, _lock: lock });
                }
                // Left by a process of the same number that was killed: another name.
                Err(nix::errno::Errno::EEXIST) => {}
                Err(e) => return Err(io_at(format!("create {}", path.display()))(e)),
            }
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn last_lines(path: &Path, n: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).replace('\r', "");
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_whose_lock_is_free_are_swept_away() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            fs::create_dir(base.path().join(name)).unwrap();
            File::create(base.path().join(name).join("lock")).unwrap()
        };
        drop(make("halfopen-vm-1-0"));
        let held = Flock::lock(make("halfopen-vm-2-0"), FlockArg::LockExclusive).unwrap();
        drop(make("somebody-elses"));
        fs::create_dir(base.path().join("halfopen-vm-3-0")).unwrap();
        sweep(base.path());
        let there = |name: &str| base.path().join(name).exists();
        assert!(!there("halfopen-vm-1-0") && there("halfopen-vm-2-0") && there("somebody-elses"));
        assert!(there("halfopen-vm-3-0"), "one that is being made has no lock yet");
        drop(held);
    }
}

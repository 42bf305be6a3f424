//! Init of the virtual-time guest: the harness's own binary, which the kernel starts as its first process.
//!
//! Mounts what programs expect, brings the loopback up, runs one command, reaps orphans, and leaves its last word in a
//! directory of the host before it switches the guest off. What is left out: everything else. The command is the
//! ordinary harness with its ordinary namespaces; there is no second implementation of a lab in here.

use super::command::{FRESH, GuestEnd, GuestSpec, is_hidden};
use crate::host::clock::Clock;
use crate::host::guest::in_user_mode_linux;
use crate::host::process::{Launch, Process, Stream};
use crate::host::{procfs, signals};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid, sethostname};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The hidden subcommand that the kernel's command line names.
pub const SUBCOMMAND: &str = "__guest";
/// Nominal size of each tmpfs: RabbitMQ's disk monitor wants to see room; what is used counts, not this.
const TMPFS: &str = "size=16g,mode=1777";

/// `halfopen __guest SPEC`: never returns in a guest. Anywhere else it refuses, with exit code 2.
#[must_use]
pub fn guest_main(args: &[String]) -> i32 {
    // Powering off is not something to do on a user's machine.
    if getpid().as_raw() != 1 || !in_user_mode_linux() {
        eprintln!("halfopen: `{SUBCOMMAND}` is for the virtual-time guest only");
        return 2;
    }
    let spec = args.first().map_or_else(
        || Err(io::Error::other("no spec on the command line")),
        |path| serde_json::from_slice::<GuestSpec>(&fs::read(path)?).map_err(io::Error::other),
    );
    let done = spec.and_then(|spec| {
        prepare(&spec)?;
        let end = run(&spec);
        write_end(&spec.report, &end)
    });
    if let Err(error) = done {
        // The console is all that there is now; the outside prints its last lines.
        println!("halfopen: the guest could not be prepared: {error}");
    }
    let _ = io::stdout().flush();
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    1
}

fn mount_at(kind: &str, at: &str, options: &str, flags: MsFlags) -> io::Result<()> {
    mount(Some("none"), at, Some(kind), flags, Some(options))
        .map_err(|e| io::Error::other(format!("mount {kind} at {at}: {e}")))
}

fn prepare(spec: &GuestSpec) -> io::Result<()> {
    let none = MsFlags::empty();
    // What is seen there so far is the host's.
    mount_at("proc", "/proc", "", none)?;
    mount_at("sysfs", "/sys", "", none)?;
    for at in FRESH.into_iter().filter(|at| *at != "/dev") {
        mount_at("tmpfs", at, TMPFS, none)?;
    }
    // The kernel mounts this one itself where it is configured to.
    match mount(Some("none"), "/dev", Some("devtmpfs"), none, None::<&str>) {
        Ok(()) | Err(nix::errno::Errno::EBUSY) => {}
        Err(e) => return Err(io::Error::other(format!("mount devtmpfs at /dev: {e}"))),
    }
    for (kind, at, options) in [("devpts", "/dev/pts", "ptmxmode=666"), ("tmpfs", "/dev/shm", TMPFS)] {
        fs::create_dir_all(at)?;
        mount_at(kind, at, options, none)?;
    }
    for (link, target) in
        [("/dev/fd", "/proc/self/fd"), ("/dev/stdin", "fd/0"), ("/dev/stdout", "fd/1"), ("/dev/stderr", "fd/2")]
    {
        if !Path::new(link).exists() {
            std::os::unix::fs::symlink(target, link)?;
        }
    }
    fs::create_dir_all("/run/lock")?;
    let visible = spec.visible.iter().filter(|p| is_hidden(p)).map(|p| (p, MsFlags::MS_RDONLY));
    for (path, flags) in visible.chain(spec.writable.iter().map(|p| (p, none))) {
        host_directory(path, flags)?;
    }
    // Otherwise each new namespace has the fallback devices of the kernel's tunnels; a stock kernel has those as modules
    // that are not loaded. A kernel without tunnels has no such switch.
    let _ = fs::write("/proc/sys/net/core/fb_tunnels_only_for_init_net", "1");
    // For the ends of sockets; without it they are looked for by `sock_diag`, and the run says so.
    let _ = mount_at("tracefs", "/sys/kernel/tracing", "", none);
    sethostname(&spec.hostname)?;
    loopback_up().map_err(|e| io::Error::other(format!("bring the loopback up: {e}")))
}

/// Shows a directory of the host under its own path.
fn host_directory(path: &Path, flags: MsFlags) -> io::Result<()> {
    if is_hidden(path) {
        fs::create_dir_all(path)?;
    }
    let at = path.to_str().ok_or_else(|| io::Error::other("a path that is no text"))?;
    mount_at("hostfs", at, at, flags)
}

fn loopback_up() -> io::Result<()> {
    let socket = File::from(nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?);
    // SAFETY: `ifreq` is plain data for which zero is a value; the name fits and is NUL-terminated by the zeros.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call.
    let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn run(spec: &GuestSpec) -> GuestEnd {
    // Zero of this clock is the zero of CLOCK_MONOTONIC: the guest's boot.
    let clock = Clock::from_zero(0);
    let lacks = super::features::lacking();
    // Before any other thread exists. Ctrl-Alt-Del, which the outside sends, is then a SIGINT to this process.
    let main = Arc::new(AtomicU32::new(0));
    let command = main.clone();
    let forwarded = signals::forward(move || {
        let pid = i32::try_from(command.load(Ordering::Relaxed)).unwrap_or(0);
        if pid > 0 {
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        true
    });
    if forwarded.is_ok() {
        let _ = nix::sys::reboot::set_cad_enabled(false);
    }
    start_beat(spec, clock);
    let started = start(spec).inspect(|process| main.store(process.pid(), Ordering::Relaxed));
    let (code, error) = match started.and_then(reap_until_end) {
        Ok(code) => (code, None),
        Err(e) => (127, Some(e.to_string())),
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    GuestEnd { code, error, uptime_ns: clock.now().0, release, lacks }
}

fn start(spec: &GuestSpec) -> io::Result<Process> {
    let Some((program, args)) = spec.argv.split_first() else { return Err(io::Error::other("no command")) };
    let mut launch = if spec.interactive {
        // A session leader without a terminal gets the first one that it opens.
        Launch::new("/bin/sh").args(["-c", "exec \"$0\" \"$@\" </dev/tty0 >/dev/tty0 2>&1"]).args(&spec.argv)
    } else {
        Launch::new(program).args(args)
    };
    launch.only_env = true;
    launch.env = spec.env.iter().map(|(k, v)| (k.clone(), v.into())).collect();
    launch.cwd = Some(spec.cwd.clone());
    launch.stdout = Stream::File(spec.report.join("stdout"));
    launch.stderr = Stream::File(spec.report.join("stderr"));
    launch.spawn()
}

/// Waits for the command, and reaps whatever else became init's.
fn reap_until_end(mut main: Process) -> io::Result<i32> {
    let number = |status: WaitStatus| status.pid().map(Pid::as_raw);
    loop {
        // A look only: the command itself is reaped by its own handle.
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(status) if number(status) == i32::try_from(main.pid()).ok() => {
                let status = main.wait()?;
                return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
            }
            Ok(status) => drop(waitpid(status.pid(), None)),
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Shows the host that the clock moves, and which processes there are: the watchdog's eyes.
fn start_beat(spec: &GuestSpec, clock: Clock) {
    let (beat, table) = (spec.report.join("beat"), spec.report.join("processes"));
    let period = Duration::from_secs(u64::from(spec.beat_s.max(1)));
    let mut known = Vec::new();
    std::thread::spawn(move || {
        loop {
            // Failing to show it stops nothing; the watchdog then judges by the wall clock alone.
            let _ = fs::write(&beat, clock.now().0.to_string());
            let pids = procfs::pids();
            if pids != known {
                let lines = pids.iter().map(|p| format!("{p}\t{}\n", procfs::command_line(*p).join(" ")));
                let _ = fs::write(&table, lines.collect::<String>());
                known = pids;
            }
            std::thread::sleep(period);
        }
    });
}

fn write_end(report: &Path, end: &GuestEnd) -> io::Result<()> {
    let partial = report.join("end.json.partial");
    fs::write(&partial, serde_json::to_vec(end)?)?;
    fs::rename(partial, report.join("end.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_an_ordinary_machine_it_refuses() {
        assert_eq!(guest_main(&["/nonexistent".into()]), 2);
    }
}

//! A program of somebody else's as the subject: started, its output kept, its words and its work heard of.
//!
//! The program is not changed and not asked: that it consumes is a line of its log, that it worked is its task's own
//! message on a socket of the run, which options its sockets have is read through duplicates of its descriptors. What is
//! left out: its connections' lives, which the engine follows from outside.

use super::account::{self, Account};
use super::attempts::Trial;
use super::report::Reporter;
use super::socket;
use crate::clients::Program;
use crate::events::{EffectiveOptions, How, Kind, Tuple};
use crate::host::process::{Launch, Process, Stream, descriptor_of, on_end, pidfd_open};
use crate::host::procfs;
use crate::scenario::ReadyWhen;
use crate::units::{TrialId, hide_secrets};
use nix::sys::signal::Signal;
use socket2::SockRef;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Longest line of a log that is kept whole.
const LINE_BYTES: u64 = 64 * 1024;
/// A datagram of a task: two numbers.
const PROOF_BYTES: usize = 128;

/// A program that runs, for whoever ends it or looks at it.
#[derive(Debug)]
pub(super) struct Running {
    root: u32,
    effects: std::path::PathBuf,
    trial: TrialId,
    reporter: Reporter,
    /// Whether it was there before, and stays.
    attached: bool,
}

impl Running {
    /// Starts it. Everything that it says and does is reported by threads that end with it.
    pub fn start(trial: Trial, program: Program) -> io::Result<Self> {
        if let Some(root) = program.attached {
            let (id, reporter) = (trial.id, trial.reporter.clone());
            let ended =
                move || trial.event(Kind::SubjectExited { status: "its container\'s main process ended".into() });
            on_end(root, ended)?;
            return Ok(Self { root, effects: program.effects, trial: id, reporter, attached: true });
        }
        if let Some(dir) = program.effects.parent() {
            fs::create_dir_all(dir)?;
        }
        let proofs = UnixDatagram::bind(&program.effects)?;
        let log = Arc::new(Mutex::new(open_log(&program.log)?));
        let account = account::find(&program.user)?;
        if account.is_some() {
            // Whoever it is may prove that it worked.
            fs::set_permissions(&program.effects, fs::Permissions::from_mode(0o777))?;
        }
        let (name, args) = program.argv.split_first().ok_or_else(|| io::Error::other("an empty command"))?;
        let mut launch = Launch::new(name).args(args);
        // Nothing of the machine's own configuration reaches it.
        launch.only_env = true;
        launch.env = environment(&program, account.as_ref());
        launch.user = account.as_ref().map(|account| (account.user, account.group));
        launch.cwd = program.cwd.clone().or_else(|| program.effects.parent().map(Path::to_path_buf));
        (launch.stdout, launch.stderr) = (Stream::Pipe, Stream::Pipe);
        let mut process = launch
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("`{name}` can't be started: {error}")))?;
        let (effects, reporter) = (program.effects.clone(), trial.reporter.clone());
        let running = Self { root: process.pid(), effects, trial: trial.id, reporter, attached: false };
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            process.take_stdout().map(|out| Box::new(out) as Box<dyn Read + Send>),
            process.take_stderr().map(|err| Box::new(err) as Box<dyn Read + Send>),
        ];
        let ready = Arc::new(AtomicBool::new(false));
        for stream in streams.into_iter().flatten() {
            let ear = Ear { trial: trial.clone(), program: program.clone(), log: log.clone(), ready: ready.clone() };
            thread::Builder::new().name(format!("log-{}", trial.id)).spawn(move || ear.listen(stream))?;
        }
        let reporter = trial.reporter.clone();
        let id = trial.id;
        thread::Builder::new().name(format!("proofs-{id}")).spawn(move || hear_proofs(&proofs, &reporter, id))?;
        thread::Builder::new().name(format!("end-{id}")).spawn(move || await_end(process, &trial))?;
        Ok(running)
    }

    /// Ends the whole tree at once: whoever is blocked on a frozen peer would not hear a gentler word.
    pub fn end(&self) {
        if self.attached {
            return;
        }
        let used = procfs::tree_usage(self.root);
        if used.processes > 0 {
            let kind = Kind::Used { cpu_ms: used.cpu_ms, peak_rss_kib: used.peak_rss_kib, processes: used.processes };
            self.reporter.event(self.reporter.now(), self.trial, kind);
        }
        for process in procfs::tree(self.root) {
            // What has ended meanwhile is what was wanted.
            let _ = procfs::signal(process, Signal::SIGKILL);
        }
        // An empty datagram ends the thread that hears the proofs.
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.send_to(b"", &self.effects);
        }
    }

    /// The options of one of its connections, by the kernel.
    pub fn options(&self, tuple: Tuple) -> Option<EffectiveOptions> {
        procfs::tree(self.root).into_iter().find_map(|process| options_in(process.pid, tuple))
    }
}

fn options_in(pid: u32, tuple: Tuple) -> Option<EffectiveOptions> {
    let pidfd = pidfd_open(pid).ok()?;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let socket = fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| socket) else {
            continue;
        };
        // Closed at the end of each turn: the duplicate keeps the connection open.
        let Ok(copy) = descriptor_of(pidfd.as_fd(), number) else { continue };
        let of_it = SockRef::from(&copy);
        if socket::tuple_of(SockRef::from(&copy)).is_ok_and(|found| found == tuple) {
            return Some(socket::effective(of_it));
        }
    }
    None
}

fn environment(program: &Program, account: Option<&Account>) -> Vec<(String, std::ffi::OsString)> {
    let home = account.and_then(|account| account.home.clone()).map(PathBuf::into_os_string);
    let home = home.or_else(|| program.effects.parent().map(|dir| dir.as_os_str().to_os_string())).unwrap_or_default();
    let mut all: Vec<(String, std::ffi::OsString)> = vec![
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("LANG".into(), "C.UTF-8".into()),
        ("TZ".into(), "UTC".into()),
        ("HOME".into(), home),
        ("PYTHONUNBUFFERED".into(), "1".into()),
        ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
    ];
    all.extend(program.env.iter().map(|(name, value)| (name.clone(), value.into())));
    all
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    File::create(path)
}

/// Reads one of the program's two streams.
struct Ear {
    trial: Trial,
    program: Program,
    log: Arc<Mutex<File>>,
    ready: Arc<AtomicBool>,
}

impl Ear {
    fn listen(&self, stream: impl Read) {
        let mut lines = BufReader::new(stream);
        loop {
            let mut bytes = Vec::new();
            match (&mut lines).take(LINE_BYTES).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.line(String::from_utf8_lossy(&bytes).trim_end()),
            }
        }
    }

    fn line(&self, text: &str) {
        let at = self.trial.reporter.now();
        let password = &self.trial.target.password;
        let text = if password.is_empty() { text.to_string() } else { text.replace(password.as_str(), "********") };
        let text = hide_secrets(&text).into_owned();
        {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            // A full disk must not end the measurement.
            let _ = writeln!(log, "{:>14.6} {text}", at.as_secs());
        }
        let says_ready = matches!(&self.program.ready, ReadyWhen::Log(ready) if text.contains(ready.as_str()));
        if says_ready && !self.ready.swap(true, Ordering::Relaxed) {
            self.trial.event_at(at, Kind::Ready { attempt: 0 });
        }
        if let Some(message) = self.program.done.as_ref().and_then(|pattern| number_in(pattern, &text)) {
            self.trial.event_at(at, Kind::Effect { message });
        }
        if self.program.lost.iter().any(|lost| text.contains(lost.as_str())) {
            let how = how(&self.program, &text);
            self.trial.event_at(at, Kind::Said { how, text });
        }
    }
}

/// The number at the place of `{message}` in a line that is like the pattern.
fn number_in(pattern: &str, line: &str) -> Option<u64> {
    let (before, after) = pattern.split_once("{message}")?;
    line.match_indices(before).find_map(|(at, _)| {
        let rest = &line[at + before.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[end..].starts_with(after).then(|| rest[..end].parse().ok())?
    })
}

/// What a line means, by the adapter's words.
fn how(program: &Program, text: &str) -> How {
    match program.words.iter().find(|(word, _)| text.contains(word.as_str())).map(|(_, how)| how.as_str()) {
        Some("read_timeout") => How::ReadTimeout,
        Some("connect_timeout") => How::ConnectTimeout,
        Some("amqp_heartbeat") => How::AmqpHeartbeat,
        Some("health_check") => How::HealthCheck,
        Some("closed_by_peer") => How::ClosedByPeer,
        _ => How::Other,
    }
}

fn hear_proofs(proofs: &UnixDatagram, reporter: &Reporter, trial: TrialId) {
    let mut buffer = [0; PROOF_BYTES];
    while let Ok(length @ 1..) = proofs.recv(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]);
        match text.split_once(' ').map(|(message, at)| (message.parse(), at.trim().parse())) {
            Some((Ok(message), Ok(monotonic_ns))) => {
                reporter.event(reporter.offset_of_monotonic(monotonic_ns), trial, Kind::Effect { message });
            }
            _ => reporter.note(format!("trial {trial}: a task said `{text}`, which is no proof of work")),
        }
    }
}

fn await_end(mut process: Process, trial: &Trial) {
    let status = match process.wait() {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    // One that was closed on purpose reports nothing.
    trial.event(Kind::SubjectExited { status });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::SubjectKind;

    #[test]
    fn words_are_taken_from_the_adapter() {
        let adapter = crate::clients::adapter_of(SubjectKind::Celery).unwrap();
        let program = Program {
            argv: Vec::new(),
            env: Vec::new(),
            cwd: None,
            done: None,
            ready: adapter.ready,
            lost: adapter.lost,
            words: adapter.words,
            effects: "/x".into(),
            log: "/y".into(),
            user: String::new(),
            attached: None,
        };
        let line = |cause: &str| {
            format!("consumer: Connection to broker lost. Trying to re-establish the connection... ({cause})")
        };
        assert_eq!(how(&program, &line("TimeoutError()")), How::ReadTimeout);
        assert_eq!(
            how(&program, &line("ConnectionForced('Too many heartbeats missed', None, None, '')")),
            How::AmqpHeartbeat
        );
        assert_eq!(how(&program, &line("ConnectionResetError(104, 'Connection reset by peer')")), How::Other);
    }

    #[test]
    fn a_line_that_is_like_the_pattern_has_its_number() {
        assert_eq!(number_in("done {message}", "12:00 done 17"), Some(17));
        assert_eq!(number_in("job={message};", "job=; job=4; job=5;"), Some(4));
        assert_eq!(number_in("{message} done", "17 done"), Some(17));
        assert_eq!(number_in("done {message}", "done x"), None);
        assert_eq!(number_in("done {message}!", "done 7"), None);
    }

    #[test]
    fn the_options_of_another_process_can_be_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let tuple = socket::tuple_of(SockRef::from(&near)).unwrap();
        let mut launch = Launch::new("/bin/sleep").args(["60"]);
        launch.stdin = Stream::Fd(Arc::new(near.into()));
        let process = launch.spawn().unwrap();
        let options = options_in(process.pid(), tuple).expect("the child holds it");
        assert_eq!(options.so_rcvtimeo_ms, Some(60_000));
        assert_eq!(options_in(process.pid(), tuple.reversed()), None);
    }
}

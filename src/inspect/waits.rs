//! What a process's threads wait for, from `/proc/PID/task/TID/syscall`: reads, polls and event loops with deadlines.
//!
//! A deadline is known only while a thread waits in it, and never assumed otherwise. Reading needs the right to trace the
//! process. What is left out: io_uring, where no thread waits in a call of its own.

use super::look::Wait;
use crate::host::procfs;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// More descriptors than that in one `poll` are an event loop, whatever they are.
const MOST_POLLED: u64 = 4096;

/// What one thread waits in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    Read(i32),
    Write(i32),
    Poll { fds: Vec<i32>, deadline_ms: Option<u64> },
    Epoll { epoll: i32, deadline_ms: Option<u64> },
}

/// What the threads of one process wait for, by descriptor.
#[derive(Debug, Default)]
pub(super) struct Waits {
    of: HashMap<i32, (Wait, u32)>,
    unreadable: Option<String>,
}

impl Waits {
    /// Looks at every thread.
    pub fn of(pid: u32) -> Self {
        let mut waits = Self::default();
        let memory = File::open(format!("/proc/{pid}/mem"));
        let read = |address: u64, length: usize| {
            let mut bytes = vec![0; length];
            memory.as_ref().ok()?.read_exact_at(&mut bytes, address).ok()?;
            Some(bytes)
        };
        for thread in procfs::threads(pid) {
            let text = match fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) {
                Ok(text) => text,
                // A thread that ended between the two calls.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(e) => {
                    waits.unreadable = Some(format!("/proc/{pid}/task/{thread}/syscall: {e}"));
                    return waits;
                }
            };
            if let Some(call) = call(&text, read) {
                waits.note(pid, thread, &call);
            }
        }
        waits
    }

    fn note(&mut self, pid: u32, thread: u32, call: &Call) {
        match call {
            Call::Read(fd) => self.put(*fd, Wait::Read, thread),
            Call::Write(fd) => self.put(*fd, Wait::Write, thread),
            Call::Poll { fds, deadline_ms } => {
                let alone = fds.len() == 1;
                for fd in fds {
                    self.put(*fd, Wait::Poll { deadline_ms: *deadline_ms, alone }, thread);
                }
            }
            Call::Epoll { epoll, deadline_ms } => {
                let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{epoll}")).unwrap_or_default();
                for fd in polled_by(&text) {
                    self.put(fd, Wait::Epoll { deadline_ms: *deadline_ms }, thread);
                }
            }
        }
    }

    /// The wait that says most about who reads is kept.
    fn put(&mut self, fd: i32, wait: Wait, thread: u32) {
        let rank = |wait: &Wait| match wait {
            Wait::Read => 0,
            Wait::Poll { alone: true, .. } => 1,
            Wait::Write => 2,
            Wait::Poll { .. } => 3,
            Wait::Epoll { .. } => 4,
            Wait::Nobody | Wait::Unknown { .. } => 5,
        };
        let known = self.of.get(&fd);
        if known.is_none_or(|(known, _)| rank(&wait) < rank(known)) {
            self.of.insert(fd, (wait, thread));
        }
    }

    /// The kernel function in which the thread sleeps that waits for a descriptor; `None` where there is none, or it may
    /// not be seen.
    pub fn channel(&self, pid: u32, fd: i32) -> Option<String> {
        let (_, thread) = self.of.get(&fd)?;
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/wchan")).ok()?;
        Some(text).filter(|t| !t.is_empty() && t != "0")
    }

    /// What is known of a descriptor.
    pub fn get(&self, fd: i32) -> Wait {
        match (self.of.get(&fd), &self.unreadable) {
            (Some((wait, _)), _) => wait.clone(),
            (None, Some(why)) => Wait::Unknown { why: why.clone() },
            (None, None) => Wait::Nobody,
        }
    }
}

/// The descriptors in an epoll set, from its `fdinfo`.
fn polled_by(text: &str) -> HashSet<i32> {
    text.lines().filter_map(|l| l.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok()).collect()
}

/// Number and arguments of a thread's system call; `None` where it runs.
fn parse(text: &str) -> Option<(i64, Vec<u64>)> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok().filter(|n: &i64| *n >= 0)?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let arguments: Vec<u64> = words.filter_map(hex).collect();
    (arguments.len() >= 6).then_some((number, arguments))
}

/// The call of a thread, where it waits for descriptors; `read` reads the thread's memory.
fn call(text: &str, read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Call> {
    let (number, a) = parse(text)?;
    let fd = a[0] as u32 as i32;
    let milliseconds = |argument: u64| u64::try_from(argument as u32 as i32).ok();
    // `struct timespec`, or `struct timeval` with its own unit; a null pointer is no deadline.
    let time = |pointer: u64, per_second: u64| -> Option<Option<u64>> {
        if pointer == 0 {
            return Some(None);
        }
        let bytes = read(pointer, 16)?;
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        Some(Some(word(0) * 1000 + word(8) * 1000 / per_second))
    };
    let polled = |pointer: u64, count: u64| -> Option<Vec<i32>> {
        if count > MOST_POLLED {
            return None;
        }
        let bytes = read(pointer, usize::try_from(count).ok()? * 8)?;
        let first = |entry: &[u8]| entry[..4].try_into().ok().map(i32::from_ne_bytes);
        Some(bytes.chunks_exact(8).filter_map(first).filter(|fd| *fd >= 0).collect())
    };
    // Only the set that is waited for reading says who would notice.
    let selected = |pointer: u64, count: u64| -> Option<Vec<i32>> {
        let count = usize::try_from(count).ok().filter(|n| *n <= 1024)?;
        let bytes = if pointer == 0 { Vec::new() } else { read(pointer, count.div_ceil(64) * 8)? };
        let set = |fd: &usize| bytes.get(fd / 8).is_some_and(|byte| byte & (1 << (fd % 8)) != 0);
        Some((0..count).filter(set).filter_map(|fd| i32::try_from(fd).ok()).collect())
    };
    match number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => Some(Call::Read(fd)),
        libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg => Some(Call::Write(fd)),
        libc::SYS_ppoll => Some(Call::Poll { fds: polled(a[0], a[1])?, deadline_ms: time(a[2], 1_000_000_000)? }),
        libc::SYS_pselect6 => Some(Call::Poll { fds: selected(a[1], a[0])?, deadline_ms: time(a[4], 1_000_000_000)? }),
        libc::SYS_epoll_pwait => Some(Call::Epoll { epoll: fd, deadline_ms: milliseconds(a[3]) }),
        libc::SYS_epoll_pwait2 => Some(Call::Epoll { epoll: fd, deadline_ms: time(a[3], 1_000_000_000)? }),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Some(Call::Poll { fds: polled(a[0], a[1])?, deadline_ms: milliseconds(a[2]) }),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => Some(Call::Poll { fds: selected(a[1], a[0])?, deadline_ms: time(a[4], 1_000_000)? }),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Some(Call::Epoll { epoll: fd, deadline_ms: milliseconds(a[3]) }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: i64, arguments: [u64; 6]) -> String {
        let hex: Vec<String> = arguments.iter().map(|a| format!("0x{a:x}")).collect();
        format!("{number} {} 0x7ffd0000 0x7f000000\n", hex.join(" "))
    }

    #[test]
    fn reads_and_loops_are_told_apart_with_their_deadlines() {
        let nothing = |_, _| None;
        assert_eq!(call(&line(libc::SYS_recvfrom, [5, 1, 2, 0, 0, 0]), nothing), Some(Call::Read(5)));
        let forever = line(libc::SYS_epoll_pwait, [4, 1, 64, 0xffff_ffff, 0, 8]);
        assert_eq!(call(&forever, nothing), Some(Call::Epoll { epoll: 4, deadline_ms: None }));
        let turns = line(libc::SYS_epoll_pwait, [4, 1, 64, 999, 0, 8]);
        assert_eq!(call(&turns, nothing), Some(Call::Epoll { epoll: 4, deadline_ms: Some(999) }));
        assert_eq!(call("running\n", nothing), None);
        assert_eq!(call("-1 0x7ffd 0x7f00\n", nothing), None);
        // Memory that can't be read leaves the descriptors open, and so the answer.
        assert_eq!(call(&line(libc::SYS_ppoll, [0x1000, 1, 0x2000, 0, 8, 0]), nothing), None);
    }

    #[test]
    fn a_poll_names_its_descriptors_and_its_deadline() {
        let memory = |address: u64, length: usize| {
            let mut bytes = match address {
                0x1000 => [5i32, 1].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>(),
                0x2000 => [10u64, 500_000_000].iter().flat_map(|n| n.to_ne_bytes()).collect(),
                _ => return None,
            };
            bytes.resize(length, 0);
            Some(bytes)
        };
        let poll = call(&line(libc::SYS_ppoll, [0x1000, 1, 0x2000, 0, 8, 0]), memory);
        assert_eq!(poll, Some(Call::Poll { fds: vec![5], deadline_ms: Some(10_500) }));
        let mut waits = Waits::default();
        waits.note(1, 7, &poll.unwrap());
        assert_eq!(waits.get(5), Wait::Poll { deadline_ms: Some(10_500), alone: true });
        waits.put(5, Wait::Epoll { deadline_ms: None }, 8);
        assert!(matches!(waits.get(5), Wait::Poll { .. }), "the loop says less");
        assert_eq!(waits.get(6), Wait::Nobody);
    }

    #[test]
    fn the_set_of_an_epoll_is_in_its_fdinfo() {
        let text =
            "pos:\t0\nflags:\t02000002\ntfd:        6 events:       19 data: 0\ntfd:       11 events: 1 data: b\n";
        assert_eq!(polled_by(text), HashSet::from([6, 11]));
    }

    #[test]
    fn a_thread_of_this_process_that_reads_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&near);
        std::thread::scope(|scope| {
            scope.spawn(|| std::io::Read::read(&mut &near, &mut [0; 8]).unwrap());
            // The reader sleeps once its look says so; nothing else ends this loop.
            while Waits::of(std::process::id()).get(fd) != Wait::Read {
                std::thread::yield_now();
            }
            std::io::Write::write_all(&mut far, b"x").unwrap();
        });
    }
}

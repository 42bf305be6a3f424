//! Asks a running guest's kernel, over user-mode Linux's control socket, which process it runs, or to interrupt its
//! init.
//!
//! The answer is given in interrupt context, so it comes also when the guest's clock stands still. What is left out:
//! every other command of that socket.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

const MAGIC: u32 = 0xcafe_babe;
const VERSION: u32 = 2;
const DATA: usize = 512;

/// A process of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its number in the guest.
    pub pid: u32,
    /// Its name: at most 15 bytes.
    pub name: String,
}

/// The process that the guest's only processor is running; `None` for the idle task.
///
/// # Errors
/// When the kernel does not answer within a second.
pub fn running(dir: &Path) -> io::Result<Option<Running>> {
    // Show registers: it names the task.
    Ok(parse_running(&ask(dir, "sysrq p")?))
}

/// Sends SIGINT to the guest's init, which hands it on to its command.
///
/// # Errors
/// When the kernel does not answer within a second.
pub fn interrupt(dir: &Path) -> io::Result<()> {
    ask(dir, "cad").map(drop)
}

fn ask(dir: &Path, command: &str) -> io::Result<String> {
    let own = dir.join("ask.sock");
    let _ = std::fs::remove_file(&own);
    let socket = UnixDatagram::bind(&own)?;
    socket.send_to(&request(command), dir.join("uml/mconsole"))?;
    let mut answer = String::new();
    let mut datagram = [0; 12 + DATA];
    loop {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(1000_u16))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the guest's kernel does not answer"));
        }
        let n = socket.recv(&mut datagram)?;
        let Some((more, text)) = parse_reply(&datagram[..n]) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of another format"));
        };
        answer.push_str(&text);
        if !more {
            let _ = std::fs::remove_file(&own);
            return Ok(answer);
        }
    }
}

/// `struct mconsole_request` of the kernel's `arch/um/drivers/mconsole.h`.
fn request(command: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12 + DATA);
    for number in [MAGIC, VERSION, command.len() as u32] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(command.as_bytes());
    bytes.resize(12 + DATA, 0);
    bytes
}

/// `struct mconsole_reply`: error, whether more follows, length, text.
fn parse_reply(bytes: &[u8]) -> Option<(bool, String)> {
    let number = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (more, length) = (number(4)? != 0, number(8)? as usize);
    let text = bytes.get(12..(12 + length).min(bytes.len()))?;
    Some((more, String::from_utf8_lossy(text).trim_end_matches('\0').to_string()))
}

fn parse_running(text: &str) -> Option<Running> {
    let line = text.lines().find_map(|l| l.split("Pid: ").nth(1).filter(|l| l.contains(", comm: ")))?;
    let (pid, rest) = line.split_once(", comm: ")?;
    // The name is padded to 20 columns; what follows is the taint, the release and the package.
    let end = [" Not tainted", " Tainted:"].iter().find_map(|mark| rest.find(mark)).unwrap_or(rest.len());
    let pid = pid.trim().parse().ok().filter(|pid| *pid != 0)?;
    Some(Running { pid, name: rest[..end].trim().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_kernels_layout() {
        let bytes = request("sysrq p");
        assert_eq!(bytes.len(), 524);
        assert_eq!(bytes[..4], MAGIC.to_ne_bytes());
        assert_eq!(bytes[8..19], [7, 0, 0, 0, b's', b'y', b's', b'r', b'q', b' ', b'p']);
    }

    #[test]
    fn replies_are_read_and_short_ones_refused() {
        let mut bytes = vec![0; 12];
        bytes[4] = 1;
        bytes[8] = 3;
        bytes.extend(b"abc\0\0");
        assert_eq!(parse_reply(&bytes), Some((true, "abc".into())));
        assert_eq!(parse_reply(&bytes[..7]), None);
    }

    #[test]
    fn the_task_is_found_in_the_registers() {
        let text = "sysrq: Show Regs\n\nPid: 41, comm: spin loop            Not tainted 6.1.192-vt\nRIP: 0033:0\n";
        assert_eq!(parse_running(text), Some(Running { pid: 41, name: "spin loop".into() }));
        let idle = "Pid: 0, comm: swapper              Not tainted 6.1.192-vt";
        assert_eq!(parse_running(idle), None);
        assert_eq!(parse_running("nothing"), None);
    }
}

//! The socket.

use super::model::{Element, Family, Op, Set};
use super::parse::{self, Reading};
use super::{NftError, encode};
use crate::host::clock::Clock;
use crate::host::netns::NetNs;
use crate::host::nlmsg::{self, Message};
use crate::units::Offset;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::time::Duration;

const RECEIVE_BYTES: usize = 64 * 1024;
const KERNEL_BUFFER_BYTES: usize = 4 << 20;
/// The kernel answers within the system call; an answer that is not there by then is not coming.
const NO_ANSWER: Duration = Duration::from_secs(5);
/// How often an interrupted dump is started again before giving up.
const DUMP_TRIES: usize = 16;
const DELETED_ELEMENT: u16 = 10 << 8 | 14;

/// One table, and the socket that owns it. Whatever the socket created disappears with it.
#[derive(Debug)]
#[must_use = "the kernel removes the table when the client is dropped"]
pub struct NftClient {
    namespace: String,
    family: Family,
    table: String,
    socket: Socket,
    sequence: u32,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// A batch that the kernel committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Clock reading immediately before the batch was sent.
    pub before: Offset,
    /// Clock reading immediately after the kernel's acknowledgement was read.
    pub after: Offset,
    /// Each deleted element with its last count.
    pub deleted: Vec<Reading>,
}

/// A rule that exists: its chain's name and its handle, which no other rule of the table ever gets again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleHandle {
    /// The chain.
    pub chain: String,
    /// The handle.
    pub handle: u64,
}

impl NftClient {
    /// A client for the table of this name in the namespace. Creates nothing yet.
    ///
    /// # Errors
    /// When the socket can't be opened there.
    pub fn open(namespace: &NetNs, family: Family, table: &str) -> Result<Self, NftError> {
        let error = |source| NftError::Socket {
            namespace: namespace.name().to_string(),
            operation: "open the netlink socket",
            source,
        };
        let socket = namespace.run(open_socket).map_err(error)?;
        Ok(Self {
            namespace: namespace.name().to_string(),
            family,
            table: table.to_string(),
            socket,
            sequence: 0,
            request: Vec::with_capacity(4096),
            answer: vec![0; RECEIVE_BYTES],
        })
    }

    /// Applies all operations at once, or none.
    ///
    /// # Errors
    /// The operation, with its element, that the kernel refused first, or the failure of the commit as a whole.
    pub fn commit(&mut self, clock: Clock, ops: &[Op]) -> Result<Committed, NftError> {
        // A width that holds: a batch is a few thousand operations at most.
        let first = self.reserve(ops.len() as u32 + 2);
        let last = first.wrapping_add(ops.len() as u32);
        encode::batch(&mut self.request, self.family, &self.table, ops, first);
        let mut refused: Option<(u32, i32, String)> = None;
        let mut deleted = Vec::new();
        let before = clock.now();
        self.send("send a batch")?;
        let outcome = self.receive("read the acknowledgement of a batch", |message| {
            if message.kind == DELETED_ELEMENT {
                // Told by its kind: newer kernels echo with the sequence number 0, and the socket joined no group that
                // could bring somebody else's.
                deleted.extend(parse::elements(message.payload));
                return ControlFlow::Continue(());
            }
            let index = message.sequence.wrapping_sub(first);
            if index > last.wrapping_sub(first) + 1 {
                return ControlFlow::Continue(());
            }
            match nlmsg::acknowledgement(message) {
                Some((0, _)) if message.sequence == last => return ControlFlow::Break(()),
                Some((0, _)) | None => {}
                Some((code, words)) => {
                    refused.get_or_insert((index, code, words));
                    // A failed commit answers at the batch itself and perhaps at nothing else.
                    if index == 0 || message.sequence == last {
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        });
        let after = clock.now();
        if let Some((index, code, told)) = refused {
            self.drain();
            let op = (index as usize).checked_sub(1).and_then(|i| ops.get(i));
            let operation = op.map_or_else(|| "commit the batch".to_string(), ToString::to_string);
            return Err(self.refused(operation, code, told));
        }
        outcome?;
        let wanted = ops.iter().filter(|op| matches!(op, Op::DeleteElement(_))).count();
        if deleted.len() != wanted {
            return Err(self.incomplete("delete elements", "last count of each element"));
        }
        Ok(Committed { before, after, deleted })
    }

    /// Every element of a set, handed to `each`.
    ///
    /// # Errors
    /// When the set does not exist, or other writers keep interrupting.
    pub fn elements(&mut self, set: &'static Set, mut each: impl FnMut(Reading)) -> Result<(), NftError> {
        let mut found = Vec::new();
        for _ in 0..DUMP_TRIES {
            found.clear();
            let sequence = self.reserve(1);
            encode::dump_elements(&mut self.request, self.family, &self.table, set, sequence);
            if self.dump(sequence, "read a set", |payload| found.extend(parse::elements(payload)))? {
                found.into_iter().for_each(&mut each);
                return Ok(());
            }
        }
        Err(self.incomplete("read a set", "consistent picture: something else keeps changing the ruleset"))
    }

    /// These elements, in order; `None` for one that is not there.
    ///
    /// # Errors
    /// Any refusal other than "not there".
    pub fn elements_of(&mut self, wanted: &[Element]) -> Result<Vec<Option<Reading>>, NftError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.reserve(wanted.len() as u32);
        encode::get_elements(&mut self.request, self.family, &self.table, wanted, first);
        let mut found = vec![None; wanted.len()];
        let mut refused = None;
        let mut left = wanted.len();
        self.send("ask for elements")?;
        self.receive("read elements", |message| {
            let index = message.sequence.wrapping_sub(first) as usize;
            let Some(slot) = found.get_mut(index) else { return ControlFlow::Continue(()) };
            match nlmsg::acknowledgement(message) {
                None => *slot = parse::elements(message.payload).next(),
                Some((code, words)) => {
                    left -= 1;
                    if code != 0 && code != libc::ENOENT {
                        refused.get_or_insert((index, code, words));
                    }
                }
            }
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        match refused {
            Some((index, code, told)) => Err(self.refused(format!("get element {}", wanted[index]), code, told)),
            None => Ok(found),
        }
    }

    /// The ruleset's generation: the kernel counts it up with every commit in the namespace, whoever made it.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn generation(&mut self) -> Result<u32, NftError> {
        let sequence = self.reserve(1);
        encode::get_generation(&mut self.request, sequence);
        let mut generation = None;
        self.send("ask for the generation")?;
        self.receive("read the generation", |message| {
            if message.sequence != sequence {
                return ControlFlow::Continue(());
            }
            generation = parse::generation(message.payload);
            ControlFlow::Break(())
        })?;
        generation.ok_or_else(|| self.incomplete("read the generation", "generation"))
    }

    /// The table's rules in order of evaluation; empty where the table is gone.
    ///
    /// # Errors
    /// When the socket fails, or other writers keep interrupting.
    pub fn rules(&mut self) -> Result<Vec<RuleHandle>, NftError> {
        for _ in 0..DUMP_TRIES {
            let mut found = Vec::new();
            let sequence = self.reserve(1);
            encode::dump_rules(&mut self.request, self.family, &self.table, sequence);
            let consistent = self.dump(sequence, "read the rules", |payload| {
                found.extend(parse::rule(payload).map(|(chain, handle)| RuleHandle { chain, handle }));
            })?;
            if consistent {
                return Ok(found);
            }
        }
        Err(self.incomplete("read the rules", "consistent picture: something else keeps changing the ruleset"))
    }

    /// Sends the request and reads the dump; false when it was interrupted.
    fn dump(&mut self, sequence: u32, what: &'static str, mut each: impl FnMut(&[u8])) -> Result<bool, NftError> {
        let mut interrupted = false;
        let mut refused = None;
        self.send(what)?;
        self.receive(what, |message| {
            if message.sequence != sequence {
                return ControlFlow::Continue(());
            }
            interrupted |= message.flags & nlmsg::FLAG_DUMP_INTERRUPTED != 0;
            if message.kind == nlmsg::DONE {
                return ControlFlow::Break(());
            }
            match nlmsg::acknowledgement(message) {
                None => each(message.payload),
                // The kernel's way to say that the dump has to start again.
                Some((libc::EINTR | libc::EAGAIN, _)) => {
                    interrupted = true;
                    return ControlFlow::Break(());
                }
                Some(error) => {
                    refused = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        match refused {
            Some((code, told)) => Err(self.refused(what.to_string(), code, told)),
            None => Ok(!interrupted),
        }
    }

    fn reserve(&mut self, count: u32) -> u32 {
        let first = self.sequence.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(count);
        first
    }

    fn send(&self, operation: &'static str) -> Result<(), NftError> {
        let sent = self.socket.send(&self.request, 0).map_err(|source| self.failed(operation, source))?;
        if sent == self.request.len() {
            Ok(())
        } else {
            Err(self.failed(operation, io::Error::other("the request was cut short")))
        }
    }

    fn receive(
        &mut self,
        operation: &'static str,
        mut each: impl FnMut(&Message<'_>) -> ControlFlow<()>,
    ) -> Result<(), NftError> {
        loop {
            let mut answer = &mut self.answer[..];
            let received = self.socket.recv(&mut answer, 0);
            let length = match received {
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(self.failed(operation, source)),
            };
            for message in nlmsg::messages(&self.answer[..length]) {
                if each(&message).is_break() {
                    return Ok(());
                }
            }
        }
    }

    /// Throws away what is left of a refused batch's answers, which are all queued by the time that one is read.
    fn drain(&mut self) {
        while self.socket.recv(&mut &mut self.answer[..], libc::MSG_DONTWAIT).is_ok() {}
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> NftError {
        NftError::Socket { namespace: self.namespace.clone(), operation, source }
    }

    fn refused(&self, operation: String, code: i32, told: String) -> NftError {
        let source = io::Error::from_raw_os_error(code);
        NftError::Refused { namespace: self.namespace.clone(), operation, source, told }
    }

    fn incomplete(&self, operation: &'static str, missing: &'static str) -> NftError {
        NftError::Incomplete { namespace: self.namespace.clone(), operation, missing }
    }
}

fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    let options = socket2::SockRef::from(&socket);
    options.set_read_timeout(Some(NO_ANSWER))?;
    // Beyond the system's limit where the kernel allows it; the ordinary size holds one trial's answers anyway.
    let size = libc::c_int::try_from(KERNEL_BUFFER_BYTES).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the option takes one int by pointer and length.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
    Ok(socket)
}

//! Taking a look: processes, namespaces, sockets, owners, options and waits, in that order.
//!
//! Each namespace is entered on a thread of its own, which ends at once; the netlink socket that was opened there is kept
//! for the next look. What may not be seen leaves its column open and a note behind.

use super::container::ContainerError;
use super::look::{Connection, Ended, Look, Namespace, Target, Wait};
use super::options;
use super::processes::{self, Owners, Process, owner};
use super::waits::Waits;
use crate::host::capabilities::{self, Kernel};
use crate::host::clock::Clock;
use crate::host::netns::{NetNs, of_socket};
use crate::host::process::pidfd_open;
use crate::host::procfs;
use crate::observe::{SockDiag, SockDiagError, States, TcpSocket};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use thiserror::Error;

/// The sysctls on which a prediction depends.
const SYSCTLS: [&str; 6] = [
    "tcp_retries2",
    "tcp_rto_min_us",
    "tcp_rto_max_ms",
    "tcp_syn_retries",
    "tcp_syn_linear_timeouts",
    "tcp_early_retrans",
];

/// Why there is no look at all. One line with the mend.
#[derive(Debug, Error)]
pub enum InspectError {
    /// No such process.
    #[error("no process {0} runs here; in another PID namespace it has another number")]
    NoProcess(u32),
    /// No such container.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A namespace that can't be looked into.
    #[error(
        "network namespace {path}: {source}; run as root, or give another file under /run/netns or /proc/PID/ns/net"
    )]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// None of the target's namespaces can be looked into.
    #[error(
        "{target}: its network namespace can't be looked into ({why}); run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE"
    )]
    NotAllowed {
        /// The target, in words.
        target: String,
        /// Why.
        why: String,
    },
}

struct Entered {
    diag: SockDiag,
    settings: Namespace,
}

/// Takes looks at one target; what does not change between two of them is kept.
pub struct Inspector {
    target: Target,
    clock: Clock,
    kernel: Kernel,
    entered: HashMap<u64, Entered>,
    seen: bool,
}

impl Inspector {
    /// Nothing is looked at yet.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let kernel = capabilities::kernel();
        Self { target, clock: Clock::start(), kernel, entered: HashMap::new(), seen: false }
    }

    /// The kernel, as it says itself.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Takes a look.
    ///
    /// # Errors
    /// [`InspectError`], where there is nothing to look at. A target that was there at an earlier look and has ended
    /// since is no error.
    pub fn look(&mut self) -> Result<Look, InspectError> {
        let at_s = self.clock.now().as_secs();
        let processes = processes::of(&self.target)?;
        if let (Target::Process(pid), true) = (&self.target, processes.is_empty()) {
            if !self.seen {
                return Err(InspectError::NoProcess(*pid));
            }
            let ended = vec![Ended { pid: *pid, name: String::new() }];
            return Ok(Look { at_s, namespaces: Vec::new(), connections: Vec::new(), ended, notes: Vec::new() });
        }
        self.seen = true;
        let mut notes = Vec::new();
        let owners = Owners::of(&processes);
        let wanted = self.wanted(&processes)?;
        let mut namespaces = Vec::new();
        let mut tables: Vec<(usize, Vec<TcpSocket>)> = Vec::new();
        let mut refused = None;
        let mut enter = |this: &mut Self, wanted: BTreeMap<u64, NetNs>, tables: &mut Vec<(usize, Vec<TcpSocket>)>| {
            for (id, namespace) in wanted {
                match this.table(id, &namespace) {
                    Ok((settings, table)) => {
                        tables.push((namespaces.len(), table));
                        namespaces.push(settings);
                    }
                    Err(e) => {
                        notes.push(format!("network namespace {id} can't be looked into ({}); run as root", e.source));
                        refused = Some(e.source.to_string());
                    }
                }
            }
        };
        let known: HashSet<u64> = wanted.keys().copied().collect();
        enter(self, wanted, &mut tables);
        // A process may hold sockets of a namespace that it is not in. Only the socket itself knows which.
        if matches!(self.target, Target::Process(_) | Target::Container(_)) {
            let seen: HashSet<u64> = tables.iter().flat_map(|(_, table)| table.iter().map(|s| s.inode)).collect();
            let mut others = elsewhere(&processes, &owners, &seen);
            others.retain(|id, _| !known.contains(id));
            enter(self, others, &mut tables);
        }
        if let (true, Some(why)) = (namespaces.is_empty(), refused) {
            return Err(InspectError::NotAllowed { target: self.target.to_string(), why });
        }
        let mut connections = Vec::new();
        for (namespace, table) in tables {
            let chosen = table.into_iter().filter(|socket| self.is_wanted(socket, &owners));
            connections.extend(chosen.map(|socket| Connection {
                namespace,
                socket,
                owner: None,
                options: Err("nobody that may be looked at has it open".to_string()),
                wait: Wait::Unknown { why: "its owner is not known".to_string() },
                wait_channel: None,
            }));
        }
        ask_owners(&mut connections, &processes, &owners);
        notes.extend(privileges(&owners, &connections));
        let gone = processes.iter().filter(|process| !procfs::is_running(process.identity));
        let ended = gone.map(|process| Ended { pid: process.identity.pid, name: process.name.clone() }).collect();
        Ok(Look { at_s, namespaces, connections, ended, notes })
    }

    /// The namespaces to look into.
    fn wanted(&self, processes: &[Process]) -> Result<BTreeMap<u64, NetNs>, InspectError> {
        let mut wanted = BTreeMap::new();
        if let Target::Namespace(path) = &self.target {
            let failed = |source| InspectError::Namespace { path: path.clone(), source };
            let namespace = NetNs::open(path, &path.display().to_string()).map_err(failed)?;
            wanted.insert(namespace.id().map_err(failed)?, namespace);
            return Ok(wanted);
        }
        let own = NetNs::current("this one").ok();
        let own_id = own.as_ref().and_then(|own| own.id().ok());
        for process in processes {
            // A namespace that is not told may be this one; that is better than nothing, and said.
            let Some(id) = process.namespace.or(own_id) else { continue };
            if wanted.contains_key(&id) {
                continue;
            }
            let path = PathBuf::from(format!("/proc/{}/ns/net", process.identity.pid));
            let found = match (&own, own_id == Some(id)) {
                (Some(own), true) => Ok(own.clone()),
                _ => NetNs::open(&path, &format!("of process {}", process.identity.pid)),
            };
            if let Ok(namespace) = found {
                wanted.insert(id, namespace);
            }
        }
        Ok(wanted)
    }

    fn table(&mut self, id: u64, namespace: &NetNs) -> Result<(Namespace, Vec<TcpSocket>), SockDiagError> {
        let entered = match self.entered.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let diag = SockDiag::open(namespace)?;
                new.insert(Entered { diag, settings: Namespace { id, sysctls: sysctls(namespace) } })
            }
        };
        let table = entered.diag.table(States::LIVE)?;
        Ok((entered.settings.clone(), table))
    }

    fn is_wanted(&self, socket: &TcpSocket, owners: &Owners) -> bool {
        match &self.target {
            Target::Port(port) => socket.local.port() == *port || socket.peer.port() == *port,
            Target::Namespace(_) | Target::All => true,
            Target::Process(_) | Target::Container(_) => {
                let hidden = || socket.inode != 0 && owners.hidden_users.contains(&socket.uid);
                !owners.get(socket.inode).is_empty() || hidden()
            }
        }
    }
}

fn sysctls(namespace: &NetNs) -> BTreeMap<String, i64> {
    let read = |name: &&str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        Some(((*name).to_string(), text.trim().parse().ok()?))
    };
    namespace.run(|| Ok(SYSCTLS.iter().filter_map(read).collect())).unwrap_or_default()
}

/// The namespaces of TCP sockets that are in none of those seen so far.
fn elsewhere(processes: &[Process], owners: &Owners, seen: &HashSet<u64>) -> BTreeMap<u64, NetNs> {
    let mut descriptors: HashMap<usize, Option<OwnedFd>> = HashMap::new();
    let mut found = BTreeMap::new();
    for (inode, index, fd) in owners.inodes().filter(|(inode, ..)| !seen.contains(inode)) {
        let Some(process) = processes.get(index) else { continue };
        let pidfd = descriptors.entry(index).or_insert_with(|| pidfd_open(process.identity.pid).ok());
        let Some(copy) = pidfd.as_ref().and_then(|pidfd| options::duplicate(pidfd.as_fd(), fd, inode).ok()) else {
            continue;
        };
        if !options::is_tcp(copy.as_fd()) {
            continue;
        }
        if let Ok(namespace) = of_socket(copy.as_fd(), "of a socket")
            && let Ok(id) = namespace.id()
        {
            found.entry(id).or_insert(namespace);
        }
    }
    found
}

/// Owner, options and waits of each connection.
fn ask_owners(connections: &mut [Connection], processes: &[Process], owners: &Owners) {
    let mut asked: HashMap<usize, (Option<OwnedFd>, Waits)> = HashMap::new();
    for connection in connections {
        let held = owners.get(connection.socket.inode);
        let mut best: Option<(usize, i32, Wait)> = None;
        for (index, fd) in held {
            let Some(process) = processes.get(*index) else { continue };
            let pid = process.identity.pid;
            let (_, waits) = asked.entry(*index).or_insert_with(|| (pidfd_open(pid).ok(), Waits::of(pid)));
            let wait = waits.get(*fd);
            // Of several that share it, the one that waits for it is the one that uses it.
            let better = best.as_ref().is_none_or(|(.., known)| *known == Wait::Nobody && wait != Wait::Nobody);
            if better {
                best = Some((*index, *fd, wait));
            }
        }
        let Some((index, fd, wait)) = best else { continue };
        let process = &processes[index];
        connection.owner = Some(owner(process, fd, held, index));
        if let Some((pidfd, waits)) = asked.get(&index) {
            connection.wait_channel = waits.channel(process.identity.pid, fd);
            connection.options = match pidfd {
                Some(pidfd) => options::of(pidfd.as_fd(), fd, connection.socket.inode).map_err(|e| why(&e)),
                None => Err("its process has ended".to_string()),
            };
        }
        connection.wait = wait;
    }
}

fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "needs CAP_SYS_PTRACE, or the process's own user and Yama's leave".to_string()
        }
        Some(libc::EBADF) => "it was closed meanwhile".to_string(),
        Some(libc::ENOSYS) => "needs Linux 5.6 (pidfd_getfd)".to_string(),
        _ => error.to_string(),
    }
}

/// What could not be seen for want of a right.
fn privileges(owners: &Owners, connections: &[Connection]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((pid, why)) = owners.closed_to_us.iter().next() {
        let more = owners.closed_to_us.len() - 1;
        let others = if more == 0 { String::new() } else { format!(" and of {more} more") };
        notes.push(format!(
            "the descriptors of process {pid}{others} may not be seen ({why}): which connections are whose is not known; run \
             as root, or as the same user"
        ));
    }
    let closed: HashSet<&String> =
        connections.iter().filter(|c| c.owner.is_some()).filter_map(|c| c.options.as_ref().err()).collect();
    notes.extend(closed.into_iter().map(|why| format!("options of some connections could not be read: {why}")));
    notes
}

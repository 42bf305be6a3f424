//! Which processes a target is, in which namespaces they are, and which of them has which socket open.

use super::container::{self, ContainerError};
use super::look::{Owner, Target};
use crate::host::procfs::{self, Identity, RunState};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;

/// A process of the target.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub identity: Identity,
    pub name: String,
    pub command: Vec<String>,
    pub uid: Option<u32>,
    /// Its namespace, where that may be seen.
    pub namespace: Option<u64>,
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        Some(Self {
            identity: procfs::identity(pid)?,
            name: procfs::name(pid),
            command: procfs::command_line(pid),
            uid: std::fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid()),
            namespace: procfs::network_namespace(pid).ok(),
        })
    }
}

/// The processes of a target, by number.
///
/// # Errors
/// Where a container is not found.
pub(super) fn of(target: &Target) -> Result<Vec<Process>, ContainerError> {
    let mut pids: Vec<u32> = match target {
        Target::Process(root) => procfs::tree(*root).into_iter().map(|process| process.pid).collect(),
        Target::Container(name) => container::processes(name)?,
        Target::Namespace(_) | Target::Port(_) | Target::All => procfs::pids(),
    };
    pids.sort_unstable();
    Ok(pids.into_iter().filter_map(Process::of).collect())
}

/// Who has which socket open.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By inode: process (index) and descriptor.
    by_inode: HashMap<u64, Vec<(usize, i32)>>,
    /// Processes whose descriptors may not be seen, and why.
    pub closed_to_us: BTreeMap<u32, String>,
    /// Users whose processes these are.
    pub hidden_users: Vec<u32>,
}

impl Owners {
    pub fn of(processes: &[Process]) -> Self {
        let mut owners = Self::default();
        for (index, process) in processes.iter().enumerate() {
            match procfs::sockets(process.identity.pid) {
                Ok(sockets) => {
                    for (fd, inode) in sockets {
                        owners.by_inode.entry(inode).or_default().push((index, fd));
                    }
                }
                // It ended: what is left of it is told elsewhere.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    owners.closed_to_us.insert(process.identity.pid, e.to_string());
                    owners.hidden_users.extend(process.uid);
                }
            }
        }
        owners
    }

    /// The processes that have a socket open, each with its descriptor; the first by number comes first.
    pub fn get(&self, inode: u64) -> &[(usize, i32)] {
        self.by_inode.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// Every socket that one of them has open.
    pub fn inodes(&self) -> impl Iterator<Item = (u64, usize, i32)> + '_ {
        self.by_inode.iter().filter_map(|(inode, held)| held.first().map(|(process, fd)| (*inode, *process, *fd)))
    }
}

/// An owner in the look's words.
pub(super) fn owner(process: &Process, fd: i32, held_by: &[(usize, i32)], index: usize) -> Owner {
    let mut others: Vec<usize> = held_by.iter().map(|(i, _)| *i).filter(|i| *i != index).collect();
    others.dedup();
    Owner {
        pid: process.identity.pid,
        name: process.name.clone(),
        command: process.command.clone(),
        fd,
        shared_with: others.len(),
        stopped: procfs::run_state(process.identity) == RunState::Stopped,
    }
}

//! Everything that touches the machine: clock, namespaces, netlink, nftables, processes, files, signals, privileges.
//!
//! The only room that may read a clock or start a process. What is left out: any knowledge of brokers, faults or
//! trials.

pub mod attend;
pub mod cage;
pub mod capabilities;
pub mod clock;
pub mod conntrack;
pub mod guest;
pub mod init;
pub mod iptables;
pub mod journal;
pub mod mailbox;
pub mod names;
pub mod netem;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod nlmsg;
pub mod perf;
pub mod priority;
pub mod process;
pub mod procfs;
pub mod programs;
pub mod recent;
pub mod secret;
pub mod signals;
pub mod sockopt;
pub mod supervise;
pub mod tbf;
pub mod userns;

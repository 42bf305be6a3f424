//! The hidden `__probe`: started by the supervisor in a run's place, it tries what the engine would do there.

use crate::host::clock::Clock;
use crate::host::netlink::{Op, apply, has_qdisc};
use crate::host::netns::NetNs;
use crate::host::priority;
use crate::lab::vm;
use crate::observe::{SockDiag, States, Traces};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, RawFd};

/// The hidden command.
pub const PROBE: &str = "__probe";

/// What stands against each thing inside a run's namespaces, in the system's words; `None` where it works.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inside {
    /// A pair of links between two namespaces.
    pub veth: Option<String>,
    /// A table with an owner, sets of concatenated keys with counters, the three hooks.
    pub nftables: Option<String>,
    /// Looking at sockets.
    pub sock_diag: Option<String>,
    /// The kernel's own word on the ends of sockets.
    pub tracepoints: Option<String>,
    /// The queueing discipline of delays and losses.
    pub netem: Option<String>,
    /// Real-time priority for the thread that cuts.
    pub real_time: Option<String>,
}

/// `args` is the number of an inherited descriptor, into which the answer is written.
#[must_use]
pub fn probe_main(args: &[OsString]) -> i32 {
    let Some(fd) = args.first().and_then(|a| a.to_str()?.parse::<RawFd>().ok()).filter(|fd| *fd > 2) else {
        eprintln!("halfopen {PROBE} is started by `halfopen doctor`");
        return 2;
    };
    // SAFETY: `doctor` made the descriptor for this process, where nothing else owns it.
    let mut answer = unsafe { File::from_raw_fd(fd) };
    match serde_json::to_vec(&look()).map_err(io::Error::from).and_then(|bytes| answer.write_all(&bytes)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("halfopen {PROBE}: {error}");
            5
        }
    }
}

fn look() -> Inside {
    let here = NetNs::current("the run's own");
    let within = |work: &dyn Fn(&NetNs) -> Result<(), String>| match &here {
        Ok(ns) => work(ns).err(),
        Err(error) => Some(error.to_string()),
    };
    Inside {
        veth: veth().err().map(|e| e.to_string()),
        nftables: vm::lacking().into_iter().next(),
        sock_diag: within(&|ns| {
            SockDiag::open(ns).and_then(|mut diag| diag.dump(States::LIVE)).map(drop).map_err(|e| e.to_string())
        }),
        tracepoints: Traces::open(Clock::start()).err().map(|e| e.to_string()),
        netem: within(&|ns| match has_qdisc(ns, "netem") {
            Ok(true) => Ok(()),
            Ok(false) => Err("this kernel has no sch_netem".into()),
            Err(error) => Err(error.to_string()),
        }),
        real_time: priority::real_time().err().map(|e| e.to_string()),
    }
}

fn veth() -> io::Result<()> {
    let (a, b) = (NetNs::create("doctor-a")?, NetNs::create("doctor-b")?);
    let op = Op::Veth {
        name: "a".into(),
        mac: [2, 0, 0, 0, 0, 1],
        peer: "b".into(),
        peer_mac: [2, 0, 0, 0, 0, 2],
        peer_ns: b,
    };
    apply(&a, &[op])
}

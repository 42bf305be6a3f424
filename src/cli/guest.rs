//! `run --lab vm`: the ordinary supervisor and engine, inside a virtual-time guest.
//!
//! Nothing is done differently in there. The guest sees this machine's files, runs this very binary, and writes into the
//! run directory, which has the same path inside.

use super::args::RunArgs;
use super::exit::Failure;
use super::vm::failure;
use crate::engine::job::JOB_FILE;
use crate::host::supervise::Ended;
use crate::lab::vm::{Boot, Cache, recipe};
use crate::store::Machine;
use std::fs;
use std::path::Path;

/// Memory of the guest in MiB: RabbitMQ wants 400, a thousand connections 70 more. What is not touched costs nothing.
const MEMORY_MIB: u32 = 1024;
/// The same with whole workers of somebody else's inside: some 100 MiB each.
const MEMORY_WITH_CLIENTS_MIB: u32 = 1536;

/// Up to so many connections that is enough; each further one gets a MiB more. The kernel lets TCP have a tenth of the memory, and
/// where that is used up it drops what it would else keep: a receiver that does not read then looks like a dead one.
const CONNECTIONS: usize = 500;

fn memory_mib(clients: bool, connections: usize) -> u32 {
    let base = if clients { MEMORY_WITH_CLIENTS_MIB } else { MEMORY_MIB };
    base + u32::try_from(connections.saturating_sub(CONNECTIONS)).unwrap_or(u32::MAX - base)
}

/// What the guest was.
pub struct Guest {
    /// Its kernel.
    pub machine: Machine,
    /// How its clock moved, and what happened before; for `run.json`.
    pub notes: Vec<String>,
}

/// Carries out the job that lies in the run directory. Returns how the supervisor in the guest ended, and the guest.
pub fn run_in_guest(
    run_id: &str,
    out: &Path,
    (clients, connections): (bool, usize),
    args: &RunArgs,
) -> Result<(Ended, Guest), Failure> {
    let cache = Cache::of_user().map_err(|e| failure(&e))?;
    let kernel = cache.kernel(args.kernel.as_deref()).map_err(|e| failure(&e))?;
    let mut boot = Boot::new(kernel, Vec::new()).map_err(|e| failure(&e))?;
    let text = |p: &Path| p.to_string_lossy().into_owned();
    let (init, job) = (text(&boot.init), text(&out.join(JOB_FILE)));
    boot.argv =
        [&init, "__supervise", run_id, &text(out), "--", "/proc/self/exe", "__engine", &job].map(String::from).into();
    boot.mode = args.vm_mode.mode();
    boot.memory_mib = memory_mib(clients, connections);
    boot.writable = vec![out.to_path_buf()];
    // The journal of a run whose end is the guest's end is the guest's own affair.
    boot.env.retain(|(name, _)| name != "HALFOPEN_STATE_DIR");
    boot.env.push(("HALFOPEN_STATE_DIR".into(), "/run/halfopen-state".into()));
    let retry = &mut |stall: &crate::lab::vm::Stall| {
        say!("halfopen: {stall}; once more in basic mode");
        empty(out);
    };
    let booted = boot.run(&mut std::io::stdout(), &mut std::io::stderr(), retry).map_err(|e| failure(&e))?;
    let speed = booted.virtual_s / booted.wall_s;
    say!(
        "halfopen: {:.0} virtual s in {:.1} s, {speed:.0} times as fast (Linux {}, {})",
        booted.virtual_s,
        booted.wall_s,
        booted.release,
        booted.mode.name()
    );
    let machine = Machine { kernel: booted.release, hz: Some(recipe::HZ), cpus: Some(1), ..Machine::default() };
    let mut notes = vec![
        format!("clock: virtual, {}", booted.mode.name()),
        format!("speed: {:.1} virtual s in {:.1} s, boot included", booted.virtual_s, booted.wall_s),
    ];
    notes.extend(booted.stopped_before.map(|stall| format!("first attempt: {stall}")));
    Ok((Ended { code: booted.code, interrupted: false, killed: false }, Guest { machine, notes }))
}

/// Before the second attempt: what the first one wrote goes, what the outer process wrote stays.
fn empty(out: &Path) {
    let keep = [JOB_FILE, "run.json"];
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        if !keep.iter().any(|k| entry.file_name() == *k) {
            // What could not be removed makes the second attempt fail with its own message.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_get_more_memory() {
        assert_eq!((memory_mib(false, 20), memory_mib(true, 500), memory_mib(false, 1_488)), (1_024, 1_536, 2_012));
    }
}

//! What these tests share.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Fails with a clear message where a test can't run.
pub fn require_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes network namespaces as root: run the tests as root, or leave tests/lab out with `--lib`"
    );
}

/// The `halfopen` binary under test.
pub fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_halfopen").into()
}

/// A run id that no other test process uses.
pub fn run_id(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes whose command line or environment carries a text, but for this one.
pub fn processes_with(text: &str) -> Vec<(u32, String)> {
    let carries = |pid: u32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.windows(text.len()).any(|w| w == text.as_bytes())
    };
    halfopen::host::procfs::pids()
        .into_iter()
        .filter(|pid| *pid != std::process::id() && (carries(*pid, "cmdline") || carries(*pid, "environ")))
        .map(|pid| (pid, halfopen::host::procfs::command_line(pid).join(" ")))
        .collect()
}

/// Polls until `done` or the limit; whether it was reached.
pub fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All descendants of a process.
pub fn below(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut at = 0;
    while at < all.len() {
        let pid = all[at];
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(list.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
        at += 1;
    }
    all.split_off(1)
}

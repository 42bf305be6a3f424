//! Whether an ordinary user gets a user namespace here; if not, which of the kernel's five hands refused it, told apart
//! by evidence, and what mends that.
//!
//! Pure but for [`Evidence::read`] and [`mapped_user`]. What is left out: making the namespace, which `host::supervise`
//! does.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The other namespaces of a run, each with a limit of its own: `user.max_NAME_namespaces`.
const KINDS: [&str; 4] = ["pid", "mnt", "net", "ipc"];

/// How far the attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `clone` with the namespaces.
    Clone,
    /// Writing the map of users.
    Map,
    /// The first privileged step inside.
    Inside,
}

/// What the system says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Whether the kernel has user namespaces at all (`/proc/self/ns/user`).
    pub compiled_in: bool,
    /// `user.max_user_namespaces`.
    pub limit: Option<i64>,
    /// The kinds of namespace whose limit is 0.
    pub closed_kinds: Vec<&'static str>,
    /// `kernel.unprivileged_userns_clone`, of Debian's and some other kernels.
    pub clone_switch: Option<i64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, of Ubuntu's kernels from 23.10 on.
    pub apparmor_switch: Option<i64>,
    /// Whether a seccomp filter stands over this process (`Seccomp: 2` of its status), as in a container.
    pub seccomp_filter: bool,
    /// This program's own file, for the profile that mends it.
    pub program: PathBuf,
}

impl Evidence {
    /// Reads it.
    #[must_use]
    pub fn read() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
        let limit_of = |kind: &str| number(&format!("/proc/sys/user/max_{kind}_namespaces"));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let seccomp = status.lines().find_map(|l| l.strip_prefix("Seccomp:")).map(str::trim);
        Self {
            compiled_in: Path::new("/proc/self/ns/user").exists(),
            limit: limit_of("user"),
            closed_kinds: KINDS.into_iter().filter(|kind| limit_of(kind) == Some(0)).collect(),
            clone_switch: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_switch: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            seccomp_filter: seccomp == Some("2"),
            program: std::env::current_exe().unwrap_or_else(|_| "/usr/bin/halfopen".into()),
        }
    }
}

/// Who refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// A kernel without `CONFIG_USER_NS`.
    Kernel,
    /// `user.max_user_namespaces` is 0.
    LimitZero,
    /// `user.max_user_namespaces` is above 0 and used up.
    LimitReached,
    /// The limit of another kind of namespace is 0.
    OtherLimit(&'static str),
    /// `kernel.unprivileged_userns_clone` is 0.
    Switch,
    /// AppArmor's restriction of Ubuntu.
    AppArmor,
    /// A container's seccomp filter.
    Seccomp,
    /// Nothing that was found explains it.
    Unknown,
}

/// A refusal: who, and what the system said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Who refused.
    pub hand: Hand,
    /// How far the attempt came.
    pub step: Step,
    /// The kernel's answer, in words.
    pub answer: String,
    program: PathBuf,
}

/// Who refused, by the step, the error number and what the system says of itself. Limits answer `ENOSPC` and nothing
/// else does (`man 7 namespaces`); Debian's switch and a seccomp filter answer `EPERM`; AppArmor denies the creation
/// with `EACCES`, or allows it and takes the capabilities inside away.
#[must_use]
pub fn diagnose(step: Step, error: &io::Error, evidence: &Evidence) -> Refusal {
    let apparmor = evidence.apparmor_switch == Some(1);
    let errno = error.raw_os_error();
    let hand = match (step, errno) {
        _ if !evidence.compiled_in => Hand::Kernel,
        (Step::Clone, Some(libc::EINVAL)) => Hand::Kernel,
        (Step::Clone, Some(libc::ENOSPC | libc::EUSERS)) => match (evidence.limit, evidence.closed_kinds.first()) {
            (Some(0), _) => Hand::LimitZero,
            (_, Some(kind)) => Hand::OtherLimit(kind),
            _ => Hand::LimitReached,
        },
        (Step::Clone, Some(libc::EACCES)) if apparmor => Hand::AppArmor,
        (Step::Clone, _) if evidence.clone_switch == Some(0) => Hand::Switch,
        // A filter answers EPERM before AppArmor is asked; only where there is none is it AppArmor's word.
        (Step::Clone, Some(libc::EPERM)) if evidence.seccomp_filter => Hand::Seccomp,
        (_, Some(libc::EPERM | libc::EACCES) | None) if apparmor => Hand::AppArmor,
        _ => Hand::Unknown,
    };
    Refusal { hand, step, answer: error.to_string(), program: evidence.program.clone() }
}

impl Hand {
    /// What is the case, in words.
    #[must_use]
    pub fn why(self) -> String {
        match self {
            Self::Kernel => "this kernel has no user namespaces (CONFIG_USER_NS)".into(),
            Self::LimitZero => "user namespaces are turned off (user.max_user_namespaces = 0)".into(),
            Self::LimitReached => "the limit of user namespaces is used up (user.max_user_namespaces)".into(),
            Self::OtherLimit(kind) => {
                format!("namespaces of the kind `{kind}` are turned off (user.max_{kind}_namespaces = 0)")
            }
            Self::Switch => {
                "user namespaces of ordinary users are turned off (kernel.unprivileged_userns_clone = 0)".into()
            }
            Self::AppArmor => "AppArmor restricts user namespaces of ordinary users \
                               (kernel.apparmor_restrict_unprivileged_userns = 1)"
                .into(),
            Self::Seccomp => "a seccomp filter, as a container has it, refuses user namespaces".into(),
            Self::Unknown => "this machine refuses user namespaces to ordinary users".into(),
        }
    }

    /// The command that mends it, for a program at this path.
    #[must_use]
    pub fn mend(self, program: &Path) -> String {
        match self {
            Self::Kernel => "run it as root (sudo halfopen …), or on a kernel with CONFIG_USER_NS".into(),
            Self::LimitZero | Self::LimitReached => "sudo sysctl user.max_user_namespaces=15000".into(),
            Self::OtherLimit(kind) => format!("sudo sysctl user.max_{kind}_namespaces=15000"),
            Self::Switch => "sudo sysctl kernel.unprivileged_userns_clone=1".into(),
            Self::AppArmor => apparmor_command(program),
            Self::Seccomp => "start the container with `--security-opt seccomp=unconfined --security-opt \
                              apparmor=unconfined --security-opt systempaths=unconfined`, or with `--privileged`"
                .into(),
            Self::Unknown => {
                "run it as root (sudo halfopen …); perhaps a chroot or a security module: `dmesg` may name it".into()
            }
        }
    }
}

/// The command that gives one program, and no other, the right: the profile that Ubuntu ships for browsers.
fn apparmor_command(program: &Path) -> String {
    let path = program.display();
    format!(
        "printf 'abi <abi/4.0>,\\nprofile halfopen \"{path}\" flags=(unconfined) {{ userns, }}\\n' | sudo tee \
         /etc/apparmor.d/halfopen && sudo apparmor_parser -r /etc/apparmor.d/halfopen"
    )
}

impl Refusal {
    /// What is the case, with the kernel's answer.
    #[must_use]
    pub fn why(&self) -> String {
        let step = match self.step {
            Step::Clone => "",
            Step::Map => ", mapping the user",
            Step::Inside => ", the first step inside",
        };
        format!("{} ({}{step})", self.hand.why(), self.answer)
    }

    /// The command that mends it, or another way.
    #[must_use]
    pub fn mend(&self) -> String {
        let mend = self.hand.mend(&self.program);
        match self.hand {
            // Said already.
            Hand::Kernel | Hand::Unknown => mend,
            // The command comes last, so that it can be copied to the end of the line.
            _ => format!("run it as root, or: {mend}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why(), self.mend())
    }
}

/// The user of the machine whose namespace this process is in; `None` on the machine itself.
#[must_use]
pub fn mapped_user() -> Option<u32> {
    user_of_map(&fs::read_to_string("/proc/self/uid_map").ok()?)
}

/// Of `/proc/self/uid_map`: the user outside that is root here, where the map is not that of the machine itself.
fn user_of_map(map: &str) -> Option<u32> {
    let first: Vec<u32> = map.lines().next()?.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match first[..] {
        [0, 0, u32::MAX] => None,
        [_, outside, _] => Some(outside),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Evidence {
        Evidence { compiled_in: true, limit: Some(15_000), program: "/opt/halfopen".into(), ..Evidence::default() }
    }

    fn hand(step: Step, errno: i32, evidence: &Evidence) -> Hand {
        diagnose(step, &io::Error::from_raw_os_error(errno), evidence).hand
    }

    #[test]
    fn each_hand_is_known_by_its_evidence() {
        let zero = Evidence { limit: Some(0), ..open() };
        let net = Evidence { closed_kinds: vec!["net"], ..open() };
        let switch = Evidence { clone_switch: Some(0), ..open() };
        let ubuntu = Evidence { apparmor_switch: Some(1), ..open() };
        let docker = Evidence { seccomp_filter: true, ..open() };
        let docker_on_ubuntu = Evidence { seccomp_filter: true, ..ubuntu.clone() };
        let cases = [
            (Step::Clone, libc::EINVAL, Evidence { compiled_in: false, ..open() }, Hand::Kernel),
            (Step::Clone, libc::ENOSPC, zero, Hand::LimitZero),
            (Step::Clone, libc::ENOSPC, net, Hand::OtherLimit("net")),
            (Step::Clone, libc::ENOSPC, open(), Hand::LimitReached),
            // The limit is above zero, so a switch that is off answers EPERM, never ENOSPC.
            (Step::Clone, libc::ENOSPC, switch.clone(), Hand::LimitReached),
            (Step::Clone, libc::EPERM, switch, Hand::Switch),
            (Step::Clone, libc::EACCES, ubuntu.clone(), Hand::AppArmor),
            (Step::Clone, libc::EPERM, ubuntu.clone(), Hand::AppArmor),
            (Step::Map, libc::EPERM, ubuntu.clone(), Hand::AppArmor),
            (Step::Inside, libc::EACCES, ubuntu, Hand::AppArmor),
            (Step::Clone, libc::EPERM, docker, Hand::Seccomp),
            (Step::Clone, libc::EPERM, docker_on_ubuntu.clone(), Hand::Seccomp),
            (Step::Clone, libc::EACCES, docker_on_ubuntu, Hand::AppArmor),
            (Step::Clone, libc::EPERM, open(), Hand::Unknown),
            (Step::Inside, libc::EPERM, open(), Hand::Unknown),
        ];
        for (step, errno, evidence, expected) in cases {
            assert_eq!(hand(step, errno, &evidence), expected, "{step:?} {errno} {evidence:?}");
        }
    }

    #[test]
    fn a_refusal_is_one_line_with_its_mend() {
        let ubuntu = Evidence { apparmor_switch: Some(1), ..open() };
        let said = diagnose(Step::Inside, &io::Error::from_raw_os_error(libc::EACCES), &ubuntu).to_string();
        assert_eq!(said.lines().count(), 1);
        for word in
            ["apparmor_restrict_unprivileged_userns = 1", "\"/opt/halfopen\"", "userns,", "run it as root, or: printf"]
        {
            assert!(said.contains(word), "`{word}` is not in {said}");
        }
        for hand in [Hand::Kernel, Hand::LimitZero, Hand::OtherLimit("net"), Hand::Switch, Hand::Seccomp, Hand::Unknown]
        {
            assert!(!hand.why().is_empty() && !hand.mend(Path::new("/x")).contains('\n'));
        }
    }

    #[test]
    fn the_machine_itself_is_told_from_a_user_namespace() {
        assert_eq!(user_of_map("         0          0 4294967295\n"), None);
        assert_eq!(user_of_map("         0       1000          1\n"), Some(1000));
        assert_eq!(user_of_map(""), None);
    }
}

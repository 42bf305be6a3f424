//! `doctor` on pretend machines: which lab works, which way it goes, and what mends each lack.

use halfopen::doctor::{Facts, Inside, Refused, VmFacts, judge, text};
use halfopen::host::capabilities::{Installed, Kernel};
use halfopen::host::userns::{Evidence, Step, diagnose};

const WIDTH: u16 = 110;

/// Root on a Debian machine with everything.
fn everything() -> Facts {
    let installed = |path: &str, version: &str| Some(Installed { path: path.into(), version: Some(version.into()) });
    Facts {
        root: true,
        mapped_user: None,
        inside: Ok(Inside::default()),
        descriptors: 1_048_576,
        kernel: Kernel {
            release: "6.1.0-28-amd64".into(),
            hz: Some(250),
            hz_from: Some("/boot/config-6.1.0-28-amd64".into()),
        },
        rabbitmq: installed("/usr/lib/rabbitmq/bin/rabbitmq-server", "3.10.8"),
        redis: installed("/usr/bin/redis-server", "7.0.15"),
        iptables: vec!["iptables".into(), "iptables-nft".into()],
        docker: Ok("Docker 20.10.24, and the images of scripts/docker-images".into()),
        vm: VmFacts {
            kernel: Some("Linux 6.1.192-vt, HZ 250".into()),
            place: "/root/.cache/halfopen/vm".into(),
            ..VmFacts::default()
        },
    }
}

/// An ordinary user there, who has built no kernel.
fn ordinary_user() -> Facts {
    let denied = |what: &str| Some(format!("{what}: Operation not permitted (os error 1)"));
    Facts {
        root: false,
        inside: Ok(Inside {
            tracepoints: denied("perf events of the whole machine need root or CAP_PERFMON"),
            real_time: denied("sched_setscheduler"),
            ..Inside::default()
        }),
        docker: Err(Refused {
            why: "no permission to use /var/run/docker.sock".into(),
            mend: "run it with sudo".into(),
        }),
        vm: VmFacts { place: "/home/me/.cache/halfopen/vm".into(), ..VmFacts::default() },
        ..everything()
    }
}

fn refused(step: Step, errno: i32, evidence: Evidence) -> Refused {
    let evidence = Evidence { compiled_in: true, program: "/usr/local/bin/halfopen".into(), ..evidence };
    let refusal = diagnose(step, &std::io::Error::from_raw_os_error(errno), &evidence);
    Refused { why: refusal.why(), mend: refusal.mend() }
}

#[track_caller]
fn shown(facts: &Facts) -> String {
    let answer = judge(facts);
    assert!(answer.labs.iter().all(|lab| lab.ok || lab.mend.is_some() || facts.vm.cannot_run.is_some()), "{answer:?}");
    assert!(answer.lines.iter().all(|line| line.ok || line.mend.is_some()), "{answer:?}");
    let names: std::collections::BTreeSet<_> = answer.lines.iter().map(|line| line.name).collect();
    assert_eq!(names.len(), answer.lines.len());
    let text = text(&answer, WIDTH);
    let tables = text.lines().filter(|l| l.starts_with(['+', '|']));
    let widest = tables.map(|l| l.chars().count()).max();
    assert!(widest <= Some(usize::from(WIDTH)), "{text}");
    text
}

#[test]
fn root_goes_as_root() {
    let facts = everything();
    assert!(judge(&facts).able);
    insta::assert_snapshot!("doctor-root", shown(&facts));
}

#[test]
fn an_ordinary_user_goes_by_a_user_namespace() {
    let facts = ordinary_user();
    assert!(judge(&facts).able);
    insta::assert_snapshot!("doctor-user", shown(&facts));
}

#[test]
fn ubuntu_s_restriction_is_named_with_the_profile_that_mends_it() {
    let ubuntu = Evidence { apparmor_switch: Some(1), limit: Some(15_000), ..Evidence::default() };
    let facts = Facts {
        inside: Err(refused(Step::Inside, libc::EACCES, ubuntu)),
        rabbitmq: None,
        vm: VmFacts { packages: vec!["linux-source-6.1".into(), "flex".into()], ..ordinary_user().vm },
        ..ordinary_user()
    };
    assert!(!judge(&facts).able);
    insta::assert_snapshot!("doctor-ubuntu", shown(&facts));
}

#[test]
fn a_container_is_told_from_a_switch() {
    let container = Evidence { seccomp_filter: true, limit: Some(15_000), ..Evidence::default() };
    let cannot_run = "ptrace is refused; in a container, start it with `--cap-add SYS_PTRACE`".to_string();
    let facts = Facts {
        inside: Err(refused(Step::Clone, libc::EPERM, container)),
        kernel: Kernel { release: "6.8.0".into(), hz: None, hz_from: None },
        descriptors: 1024,
        redis: None,
        vm: VmFacts { cannot_run: Some(cannot_run), ..VmFacts::default() },
        ..ordinary_user()
    };
    assert!(!judge(&facts).able);
    insta::assert_snapshot!("doctor-container", shown(&facts));
    let switch = Evidence { clone_switch: Some(0), ..Evidence::default() };
    let facts = Facts { inside: Err(refused(Step::Clone, libc::EPERM, switch)), ..ordinary_user() };
    assert!(shown(&facts).contains("unprivileged_userns_clone"));
}

#[test]
fn a_kernel_without_what_the_cut_needs_can_not_run() {
    let inside = Inside { nftables: Some("Operation not supported (os error 95)".into()), ..Inside::default() };
    let facts = Facts { inside: Ok(inside), redis: None, ..everything() };
    let answer = judge(&facts);
    assert!(!answer.able && answer.labs[0].why.contains("nftables"), "{answer:?}");
    let without_redis = Facts { redis: None, ..everything() };
    assert!(judge(&without_redis).able);
    assert!(shown(&without_redis).contains("but for those with Redis"));
}

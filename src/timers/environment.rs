//! What the machine brings: kernel version, HZ, sysctls and the path's round-trip time.

use super::kernel::wheel::Wheel;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A kernel's version, as far as timers depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl FromStr for KernelVersion {
    type Err = String;
    /// Reads the head of `uname -r` (`6.18.44-fc`, `6.1`). Versions before 2.6, which had other timers, are none.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.trim().split(|c: char| !c.is_ascii_digit());
        let mut number = || parts.next().and_then(|p| p.parse().ok());
        match (number(), number()) {
            (Some(major), Some(minor)) if (2, 6) <= (major, minor) && major < 100 && minor < 1000 => {
                Ok(Self { major, minor })
            }
            _ => Err(format!("`{text}` is not a kernel version from 2.6 on; write for example `6.1`")),
        }
    }
}

/// The values of `CONFIG_HZ` that Linux can be built with: `kernel/Kconfig.hz`, then those that only Arm, MIPS and Alpha
/// add.
const HZ: [u32; 14] = [100, 250, 300, 1000, 24, 32, 48, 64, 128, 200, 256, 500, 1024, 1200];

/// Reads a value of `CONFIG_HZ`.
///
/// # Errors
/// A sentence with the values that there are.
pub fn parse_hz(text: &str) -> Result<u32, String> {
    text.trim().parse().ok().filter(|hz| HZ.contains(hz)).ok_or_else(|| {
        let (usual, rare) = HZ.split_at(4);
        let list = |values: &[u32]| values.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        format!("`{text}` is not a HZ that Linux is built with: {}; rarely {}", list(usual), list(rare))
    })
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The kernel that first had a sysctl `net.ipv4.*` of the model; none: older than anything that runs.
///
/// Source: `net/ipv4/sysctl_net_ipv4.c` of the releases.
#[must_use]
pub fn sysctl_since(name: &str) -> Option<KernelVersion> {
    let minor = match name {
        "tcp_syn_linear_timeouts" => 5,
        "tcp_rto_min_us" => 11,
        "tcp_rto_max_ms" => 15,
        _ => return None,
    };
    Some(KernelVersion { major: 6, minor })
}

/// One end's kernel and path. The default is the reference machine: Linux 6.18, HZ 250, stock sysctls, no round-trip time.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// `CONFIG_HZ`.
    pub hz: u32,
    /// The running kernel.
    pub kernel: KernelVersion,
    /// `net.ipv4.tcp_retries2` (15).
    pub tcp_retries2: u32,
    /// `net.ipv4.tcp_rto_min_us`, or `rto_min` of the route (200 ms).
    pub tcp_rto_min: Duration,
    /// `net.ipv4.tcp_rto_max_ms` (120 s); kernels before 6.15 have the constant.
    pub tcp_rto_max: Duration,
    /// `net.ipv4.tcp_syn_retries` (6).
    pub tcp_syn_retries: u32,
    /// `net.ipv4.tcp_syn_linear_timeouts` (4); kernels before 6.5 have none.
    pub tcp_syn_linear_timeouts: u32,
    /// `net.ipv4.tcp_early_retrans` (3: tail loss probes; 0: none).
    pub tcp_early_retrans: u32,
    /// The path's round-trip time, used where no estimate was measured.
    pub rtt: Duration,
    /// The measured smoothed round-trip time (`tcpi_rtt`).
    pub srtt: Option<Duration>,
    /// The measured retransmission timeout (`tcpi_rto`).
    pub rto: Option<Duration>,
    /// Only one round trip has been sampled so far (the variance is still half of it).
    pub cold: bool,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            hz: 250,
            kernel: KernelVersion { major: 6, minor: 18 },
            tcp_retries2: 15,
            tcp_rto_min: Duration::from_millis(200),
            tcp_rto_max: Duration::from_secs(120),
            tcp_syn_retries: 6,
            tcp_syn_linear_timeouts: 4,
            tcp_early_retrans: 3,
            rtt: Duration::ZERO,
            srtt: None,
            rto: None,
            cold: false,
        }
    }
}

impl Environment {
    /// The same kernel with sysctls of a network namespace, named without `net.ipv4.`, in the units of their files.
    /// Later ones win; those that move no timer of the model are left out, keepalive's among them: they are options of
    /// the socket by the time that the model sees it.
    #[must_use]
    pub fn with_sysctls<'a>(mut self, sysctls: impl IntoIterator<Item = (&'a String, &'a i64)>) -> Self {
        for (name, value) in sysctls {
            let Ok(count) = u32::try_from(*value) else { continue };
            match name.as_str() {
                "tcp_retries2" => self.tcp_retries2 = count,
                "tcp_rto_min_us" => self.tcp_rto_min = Duration::from_micros(count.into()),
                "tcp_rto_max_ms" => self.tcp_rto_max = Duration::from_millis(count.into()),
                "tcp_syn_retries" => self.tcp_syn_retries = count,
                "tcp_syn_linear_timeouts" => self.tcp_syn_linear_timeouts = count,
                "tcp_early_retrans" => self.tcp_early_retrans = count,
                _ => {}
            }
        }
        self
    }

    /// The wheel of this kernel.
    #[must_use]
    pub fn wheel(&self) -> Wheel {
        Wheel::new(self.hz)
    }

    /// The smoothed round-trip time, at least a microsecond (the kernel never stores zero).
    #[must_use]
    pub fn smoothed_rtt(&self) -> Duration {
        self.srtt.unwrap_or(self.rtt).max(Duration::from_micros(1))
    }

    /// The retransmission timeout in jiffies: measured, or `srtt + max(rto_min, 4 · deviation)`.
    ///
    /// Source: `tcp_rtt_estimator` and `tcp_set_rto` in `net/ipv4/tcp_input.c`; the first sample sets the
    /// deviation term to twice the round trip, a steady path lets it fall to `rto_min`.
    #[must_use]
    pub fn rto_jiffies(&self) -> u64 {
        let wheel = self.wheel();
        let derived = || {
            let srtt = self.smoothed_rtt();
            let deviation = if self.cold { srtt * 2 } else { Duration::ZERO };
            // The minimum itself is kept in jiffies: 50 ms are 52 ms at HZ 250.
            let least = Duration::from_secs_f64(wheel.seconds(wheel.jiffies(self.tcp_rto_min)));
            wheel.jiffies(srtt + deviation.max(least))
        };
        self.rto.map_or_else(derived, |rto| wheel.jiffies(rto)).max(1).min(self.rto_max_jiffies(None))
    }

    /// The cap on the back-off in jiffies: socket option 44 where given, else the sysctl; a constant before 6.15.
    #[must_use]
    pub fn rto_max_jiffies(&self, option: Option<Duration>) -> u64 {
        let newer = self.kernel >= KernelVersion { major: 6, minor: 15 };
        let cap = if newer { option.unwrap_or(self.tcp_rto_max) } else { Duration::from_secs(120) };
        self.wheel().jiffies(cap).max(1)
    }

    /// SYNs that are repeated at a constant second before the back-off starts: none before 6.5.
    #[must_use]
    pub fn syn_linear_timeouts(&self) -> u32 {
        if self.kernel >= (KernelVersion { major: 6, minor: 5 }) { self.tcp_syn_linear_timeouts } else { 0 }
    }

    /// What the model does not know about this kernel, in sentences; empty where it was checked.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.kernel < (KernelVersion { major: 5, minor: 11 }) {
            doubts.push(format!(
                "kernel {}: the persist timer counted TCP_USER_TIMEOUT differently before 5.11",
                self.kernel
            ));
        }
        if self.kernel < (KernelVersion { major: 4, minor: 19 }) {
            doubts.push(format!(
                "kernel {}: before 4.19 TCP_USER_TIMEOUT did not shorten the retransmission timer",
                self.kernel
            ));
        }
        if self.hz != 250 {
            doubts.push(format!("HZ {}: the wheel's formula was measured at HZ 250 only", self.hz));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_uname() {
        assert_eq!("6.18.44-fc-v657".parse(), Ok(KernelVersion { major: 6, minor: 18 }));
        assert!("linux".parse::<KernelVersion>().is_err());
    }

    #[test]
    fn the_timeout_follows_the_round_trip() {
        let ms = |rtt, cold| {
            let e = Environment { rtt: Duration::from_millis(rtt), cold, ..Environment::default() };
            e.rto_jiffies() * 4
        };
        assert_eq!(ms(0, false), 204);
        assert_eq!(ms(50, true), 252);
        assert_eq!(ms(200, true), 600);
        assert_eq!(ms(200, false), 400);
    }
}

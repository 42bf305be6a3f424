//! The `iptables` tools in a network namespace: rules go in as one text, and come back with their counts.
//!
//! Two kinds of them exist, over nf_tables and over the older xtables; both take and print the same text. What is left out:
//! which rules, and what they mean.

use crate::host::netns::NetNs;
use crate::host::process::{Launch, Stream};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where distributions have them.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// Which kind of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Whichever the machine calls `iptables`.
    Iptables,
    /// Over nf_tables.
    IptablesNft,
    /// Over xtables.
    IptablesLegacy,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Iptables, Self::IptablesNft, Self::IptablesLegacy];

    /// The name, which their programs' names begin with.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::IptablesNft => "iptables-nft",
            Self::IptablesLegacy => "iptables-legacy",
        }
    }

    /// The command that installs it.
    pub const MEND: &'static str = "scripts/setup --for test (or: apt-get install iptables)";

    fn locate(self, what: &str) -> Option<PathBuf> {
        let name = format!("{}{what}", self.name());
        PLACES.iter().map(|place| Path::new(place).join(&name)).find(|file| file.is_file())
    }

    /// Whether the machine has it.
    #[must_use]
    pub fn is_installed(self) -> bool {
        self.locate("-restore").is_some() && self.locate("-save").is_some()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The tools, in one namespace.
#[derive(Debug)]
pub struct Iptables {
    namespace: NetNs,
    restore: PathBuf,
    save: PathBuf,
    main: PathBuf,
    lock: PathBuf,
}

impl Iptables {
    /// In a namespace; `lock` is a file of one's own, where the tools would else lock one of the machine's.
    ///
    /// # Errors
    /// `NotFound` where they are not installed.
    pub fn open(kind: Kind, namespace: &NetNs, lock: PathBuf) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{kind} is not installed; {}", Kind::MEND));
        let find = |what: &str| kind.locate(what).ok_or_else(missing);
        let (restore, save, main) = (find("-restore")?, find("-save")?, find("")?);
        Ok(Self { namespace: namespace.clone(), restore, save, main, lock })
    }

    /// Where.
    #[must_use]
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// What they call themselves: `iptables v1.8.9 (nf_tables)`.
    ///
    /// # Errors
    /// When they can't be started.
    pub fn version(&self) -> io::Result<String> {
        Ok(self.call(&self.main, &["--version"], "")?.trim().to_string())
    }

    /// Adds rules, all of a table's or none: `*mangle`, lines, `COMMIT`. What is there stays.
    ///
    /// # Errors
    /// With the tool's own words.
    pub fn add(&self, text: &str) -> io::Result<()> {
        self.call(&self.restore, &["--noflush"], text).map(drop)
    }

    /// The rules of a table with their counts: `[12:640] -A FORWARD …`.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn rules(&self, table: &str) -> io::Result<String> {
        self.call(&self.save, &["--counters", "--table", table], "")
    }

    fn call(&self, program: &Path, args: &[&str], input: &str) -> io::Result<String> {
        let mut launch = Launch::new(program).args(args.iter().copied());
        launch.netns = Some(self.namespace.clone());
        launch.env.push(("XTABLES_LOCKFILE".to_string(), self.lock.clone().into()));
        (launch.stdin, launch.stdout, launch.stderr) = (Stream::Pipe, Stream::Pipe, Stream::Pipe);
        let mut process = launch.spawn()?;
        // The text is small against a pipe, and dropping its end says that it is over.
        if let Some(mut stdin) = process.take_stdin() {
            stdin.write_all(input.as_bytes())?;
        }
        let (mut printed, mut complaint) = (String::new(), String::new());
        if let Some(mut stdout) = process.take_stdout() {
            stdout.read_to_string(&mut printed)?;
        }
        if let Some(mut stderr) = process.take_stderr() {
            stderr.read_to_string(&mut complaint)?;
        }
        match process.wait_at_most(PATIENCE)? {
            Some(status) if status.success() => Ok(printed),
            Some(status) => Err(io::Error::other(format!("{}: {status}: {}", program.display(), complaint.trim()))),
            None => Err(io::Error::other(format!("{} does not end", program.display()))),
        }
    }
}

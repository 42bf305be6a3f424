//! `halfopen vm build | status | shell | exec | clean`: the virtual-time kernel.

use super::exit::{Exit, Failure};
use crate::lab::vm::{self, Boot, Booted, BuildOptions, Cache, Mode, VmError, needs};
use clap::{Args, Subcommand, ValueEnum};
use std::io;
use std::path::PathBuf;

/// The virtual-time kernel.
#[derive(Debug, Args)]
pub struct VmArgs {
    #[command(subcommand)]
    command: VmCommand,
}

#[derive(Debug, Subcommand)]
enum VmCommand {
    /// Build the kernel once, from the distribution's source package, and boot it
    Build {
        /// Packed kernel source, instead of the installed linux-source package's
        #[arg(long, value_name = "ARCHIVE")]
        source: Option<PathBuf>,
        /// Keep the source tree (1.6 GB) after the build
        #[arg(long)]
        keep_tree: bool,
        /// Parallel jobs, instead of one a processor
        #[arg(long, short)]
        jobs: Option<usize>,
    },
    /// What kernels there are, their size, and the last boot test
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// An interactive shell in a guest
    Shell(GuestArgs),
    /// Run a command in a guest and print how long it took there and here
    Exec {
        #[command(flatten)]
        guest: GuestArgs,
        /// Directory that is writable inside, under the same path
        #[arg(long, value_name = "DIR")]
        writable: Vec<PathBuf>,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
    /// Remove the kernels and their trees
    Clean {
        /// Only those that this version would not use
        #[arg(long)]
        old: bool,
    },
}

/// What every command that boots a guest takes.
#[derive(Debug, Args)]
struct GuestArgs {
    /// A kernel of your own, instead of the one that was built
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// How the guest's clock moves
    #[arg(long, value_enum, default_value_t = ModeArg::InfCpu)]
    mode: ModeArg,
    /// Memory in MiB
    #[arg(long, default_value_t = 512)]
    memory: u32,
}

/// How a guest's clock moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Computing costs no time; repeatable
    InfCpu,
    /// Computing costs what it costs, idle time is skipped
    Basic,
}

impl ModeArg {
    /// The same for the lab.
    pub fn mode(self) -> Mode {
        match self {
            Self::InfCpu => Mode::InfCpu,
            Self::Basic => Mode::Basic,
        }
    }
}

impl GuestArgs {
    fn boot(&self, cache: &Cache, argv: Vec<String>) -> Result<Boot, VmError> {
        let mut boot = Boot::new(cache.kernel(self.kernel.as_deref())?, argv)?;
        boot.mode = self.mode.mode();
        boot.memory_mib = self.memory;
        Ok(boot)
    }
}

/// Carries the command out. Returns the exit code of the process: for `shell` and `exec` that of what ran inside.
pub fn vm(args: &VmArgs) -> u8 {
    carry_out(&args.command).unwrap_or_else(|error| {
        say!("halfopen: {error}");
        exit_of(&error).code()
    })
}

/// What a failure of the virtual-time lab is to the caller of the command.
pub fn failure(error: &VmError) -> Failure {
    Failure::new(exit_of(error), error.to_string())
}

/// How the process ends for each error of the virtual-time lab.
fn exit_of(error: &VmError) -> Exit {
    match error {
        VmError::Io { .. } | VmError::Died { .. } | VmError::Stopped(_) | VmError::Step { .. } => Exit::Harness,
        VmError::Path(_) => Exit::Usage,
        VmError::Interrupted => Exit::Interrupted,
        _ => Exit::Cannot,
    }
}

fn carry_out(command: &VmCommand) -> Result<u8, VmError> {
    let cache = Cache::of_user()?;
    match command {
        VmCommand::Build { source, keep_tree, jobs } => {
            let options = BuildOptions { source: source.clone(), keep_tree: *keep_tree, jobs: *jobs };
            let kernel = vm::build(&cache, &options, &mut |line| say!("vm build: {line}"))?;
            let test = vm::boot_test(&cache, &Boot::new(kernel.clone(), Vec::new())?)?;
            say!("vm build: boots; {:.0} virtual s in {:.1} s", test.virtual_s, test.wall_s);
            println!("{}", kernel.path.display());
            if test.lacks.is_empty() {
                return Ok(Exit::Held.code());
            }
            say!("vm build: this kernel lacks what the faults need: {}", test.lacks.join(", "));
            Ok(Exit::Cannot.code())
        }
        VmCommand::Status { json } => {
            print_status(&cache, *json)?;
            Ok(Exit::Held.code())
        }
        VmCommand::Shell(guest) => {
            let mut boot = guest.boot(&cache, vec!["/bin/sh".into(), "-i".into()])?;
            boot.interactive = true;
            let booted = boot.run(&mut io::sink(), &mut io::sink(), &mut |_| {})?;
            say!("\r\n{:.1} virtual s in {:.1} s", booted.virtual_s, booted.wall_s);
            Ok(code_of(&booted))
        }
        VmCommand::Exec { guest, writable, argv } => {
            let mut boot = guest.boot(&cache, argv.clone())?;
            boot.writable.clone_from(writable);
            let retry = &mut |stall: &vm::Stall| say!("halfopen: {stall}; once more in basic mode");
            let booted = boot.run(&mut io::stdout().lock(), &mut io::stderr().lock(), retry)?;
            let (virtual_s, wall_s) = (booted.virtual_s, booted.wall_s);
            say!(
                "{virtual_s:.1} virtual s in {wall_s:.1} s: {:.0} times as fast (Linux {}, HZ {}, {})",
                virtual_s / wall_s,
                booted.release,
                vm::recipe::HZ,
                booted.mode.name()
            );
            Ok(code_of(&booted))
        }
        VmCommand::Clean { old } => {
            for (path, bytes) in cache.clean(*old)? {
                println!("removed {} ({} MiB)", path.display(), bytes >> 20);
            }
            Ok(Exit::Held.code())
        }
    }
}

fn code_of(booted: &Booted) -> u8 {
    u8::try_from(booted.code).unwrap_or(Exit::Harness.code())
}

fn print_status(cache: &Cache, json: bool) -> Result<(), VmError> {
    let kept = cache.list();
    if json {
        let text = serde_json::to_string_pretty(&kept)
            .map_err(|e| VmError::Io { what: "print the status".into(), source: e.into() })?;
        println!("{text}");
        return Ok(());
    }
    println!("cache      {}", cache.root().display());
    for k in &kept {
        let name = k.dir.file_name().unwrap_or_default().to_string_lossy();
        let state = match (&k.kernel, &k.stage) {
            (Some(i), _) => format!("Linux {}, HZ {}, {:.1} MiB", i.release, i.hz, i.bytes as f64 / f64::from(1 << 20)),
            (None, stage) => format!("not finished (last step: {})", stage.as_deref().unwrap_or("none")),
        };
        let old = if k.kernel.is_some() && !k.current { ", not for this version" } else { "" };
        println!("{name}: {state}{old}");
        println!("           tree {} MiB", k.tree_bytes >> 20);
        match &k.boot_test {
            Some(t) => println!(
                "           boot test: {:.0} virtual s in {:.1} s; lacks {}",
                t.virtual_s,
                t.wall_s,
                if t.lacks.is_empty() { "nothing".into() } else { t.lacks.join(", ") }
            ),
            None if k.kernel.is_some() => println!("           boot test: none yet"),
            None => {}
        }
    }
    if let Err(error) = cache.kernel(None) {
        println!("{error}");
    }
    match needs::check_run(512) {
        Ok(()) => println!("this machine can run guests"),
        Err(error) => println!("{error}"),
    }
    let missing = needs::missing_packages();
    if !missing.is_empty() {
        println!("to build: {}", needs::apt_command(&missing));
    }
    Ok(())
}

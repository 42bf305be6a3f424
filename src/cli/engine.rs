//! The hidden `__engine` role: reads the job, carries it out, leaves the facts.

use super::exit::Exit;
use super::progress::Drawn;
use crate::engine::job::{FACTS_FILE, Job};
use crate::engine::kernel::{self, Ending, EngineError};
use crate::store::RunDir;
use std::ffi::OsString;
use std::path::Path;

/// Carries out the job in the file that is named first. Its exit code is the engine's part of the contract.
pub fn engine_main(args: &[OsString]) -> i32 {
    let exit = match args.first().map(|path| load(Path::new(path))) {
        Some(Ok(job)) => carry_out(&job),
        Some(Err(error)) => fail(&error, Exit::Harness),
        None => fail("the engine was started without a job", Exit::Usage),
    };
    i32::from(exit.code())
}

fn load(path: &Path) -> Result<Job, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn fail(text: &str, exit: Exit) -> Exit {
    say!("halfopen: {text}");
    exit
}

fn carry_out(job: &Job) -> Exit {
    let mut drawn = job.progress.then(|| Drawn::new(&job.plan.scenario.name));
    let mut show = |progress: kernel::Progress| {
        if let Some(drawn) = &mut drawn {
            drawn.show(&progress);
        }
    };
    let (facts, result) = kernel::run(job, &mut show);
    drop(drawn);
    let written = serde_json::to_vec(&facts)
        .map_err(|e| e.to_string())
        .and_then(|bytes| RunDir::existing(&job.out).write(FACTS_FILE, &bytes).map_err(|e| e.to_string()));
    if let Err(error) = written {
        return fail(&format!("can't write what the run found out: {error}"), Exit::Harness);
    }
    match result {
        Ok(Ending::Complete) => Exit::Held,
        Ok(Ending::Interrupted) => Exit::Interrupted,
        Err(EngineError::Cannot(text)) => fail(&text, Exit::Cannot),
        Err(EngineError::Harness(text)) => fail(&text, Exit::Harness),
    }
}

//! `halfopen doctor`.

use super::args::JsonArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::host::capabilities::{Capabilities, capabilities};
use comfy_table::{ContentArrangement, Table};

/// Says what this machine can do. Exit code 3 where no run with real sockets is possible.
pub fn doctor(args: &JsonArgs) -> Result<Exit, Failure> {
    let found = capabilities();
    let able = found.lines.iter().all(|line| line.ok || !line.required);
    if args.json {
        let value = serde_json::to_value(&found).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?;
        print(&pretty(&value))?;
    } else {
        print(&text(&found, able))?;
    }
    Ok(if able { Exit::Held } else { Exit::Cannot })
}

fn text(found: &Capabilities, able: bool) -> String {
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(["", "what", "found", "what mends it"]);
    for line in &found.lines {
        let mark = match (line.ok, line.required) {
            (true, _) => "ok",
            (false, true) => "LACKS",
            (false, false) => "without",
        };
        table.add_row([mark, line.name, &line.found, line.mend.as_deref().unwrap_or("")]);
    }
    let verdict = if able {
        "This machine can run scenarios with real sockets: `halfopen run scenarios/first-look.toml`."
    } else {
        "This machine can't run scenarios with real sockets yet: mend what lacks."
    };
    format!("{table}\n{verdict}")
}

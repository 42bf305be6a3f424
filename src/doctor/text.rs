//! The answer as a person reads it. Pure.

use super::judge::{Answer, Way};
use comfy_table::{ContentArrangement, Table};

/// Two tables, what mends each lab on a line of its own (commands that are copied must not be wrapped), and a verdict.
/// The tables are at most `width` characters wide.
#[must_use]
pub fn text(answer: &Answer, width: u16) -> String {
    let table = |header: &[&str]| {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width).set_header(header);
        table
    };
    let mut labs = table(&["", "lab", "which way, and why"]);
    for lab in &answer.labs {
        let way = match lab.way {
            Way::Root => "as root: ",
            Way::UserNamespace => "without root: ",
            Way::None => "no rights needed: ",
        };
        labs.add_row([if lab.ok { "ok" } else { "LACKS" }, lab.name, &format!("{way}{}", lab.why)]);
    }
    let mends = answer.labs.iter().filter_map(|lab| Some((lab.name, lab.mend.as_deref()?))).collect::<Vec<_>>();
    let mut lines = table(&["", "what", "found", "what mends it"]);
    for line in &answer.lines {
        let mark = match (line.ok, line.required) {
            (true, _) => "ok",
            (false, true) => "LACKS",
            (false, false) => "without",
        };
        let mend = line.mend.as_deref().unwrap_or("");
        let above = mends.iter().find(|(_, of_lab)| *of_lab == mend).map(|(lab, _)| format!("see {lab}, above"));
        lines.add_row([mark, line.name, &line.found, above.as_deref().unwrap_or(mend)]);
    }
    let mends: String = mends.iter().map(|(lab, mend)| format!("what mends {lab}: {mend}\n")).collect();
    format!("{labs}\n{mends}{lines}\n{}", verdict(answer))
}

fn verdict(answer: &Answer) -> String {
    if !answer.able {
        return "This machine can't run scenarios with real sockets yet: mend what lacks. Until then `--engine model` and \
                `predict` need nothing."
            .into();
    }
    let missing: Vec<&str> = [("RabbitMQ", answer.rabbitmq.is_none()), ("Redis", answer.redis.is_none())]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect();
    match &missing[..] {
        [] => "This machine can run scenarios with real sockets: `halfopen run scenarios/first-look.toml`.".into(),
        missing => format!(
            "This machine can run scenarios with real sockets, but for those with {}: `halfopen run \
             scenarios/kernel-timers.toml`.",
            missing.join(" or ")
        ),
    }
}

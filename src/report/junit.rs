//! `junit.xml`: a case a gate, and two about the run itself.
//!
//! A gate that failed is a *failure*: the answer is no. That there is no answer (the run did not reach its end, too many
//! trials are void, a gate is inconclusive because of them) is an *error*: nothing is said about what was tested. A gate
//! that asks how sure and finds only noise is *skipped*: more trials would answer it.

use super::sentences;
use super::summary::{CellSummary, GateSummary, Summary};
use super::text::plain;
use crate::verdict::gate::too_void;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

/// The whole file. The same summary gives the same bytes.
pub(super) fn render(summary: &Summary) -> String {
    let length = Duration::try_from_secs_f64(summary.length_s).unwrap_or_default();
    let name = plain(&summary.scenario.name);
    let mut suite = TestSuite::new(name.as_str());
    suite.set_time(length);
    let facts = [
        ("question", plain(&summary.scenario.question)),
        ("scenario", plain(&summary.scenario.path)),
        ("seed", summary.scenario.seed.to_string()),
        ("engine", plain(&summary.engine)),
        ("lab", plain(&summary.lab)),
        ("kernel", plain(&summary.machine.kernel)),
    ];
    suite.add_properties(facts.iter().map(|(key, value)| (*key, value.as_str())));
    let mut run = case("the run reached its end", complete(summary), &name);
    run.set_time(length);
    suite.add_test_case(run);
    suite.add_test_case(case("enough trials are measurements", measured(summary), &name));
    for gate in &summary.gates {
        suite.add_test_case(case(&plain(&gate.text), judged(gate), &name));
    }
    let mut report = Report::new(summary.tool.name.as_str());
    report.set_time(length);
    report.add_test_suite(suite);
    // The one error that there could be is one of the writer, and memory has none.
    report.to_string().unwrap_or_default()
}

fn case(text: &str, status: TestCaseStatus, class: &str) -> TestCase {
    let mut case = TestCase::new(text, status);
    case.set_classname(class);
    case
}

fn trouble(kind: NonSuccessKind, class: &str, message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(class).set_message(message);
    status
}

fn complete(summary: &Summary) -> TestCaseStatus {
    if summary.complete {
        return TestCaseStatus::success();
    }
    trouble(NonSuccessKind::Error, "incomplete", "the run was interrupted or killed before its end")
}

/// Trials that say something: some, and not too few in any cell.
fn measured(summary: &Summary) -> TestCaseStatus {
    if summary.totals.trials == 0 {
        return trouble(NonSuccessKind::Error, "nothing", "the run has no trial");
    }
    let bad: Vec<&CellSummary> = summary.cells.iter().filter(|c| too_void(c.counts.void, c.counts.trials)).collect();
    if bad.is_empty() {
        return TestCaseStatus::success();
    }
    let plain_name: sentences::Name<'_> = &|text| plain(text);
    let each: Vec<String> = bad
        .iter()
        .map(|c| {
            let (void, all) = (c.counts.void, c.counts.trials);
            format!("{} under {}: {void} of {all} void", plain(&c.arm), sentences::fault(c, plain_name))
        })
        .collect();
    let mut status = trouble(NonSuccessKind::Error, "void", &each.join("; "));
    let reasons: Vec<String> = summary
        .void_reasons
        .iter()
        .map(|v| format!("{}× {} (first: trial {}) {}", v.n, v.reason, v.first_trial, plain(&v.example)))
        .collect();
    status.set_description(reasons.join("\n"));
    status
}

fn judged(gate: &GateSummary) -> TestCaseStatus {
    let message = format!("expected {}; measured {}", plain(&gate.text), sentences::gate_numbers(gate));
    match gate.verdict.as_str() {
        "held" => TestCaseStatus::success(),
        "failed" => trouble(NonSuccessKind::Failure, "gate", &message),
        // Noise: nothing stood in the way of an answer but the number of trials.
        _ if gate.level.is_some() && gate.unknown == 0 => {
            let mut status = TestCaseStatus::skipped();
            status.set_type("inconclusive").set_message(message);
            status
        }
        _ => trouble(NonSuccessKind::Error, "inconclusive", &message),
    }
}

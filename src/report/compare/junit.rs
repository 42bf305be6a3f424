//! A case a gate. Worse is a *failure*. Noise is *skipped*: the question stays open, and nothing is wrong with the build.
//! Trouble (void trials, a run that did not reach its end) is an *error*: nothing was measured.

use super::Comparison;
use crate::report::plain;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// The whole file.
pub(super) fn render(all: &Comparison) -> String {
    let name = format!("{} against {}", all.b.join(" "), all.a.join(" "));
    let mut suite = TestSuite::new(plain(&name).as_str());
    let question = [("question", all.question.as_str())];
    suite.add_properties(question);
    for gate in &all.gates {
        let mut status = match gate.verdict {
            "held" => TestCaseStatus::success(),
            "failed" => TestCaseStatus::non_success(NonSuccessKind::Failure),
            "error" => TestCaseStatus::non_success(NonSuccessKind::Error),
            _ => TestCaseStatus::skipped(),
        };
        if gate.verdict != "held" {
            status.set_type(gate.verdict).set_message(plain(&gate.why));
        }
        let mut case = TestCase::new(plain(&gate.text).as_str(), status);
        case.set_classname("compare");
        suite.add_test_case(case);
    }
    let mut report = Report::new("halfopen");
    report.add_test_suite(suite);
    // The one error that there could be is one of the writer, and memory has none.
    report.to_string().unwrap_or_default()
}

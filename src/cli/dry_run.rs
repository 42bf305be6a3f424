//! `halfopen run --dry-run`: what would be made, by the lab and the firewall that were asked for.

use super::args::{LabName, RunArgs};
use super::exit::{Exit, Failure};
use super::run::Ready;
use super::{firewall, pretty, print};
use crate::clients;
use crate::lab::docker;
use crate::plan::{self, Place, Plan};
use crate::scenario::TaskStoreKind;

/// Prints what each run would make, and makes nothing.
pub(super) fn tell(all: &[Ready], args: &RunArgs) -> Result<Exit, Failure> {
    if let [one] = all
        && docker::has_targets(&one.plan)
    {
        let lines = super::docker::intent(&one.plan);
        let value = || serde_json::json!({ "scenario": one.plan.scenario.name, "cuts": lines });
        return print(&if args.json {
            pretty(&value())
        } else {
            format!("{}\n{}\nnothing is made, started or ended", one.path.display(), lines.join("\n"))
        });
    }
    let described: Vec<_> = all.iter().map(|r| (r, plan::describe(&r.plan).at(&place(&r.plan, args)))).collect();
    if args.json {
        let values: Vec<serde_json::Value> =
            described.iter().filter_map(|(_, d)| serde_json::to_value(d).ok()).collect();
        return print(&pretty(&values.into()));
    }
    let text = |r: &Ready, d: &plan::Description| {
        let arms = r.plan.scenario.arms.iter();
        let mapped = arms.flat_map(|arm| {
            clients::mapping(&arm.settings).into_iter().map(|line| format!("\n  {:<11} {line}", arm.name))
        });
        format!("{}\n{d}{}", r.path.display(), mapped.collect::<String>())
    };
    let texts: Vec<String> = described.iter().map(|(r, d)| text(r, d)).collect();
    print(&texts.join("\n"))
}

fn place(plan: &Plan, args: &RunArgs) -> Place {
    let scenario = &plan.scenario;
    match args.lab {
        LabName::Netns => Place::Netns { firewall: firewall::kind(args.firewall).map(|kind| kind.to_string()) },
        LabName::Docker => {
            let stored = scenario.reaper.as_ref().is_some_and(|reaper| reaper.store == TaskStoreKind::Postgres);
            let named = scenario.broker.image.first().map(String::as_str);
            Place::Docker {
                routed: docker::is_routed(scenario),
                images: docker::names_of_images(&scenario.broker.kinds, named, stored),
            }
        }
        LabName::Vm => Place::Vm,
    }
}

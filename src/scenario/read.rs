//! From text to a [`Scenario`]: sections, then arms, faults and gates, then what only shows when all are known.

use super::checks;
use super::delivery;
use super::error::{Findings, Place, ScenarioError, ScenarioErrors, Source};
use super::fallback;
use super::fault::Fault;
use super::faults;
use super::gates;
use super::injection::Injection;
use super::keys::nearest;
use super::link;
use super::middlebox;
use super::model::{Arm, BrokerKind, BrokerSettings, Scenario, Settings, SubjectKind};
use super::settings::{Options, refuse_idle_defaults};
use super::table::{self, MAX_ARMS, SECTIONS};
use super::target;
use super::timing;
use super::tree::{self, Entry, Node};
use super::value::Val;
use super::walk::{self, Fields};
use std::time::Duration;

/// Reads a scenario. `path_label` names the file in errors and warnings.
///
/// # Errors
/// All that is wrong, in file order, each with file, line, column, key and mend.
pub fn read(path_label: &str, text: &str) -> Result<Scenario, ScenarioErrors> {
    let mut findings = Findings::default();
    let scenario = tree::from_toml(text, &mut findings).and_then(|entries| {
        let question = question(text);
        if question.is_empty() {
            let problem =
                "no question; begin the file with a comment that asks one, such as `# Who notices, and when?`";
            findings.error(0, "", problem);
        }
        build(question, &entries, text.len(), &mut findings)
    });
    let source = Source::File { label: path_label, text };
    match (findings.finish(&source)?, scenario) {
        (warnings, Some(scenario)) => Ok(Scenario { warnings, ..scenario }),
        // Every way to no scenario is recorded as an error; this arm only keeps the function total.
        (_, None) => Err(ScenarioErrors(vec![ScenarioError {
            place: source.place(0),
            key: String::new(),
            problem: "could not be read".to_string(),
        }])),
    }
}

/// Refuses what would measure the harness instead of a half-open connection: a black hole that is made on the subject's own
/// side of its kernel, or that answers.
///
/// # Errors
/// Each such fault with its place, what it distorts and by how much, and the mend. A text that is no scenario has none.
pub fn refuse_distorted(path_label: &str, text: &str) -> Result<(), ScenarioErrors> {
    let (mut findings, mut unread) = (Findings::default(), Findings::default());
    if let Some(entries) = tree::from_toml(text, &mut unread) {
        for fields in sections(&entries, text.len(), &mut unread).faults {
            let injection = fields.text("injection").and_then(Injection::named).unwrap_or_default();
            if let Some(why) = injection.distortion() {
                let problem = format!(
                    "`{injection}` ({}) is not what a path does to packets: {why}; write `router`, or run it with \
                     --allow-distorted, which labels the run",
                    injection.words()
                );
                findings.error(fields.at("injection"), fields.name("injection"), problem);
            }
        }
    }
    findings.finish(&Source::File { label: path_label, text }).map(drop)
}

/// Reads a scenario from bytes, which need not be UTF-8.
///
/// # Errors
/// As [`read`], and the place of the first byte that is not UTF-8.
pub fn read_bytes(path_label: &str, bytes: &[u8]) -> Result<Scenario, ScenarioErrors> {
    match std::str::from_utf8(bytes) {
        Ok(text) => read(path_label, text),
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            let place = Source::File { label: path_label, text: &valid }.place(valid.len());
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or(0);
            let problem = format!("byte 0x{byte:02x} is not UTF-8; save the file as UTF-8");
            Err(ScenarioErrors(vec![ScenarioError { place, key: String::new(), problem }]))
        }
    }
}

/// The options of one arm from `key=value` overrides, named as in files (`keepalive.idle=60s`).
///
/// # Errors
/// As [`read`]; the place is the override itself.
pub fn from_sets(sets: &[(String, String)]) -> Result<Settings, ScenarioErrors> {
    let mut findings = Findings::default();
    let entries = tree::from_sets(sets, &mut findings);
    // Only the name of `[defaults]` is unused here: its keys are the options of an arm.
    let section = table::find("defaults").unwrap_or(&SECTIONS[0]);
    let own = walk::section(section, "", sets.len(), &entries, &mut findings);
    let defaults = Fields::default();
    let options = Options { own: &own, defaults: &defaults };
    let settings = options.subject().map(|subject| {
        options.refuse_impossible(subject, &mut findings);
        options.settings(subject)
    });
    if settings.is_none() && !own.has("subject") {
        findings.error(sets.len(), "subject", "missing; write `--set subject=tcp-reader`");
    }
    let source = Source::Sets(sets);
    findings.finish(&source)?;
    settings.ok_or_else(|| {
        let problem = "could not be read".to_string();
        ScenarioErrors(vec![ScenarioError { place: Place::Set(String::new()), key: String::new(), problem }])
    })
}

/// The first paragraph of the header comment, in one line.
fn question(text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().map_while(|line| line.trim().strip_prefix('#')).map(str::trim);
    let words: Vec<&str> = lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
    words.join(" ")
}

/// The sections of a file by name; `several` holds those of `[[…]]`.
struct Sections {
    scenario: Fields,
    broker: Fields,
    defaults: Fields,
    load: Fields,
    /// `None` where the section does not stand.
    reaper: Option<Fields>,
    user: Option<Fields>,
    tasks: Option<Fields>,
    published: Option<Fields>,
    arms: Vec<Fields>,
    faults: Vec<Fields>,
    gates: Vec<Fields>,
    jobs: Vec<Fields>,
}

fn sections(entries: &[Entry], end: usize, findings: &mut Findings) -> Sections {
    let absent = |name: &str| Fields::absent(&format!("[{name}]"));
    let mut all = Sections {
        scenario: absent("scenario"),
        broker: absent("broker"),
        defaults: absent("defaults"),
        load: absent("load"),
        reaper: None,
        user: None,
        tasks: None,
        published: None,
        arms: Vec::new(),
        faults: Vec::new(),
        gates: Vec::new(),
        jobs: Vec::new(),
    };
    for entry in entries {
        let Some(section) = table::find(&entry.key) else {
            let shown = match entry.value.node {
                Node::Table(_) => format!("[{}]", entry.key),
                Node::List(_) => format!("[[{}]]", entry.key),
                _ => entry.key.clone(),
            };
            findings.error(entry.at, shown, unknown_section(&entry.key));
            continue;
        };
        if let Some(reason) = section.refused {
            findings.error(entry.value.at, section.header(), reason);
            continue;
        }
        for (label, at, entries) in walk::tables(section, entry, findings).unwrap_or_default() {
            let fields = walk::section(section, &label, at, entries, findings);
            match section.name {
                "scenario" => all.scenario = fields,
                "broker" => all.broker = fields,
                "defaults" => all.defaults = fields,
                "load" => all.load = fields,
                "reaper" => all.reaper = Some(fields),
                "user" => all.user = Some(fields),
                "tasks" => all.tasks = Some(fields),
                "published" => all.published = Some(fields),
                "arm" => all.arms.push(fields),
                "fault" => all.faults.push(fields),
                "job" => all.jobs.push(fields),
                _ => all.gates.push(fields),
            }
        }
    }
    for section in SECTIONS.iter().filter(|section| section.required) {
        // A misspelt section is not missing as well.
        let stands = |entry: &Entry| entry.key == section.name || meant(&entry.key) == Some(section.name);
        if !entries.iter().any(stands) {
            let needs: Vec<&str> = section.all_keys().filter(|key| key.required).map(|key| key.example).collect();
            let problem = format!("missing section; write `{}` with `{}`", section.header(), needs.join("` and `"));
            findings.error(end, section.header(), problem);
        }
    }
    all
}

/// The section that an unknown one is near to.
fn meant(word: &str) -> Option<&'static str> {
    nearest(word, SECTIONS.iter().map(|section| section.name))
}

fn unknown_section(word: &str) -> String {
    if table::OPTIONS.iter().any(|key| key.name == word) {
        return "stands in no section; write it in `[defaults]` or `[[arm]]`".to_string();
    }
    let owners: Vec<String> = SECTIONS
        .iter()
        .filter(|section| section.keys.iter().any(|key| key.name == word))
        .map(|section| format!("`{}`", section.header()))
        .collect();
    if !owners.is_empty() {
        return format!("stands in no section; write it in {}", owners.join(" or "));
    }
    match meant(word).and_then(table::find) {
        Some(section) => format!("unknown section; did you mean `{}`?", section.header()),
        None => {
            let all: Vec<String> = SECTIONS.iter().map(|section| format!("`{}`", section.header())).collect();
            format!("unknown section; sections are {}", all.join(", "))
        }
    }
}

fn build(question: String, entries: &[Entry], end: usize, findings: &mut Findings) -> Option<Scenario> {
    let all = sections(entries, end, findings);
    let trials = all.scenario.int("trials").and_then(|n| u32::try_from(n).ok());
    let faults: Vec<Fault> = all.faults.iter().filter_map(|fields| faults::fault(fields, findings)).collect();
    faults::together(&all.faults, findings);
    if faults.len() == all.faults.len() {
        middlebox::one_for_all(&all.faults.iter().zip(&faults).collect::<Vec<_>>(), findings);
    }
    faults::within(all.scenario.time("horizon"), &all.faults, findings);
    let bare = |kind: Option<SubjectKind>| kind.is_some_and(|kind| kind.broker() == BrokerKind::None);
    let arms: Vec<Option<Arm>> = all.arms.iter().map(|own| arm(own, &all.defaults, trials, findings)).collect();
    if let Some(beyond) = all.arms.get(MAX_ARMS) {
        let problem = format!("{} arms are too many; the most is {MAX_ARMS}", all.arms.len());
        findings.error(beyond.at, beyond.label.trim_end(), problem);
    }
    checks::unique_names(&all.arms, findings);
    let subjects: Vec<(&Fields, Option<SubjectKind>)> =
        all.arms.iter().map(|own| (own, Options { own, defaults: &all.defaults }.subject())).collect();
    if all.arms.iter().all(|own| !own.flawed) {
        refuse_idle_defaults(&all.defaults, &subjects, findings);
    }
    if faults.len() == all.faults.len() {
        let faults: Vec<(&Fields, &Fault)> = all.faults.iter().zip(&faults).collect();
        let (arms, defaults, broker, load) = (&all.arms[..], &all.defaults, &all.broker, &all.load);
        target::Around { arms, defaults, faults: &faults, broker, load, reaper: all.reaper.as_ref() }.check(findings);
    }
    faults::apart(&all.faults, findings);
    faults::proxied(&all.faults, subjects.iter().any(|(_, kind)| bare(*kind)), findings);
    let outside = subjects.iter().all(|(_, kind)| kind.is_none_or(SubjectKind::is_command));
    faults::of_a_role(&all.faults, outside, findings);
    let mut broker = broker(&all, &subjects, findings);
    // The workers' keys need a server, whoever speaks to it otherwise.
    let keys = all.reaper.iter().chain(&all.arms).any(|fields| fields.text("liveness") == Some("redis"));
    if keys && !broker.kinds.contains(&BrokerKind::Redis) {
        broker.kinds.push(BrokerKind::Redis);
    }
    let load_interval = all.load.time("rate");

    let names: Vec<&str> = all.arms.iter().filter_map(|fields| fields.text("name")).collect();
    let around = gates::Around { arms: &names, faults: &faults, reaper: all.reaper.is_some() };
    let gates = all.gates.iter().filter_map(|fields| gates::gate(fields, &around, findings)).collect();
    let horizon = all.scenario.time("horizon");
    let read: Vec<(&Fields, &Arm)> =
        all.arms.iter().zip(&arms).filter_map(|(fields, arm)| Some((fields, arm.as_ref()?))).collect();
    for (own, arm) in &read {
        let options = Options { own, defaults: &all.defaults };
        if !all.load.flawed {
            checks::load(options, arm, load_interval.filter(|_| arm.load), &broker, findings);
        }
        if let Some(link) = arm.settings.link.as_ref().filter(|_| !own.flawed && !all.defaults.flawed) {
            link::check(options, link, findings);
        }
        if !own.flawed && !all.defaults.flawed {
            options.check_command(load_interval.is_some() && arm.load, findings);
        }
        checks::trials(own, &all.scenario, arm.trials, all.faults.len(), findings);
    }
    // With tasks the number of trials is drawn.
    if all.tasks.is_none() {
        checks::encrypted(&read, &all.scenario, all.faults.len(), findings);
    }
    if faults.len() == all.faults.len() {
        faults::reconnecting(&all.faults.iter().zip(&faults).collect::<Vec<_>>(), &read, findings);
    }
    if !all.load.flawed {
        faults::heard(&all.faults, &read, findings);
        faults::handshakes(&all.faults, &read, findings);
        faults::deliveries(&all.faults, &read, load_interval, findings);
        faults::alarmed(&all.faults, &read, load_interval, findings);
    }
    if !all.defaults.flawed && !all.broker.flawed {
        checks::horizon(&all.scenario, &read, &broker, &faults, findings);
    }

    let around = fallback::Around {
        scenario: &all.scenario,
        load: &all.load,
        arms: &all.arms,
        faults: &all.faults,
        jobs: &all.jobs,
        reaper: all.reaper.as_ref(),
        user: all.user.as_ref(),
        tasks: all.tasks.as_ref(),
        published: all.published.as_ref(),
    };
    let fallback = fallback::read(&around);
    fallback::check(&around, findings);
    fallback::clients(all.reaper.as_ref().filter(|reaper| !reaper.flawed), &read, findings);
    faults::processes(&all.faults, &read, fallback.reaper.as_ref(), findings);

    let jobs: Vec<(&Fields, delivery::Job)> =
        all.jobs.iter().filter_map(|fields| Some((fields, delivery::job(fields)?))).collect();
    let with_options: Vec<_> = read.iter().map(|(own, arm)| (Options { own, defaults: &all.defaults }, *arm)).collect();
    if !all.load.flawed && !all.defaults.flawed {
        delivery::check(&jobs, &with_options, load_interval.is_some(), all.reaper.is_some(), findings);
    }

    let eta = all.load.time("eta");
    checks::eta(&all.load, eta, &read, &faults, findings);
    let second_consumer = all.load.flag("second_consumer").unwrap_or(false);
    if second_consumer && !all.load.flawed {
        let stored = all.reaper.is_some() || all.tasks.is_some();
        checks::second_consumer(&all.load, &read, stored, !all.jobs.is_empty(), findings);
    }
    let longest = read.iter().filter_map(|(_, arm)| timing::heartbeat_in_force(&arm.settings, &broker)).max();
    let settle = all.scenario.time("settle").unwrap_or_else(|| default_settle(longest));
    Some(Scenario {
        name: all.scenario.text("name")?.to_string(),
        question,
        horizon: horizon?,
        seed: all.scenario.int("seed").and_then(|n| u64::try_from(n).ok()).unwrap_or(1),
        at_once: all.scenario.int("at_once").and_then(|n| u32::try_from(n).ok()),
        ci: all.scenario.flag("ci").unwrap_or(false),
        settle,
        broker,
        arms: arms.into_iter().collect::<Option<Vec<Arm>>>()?,
        faults,
        load_interval,
        load_count: all.load.int("count").and_then(|n| u64::try_from(n).ok()),
        jobs: jobs.into_iter().map(|(_, job)| job).collect(),
        eta,
        second_consumer,
        durable: all.load.flag("durable").unwrap_or(false),
        reaper: fallback.reaper,
        user: fallback.user,
        tasks: fallback.tasks,
        published: fallback.published,
        gates,
        warnings: Vec::new(),
    })
}

/// Long enough for heartbeats to have been exchanged once, not longer than 15 s.
fn default_settle(longest_heartbeat: Option<Duration>) -> Duration {
    longest_heartbeat.unwrap_or_default().clamp(Duration::from_secs(1), Duration::from_secs(15))
}

fn arm(own: &Fields, defaults: &Fields, trials: Option<u32>, findings: &mut Findings) -> Option<Arm> {
    let options = Options { own, defaults };
    if options.source("subject").is_none() && options.target().is_none() {
        let problem = "missing; write `subject = \"lapin\"` here or in `[defaults]`";
        findings.error(own.at, own.name("subject"), problem);
    }
    let subject = options.subject()?;
    if options.target().is_none() {
        options.refuse_impossible(subject, findings);
    }
    // A service has as many containers as it has; one is there for sure.
    let trials = trials.unwrap_or(if options.target().is_some() { 1 } else { 10 });
    Some(Arm {
        name: own.text("name")?.to_string(),
        settings: options.settings(subject),
        trials: own.int("trials").and_then(|n| u32::try_from(n).ok()).unwrap_or(trials),
        load: own.text("load") != Some("off"),
        liveness: own.text("liveness").map(fallback::liveness_store),
        clock_ahead_ms: own.time("clock_ahead").map_or(0, millis) - own.time("clock_behind").map_or(0, millis),
        clock_steps_after: own.time("clock_steps_after").unwrap_or_default(),
    })
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The brokers: as written and checked against the subjects, or what the subjects speak.
fn broker(all: &Sections, subjects: &[(&Fields, Option<SubjectKind>)], findings: &mut Findings) -> BrokerSettings {
    let fields = &all.broker;
    let mut spoken: Vec<BrokerKind> = Vec::new();
    for kind in subjects.iter().filter_map(|(_, subject)| subject.map(SubjectKind::broker)) {
        if !spoken.contains(&kind) {
            spoken.push(kind);
        }
    }
    let known = subjects.iter().all(|(_, subject)| subject.is_some());
    let mut kinds = spoken.clone();
    if let Some(Val::Words(words)) = fields.get("kind").map(|found| &found.val) {
        let all_kinds = [BrokerKind::None, BrokerKind::Rabbitmq, BrokerKind::Redis];
        kinds = words.iter().filter_map(|(_, word)| all_kinds.into_iter().find(|kind| kind.name() == word)).collect();
        for ((at, word), kind) in words.iter().zip(&kinds) {
            if known && !spoken.contains(kind) {
                findings.error(*at, fields.name("kind"), format!("no arm speaks to `{word}`; remove it"));
            }
        }
        let listed: Vec<String> = words.iter().map(|(_, word)| format!("`{word}`")).collect();
        for (own, subject) in subjects {
            let options = Options { own, defaults: &all.defaults };
            let (Some(subject), Some(source)) = (subject, options.source("subject")) else { continue };
            let needs = subject.broker();
            if !kinds.contains(&needs) {
                let at = if source.has("subject") && own.has("subject") { own.at("subject") } else { own.at };
                let mend = match subject {
                    SubjectKind::Command => "say `broker = \"redis\"` in the subject, or add it there",
                    _ => "add it there",
                };
                let problem =
                    format!("{subject} speaks to `{needs}`, and [broker] kind is {}; {mend}", listed.join(", "));
                findings.error(at, own.name("subject"), problem);
            }
        }
    }
    for key in ["heartbeat", "consumer_timeout"] {
        if let Some(found) = fields.get(key).filter(|_| known && !spoken.contains(&BrokerKind::Rabbitmq)) {
            findings.error(found.key_at, fields.name(key), "is RabbitMQ's, and no arm speaks to RabbitMQ; remove it");
        }
    }
    let heartbeat = fields.setting("heartbeat");
    BrokerSettings {
        kinds,
        image: images(fields, &spoken, findings),
        heartbeat,
        consumer_timeout: fields.time("consumer_timeout"),
    }
}

/// The container images of the broker, where the scenario has one broker and names some.
fn images(fields: &Fields, spoken: &[BrokerKind], findings: &mut Findings) -> Vec<String> {
    let Some(Val::Words(words)) = fields.get("image").map(|found| &found.val) else { return Vec::new() };
    let servers = spoken.iter().filter(|kind| **kind != BrokerKind::None).count();
    if servers != 1 {
        let why = if servers == 0 { "no arm speaks to a broker" } else { "the arms speak to two brokers" };
        let problem = format!("names the image of one broker, and {why}; remove it, or make two scenarios");
        findings.error(fields.at("image"), fields.name("image"), problem);
    }
    words.iter().map(|(_, word)| word.clone()).collect()
}

/// What `halfopen list` shows of a scenario without planning it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// Its name.
    pub name: String,
    /// Its question.
    pub question: String,
    /// Whether CI runs it.
    pub ci: bool,
}

/// Name, question and whether CI runs it.
///
/// # Errors
/// As [`read`]: a list that hides broken files would be of no use.
pub fn list_entry(path_label: &str, text: &str) -> Result<ListEntry, ScenarioErrors> {
    let scenario = read(path_label, text)?;
    Ok(ListEntry { name: scenario.name, question: scenario.question, ci: scenario.ci })
}

//! The question: sources, overrides and the arms that they make, and what is wrong with them.

use super::answer::{Answer, NotPredicted, Source, arm_line, predicted};
use super::arm::Arm;
use super::situations::Situation;
use super::{facts, files, lints, sets, situations, words};
use crate::config::{self, Findings, Hints, Reading, SourceKind, Transport};
use crate::scenario::Scenario;
use crate::timers::{BrokerKind, Subject};
use crate::units::print_duration;
use thiserror::Error;

/// The most arms that one question may have.
pub const MAX_ARMS: usize = 10_000;

/// What is asked. All parts may be empty, not all at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// Scenario files with their labels.
    pub scenarios: &'a [(String, Scenario)],
    /// Settings that people already have.
    pub readings: &'a [Reading],
    /// `key=value` overrides; commas separate values that become arms of their own.
    pub sets: &'a [(String, String)],
}

/// Why a question has no answer. Each message is one line with the mend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdviceError {
    /// Nothing was given.
    #[error("nothing to predict; give a scenario, your settings files, --from-env or --set subject=celery")]
    Nothing,
    /// Sources without anything in them.
    #[error(
        "{0}: nothing that bears on who notices; what is read is listed in docs/your-own-settings.md, or use --set subject=celery"
    )]
    NoSettings(String),
    /// A scenario and settings at once.
    #[error("a scenario has settings of its own; give either a scenario or settings files, and --set for changes")]
    Both,
    /// A scenario's subject can't be replaced.
    #[error("--set {0}: a scenario says who consumes; leave it out, or leave the scenario out")]
    ScenarioSubject(String),
    /// Nobody says who connects.
    #[error("no source says which client connects; add --set subject=celery (subjects are {subjects})", subjects = Subject::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(", "))]
    WhichClient,
    /// Nobody says to what.
    #[error(
        "no source has the broker's address, so the transport is not known; give it too, or add --set broker=rabbitmq (or redis)"
    )]
    WhichBroker,
    /// A transport that is not modelled.
    #[error("the transport `{0}` is not modelled; AMQP (RabbitMQ) and Redis are")]
    Transport(String),
    /// A fact that the model can't take.
    #[error("{place}: {why}")]
    Fact {
        /// Where.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// `--set` with a key that does not exist.
    #[error("--set {set}: unknown key `{key}`; {mend}")]
    UnknownKey {
        /// As written.
        set: String,
        /// The key.
        key: String,
        /// The nearest, or where they are listed.
        mend: String,
    },
    /// `--set` with a value that is none.
    #[error("--set {set}: {why}")]
    Value {
        /// As written.
        set: String,
        /// What is wrong, with the mend.
        why: String,
    },
    /// Too many combinations.
    #[error("{0} combinations of the values in --set are too many; the most is {MAX_ARMS}")]
    TooMany(usize),
}

/// Answers.
///
/// # Errors
/// [`AdviceError`], one line with the mend.
pub fn advise(request: &Request<'_>) -> Result<Answer, AdviceError> {
    let Request { scenarios, readings, sets } = *request;
    if scenarios.is_empty() && readings.is_empty() && sets.is_empty() {
        return Err(AdviceError::Nothing);
    }
    if !scenarios.is_empty() && !readings.is_empty() {
        return Err(AdviceError::Both);
    }
    let combinations = sets::combinations(sets)?;
    let mut findings = Findings::default();
    // What a source means depends on the transport.
    let mut interpreted_for = None;
    let mut answer = Answer {
        format: 1,
        verdicts: Vec::new(),
        predictions: Vec::new(),
        not_predicted: Vec::new(),
        arms: Vec::new(),
        lints: Vec::new(),
        ignored: Vec::new(),
        overridden: Vec::new(),
        not_understood: Vec::new(),
        sources: Vec::new(),
        assumed: Vec::new(),
    };
    for combination in &combinations {
        let mut chosen = sets::choose(combination)?;
        chosen.broker = chosen.broker.or_else(|| implied(readings, chosen.subject?));
        if scenarios.is_empty() {
            if !readings.is_empty() && interpreted_for != Some((chosen.broker, chosen.subject)) {
                findings = interpret(readings, chosen.broker, chosen.subject)?;
                interpreted_for = Some((chosen.broker, chosen.subject));
            }
            let mut arm = if readings.is_empty() {
                let subject = chosen.subject.unwrap_or(Subject::TcpReader);
                Arm::stock(subject, chosen.broker.unwrap_or(Arm::usual_broker(subject)))
            } else {
                facts::arm(&findings, chosen.subject, chosen.broker)?
            };
            sets::apply(&mut arm, combination)?;
            arm.finish();
            possible_age(&arm)?;
            if !chosen.name.is_empty() {
                arm.name = chosen.name;
            }
            let found = lints::of_arm(&arm, Some(&findings).filter(|_| !readings.is_empty()), !combination.is_empty());
            let situations = situations::of(&arm);
            add(&mut answer, &arm, situations, found);
            continue;
        }
        for (label, file) in scenarios {
            if let Some(set) = combination.iter().find(|(key, _)| sets::is_stack(key)) {
                return Err(AdviceError::ScenarioSubject(format!("{}={}", set.0, set.1)));
            }
            let named = |name: &str| match scenarios.len() {
                1 => name.to_string(),
                _ => format!("{}/{name}", file.name),
            };
            for unknown in files::unknown_arms(file) {
                let unknown = NotPredicted { arm: named(&unknown.arm), ..unknown };
                // Whatever is set: it is one arm.
                if !answer.not_predicted.contains(&unknown) {
                    answer.not_predicted.push(unknown);
                }
            }
            for mut arm in files::arms(label, file) {
                sets::apply(&mut arm, combination)?;
                arm.finish();
                possible_age(&arm)?;
                arm.name = named(&arm.name);
                if !chosen.name.is_empty() {
                    arm.name = format!("{} {}", arm.name, chosen.name);
                }
                let found = lints::of_arm(&arm, None, true);
                answer.not_predicted.extend(files::unknown_faults(file, &arm));
                let situations = files::situations(file, &arm);
                add(&mut answer, &arm, situations, found);
            }
        }
    }
    answer.sources =
        findings.sources.iter().map(|(label, kind)| Source { label: label.clone(), kind: *kind }).collect();
    answer.ignored = findings.ignored;
    answer.overridden = findings.overridden;
    answer.not_understood = findings.not_understood;
    answer.lints.sort_by_key(|l| std::cmp::Reverse(l.lint.severity));
    Ok(answer)
}

fn interpret(
    readings: &[Reading],
    broker: Option<BrokerKind>,
    subject: Option<Subject>,
) -> Result<Findings, AdviceError> {
    let transport = match broker {
        Some(BrokerKind::RabbitMq) => Some(Transport::Pyamqp),
        Some(BrokerKind::Redis) => Some(Transport::Redis),
        _ => None,
    };
    let findings = config::interpret(readings, &Hints { transport, celery: subject == Some(Subject::Celery) });
    let written = findings.facts.iter().any(|f| f.origin == config::Origin::Written && f.place.label != "hint");
    if !written && findings.ignored.is_empty() && findings.lints.is_empty() {
        // What a client's options mean depends on the transport; with it they may bear on who notices.
        if subject.is_some() && broker.is_none() {
            return Err(AdviceError::WhichBroker);
        }
        let labels: Vec<&str> = readings.iter().map(|r| r.label.as_str()).collect();
        return Err(AdviceError::NoSettings(labels.join(", ")));
    }
    Ok(findings)
}

/// The broker where the sources are nothing but a server's own settings, or the kernel's.
fn implied(readings: &[Reading], subject: Subject) -> Option<BrokerKind> {
    let of = |reading: &Reading| match reading.kind {
        SourceKind::RabbitmqConf => Some(Some(BrokerKind::RabbitMq)),
        SourceKind::RedisConf | SourceKind::RedisConfigGet => Some(Some(BrokerKind::Redis)),
        SourceKind::Sysctl => Some(None),
        _ => None,
    };
    let kinds: Option<Vec<_>> = readings.iter().map(of).collect();
    let mut named: Vec<BrokerKind> = kinds?.into_iter().flatten().collect();
    named.dedup();
    match named[..] {
        [] if !readings.is_empty() => Some(Arm::usual_broker(subject)),
        [one] => Some(one),
        _ => None,
    }
}

/// Answered keepalive probes keep a healthy connection from ever being silent for longer than its idle time.
fn possible_age(arm: &Arm) -> Result<(), AdviceError> {
    let (Some(age), Some(keepalive)) = (arm.conditions.age_at_fault, arm.settings.keepalive) else { return Ok(()) };
    let longest = keepalive.idle.max(keepalive.interval);
    if age <= longest {
        return Ok(());
    }
    let (age, longest) = (print_duration(age), print_duration(longest));
    Err(AdviceError::Value {
        set: format!("age_at_fault={age}"),
        why: format!("keepalive keeps a healthy connection from being silent for so long; write at most {longest}"),
    })
}

fn add(answer: &mut Answer, arm: &Arm, situations: Vec<Situation>, found: Vec<config::Lint>) {
    let mut of_arm = Vec::new();
    let mut notes = arm.assumed.clone();
    for situation in situations {
        let (one, doubts) = predicted(arm, situation);
        notes.extend(doubts);
        of_arm.push(one);
    }
    lints::collect(&mut answer.lints, arm, found, &of_arm);
    for note in notes {
        if !answer.assumed.contains(&note) {
            answer.assumed.push(note);
        }
    }
    answer.verdicts.push(words::verdict(&arm.name, &of_arm));
    answer.arms.push(arm_line(arm));
    answer.predictions.extend(of_arm);
}

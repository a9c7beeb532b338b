//! The section `[restart]`: what becomes of a job whose task has failed.
//!
//! Each strategy has fields of its own; a field of another one is a mistake, since it would do nothing.

use std::sync::Arc;
use std::time::Duration;

use super::error::Problem;
use super::section::{Field, PositiveDuration, Section, Wrong, word};
use super::units::HumanDuration;
use super::value::{Layer, SourceText, Value};
use crate::api::RestartSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    None,
    FixedDelay,
    FailureRate,
    ExponentialDelay,
}

impl Strategy {
    const ALL: [(&str, Self); 4] = [
        ("none", Self::None),
        ("fixed-delay", Self::FixedDelay),
        ("failure-rate", Self::FailureRate),
        ("exponential-delay", Self::ExponentialDelay),
    ];

    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::FixedDelay => &["attempts", "delay"],
            Self::FailureRate => &["max-failures", "interval", "delay"],
            Self::ExponentialDelay => &["initial", "max", "multiplier", "reset-after", "jitter"],
        }
    }

    fn settings(self) -> RestartSettings {
        match self {
            Self::None => RestartSettings::None,
            Self::FixedDelay => RestartSettings::FIXED_DELAY,
            Self::FailureRate => RestartSettings::FAILURE_RATE,
            Self::ExponentialDelay => RestartSettings::EXPONENTIAL_DELAY,
        }
    }
}

/// Reads `[restart]`, if it is there, of a job with or without checkpoints.
pub(super) fn read(
    fields: Option<Section<'_>>,
    checkpoints: bool,
    job: &Arc<SourceText>,
    problems: &mut Vec<Problem>,
) -> RestartSettings {
    let (default, why) = match checkpoints {
        true => (Strategy::ExponentialDelay, "the default with checkpoints"),
        false => (Strategy::None, "the default without checkpoints"),
    };
    let Some(mut fields) = fields else { return default.settings() };
    let written = fields.peek("strategy").is_some();
    let Some(strategy) = fields.optional::<Strategy>("strategy").or((!written).then_some(default)) else {
        // Which fields a misspelled strategy has cannot be known.
        Strategy::ALL.iter().flat_map(|(_, other)| other.fields()).for_each(|field| {
            fields.raw(field);
        });
        fields.finish(problems);
        return default.settings();
    };
    let others = refuse_others(&mut fields, strategy, if written { "" } else { why }, job);
    let mut settings = strategy.settings();
    match &mut settings {
        RestartSettings::None => {}
        RestartSettings::FixedDelay { attempts, delay } => {
            set(attempts, fields.optional("attempts"));
            set(delay, duration(&mut fields, "delay"));
        }
        RestartSettings::FailureRate { max_failures, interval, delay } => {
            set(max_failures, fields.optional("max-failures"));
            set(interval, fields.optional::<PositiveDuration>("interval").map(|interval| interval.0));
            set(delay, duration(&mut fields, "delay"));
        }
        RestartSettings::ExponentialDelay { initial, max, multiplier, reset_after, jitter } => {
            set(initial, fields.optional::<PositiveDuration>("initial").map(|initial| initial.0));
            set(max, fields.optional::<PositiveDuration>("max").map(|max| max.0));
            set(multiplier, fields.optional::<Multiplier>("multiplier").map(|multiplier| multiplier.0));
            set(reset_after, fields.optional::<PositiveDuration>("reset-after").map(|reset_after| reset_after.0));
            set(jitter, fields.optional::<Jitter>("jitter").map(|jitter| jitter.0));
            if initial > max {
                let field = if fields.peek("max").is_some() { "max" } else { "initial" };
                let message =
                    format!("initial = {} is more than max = {}", HumanDuration(*initial), HumanDuration(*max));
                let problem = Problem::new(fields.path_of(field), message).help("delays grow from initial to max");
                let origin = fields.origin_of(field).expect("the defaults are in order");
                fields.report(problem.at(origin));
            }
        }
    }
    fields.finish_hiding(&others, problems);
    settings
}

fn set<T>(field: &mut T, read: Option<T>) {
    if let Some(read) = read {
        *field = read;
    }
}

fn duration(fields: &mut Section<'_>, name: &'static str) -> Option<Duration> {
    fields.optional::<HumanDuration>(name).map(|duration| duration.0)
}

/// Blames fields of other strategies than this one, and returns their names. `why` it is this one, if nobody said so.
fn refuse_others(fields: &mut Section<'_>, strategy: Strategy, why: &str, job: &Arc<SourceText>) -> Vec<&'static str> {
    let chosen_by = fields.origin_of("strategy").map_or(Layer::Job, |origin| origin.layer(job));
    let name_of =
        |wanted: Strategy| Strategy::ALL.iter().find(|(_, strategy)| *strategy == wanted).expect("one of all").0;
    let mut others: Vec<&'static str> = Vec::new();
    for field in Strategy::ALL.iter().flat_map(|(_, other)| other.fields()) {
        if strategy.fields().contains(field) || others.contains(field) {
            continue;
        }
        others.push(field);
        // What belongs to a strategy that was replaced by a stronger word went with it.
        let Some(located) = fields.raw(field).filter(|located| located.origin.layer(job) >= chosen_by) else {
            continue;
        };
        let owners = Strategy::ALL.iter().filter(|(_, other)| other.fields().contains(field));
        let owners: Vec<String> = owners.map(|(name, _)| format!("{name:?}")).collect();
        let why = if why.is_empty() { String::new() } else { format!(", {why}") };
        let message =
            format!("{field} belongs to {}, but the strategy is {:?}{why}", owners.join(" and "), name_of(strategy));
        let help = format!("add strategy = {}, or remove {field}", owners.join(" or "));
        let help = if why.is_empty() { help.replacen("add", "use", 1) } else { help };
        fields.report(Problem::new(fields.path_of(field), message).help(help).at(located.origin.clone()));
    }
    others
}

impl Field for Strategy {
    fn read(value: &Value) -> Result<Self, Wrong> {
        word(value, &Self::ALL)
    }
}

struct Multiplier(f64);

impl Field for Multiplier {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let number = number(value).filter(|number| *number > 1.0 && number.is_finite());
        number.map(Self).ok_or_else(|| Wrong::found(value, "a number above 1"))
    }
}

struct Jitter(f64);

impl Field for Jitter {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let number = number(value).filter(|number| (0.0..=1.0).contains(number));
        number.map(Self).ok_or_else(|| Wrong::found(value, "a number from 0 to 1"))
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

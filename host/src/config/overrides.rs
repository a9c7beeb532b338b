//! Values from the command line: `--set operators.count.parallelism=4`.
//!
//! A path of names, dots between them, and a value: TOML where it is TOML, else a string, so that quotes that a shell
//! would eat can be left out. The path may add fields, but no nodes: a misspelled node would become a new one.

use super::error::Problem;
use super::value::{self, Entry, Located, Origin, Table, Value};
use crate::closest::closest;

/// The sections whose tables are nodes.
const NODE_SECTIONS: [&str; 3] = ["sources", "operators", "sinks"];

/// How many names a path may have. The longest of a job file has four; tables of an operator's own may go deeper.
const MOST_NAMES: usize = 64;

/// Puts the arguments of `--set` into a table, later ones over earlier ones.
pub(super) fn apply(table: &mut Table, arguments: &[String], problems: &mut Vec<Problem>) {
    for argument in arguments {
        let origin = Origin::Set { argument: argument.as_str().into() };
        if let Err(problem) = apply_one(table, argument, &origin) {
            problems.push(problem.at(origin));
        }
    }
}

fn apply_one(table: &mut Table, argument: &str, origin: &Origin) -> Result<(), Problem> {
    let Some((path, text)) = argument.split_once('=') else {
        let problem = Problem::new("", format!("--set {argument} has no value"));
        return Err(problem.expected("NAME.NAME=VALUE, such as operators.count.parallelism=4"));
    };
    let path = path.trim();
    let names: Vec<&str> = path.split('.').map(str::trim).collect();
    if names.iter().any(|name| name.is_empty()) {
        let problem = Problem::new("", format!("{path:?} is not the path of a field"));
        return Err(problem.expected("names with dots between them, such as operators.count.parallelism"));
    }
    if names.len() > MOST_NAMES {
        let problem = Problem::new("", format!("the path of a field has {} names", names.len()));
        return Err(problem.expected(format!("at most {MOST_NAMES} names with dots between them")));
    }
    if let [section, node, ..] = names[..]
        && NODE_SECTIONS.contains(&section)
    {
        check_node(table, section, node)?;
    }
    let string = || Located { value: Value::String(text.to_owned()), origin: origin.clone() };
    let value = value::parse_value(text, origin).unwrap_or_else(string);
    set(table, &names, 0, value, origin)
}

fn check_node(table: &Table, section: &str, node: &str) -> Result<(), Problem> {
    let nodes = match table.entry(section).map(|entry| &entry.value.value) {
        Some(Value::Table(nodes)) => nodes.0.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    if nodes.contains(&node) {
        return Ok(());
    }
    let problem = Problem::new(format!("{section}.{node}"), "the job file has no such node");
    Err(match closest(node, nodes.iter().copied()) {
        Some(guess) => problem.help(format!("did you mean {section}.{guess}?")),
        None if nodes.is_empty() => problem.help(format!("it has no {section}")),
        None => problem.help(format!("it has {}", nodes.join(", "))),
    })
}

fn set(table: &mut Table, names: &[&str], depth: usize, value: Located, origin: &Origin) -> Result<(), Problem> {
    let name = names[depth];
    if table.entry(name).is_none() {
        let empty = Located { value: Value::Table(Table::default()), origin: origin.clone() };
        table.0.push(Entry { key: name.to_owned(), key_origin: origin.clone(), value: empty });
    }
    let entry = table.entry_mut(name).expect("it was just made");
    if depth + 1 == names.len() {
        entry.key_origin = origin.clone();
        entry.value = value;
        return Ok(());
    }
    match &mut entry.value.value {
        Value::Table(inner) => set(inner, names, depth + 1, value, origin),
        other => {
            let path = names[..=depth].join(".");
            let message = format!("it is {}, which has no field {}", other.describe(), names[depth + 1]);
            Err(Problem::new(path.clone(), message).help(format!("set {path} as a whole")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn table() -> Table {
        let text = r#"
            parallelism = 1
            [sources.lines]
            connector = "file"
            [operators.count]
            input = "lines"
        "#;
        let file = value::SourceText { path: "job.toml".into(), text: text.to_owned() };
        value::parse(&Arc::new(file), &mut Vec::new())
    }

    fn get<'a>(table: &'a Table, path: &str) -> &'a Value {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let value = &table.entry(name).expect("a value at the path").value.value;
        match value {
            Value::Table(inner) if !rest.is_empty() => get(inner, rest),
            _ => value,
        }
    }

    fn check(argument: &str, path: &str, value: &str) {
        let mut changed = table();
        let mut problems = Vec::new();
        apply(&mut changed, &[argument.to_owned()], &mut problems);
        assert!(problems.is_empty(), "{argument}: {problems:?}");
        assert_eq!(get(&changed, path).describe(), value, "{argument}");
    }

    fn refused(argument: &str) -> String {
        let mut problems = Vec::new();
        apply(&mut table(), &[argument.to_owned()], &mut problems);
        problems.first().map(ToString::to_string).expect("a problem")
    }

    #[test]
    fn values_replace_and_add() {
        check("parallelism=4", "parallelism", "the number 4");
        check("operators.count.parallelism=4", "operators.count.parallelism", "the number 4");
        check("operators.count.limits.call=1s", "operators.count.limits.call", "the string \"1s\"");
        check("operators.count.limits.call=\"1s\"", "operators.count.limits.call", "the string \"1s\"");
        check("sources.lines.path=a=b c.txt", "sources.lines.path", "the string \"a=b c.txt\"");
        check("sources.lines.path=", "sources.lines.path", "the string \"\"");
        check("operators.count.chain=false", "operators.count.chain", "the boolean false");
        check("operators.count.input={ from = \"lines\" }", "operators.count.input.from", "the string \"lines\"");
    }

    #[test]
    fn mistakes_are_explained() {
        assert_eq!(
            refused("parallelism"),
            "error: --set parallelism has no value\n  --> --set parallelism\n  \
             = expected: NAME.NAME=VALUE, such as operators.count.parallelism=4"
        );
        let deep = format!("{}=1", vec!["a"; 30_000].join("."));
        assert!(refused(&deep).starts_with("error: the path of a field has 30000 names\n"));
        assert!(refused("operators..x=1").contains("is not the path of a field"));
        assert!(refused("operators.cuont.parallelism=1").contains("help: did you mean operators.count?"));
        assert!(refused("sinks.out.path=x").contains("help: it has no sinks"));
        assert!(refused("parallelism.x=1").contains("it is the number 1, which has no field x"));
    }
}

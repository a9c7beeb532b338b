//! Where in a job file a mistake of the graph was made.

use super::error::Problem;
use super::job_file::JobFile;
use super::node::{InputPlace, NodeTable};
use super::value::join;
use crate::api::GraphError;

/// Blames the place of a graph's mistake.
pub(super) fn graph_problem(file: &JobFile, error: GraphError) -> Problem {
    let problem = |field: String| Problem::new(field, error.to_string()).help(error.help());
    let node = |name: &str| file.nodes.iter().find(|node| node.name == name).expect("errors name nodes of the file");
    let input = |name: &str, index: usize| -> &InputPlace { &node(name).places.inputs[index] };
    let named = |node: &NodeTable| problem(node.path()).at(node.places.name.clone());
    match &error {
        GraphError::JobName { .. } => problem("name".to_owned()).at(file.whole.clone()),
        GraphError::Name { name } => named(node(name)),
        // The first is as good as the second; the second is what was added.
        GraphError::Duplicate { node: name } => {
            named(file.nodes.iter().rfind(|node| node.name == *name).expect("errors name nodes of the file"))
        }
        GraphError::NoSource => problem("sources".to_owned()).at(file.whole.clone()),
        GraphError::NoSink => problem("sinks".to_owned()).at(file.whole.clone()),
        GraphError::MaxParallelism { .. } => problem("max-parallelism".to_owned()).at(file.whole.clone()),
        GraphError::Parallelism { node: name, .. } => {
            let (node, own) = (node(name), node(name).places.parallelism.as_ref());
            match own.or(file.parallelism_origin.as_ref()) {
                Some(origin) if own.is_some() => problem(join(&node.path(), "parallelism")).at(origin.clone()),
                Some(origin) => problem("parallelism".to_owned()).at(origin.clone()),
                None => named(node),
            }
        }
        GraphError::NoInput { node: name } => {
            let (node, places) = (node(name), &node(name).places);
            problem(join(&node.path(), "input")).at(places.input.as_ref().unwrap_or(&places.name).clone())
        }
        GraphError::SourceInput { node: name } => named(node(name)),
        GraphError::UnknownInput { node, input: index, .. }
        | GraphError::UnknownOutput { node, input: index, .. }
        | GraphError::NoDeadLetters { node, input: index, .. }
        | GraphError::FromSink { node, input: index, .. } => {
            let place = input(node, *index);
            problem(place.from_path.clone()).at(place.from.clone())
        }
        GraphError::Forward { node, input: index, .. } | GraphError::NoKeys { node, input: index, .. } => {
            let place = input(node, *index);
            match &place.partition {
                Some(origin) => problem(join(&place.path, "partition")).at(origin.clone()),
                None => problem(place.from_path.clone()).at(place.from.clone()),
            }
        }
        GraphError::Cycle { nodes } => {
            // The edge that closes the circle, as good a place to open it as any other.
            let (from, to) = (&nodes[nodes.len() - 2], node(&nodes[nodes.len() - 1]));
            let feeds = |place: &&(&InputPlace, &str)| place.1.split('.').next() == Some(from);
            let inputs: Vec<_> =
                to.places.inputs.iter().zip(to.inputs.iter().map(|input| input.from.as_str())).collect();
            match inputs.iter().find(feeds) {
                Some((place, _)) => problem(place.from_path.clone()).at(place.from.clone()),
                None => named(to),
            }
        }
        GraphError::NoHash { node: name, .. } => {
            let (node, places) = (node(name), &node(name).places);
            problem(join(&node.path(), "input")).at(places.input.as_ref().unwrap_or(&places.name).clone())
        }
    }
}

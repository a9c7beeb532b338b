//! From a checked job file to a job graph: the components are loaded, all at once, and what they declare is checked.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;

use super::error::{ConfigError, Problem};
use super::graph_problem::graph_problem;
use super::job_file::JobFile;
use super::node::{NodeTable, NodeTableKind, OperatorTable};
use super::value::join;
use crate::api::{JobGraph, JobGraphBuilder, NodeKind, NodeSpec, OperatorNode};
use crate::operator::{Limits, OperatorFactory};

/// An operator to be made of a component.
#[derive(Clone, Debug)]
pub struct WantedOperator<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The node's name.
    pub node: &'a str,
    /// The component's file.
    pub component: &'a Path,
    /// The operator's table of the job file, as JSON.
    pub config: String,
    /// What one instance may use.
    pub limits: Limits,
    /// The largest key or value of a record, in bytes.
    pub max_record_bytes: u64,
}

impl JobFile {
    /// Loads the components, all at the same time, and builds the graph.
    ///
    /// # Errors
    /// With every component that cannot be used, or everything that does not fit with what components declare.
    pub async fn plan<'a, F, E>(&'a self, load: impl Fn(WantedOperator<'a>) -> F) -> Result<JobGraph, ConfigError>
    where
        F: Future<Output = Result<Arc<dyn OperatorFactory>, E>>,
        E: std::error::Error,
    {
        let load = &load;
        let kinds = join_all(self.nodes.iter().map(|node| async move {
            match &node.kind {
                NodeTableKind::Source(source) => Ok(source.clone().map(NodeKind::Source)),
                NodeTableKind::Sink(sink) => Ok(sink.clone().map(NodeKind::Sink)),
                NodeTableKind::Operator(operator) => self.load_operator(node, operator, load).await.map(Some),
            }
        }))
        .await;
        let mut builder = JobGraphBuilder::new(&self.name).max_parallelism(self.max_parallelism);
        let mut problems = Vec::new();
        for (node, kind) in self.nodes.iter().zip(kinds) {
            let kind = match kind {
                Ok(kind) => {
                    kind.expect("a job file with a connector that was not made has mistakes, and is not loaded")
                }
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            builder = builder.node(NodeSpec {
                name: node.name.clone(),
                parallelism: node.parallelism,
                kind,
                inputs: node.inputs.clone(),
                chain: node.chain,
            });
        }
        if !problems.is_empty() {
            return Err(ConfigError::new(problems));
        }
        builder
            .build_or_all_errors()
            .map_err(|errors| ConfigError::new(errors.into_iter().map(|error| graph_problem(self, error)).collect()))
    }

    async fn load_operator<'a, F, E>(
        &'a self,
        node: &'a NodeTable,
        operator: &'a OperatorTable,
        load: &impl Fn(WantedOperator<'a>) -> F,
    ) -> Result<NodeKind, Problem>
    where
        F: Future<Output = Result<Arc<dyn OperatorFactory>, E>>,
        E: std::error::Error,
    {
        let wanted = WantedOperator {
            job: &self.name,
            node: &node.name,
            component: &operator.component,
            config: operator.config.to_string(),
            limits: operator.limits,
            max_record_bytes: self.record_limit.0,
        };
        let factory = load(wanted).await.map_err(|error| {
            let problem = Problem::new(join(&node.path(), "component"), crate::error_chain::on_one_line(&error));
            problem.at(operator.component_origin.clone())
        })?;
        Ok(NodeKind::Operator(OperatorNode { factory, limits: operator.limits, on_error: operator.on_error }))
    }
}

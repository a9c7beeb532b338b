//! What a subtask holds at a barrier or at its end, before it is durable.
//!
//! Taking it costs microseconds: positions are copied, state is frozen, and what sinks wrote goes on becoming durable in
//! the background. `runtime::snapshot` makes a cut durable.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::connectors::{Committable, ConnectorError, Prepared, Split};
use crate::id::{NodeId, SubtaskId};
use crate::record::Watermark;
use crate::state::FrozenState;
use crate::state::snapshot::SnapshotHeader;

/// What all stages of one task hold at the same point of their streams.
#[derive(Debug)]
pub(super) struct Cut {
    /// Whether the task has seen the end of its input, so that nothing follows.
    pub(super) finished: bool,
    /// One per node of the chain.
    pub(super) parts: Vec<CutPart>,
}

/// What one stage holds.
#[derive(Debug)]
pub(super) struct CutPart {
    pub(super) node: NodeId,
    pub(super) subtask: SubtaskId,
    /// The stage had seen the end of its input in an earlier attempt already.
    pub(super) finished: bool,
    pub(super) held: Held,
}

/// Keyed state, frozen, and what its snapshot begins with; the checkpoint is yet to be filled in.
pub(super) struct HeldState {
    pub(super) header: SnapshotHeader,
    pub(super) frozen: Box<dyn FrozenState>,
}

/// What a stage holds, by its kind.
pub(super) enum Held {
    Source {
        /// The splits at hand with how far each has been read.
        splits: Vec<Split>,
    },
    Operator {
        watermark: Option<Watermark>,
        /// None for an operator without keyed state.
        state: Option<HeldState>,
    },
    Sink {
        /// What was written since the last known commit, epoch by epoch.
        prepared: Vec<PreparedEpoch>,
        /// What the writer says about its work, for the summary of the job.
        summary: Option<String>,
    },
}

impl Held {
    /// Gives the state up, where it will not be asked for.
    pub(super) fn drop_state(&mut self) {
        if let Self::Operator { state, .. } = self {
            *state = None;
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source { splits } => f.debug_struct("Source").field("splits", splits).finish(),
            Self::Operator { watermark, .. } => f.debug_struct("Operator").field("watermark", watermark).finish(),
            Self::Sink { prepared, .. } => f.debug_struct("Sink").field("epochs", &prepared.len()).finish(),
        }
    }
}

/// What a sink wrote in one epoch, on its way to being durable. Every checkpoint until the commit asks for it again.
#[derive(Clone)]
pub(super) struct PreparedEpoch(Shared<BoxFuture<'static, Result<Vec<Committable>, Arc<ConnectorError>>>>);

impl PreparedEpoch {
    pub(super) fn new(prepared: Prepared) -> Self {
        Self(prepared.map(|outcome| outcome.map_err(Arc::new)).boxed().shared())
    }

    /// Waits until it is durable.
    pub(super) async fn durable(self) -> Result<Vec<Committable>, Arc<ConnectorError>> {
        self.0.await
    }
}

//! Records as the simulation's sources hold them and its sinks remember them.

use tidegate::record::{Batch, Timestamp};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Its key, if its stream is keyed.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its event time, if its stream has any.
    pub timestamp: Option<Timestamp>,
}

impl Record {
    /// The records of a batch.
    pub fn of(batch: &Batch) -> impl Iterator<Item = Self> + '_ {
        (0..batch.len()).map(|record| Self {
            key: batch.key(record).map(<[u8]>::to_vec),
            value: batch.values().get(record).to_vec(),
            timestamp: batch.timestamps().get(record).copied(),
        })
    }

    /// Appends the record to a batch of its shape.
    pub fn push_to(&self, batch: &mut Batch) {
        batch.push(self.key.as_deref(), &self.value, self.timestamp);
    }
}

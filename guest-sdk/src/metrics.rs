//! Numbers about the operator, kept until the call ends and sent once: a call to the host for each record would be dear.
//!
//! A call that fails tells nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::imports::metrics;

/// Something to tell the host at the end of a call.
pub(crate) trait Meter {
    /// Tells it.
    fn flush(&self);
    /// Forgets it.
    fn discard(&self);
}

/// A metric's name and what there is to tell.
struct Pending<T> {
    name: String,
    content: T,
}

fn shared<T>(name: &str, content: T) -> Rc<Pending<T>> {
    Rc::new(Pending { name: name.to_owned(), content })
}

/// A number that only grows. Made by [`Setup::counter`](crate::Setup::counter).
pub struct Counter(Rc<Pending<Cell<u64>>>);

impl Counter {
    pub(crate) fn new(name: &str) -> Self {
        Self(shared(name, Cell::new(0)))
    }

    pub(crate) fn meter(&self) -> Rc<dyn Meter> {
        Rc::<Pending<Cell<u64>>>::clone(&self.0)
    }

    /// Adds to it.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.content.set(self.0.content.get().saturating_add(amount));
    }
}

impl Meter for Pending<Cell<u64>> {
    fn flush(&self) {
        let mut amount = self.content.take();
        while amount > 0 {
            let part = u32::try_from(amount).unwrap_or(u32::MAX);
            metrics::add_to_counter(&self.name, part);
            amount -= u64::from(part);
        }
    }

    fn discard(&self) {
        self.content.set(0);
    }
}

/// A number that is set. Made by [`Setup::gauge`](crate::Setup::gauge).
pub struct Gauge(Rc<Pending<Cell<Option<f64>>>>);

impl Gauge {
    pub(crate) fn new(name: &str) -> Self {
        Self(shared(name, Cell::new(None)))
    }

    pub(crate) fn meter(&self) -> Rc<dyn Meter> {
        Rc::<Pending<Cell<Option<f64>>>>::clone(&self.0)
    }

    /// Sets it.
    #[inline]
    pub fn set(&self, value: f64) {
        self.0.content.set(Some(value));
    }
}

impl Meter for Pending<Cell<Option<f64>>> {
    fn flush(&self) {
        if let Some(value) = self.content.take() {
            metrics::set_gauge(&self.name, value);
        }
    }

    fn discard(&self) {
        self.content.set(None);
    }
}

/// A distribution of observed numbers. Made by [`Setup::histogram`](crate::Setup::histogram).
pub struct Histogram(Rc<Pending<RefCell<Vec<f64>>>>);

impl Histogram {
    pub(crate) fn new(name: &str) -> Self {
        Self(shared(name, RefCell::default()))
    }

    pub(crate) fn meter(&self) -> Rc<dyn Meter> {
        Rc::<Pending<RefCell<Vec<f64>>>>::clone(&self.0)
    }

    /// Adds an observation.
    #[inline]
    pub fn observe(&self, value: f64) {
        self.0.content.borrow_mut().push(value);
    }
}

impl Meter for Pending<RefCell<Vec<f64>>> {
    fn flush(&self) {
        let mut observed = self.content.borrow_mut();
        if !observed.is_empty() {
            metrics::observe(&self.name, &observed);
            observed.clear();
        }
    }

    fn discard(&self) {
        self.content.borrow_mut().clear();
    }
}

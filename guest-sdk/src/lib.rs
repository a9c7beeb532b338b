//! Write tidegate operators in Rust.
//!
//! An operator is a struct, the trait [`Operator`] and the macro [`export!`]:
//!
//! ```
//! use tidegate_sdk::codec::LittleEndian;
//! use tidegate_sdk::{Context, Error, NoConfig, Operator, Record, ReducingState, Setup};
//!
//! /// The running sum of the numbers of each key.
//! struct Sum {
//!     sum: ReducingState<i64, LittleEndian>,
//! }
//!
//! impl Operator for Sum {
//!     type Config = NoConfig;
//!
//!     fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
//!         Ok(Self { sum: setup.state("sum").reducing(i64::wrapping_add) })
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
//!         let number: i64 = record.text()?.parse()?;
//!         let sum = self.sum.add(context, number)?;
//!         context.emit(sum.to_string());
//!         Ok(())
//!     }
//! }
//!
//! tidegate_sdk::export!(Sum);
//! # use tidegate_sdk::testing::{Harness, Input};
//! # let mut harness: Harness<Sum> = Harness::open("{}").unwrap();
//! # harness.process([Input::keyed("a", "1"), Input::keyed("b", "5"), Input::keyed("a", "2")]).unwrap();
//! # assert_eq!(harness.take_values(), ["1", "5", "3"]);
//! ```
//!
//! Built with `cargo build --release --target wasm32-wasip2` as a `cdylib` it is a component that runs in a job.
//!
//! The author thinks about one record at a time. Underneath, records come in batches, state is loaded once a batch and
//! written back once, and what is emitted leaves in batches: [`Context`], the handles of states and [`Output`] hide that.
//! On any other target than Wasm the same operator runs against an in-memory host: see [`testing`].
//!
//! Timers and state without keys are not here yet; in this version of tidegate their imports trap.

mod context;
mod error;
mod imports;
mod instance;
mod metrics;
mod operator;
mod output;
mod record;
mod setup;
mod state;

#[doc(hidden)]
pub mod bindings;
pub mod codec;
pub mod log;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use codec::Codec;
pub use context::Context;
pub use error::Error;
#[doc(hidden)]
pub use instance::Instance;
pub use metrics::{Counter, Gauge, Histogram};
pub use operator::{NoConfig, Operator};
pub use output::{Emit, Output};
pub use record::{Batch, Record};
pub use setup::{Setup, StateBuilder};
pub use state::{AggregatingState, ListState, MapState, ReducingState, ValueState};

/// Makes a component of an operator: exports the functions that the host calls. Once in a crate.
///
/// On other targets than Wasm it only checks that the type is an operator, so that the crate's tests build.
#[macro_export]
macro_rules! export {
    ($operator:ty) => {
        const _: () = {
            #[cfg(not(target_arch = "wasm32"))]
            const fn is_an_operator<O: $crate::Operator>() {}
            #[cfg(not(target_arch = "wasm32"))]
            is_an_operator::<$operator>();

            #[cfg(target_arch = "wasm32")]
            $crate::__export_component!($operator);
        };
    };
}

/// The Wasm half of [`export!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __export_component {
    ($operator:ty) => {
        thread_local! {
            static INSTANCE: ::std::cell::RefCell<::std::option::Option<$crate::Instance<$operator>>> =
                const { ::std::cell::RefCell::new(::std::option::Option::None) };
        }

        fn with_instance<R>(call: impl FnOnce(&mut $crate::Instance<$operator>) -> R) -> R {
            INSTANCE.with_borrow_mut(|instance| call(instance.as_mut().expect("the host opens an instance first")))
        }

        struct Exported;

        impl $crate::bindings::exports::tidegate::operator::handler::Guest for Exported {
            fn open(
                config: ::std::string::String,
            ) -> ::std::result::Result<
                $crate::bindings::tidegate::operator::types::Descriptor,
                $crate::bindings::tidegate::operator::types::Failure,
            > {
                let (instance, descriptor) = $crate::Instance::open(&config)?;
                INSTANCE.set(::std::option::Option::Some(instance));
                ::std::result::Result::Ok(descriptor)
            }

            fn process(
                input: u32,
                records: $crate::bindings::tidegate::operator::types::BatchResult,
            ) -> ::std::result::Result<(), $crate::bindings::tidegate::operator::types::Failure> {
                with_instance(|instance| instance.process(input, records))
            }

            fn on_timers(
                _: $crate::bindings::tidegate::operator::types::TimeDomain,
                _: $crate::bindings::tidegate::operator::types::ColumnResult,
                _: ::std::vec::Vec<u32>,
                _: ::std::vec::Vec<i64>,
            ) -> ::std::result::Result<(), $crate::bindings::tidegate::operator::types::Failure> {
                unreachable!("this operator sets no timers")
            }

            fn on_watermark() -> ::std::result::Result<(), $crate::bindings::tidegate::operator::types::Failure> {
                with_instance(|instance| instance.on_watermark())
            }

            fn on_end_of_input(
                input: u32,
                remaining: u32,
            ) -> ::std::result::Result<(), $crate::bindings::tidegate::operator::types::Failure> {
                with_instance(|instance| instance.on_end_of_input(input, remaining))
            }

            fn close() -> ::std::result::Result<(), $crate::bindings::tidegate::operator::types::Failure> {
                INSTANCE.set(::std::option::Option::None);
                ::std::result::Result::Ok(())
            }
        }

        $crate::bindings::export_handler!(Exported with_types_in $crate::bindings);
    };
}

//! Messages for the job's log.
//!
//! What an operator prints to stdout or stderr ends up there as well, without a level.

use std::fmt;

pub use crate::bindings::tidegate::operator::log::Level;
use crate::imports::log;

/// Writes a message; the macros [`info!`](crate::info) and so on are shorter.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    match message.as_str() {
        Some(message) => log::write(level, message),
        None => log::write(level, &message.to_string()),
    }
}

/// Logs every step of the operator.
#[macro_export]
macro_rules! trace {
    ($($message:tt)*) => { $crate::log::write($crate::log::Level::Trace, format_args!($($message)*)) };
}

/// Logs what is of use to the author of the operator.
#[macro_export]
macro_rules! debug {
    ($($message:tt)*) => { $crate::log::write($crate::log::Level::Debug, format_args!($($message)*)) };
}

/// Logs what is of use to those who run the job.
#[macro_export]
macro_rules! info {
    ($($message:tt)*) => { $crate::log::write($crate::log::Level::Info, format_args!($($message)*)) };
}

/// Logs something unexpected that was dealt with.
#[macro_export]
macro_rules! warn {
    ($($message:tt)*) => { $crate::log::write($crate::log::Level::Warn, format_args!($($message)*)) };
}

/// Logs something that failed.
#[macro_export]
macro_rules! error {
    ($($message:tt)*) => { $crate::log::write($crate::log::Level::Error, format_args!($($message)*)) };
}

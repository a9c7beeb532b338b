//! From what wasmtime reports to what the job is told.

use wasmtime::{Error, Trap};
use wasmtime_wasi::I32Exit;

use super::guest::Guest;
use super::operator::LARGEST_TRANSFER;
use crate::operator::{Fault, GuestFault};

/// How close to the end of its address space a guest must have reached for it to look like a stack that grew past 0.
const STACK_REACH: u64 = 64 << 20;

/// Why a call ended that did not return. Call it after [`super::log::GuestLog::end_call`] gave the last of stderr.
pub(super) fn classify(error: Error, guest: &Guest, stderr: &str) -> Fault {
    tracing::debug!(subtask = %guest.context.subtask(), "a call did not return: {error:?}");
    // What a host function returned, or the interrupt: it says itself what it is.
    let error = match error.downcast::<Fault>() {
        Ok(fault) => return fault,
        Err(error) => error,
    };
    if guest.memory.was_refused() {
        return GuestFault::Memory { limit: guest.limits.memory_bytes }.into();
    }
    let with_stderr = |message: String| {
        let message = if stderr.is_empty() { message } else { format!("{message}; stderr: {stderr}") };
        GuestFault::Trap { message }.into()
    };
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        return with_stderr(format!("it called exit({code})"));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => GuestFault::StackOverflow.into(),
        Some(trap @ Trap::MemoryOutOfBounds) if reached_below_zero(&error) => with_stderr(format!(
            "{trap} just below address 0, which is what a stack overflow looks like when large variables are on the stack"
        )),
        Some(trap) => with_stderr(trap.to_string()),
        None => {
            let cause = error.root_cause().to_string();
            // wasmtime keeps the type of this error to itself.
            if cause.contains("fuel allocated for hostcalls has been exhausted") {
                return GuestFault::TooMuchData { limit: LARGEST_TRANSFER as u64 }.into();
            }
            with_stderr(cause)
        }
    }
}

/// Whether an access out of bounds was near the end of the address space, where small numbers below 0 are.
///
/// Compilers put the stack of large variables at the start of memory, growing down; overflowing, it wraps around.
fn reached_below_zero(error: &Error) -> bool {
    let text = format!("{error:#}");
    let address = text.split_once("memory fault at wasm address 0x").map(|(_, rest)| rest);
    let digits = address.and_then(|rest| rest.split(|c: char| !c.is_ascii_hexdigit()).next());
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let end = u64::from(u32::MAX);
    address.is_some_and(|address| (end - STACK_REACH..=end).contains(&address))
}

//! From what wasmtime reports to what the job is told.

use wasmtime::{Error, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::guest::Guest;
use crate::operator::{Fault, GuestFault};

/// How close to the end of its address space a guest must have reached for it to look like a stack that grew past 0.
const STACK_REACH: u64 = 64 << 20;

/// How often one function must be among the innermost calls for it to look like a recursion without end.
const DEEP_RECURSION: usize = 8;

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
        // WASI passes on no more of the code than this.
        let outcome = if *code == 0 { "success" } else { "failure" };
        return with_stderr(format!("it called exit, reporting {outcome}"));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => GuestFault::StackOverflow.into(),
        Some(trap @ Trap::MemoryOutOfBounds) if recursed(&error) || reached_below_zero(&error) => {
            with_stderr(format!("{trap}, as when the stack overflows with large variables on it"))
        }
        Some(trap) if stderr.is_empty() => with_stderr(format!("{trap}{}", place(&error))),
        Some(trap) => with_stderr(trap.to_string()),
        None => {
            let cause = error.root_cause().to_string();
            // wasmtime keeps the type of this error to itself.
            if cause.contains("fuel allocated for hostcalls has been exhausted") {
                return GuestFault::TooMuchData { limit: guest.largest_transfer as u64 }.into();
            }
            with_stderr(cause)
        }
    }
}

/// In which function a trap happened, if the component has names.
fn place(error: &Error) -> String {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let name = backtrace.and_then(|backtrace| backtrace.frames().iter().find_map(|frame| frame.func_name()));
    name.map(|name| format!(" in {:#}", rustc_demangle::demangle(name))).unwrap_or_default()
}

/// Compilers put the stack of large variables at the start of memory, growing down. When it overflows, the machine sees
/// a plain access out of bounds; that a function is within itself many times over gives it away.
fn recursed(error: &Error) -> bool {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return false };
    let innermost = backtrace.frames().first().map(|frame| frame.func_index());
    backtrace.frames().iter().filter(|frame| Some(frame.func_index()) == innermost).count() >= DEEP_RECURSION
}

/// Or that the access was near the end of the address space, where small numbers below 0 are.
fn reached_below_zero(error: &Error) -> bool {
    let text = format!("{error:#}");
    let address = text.split_once("memory fault at wasm address 0x").map(|(_, rest)| rest);
    let digits = address.and_then(|rest| rest.split(|c: char| !c.is_ascii_hexdigit()).next());
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let end = u64::from(u32::MAX);
    address.is_some_and(|address| (end - STACK_REACH..=end).contains(&address))
}

//! The `tidegate` program: a thin shell around [`tidegate::cli`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::cli::main()
}

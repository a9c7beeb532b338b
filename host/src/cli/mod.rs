//! The command line: one subcommand per file, built on what the library offers to everyone.
//!
//! Owns arguments, what is shown to people and to scripts, signals and exit codes. Nothing here decides how a job runs.

mod checkpoint_list;
mod checkpoint_show;
mod component_check;
mod exit;
mod host;
mod json;
mod logging;
mod numbers;
mod progress;
mod readable;
mod run;
mod screen;
mod signals;
mod state_export;
mod stdout;
mod summary;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::exit::Exit;
use self::screen::Screen;

/// What `--help` says behind the list of options.
const AFTER_HELP: &str = "\
Examples:
  tidegate run wordcount/job.toml
  tidegate run job.toml --set operators.count.parallelism=4 --set sources.lines.path=other.txt
  tidegate run job.toml --json > progress.jsonl
  tidegate run job.toml --resume
  tidegate component check count.wasm
  tidegate checkpoint list .tidegate/checkpoints
  tidegate state export .tidegate/checkpoints/wordcount-1f0c2a9b/chk-42 --node count --state count

Exit codes:
  0  the job finished, or was cancelled with Ctrl-C or SIGTERM
  1  the job failed, the component cannot be used as an operator, or the checkpoint cannot be read
  2  the command line or the job file is wrong; nothing was started

Environment:
  TIDEGATE_LOG     what to log to stderr, unless --log says so: error, warn, info, debug or trace,
                   or a list such as warn,tidegate::wasm=debug
  TIDEGATE_CONFIG  the host-wide file of defaults; without it, tidegate.toml in the current directory if it is there
  TIDEGATE_CACHE   where compiled components are kept; without it, the user's cache directory; empty for nowhere";

/// Runs streaming jobs whose operators are WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = AFTER_HELP, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// What to log to stderr: error, warn, info, debug or trace [default: $TIDEGATE_LOG, else warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArguments),
    /// Looks at components, without a job.
    #[command(subcommand)]
    Component(ComponentCommand),
    /// Looks at checkpoints and savepoints, without the job.
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Looks at the state in checkpoints and savepoints, without the job.
    #[command(subcommand)]
    State(StateCommand),
}

#[derive(Debug, Subcommand)]
enum CheckpointCommand {
    List(checkpoint_list::ListArguments),
    Show(checkpoint_show::ShowArguments),
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    Export(state_export::ExportArguments),
}

#[derive(Debug, Subcommand)]
enum ComponentCommand {
    Check(component_check::CheckArguments),
}

/// Runs the program: reads the command line, does what it says, and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if error.use_stderr() {
                // Nothing is left to be done if the text cannot be printed.
                let _ = error.print();
                return Exit::Usage.into();
            }
            // Asking for help is no mistake.
            return match stdout::print(&error.render().to_string()) {
                Ok(()) => Exit::Done.into(),
                Err(failure) => {
                    Screen::default().print(&format!("{failure}\n"));
                    failure.exit().into()
                }
            };
        }
    };
    let screen = Screen::default();
    let done = logging::start(arguments.log.as_deref(), &screen).and_then(|()| match arguments.command {
        Command::Run(arguments) => run::run(&arguments, &screen),
        Command::Component(ComponentCommand::Check(arguments)) => component_check::check(&arguments),
        Command::Checkpoint(CheckpointCommand::List(arguments)) => checkpoint_list::list(&arguments, &screen),
        Command::Checkpoint(CheckpointCommand::Show(arguments)) => checkpoint_show::show(&arguments),
        Command::State(StateCommand::Export(arguments)) => state_export::export(&arguments),
    });
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            screen.print(&format!("{failure}\n"));
            failure.exit().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}

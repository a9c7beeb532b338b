//! `tidegate run`: one job in the foreground.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::exit::{Exit, Failure, chain};
use super::host::{Host, host_file};
use super::json;
use super::numbers::{size, time};
use super::progress::{Interval, Role, Snapshot, roles};
use super::screen::Screen;
use super::signals::Signals;
use super::summary::summary;
use crate::api::{JobGraph, JobHandle, JobOptions, JobReport, NodeKind, Outcome, StartMode, StorageLocation, start};
use crate::config::{JobFile, JobSources, WantedOperator, checkpoint_path};
use crate::connectors::Commit;
use crate::env::Env;
use crate::id::{Attempt, Owner};
use crate::operator::OperatorFactory;
use crate::wasm::{LoadError, OperatorSettings, WasmEngine, WasmOperatorFactory};

/// How often progress is drawn on a terminal.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// How often progress is told to scripts.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How long a component may take to load before that is mentioned.
const SILENT_LOADING: Duration = Duration::from_millis(300);

/// What `tidegate run --help` says behind the list of options.
const AFTER_HELP: &str = "\
The job file is checked as a whole before anything starts, and all mistakes are reported together. Values of --set win
over the job file, and the job file over the host-wide defaults of tidegate.toml.

A job with a section [checkpoint] keeps its state, and how far it has read, in checkpoints. They outlive a run that fails,
is cancelled or is killed, unless [checkpoint] retain says otherwise; a run that finishes removes them.
  --resume       goes on from the newest checkpoint of the last run. If there is none, the job starts from nothing and
                 says so. What was read after the checkpoint is read again; the file sink shows it only once.
  --fresh        starts from nothing. Needed beside checkpoints of the same job, which no run forgets in silence.
  --from PATH    goes on from a checkpoint (or savepoint) of your choice, of this job or of another one with the same
                 nodes. State belongs to the name of a node and its states, whatever else has changed, parallelism too.
                 What is in the output directory is not this run's, so the file sink asks as at a fresh start.
  --rename OLD=NEW   with --resume or --from: the node that is called NEW now was called OLD then.
  --allow-non-restored-state   with --resume or --from: state that no node claims is dropped instead of refused. It is
                 for operators that were removed on purpose.
  --takeover     takes the job over from a process that still has it, but hangs or cannot be reached. If that one wakes
                 up, it finds out, ends with an error and commits nothing more.

On a terminal, progress is drawn on stderr. Otherwise the command says nothing but warnings, errors and, at the end, a
summary. Ctrl-C, SIGTERM or SIGHUP (unless it is ignored, as with nohup) cancels the job in good order. Without checkpoints
that commits what was written; with them, what was written since the last one is not shown, and comes again with --resume.
A second one ends the process at once, with exit code 130, and commits no more. A commit that has begun is waited for all
the same, unless a third one comes.

With --json, stdout gets one JSON object a line, and stderr only warnings and errors. Once a second:
  {\"event\":\"progress\",\"job\":...,\"elapsed_s\":...,\"records_read\":...,\"records_per_s\":...,\"percent\":... or null,
   \"left_s\":... or null,\"nodes\":[{\"name\":...,\"kind\":\"source|operator|sink\",\"records_in\":...,\"records_out\":...,
   \"skipped\":...,\"dead_letters\":...,\"state_bytes\":...,\"metrics\":{...},\"backpressure_percent\":...},...]}
and at the end:
  {\"event\":\"summary\",\"job\":...,\"outcome\":\"finished|cancelled|failed\",\"errors\":[...],\"elapsed_s\":...,
   \"records_read\":...,\"records_written\":...,\"records_per_s\":...,\"checkpoint\":the one to go on from or null,
   \"nodes\":[as above, without backpressure_percent; for sinks \"summaries\":[...]]}
Metrics are what operators report about themselves, all subtasks together: {\"name\":{\"kind\":\"counter|gauge\",\"value\":...}
or {\"kind\":\"histogram\",\"count\":...,\"sum\":...,\"min\":...,\"max\":...}}. A job that was not started has a summary, too.

Examples:
  tidegate run wordcount/job.toml
  tidegate run job.toml --set parallelism=4 --set operators.count.limits.call=5s
  tidegate run job.toml --resume
  tidegate run job.toml --from .tidegate/checkpoints/wordcount-1f0c2a9b/chk-42

Exit codes: 0 finished or cancelled on request; 1 the job failed; 2 the command line or the job file is wrong.";

/// Runs a job in the foreground until it ends.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct RunArguments {
    /// The job file.
    #[arg(value_name = "JOB.toml")]
    job: PathBuf,

    /// Sets a value of the job file, such as operators.count.parallelism=4; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,

    /// Goes on where an earlier run of the job was when it took its newest checkpoint.
    #[arg(long, conflicts_with_all = ["fresh", "from"], group = "restoring")]
    resume: bool,

    /// Starts over, and leaves behind what checkpoints of the job there are.
    #[arg(long, conflicts_with = "from")]
    fresh: bool,

    /// Starts from this checkpoint or savepoint: its directory, or the file _metadata in it.
    #[arg(long, value_name = "PATH", group = "restoring")]
    from: Option<String>,

    /// Drops state for which the job has no operator any more, which is an error otherwise.
    #[arg(long, requires = "restoring")]
    allow_non_restored_state: bool,

    /// Tells that a node of the checkpoint is called otherwise now; may be repeated.
    #[arg(long, value_name = "OLD=NEW", requires = "restoring", value_parser = rename)]
    rename: Vec<(String, String)>,

    /// Takes the job over from a process that still has it, but hangs.
    #[arg(long)]
    takeover: bool,

    /// Writes progress and the summary as JSON lines to stdout.
    #[arg(long)]
    json: bool,

    /// Says nothing but warnings and errors; with --json, the summary alone.
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub(super) fn run(arguments: &RunArguments, screen: &Screen) -> Result<Exit, Failure> {
    let mut job = None;
    let ended = load_and_run(arguments, screen, &mut job);
    if let Err(failure) = &ended
        && arguments.json
        && !matches!(failure, Failure::Stdout(_))
    {
        json::print(&json::not_started(job.as_deref(), failure))?;
    }
    ended
}

/// Leaves in `job` the name of the job once that is known.
fn load_and_run(arguments: &RunArguments, screen: &Screen, job: &mut Option<String>) -> Result<Exit, Failure> {
    let sources = JobSources { job: arguments.job.clone(), host: host_file(), set: arguments.set.clone() };
    let file = JobFile::load(&sources)?;
    *job = Some(file.name.clone());
    let start = start_mode(arguments, &file)?;
    if arguments.json
        && let Some(sink) = file.stdout_sink()
    {
        return Err(Failure::Argument(format!(
            "--json writes to stdout, and so does sinks.{sink}: let the sink write to a file, or leave --json out"
        )));
    }
    // Records and progress on one terminal would overwrite each other.
    let show = Show {
        screen,
        json: arguments.json,
        quiet: arguments.quiet,
        draw: !arguments.json && !arguments.quiet && file.stdout_sink().is_none() && screen.is_terminal(),
    };
    Host::start()?.block_on(async |env, engine| {
        let options = JobOptions {
            start,
            allow_non_restored_state: arguments.allow_non_restored_state,
            renames: arguments.rename.clone(),
            take_over: arguments.takeover,
            ..file.options(owner(env))
        };
        run_job(&file, options, env, engine, &show).await
    })
}

/// Reads the argument of `--rename`.
fn rename(argument: &str) -> Result<(String, String), &'static str> {
    match argument.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("write the old name, an equals sign and the new name, as in count=counter"),
    }
}

/// Where from the job is to start.
fn start_mode(arguments: &RunArguments, file: &JobFile) -> Result<StartMode, Failure> {
    if arguments.fresh {
        return Ok(StartMode::Fresh);
    }
    if let Some(from) = &arguments.from {
        let path = checkpoint_path(from).map_err(|problem| Failure::Argument(format!("--from: {problem}")))?;
        if !path.exists() {
            let path = path.display();
            return Err(Failure::Argument(format!(
                "--from: there is no {path}; `tidegate checkpoint list DIR` lists what there is"
            )));
        }
        return Ok(StartMode::From(path));
    }
    if !arguments.resume {
        return Ok(StartMode::Default);
    }
    match file.checkpoint.as_ref().map(|checkpoint| &checkpoint.storage) {
        Some(StorageLocation::Directory(_)) => Ok(StartMode::Resume),
        Some(StorageLocation::Memory) => Err(Failure::Argument(
            "--resume: checkpoints in memory end with the run that took them; keep them in files, such as checkpoint.storage = \"file:checkpoints\""
                .to_owned(),
        )),
        None => Err(Failure::Argument(
            "--resume: the job takes no checkpoints, so there is nothing to go on from; add a section [checkpoint] with interval = \"10s\", or name a checkpoint with --from"
                .to_owned(),
        )),
    }
}

/// Who is told what.
struct Show<'a> {
    screen: &'a Screen,
    json: bool,
    quiet: bool,
    draw: bool,
}

async fn run_job(
    file: &JobFile,
    options: JobOptions,
    env: &Env,
    engine: &WasmEngine,
    show: &Show<'_>,
) -> Result<Exit, Failure> {
    let graph = file.plan(|wanted| load(wanted, env, engine, show)).await?;
    warn(&graph, show.screen);
    let (roles, at_once) = (roles(&graph), at_once(&graph));
    let mut signals = Signals::new().map_err(Failure::other)?;
    let started = env.clock.monotonic();
    let mut job = start(graph, env.clone(), options);
    let mut lines = json::Lines::default();
    let report = follow(&mut job, &mut signals, &file.name, &roles, env, show, &mut lines).await?;
    let last = Snapshot::take(job.metrics(), &roles, env.clock.monotonic().saturating_sub(started));
    if show.json {
        if let Outcome::Failed(error) = &report.outcome {
            show.screen.print(&format!("{}\n", chain(error)));
        }
        lines.print(&json::summary(&file.name, &report, &last));
        if let Err(failure) = lines.lost() {
            show.screen.print(&summary(&file.name, &report, &last, &at_once));
            return Err(failure);
        }
    } else if !show.quiet {
        show.screen.print(&summary(&file.name, &report, &last, &at_once));
    } else if let Outcome::Failed(error) = &report.outcome {
        show.screen.print(&format!("{}\n", chain(error)));
    }
    Ok(match report.outcome {
        Outcome::Finished | Outcome::Cancelled => Exit::Done,
        Outcome::Failed(_) => Exit::Failed,
    })
}

/// Loads a component, and says so if that takes long.
async fn load(
    wanted: WantedOperator<'_>,
    env: &Env,
    engine: &WasmEngine,
    show: &Show<'_>,
) -> Result<Arc<dyn OperatorFactory>, LoadError> {
    let path = wanted.component;
    let settings = OperatorSettings {
        job: wanted.job.to_owned(),
        node: wanted.node.to_owned(),
        config: wanted.config,
        limits: wanted.limits,
        max_record_bytes: wanted.max_record_bytes,
    };
    let mut loading = std::pin::pin!(WasmOperatorFactory::load(engine, env, path, settings));
    let loaded = tokio::select! {
        biased;
        loaded = &mut loading => loaded,
        () = env.clock.sleep(SILENT_LOADING) => {
            if show.draw {
                let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                let name = path.file_name().unwrap_or(path.as_os_str()).display();
                show.screen.print(&format!("compiling {name} ({})...\n", size(bytes)));
            }
            loading.await
        }
    };
    loaded.map(|factory| Arc::new(factory) as Arc<dyn OperatorFactory>)
}

/// Says once what a user should know about the guarantees of connectors.
fn warn(graph: &JobGraph, screen: &Screen) {
    for node in graph.nodes() {
        match &node.kind {
            NodeKind::Source(source) => {
                if let Some(reason) = source.cannot_replay() {
                    screen.print(&format!("warning: sources.{}: {reason}\n", node.name));
                }
            }
            NodeKind::Sink(sink) if sink.commit() == Commit::AtOnce => {
                screen.print(&format!(
                    "warning: sinks.{}: records are out as soon as they are written; if the job fails, they stay\n",
                    node.name
                ));
            }
            NodeKind::Sink(_) | NodeKind::Operator(_) => {}
        }
    }
}

/// The sinks whose records stay whatever comes of the job.
fn at_once(graph: &JobGraph) -> Vec<String> {
    let at_once = |kind: &NodeKind| matches!(kind, NodeKind::Sink(sink) if sink.commit() == Commit::AtOnce);
    graph.nodes().iter().filter(|node| at_once(&node.kind)).map(|node| node.name.clone()).collect()
}

/// Waits for the end of a job, shows how far it has come, and cancels it when asked to.
async fn follow(
    job: &mut JobHandle,
    signals: &mut Signals,
    name: &str,
    roles: &[Role],
    env: &Env,
    show: &Show<'_>,
    lines: &mut json::Lines,
) -> Result<JobReport, Failure> {
    let started = env.clock.monotonic();
    let metrics = Arc::clone(job.metrics());
    let look = || Snapshot::take(&metrics, roles, env.clock.monotonic().saturating_sub(started));
    let mut before = look();
    let (mut cancelled, mut told_to_wait) = (false, false);
    let every = if show.json { TELL_EVERY } else { DRAW_EVERY };
    let mut tick = env.clock.sleep(every);
    let report = loop {
        tokio::select! {
            biased;
            report = job.wait() => break report,
            () = signals.next() => {
                if !cancelled {
                    cancelled = true;
                    let after = time(env.clock.monotonic().saturating_sub(started));
                    show.screen.print(&format!("cancelling after {after}; once more stops at once\n"));
                    job.cancel();
                    continue;
                }
                // Closed, the gate lets no commit begin while the process ends.
                let closed = metrics.commit.close();
                if closed || told_to_wait {
                    show.screen.draw_nothing();
                    let committed = if closed { "no more output was committed" } else { "a part of the output may be committed" };
                    show.screen.print(&format!("stopped at once: {committed}\n"));
                    std::process::exit(130);
                }
                told_to_wait = true;
                show.screen.print("committing, please wait; once more stops at once and leaves a part of the output committed\n");
            }
            () = &mut tick => {
                let now = look();
                let interval = Interval { before: &before, now: &now };
                if show.json && !show.quiet {
                    lines.print(&json::progress(name, &interval));
                } else if show.draw {
                    show.screen.draw(interval.lines(name));
                }
                before = now;
                tick = env.clock.sleep(every);
            }
        }
    };
    show.screen.draw_nothing();
    report.map_err(Failure::other)
}

/// Tells this life of the job from all others: by the time of its start, so that the names of what it writes sort by age,
/// and what no other process has at that time.
fn owner(env: &Env) -> Owner {
    let job = format!("{:011x}{:08x}", env.clock.wall().as_millis(), env.seed & 0xffff_ffff);
    Owner { job, attempt: Attempt::first(1) }
}

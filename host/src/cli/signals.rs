//! What the system has to say to the process: to stop, and that a file may not grow.

use std::io;

/// SIGINT, SIGTERM and SIGHUP, from the moment it is made.
pub(super) struct Signals {
    #[cfg(unix)]
    taken: Vec<tokio::signal::unix::Signal>,
}

impl Signals {
    /// Takes the signals from the system, which would end the process. Called on a tokio runtime.
    pub(super) fn new() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut taken = vec![signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
            // Who started the process with `nohup` wants it to go on when the terminal closes.
            if !hangup_is_ignored() {
                taken.push(signal(SignalKind::hangup())?);
            }
            Ok(Self { taken })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the next one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        std::future::poll_fn(|task| match self.taken.iter_mut().any(|signal| signal.poll_recv(task).is_ready()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        })
        .await;
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Makes a write beyond the largest file that the process may write an error, which names the file; the system would
/// end the process otherwise. Called on a tokio runtime.
pub(super) fn survive_large_files() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        // Who listens does not matter: the system's own answer is gone for good.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    }
    Ok(())
}

/// Whether SIGHUP was ignored when the process began. Where the system does not tell, it was not.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (rustix::process::Signal::HUP.as_raw() - 1) != 0)
}

//! Probes in processes of their own: one that ends its process or does not return takes nothing
//! with it.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Answer, DoctorReport, Probe};

/// How long a child may take to end after `stop` is set.
const GRACE: Duration = Duration::from_secs(5);

/// How long to read on after a child has ended. What it started itself may hold its output open.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs a probe in a child process.
///
/// `command` must [`examine`](crate::examine) the probe and write a [`DoctorReport`] as JSON to its
/// standard output. If it does not, or does not end within `limit`, the answer is an
/// [unanswered](Answer::unanswered) one with the reason and the last line of standard error. After
/// `stop` is set, the child has five more seconds.
pub fn examine_isolated(command: &mut Command, probe: &Probe, limit: Duration, stop: &AtomicBool) -> Answer {
    let begun = Instant::now();
    let ended = run_isolated(command, limit, stop);
    let report: Option<DoctorReport> = serde_json::from_str(&ended.out).ok();
    let answer = report.and_then(|r| r.probes.into_iter().find(|a| a.name == probe.name));
    answer.unwrap_or_else(|| Answer::unanswered(probe, ended.failure("probe"), begun.elapsed().as_secs_f64() * 1e3))
}

/// Runs a child process and returns what it wrote. It has `limit` to end, and five seconds once
/// `stop` is set.
pub fn run_isolated(command: &mut Command, limit: Duration, stop: &AtomicBool) -> IsolatedRun {
    match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => wait(child, limit, stop),
        Err(e) => IsolatedRun { out: String::new(), err: String::new(), how: Err(format!("no process: {e}")) },
    }
}

/// What a child wrote, and how it ended.
#[derive(Clone, Debug)]
pub struct IsolatedRun {
    /// Its standard output, with invalid UTF-8 replaced.
    pub out: String,
    /// Its standard error, likewise.
    pub err: String,
    /// Its status, or why it has none.
    pub how: Result<ExitStatus, String>,
}

impl IsolatedRun {
    /// Why a child without a result has none: how it ended, and the last line of its standard
    /// error. `what` names what it ran.
    pub fn failure(&self, what: &str) -> String {
        let last = self.err.lines().rfind(|l| !l.trim().is_empty()).map_or_else(String::new, |l| format!(": {l}"));
        match &self.how {
            Ok(status) => format!("the {what}'s process ended with {status}{last}"),
            Err(why) => format!("{why}{last}"),
        }
    }
}

/// Reads what a child writes until it ends, and ends it when its time is up.
fn wait(mut child: Child, limit: Duration, stop: &AtomicBool) -> IsolatedRun {
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let mut end = Instant::now() + limit;
    let mut stopped = false;
    let how = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= end => {
                let _ = child.kill();
                let _ = child.wait();
                break Err(match stopped {
                    true => "it was stopped".to_string(),
                    false => format!("it did not come back within {} s", limit.as_secs()),
                });
            }
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Err(error) => break Err(error.to_string()),
        }
        // A terminal's Ctrl-C reaches the child as well: it ends at its next compile.
        if stop.load(Ordering::Relaxed) && !stopped {
            stopped = true;
            end = end.min(Instant::now() + GRACE);
        }
    };
    let until = Instant::now() + DRAIN;
    IsolatedRun { out: collect(&out, until), err: collect(&err, until), how }
}

/// Reads on a thread of its own, until the end or the first error.
fn reader(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, chunks) = channel();
    thread::spawn(move || {
        let Some(mut from) = from else { return };
        let mut chunk = [0; 8192];
        loop {
            match from.read(&mut chunk) {
                Ok(count @ 1..) if send.send(chunk[..count].to_vec()).is_ok() => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    });
    chunks
}

/// Everything that was read, or what there is of it at `until`.
fn collect(chunks: &Receiver<Vec<u8>>, until: Instant) -> String {
    let next = || chunks.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    let bytes: Vec<u8> = std::iter::from_fn(next).flatten().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::all_probes;

    #[test]
    fn a_child_that_fails_or_hangs_leaves_the_question_open() {
        let (probe, stop) = (&all_probes()[0], AtomicBool::new(false));
        let answer = |script: &str, limit| {
            let answer = examine_isolated(Command::new("sh").args(["-c", script]), probe, limit, &stop);
            answer.open.unwrap_or_default()
        };
        let failed = answer("echo broken >&2; exit 3", Duration::from_secs(60));
        assert!(failed.contains("exit status: 3") && failed.ends_with(": broken"), "{failed}");
        // The shell's own child lives on and holds the output open.
        let begun = Instant::now();
        assert!(answer("sleep 60; :", Duration::from_millis(20)).contains("did not come back"));
        assert!(begun.elapsed() < Duration::from_secs(30), "it waited for the grandchild");
    }
}

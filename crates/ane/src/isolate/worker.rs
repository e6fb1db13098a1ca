//! A child process from the parent's side: sends a message, and waits for the answer or the child's
//! end.

use std::io::{BufReader, BufWriter};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;

use super::ARGUMENT;
use super::message::{Reading, receive, send};

struct Pipes {
    child: Child,
    questions: Option<BufWriter<ChildStdin>>,
    answers: Receiver<Vec<u8>>,
    /// Why the child has ended, if it has.
    ended: Option<String>,
}

/// A child process with its pipes.
pub(super) struct Worker {
    pipes: Mutex<Pipes>,
    patience: Duration,
    name: String,
}

impl Worker {
    /// Starts a child that opens the engine with these options.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is no engine, [`ErrorKind::System`] if no process can be
    /// started.
    pub(super) fn start(options: &str, patience: Duration) -> Result<Worker> {
        let system = |e| Error::new(ErrorKind::System, "no child process could be started").with_source(e);
        let program = std::env::current_exe().map_err(system)?;
        let mut command = Command::new(program);
        command.arg(ARGUMENT).arg(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(system)?;
        let none = || Error::new(ErrorKind::System, "the child process has no pipes");
        let (stdin, stdout) = (child.stdin.take().ok_or_else(none)?, child.stdout.take().ok_or_else(none)?);
        let (tell, answers) = channel();
        let listen = move || {
            let mut stdout = BufReader::new(stdout);
            // A malformed message ends the conversation, as the end of the child does.
            while let Ok(Some(answer)) = receive(&mut stdout) {
                if tell.send(answer).is_err() {
                    break;
                }
            }
        };
        let listening = thread::Builder::new().name("ferrane-child".into()).spawn(listen);
        let pipes = Pipes { child, questions: Some(BufWriter::new(stdin)), answers, ended: None };
        let mut worker = Worker { pipes: Mutex::new(pipes), patience, name: String::new() };
        listening.map_err(system)?;
        let hello = worker.pipes().answer(worker.patience)?;
        worker.name = Reading(&hello).answer()?.text()?;
        Ok(worker)
    }

    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        lock(&self.pipes)
    }

    /// The name of the engine in the child.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True unless the child is known to have ended.
    pub(super) fn is_alive(&self) -> bool {
        let mut pipes = self.pipes();
        if pipes.ended.is_none() && pipes.child.try_wait().is_ok_and(|status| status.is_some()) {
            drop(pipes.end("between two calls"));
        }
        pipes.ended.is_none()
    }

    /// Sends a message and waits for the answer.
    ///
    /// # Errors
    /// [`ErrorKind::Crashed`] if the child has ended or had to be terminated.
    pub(super) fn ask(&self, question: &[u8]) -> Result<Vec<u8>> {
        let mut pipes = self.pipes();
        if let Some(why) = &pipes.ended {
            return Err(crashed(why));
        }
        let sent = pipes.questions.as_mut().is_some_and(|to| send(to, question).is_ok());
        if !sent {
            return Err(pipes.end("before it had read the whole question"));
        }
        pipes.answer(self.patience)
    }
}

fn crashed(why: &str) -> Error {
    Error::new(ErrorKind::Crashed, format!("the child process with the engine {why}"))
}

impl Pipes {
    fn answer(&mut self, patience: Duration) -> Result<Vec<u8>> {
        match self.answers.recv_timeout(patience) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.end("before it had answered")),
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("gave no answer for {} s and was ended", patience.as_secs_f64());
                Err(self.over(why))
            }
        }
    }

    /// The child has ended or will soon: a pipe is closed slightly before the exit status is
    /// available.
    fn end(&mut self, when: &str) -> Error {
        let status = (0..100).find_map(|_| {
            let status = self.child.try_wait().ok().flatten();
            if status.is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            status
        });
        let status = status.map_or_else(|| "its output ended".into(), |status| status.to_string());
        self.over(format!("ended {when} ({status})"))
    }

    fn over(&mut self, why: String) -> Error {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let error = crashed(&why);
        self.ended = Some(why);
        error
    }
}

/// How long a child may take to release its resources.
const FAREWELL: Duration = Duration::from_secs(5);

impl Drop for Worker {
    fn drop(&mut self) {
        let pipes = self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if pipes.ended.is_none() {
            // The child ends when its input ends, and closes its output when it is done.
            drop(pipes.questions.take());
            let _ = pipes.answers.recv_timeout(FAREWELL);
            drop(pipes.over(String::new()));
        }
    }
}

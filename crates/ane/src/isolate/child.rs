//! The child process: opens the engine and answers messages.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use ferrane_device::{
    Artifact, Bindings, CompileOptions, Device, Error, ErrorKind, Executable, Port, ProgramSource, Request, Result,
    Surface,
};
use ferrane_mil::Weights;

use super::message::{Question, Reading, Writing, receive, send};

/// A request with its own surfaces.
struct Ready {
    request: Request,
    inputs: Vec<(Surface, usize)>,
    outputs: Vec<(Surface, usize)>,
    states: Vec<(Surface, usize)>,
}

enum Thing {
    Compiled(Artifact),
    Loaded(Executable),
    Ready(Box<Ready>),
}

struct Child {
    device: Device,
    things: HashMap<u64, Thing>,
    next: u64,
}

/// Answers until `from` ends.
pub(super) fn serve(options: &str, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let opened = crate::open(options);
    // The first answer reports whether there is an engine.
    let name = opened.as_ref().map(Device::name);
    let hello = Writing::answer(match (&opened, name) {
        (Ok(_), Ok(name)) => {
            let mut hello = Writing::default();
            hello.bytes(name.as_bytes());
            Ok(hello)
        }
        (_, _) => Err(opened.as_ref().err().map_or_else(odd, |e| Error::new(e.kind(), e.message()))),
    });
    send(to, &hello.0)?;
    let Ok(device) = opened else { return Ok(()) };
    let mut child = Child { device, things: HashMap::new(), next: 0 };
    while let Some(question) = receive(from)? {
        send(to, &Writing::answer(child.answer(&question)).0)?;
    }
    Ok(())
}

fn odd() -> Error {
    Error::new(ErrorKind::System, "the child is asked for what it does not have")
}

impl Child {
    fn answer(&mut self, question: &[u8]) -> Result<Writing> {
        let mut from = Reading(question);
        match from.question()? {
            Question::Compile => self.compile(from),
            Question::Load => {
                let Some(Thing::Compiled(artifact)) = self.things.get(&from.number()?) else { return Err(odd()) };
                let executable = artifact.load()?;
                let mut to = Writing::default();
                to.procedures(executable.procedures());
                Ok(self.keep(Thing::Loaded(executable), to))
            }
            Question::Prepare => self.prepare(from),
            Question::Evaluate => {
                let Some(Thing::Ready(ready)) = self.things.get(&from.number()?) else { return Err(odd()) };
                ready.evaluate(from)
            }
            Question::Unload => {
                let Some(Thing::Loaded(executable)) = self.things.get(&from.number()?) else { return Err(odd()) };
                executable.unload().map(|()| Writing::default())
            }
            Question::Reload => {
                let Some(Thing::Loaded(executable)) = self.things.get(&from.number()?) else { return Err(odd()) };
                executable.reload().map(|()| Writing::default())
            }
            Question::Forget => {
                self.things.remove(&from.number()?);
                Ok(Writing::default())
            }
        }
    }

    /// Keeps an object, and appends its number to the answer.
    fn keep(&mut self, thing: Thing, mut known: Writing) -> Writing {
        known.number(self.next);
        self.things.insert(self.next, thing);
        self.next += 1;
        known
    }

    fn compile(&mut self, mut from: Reading<'_>) -> Result<Writing> {
        let (label, mil) = (from.text()?, from.bytes()?);
        let mut weights = Weights::new();
        for _ in 0..from.count()? {
            let (path, bytes) = (from.text()?, from.bytes()?);
            weights.open_file(&path, bytes.to_vec());
        }
        from.end()?;
        let source = ProgramSource::Text { mil, weights: &weights };
        let artifact = self.device.compile(source, &CompileOptions::labeled(label))?;
        let mut to = Writing::default();
        to.bytes(artifact.key().as_bytes());
        Ok(self.keep(Thing::Compiled(artifact), to))
    }

    fn prepare(&mut self, mut from: Reading<'_>) -> Result<Writing> {
        let Some(Thing::Loaded(executable)) = self.things.get(&from.number()?) else { return Err(odd()) };
        let procedure = executable.procedure(&from.text()?)?;
        from.end()?;
        let surfaces = self.device.surfaces(procedure)?;
        let bind = |bindings: Bindings, (name, surface): &(&str, Surface)| bindings.bind(*name, surface);
        let request = executable.prepare(surfaces.iter().fold(Bindings::new().procedure(&procedure.name), bind))?;
        let allocated = procedure.ports().map(|p| p.layout.allocation);
        let mut all = surfaces.into_iter().map(|(_, surface)| surface).zip(allocated);
        let mut take = |ports: &[Port]| all.by_ref().take(ports.len()).collect();
        let (inputs, outputs, states) = (take(&procedure.inputs), take(&procedure.outputs), take(&procedure.states));
        drop(all);
        let ready = Ready { request, inputs, outputs, states };
        Ok(self.keep(Thing::Ready(Box::new(ready)), Writing::default()))
    }
}

impl Ready {
    fn evaluate(&self, mut from: Reading<'_>) -> Result<Writing> {
        for (surface, size) in self.inputs.iter().chain(&self.states) {
            let bytes = from.bytes()?;
            let mut access = surface.write()?;
            let room = access.bytes_mut().get_mut(..*size).filter(|room| room.len() == bytes.len());
            room.ok_or_else(odd)?.copy_from_slice(bytes);
        }
        from.end()?;
        let stats = self.request.evaluate()?;
        let mut to = Writing::default();
        to.number(u64::try_from(stats.wall.as_nanos()).unwrap_or(u64::MAX));
        for (surface, size) in self.outputs.iter().chain(&self.states) {
            let access = surface.read()?;
            to.bytes(access.bytes().get(..*size).ok_or_else(odd)?);
        }
        Ok(to)
    }
}

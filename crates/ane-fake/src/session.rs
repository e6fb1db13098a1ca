//! What a test sees of the fake, and how it makes calls fail.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls that are counted and can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Descriptor,
    Compile,
    Load,
    Evaluate,
    Unload,
    CreateSurface,
}

/// A failure as an NSError tells it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) domain: String,
    pub(crate) code: isize,
    pub(crate) text: String,
}

#[derive(Default)]
struct World {
    calls: Vec<Call>,
    failures: Vec<(Call, Failure)>,
}

static WORLD: Mutex<World> = Mutex::new(World { calls: Vec::new(), failures: Vec::new() });
static SESSION: Mutex<()> = Mutex::new(());

fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call; gives the failure that a test ordered for it.
pub(crate) fn count(call: Call) -> Result<(), Failure> {
    let mut world = world();
    world.calls.push(call);
    match world.failures.iter().position(|(c, _)| *c == call) {
        Some(i) => Err(world.failures.remove(i).1),
        None => Ok(()),
    }
}

/// Sole use of the fake: its state is the process's, as the real framework's is.
pub struct Session {
    _sole: MutexGuard<'static, ()>,
}

/// Waits for other tests, then starts with nothing counted and nothing ordered.
pub fn session() -> Session {
    let sole = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    *world() = World::default();
    Session { _sole: sole }
}

impl Session {
    /// How often a call was made.
    pub fn count(&self, call: Call) -> usize {
        world().calls.iter().filter(|c| **c == call).count()
    }

    /// Makes the next such call fail with that domain, code and text.
    pub fn fail(&self, call: Call, domain: &str, code: isize, text: &str) {
        world().failures.push((call, Failure { domain: domain.into(), code, text: text.into() }));
    }
}

//! A compiled program and what comes of it.

use std::sync::Arc;
use std::time::Duration;

use ferrane_device::backend::{Compiled, Loaded};
use ferrane_device::{Procedure, Result};

use super::loaded::Ready;
use crate::body::Body;
use crate::queue::Queue;

/// What compiled, loaded and prepared programs share. It does not change.
pub(crate) struct Shared {
    pub bodies: Vec<Body>,
    pub procedures: Vec<Procedure>,
    pub queue: Arc<Queue>,
    pub timeout: Duration,
}

/// A compiled program.
pub(crate) struct Artefact {
    pub key: String,
    pub shared: Arc<Shared>,
}

impl Compiled for Artefact {
    fn key(&self) -> &str {
        &self.key
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        Ok(Arc::new(Ready::new(self.shared.clone())))
    }
}

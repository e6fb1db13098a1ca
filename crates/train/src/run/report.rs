//! What a run writes at its end for people: the curve of the loss, and a page.

use ferrane_host::fs::{self, Durability};

use super::{Event, Run};
use crate::{metrics, watch};

impl Run {
    /// Draws `loss.svg`; a failure emits a warning.
    pub(super) fn plot(&self, events: &mut dyn FnMut(&Event)) {
        let root = self.store.root();
        let model = self.state.options["model"].as_str().unwrap_or("loss");
        let title = format!("{model}, {} updates", self.state.step);
        let drawn = metrics::read(&root.join(metrics::METRICS))
            .map_err(|e| e.to_string())
            .and_then(|r| metrics::plot::svg(&root.join("loss.svg"), &title, &r).map_err(|e| e.to_string()));
        if let Err(error) = drawn {
            events(&Event::Warning { text: format!("loss.svg could not be drawn: {error}") });
        }
    }

    /// Writes `report.html`; a failure emits a warning.
    pub(super) fn report(&self, events: &mut dyn FnMut(&Event)) {
        let root = self.store.root();
        let written = watch::run_page(root).map_err(|e| watch::reason(&e)).and_then(|page| {
            fs::replace(&root.join("report.html"), page.html().as_bytes(), Durability::Cached)
                .map_err(|e| e.to_string())
        });
        if let Err(error) = written {
            events(&Event::Warning { text: format!("report.html could not be written: {error}") });
        }
    }
}

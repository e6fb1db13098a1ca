//! A run as its `metrics.jsonl` shows it, for a dashboard: read as it grows, held in bounded
//! memory.
//!
//! [`Tail`] reads the records that a file has gained and puts them into a [`RunView`]: curves
//! ([`Series`]), the last numbers, times by part, a log, and the texts of the model. Nothing here
//! draws on a terminal; `ferrane watch` does. [`run_page`] makes an HTML page of a run, and
//! [`runs()`] reads many runs side by side.
//!
//! Invariants: the file may be hostile. Whatever is in it, a view holds at most a fixed number of
//! points, lines and texts, without control characters; a line that is not a record is counted and
//! left out; the records of a view have ascending steps.

mod page;
mod runs;
mod series;
mod tail;
mod view;

pub(crate) use page::reason;
pub use page::run_page;
pub use runs::{RunStatus, RunSummary, differences, runs};
pub use series::Series;
pub use tail::Tail;
pub use view::{LogKind, LogLine, RunView};

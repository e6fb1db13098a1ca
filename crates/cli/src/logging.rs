//! Log lines on standard error, for `-v` and `RUST_LOG`.
//!
//! The libraries emit spans and events through `tracing` (docs/logging.md). Without `-v` and
//! `RUST_LOG` there is no subscriber, so they cost nothing.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::time::uptime;

use crate::error::{Error, Result};

/// The variable with a filter, which has precedence over `-v`.
const VARIABLE: &str = "RUST_LOG";

/// Begins to write log lines if `verbose`, the number of times that `-v` is given, or the variable
/// asks for them. A span is one line, written when it closes.
pub fn start(verbose: u8) -> Result<()> {
    let variable = std::env::var(VARIABLE).ok().filter(|filter| !filter.trim().is_empty());
    let filter = match (variable, verbose) {
        (Some(filter), _) => filter,
        (None, 0) => return Ok(()),
        (None, 1) => "ferrane=info".to_string(),
        (None, 2) => "ferrane=debug".to_string(),
        (None, _) => "ferrane=trace".to_string(),
    };
    let parsed = EnvFilter::try_new(&filter);
    let parsed =
        parsed.map_err(|e| Error::new(format!("{VARIABLE}=`{filter}`: {e}; docs/logging.md lists the targets")))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_span_events(FmtSpan::CLOSE)
        .with_timer(uptime())
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    // Fails if there is a subscriber already, as in a test that runs two commands.
    let _ = tracing::subscriber::set_global_default(lines.finish());
    Ok(())
}

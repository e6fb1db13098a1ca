//! The arguments of `top`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::address;

/// `ferrane top`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Examples:
  ferrane top                                what the computer draws and does, on the whole terminal
  ferrane top --once                         print one picture as text
  ferrane top --json --count 60 > minute.jsonl
  ferrane top --prometheus 9100              also answer http://127.0.0.1:9100/metrics
  ferrane top -- ferrane run model.mlpackage -i x=random:1
                                             energy, power, time and load while a command runs

What no source meters is `unknown`, with the reason, and never 0. On Linux energy comes from RAPL, whose counters only root may
read unless it allows others to. The keys are listed by `?`, and in docs/top.md.")]
pub struct Top {
    /// Seconds between two readings, from 0.1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// End after this many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print one picture as text after one interval, instead of taking the terminal.
    #[arg(long, conflicts_with_all = ["count", "json", "prometheus"])]
    pub once: bool,
    /// Columns of the picture [default: $COLUMNS, or 120].
    #[arg(long, value_name = "N", requires = "once", value_parser = RangedU64ValueParser::<u16>::new().range(1..=500))]
    pub width: Option<u16>,
    /// Lines of the picture [default: $LINES, or 40].
    #[arg(long, value_name = "N", requires = "once", value_parser = RangedU64ValueParser::<u16>::new().range(1..=200))]
    pub height: Option<u16>,
    /// One JSON object for each interval on standard output, until --count or Ctrl-C; one in all
    /// with a command, whose own standard output then goes to standard error.
    #[arg(long)]
    pub json: bool,
    /// Answer GET /metrics at this address in the text format of Prometheus: a port of this
    /// computer (0: any that is free), or HOST:PORT.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub prometheus: Option<String>,
    /// A command to run and measure. Its exit status becomes that of `ferrane top`.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["once", "count", "prometheus"])]
    pub command: Vec<OsString>,
}

/// Parses the time between two readings.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.1 to 3600".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_addresses_are_checked() {
        assert_eq!(interval("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "0.09", "3601", "-1", "nan", "inf", "fast", ""] {
            assert!(interval(wrong).unwrap_err().contains("from 0.1 to 3600"), "{wrong}");
        }
        assert_eq!(address("9100"), Ok("127.0.0.1:9100".into()));
        assert_eq!(address(":0"), Ok("127.0.0.1:0".into()));
        for right in ["0.0.0.0:9100", "[::1]:9100", "localhost:80"] {
            assert_eq!(address(right), Ok(right.into()));
        }
        for wrong in ["", "localhost", "70000", "::1:80", "host:port", "host:"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}

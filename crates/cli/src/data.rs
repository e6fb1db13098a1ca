//! The progress of the encoding of data, and `ferrane cache`.

use std::path::Path;

use ferrane::train::data::{DataEvent, IdsCache, Usage};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::CacheArgs;
use crate::error::{Error, Result};
use crate::out::{line, note};

/// A progress bar that appears when data are encoded.
#[derive(Default)]
pub struct EncodingBar(Option<ProgressBar>);

impl EncodingBar {
    /// Shows that `done` of `total` bytes are encoded.
    pub fn show(&mut self, path: &Path, done: u64, total: u64) {
        let style = "{bar:28} {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}";
        let bar = self.0.get_or_insert_with(|| {
            let bar = ProgressBar::new(total);
            ProgressStyle::with_template(style).map_or(bar.clone(), |style| bar.with_style(style))
        });
        bar.set_length(total);
        bar.set_message(format!("tokenizing {}", path.file_name().unwrap_or_default().to_string_lossy()));
        bar.set_position(done);
    }

    /// Removes the bar, so that a line can be printed.
    pub fn finish(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }

    /// Shows an event of opened data; with `quiet`, only what the user should know.
    pub fn event(&mut self, event: &DataEvent, quiet: bool) {
        match event {
            DataEvent::Encoding { path, done, total } if !quiet => self.show(path, *done, *total),
            DataEvent::Note(text) => {
                self.finish();
                note(format_args!("warning: {text}"));
            }
            _ => {}
        }
    }
}

/// Shows or clears the cache of ids.
pub fn cache(args: &CacheArgs) -> Result<()> {
    let cache = args.data_cache.as_ref().map(IdsCache::at).or_else(IdsCache::user);
    let Some(cache) = cache else {
        return Err(Error::new("the home folder is not known; give --data-cache DIR".to_string()));
    };
    let Usage { files, bytes } = if args.clear { cache.clear()? } else { cache.usage()? };
    let folder = cache.folder().display();
    if args.json {
        return line(json!({"folder": folder.to_string(), "files": files, "bytes": bytes, "cleared": args.clear}));
    }
    let megabytes = bytes as f64 / 1e6;
    let what = if args.clear { "removed from " } else { "" };
    line(format_args!("{what}{folder}: token ids of {files} data files, {megabytes:.1} MB"))
}

//! Documents to ids, in parallel, and through the cache.

use std::fs::File;

use ferrane_host::pool;
use ferrane_llm::chat::Template;
use ferrane_llm::tokenizer::Tokenizer;

use super::cache::{self, Cached, IdsCache, IdsWriter};
use super::documents::{self, BadRows, DocumentPiece, Documents, Rows};
use super::ids::Width;
use super::shards::{Found, Shard, failed};
use super::{DataEvent, Error, conversation};

/// Bytes of text that are encoded at once, by all threads.
const BATCH: usize = 8 << 20;

/// How the documents of a shard are encoded.
pub(super) struct Encoder<'a> {
    pub tokenizer: &'a Tokenizer,
    pub field: &'a str,
    /// Rows are conversations, which this template writes.
    pub template: Option<&'a Template>,
    /// `None` if there is no folder for it.
    pub cache: Option<IdsCache>,
    /// Bytes of all shards, and of those that are done.
    pub total: u64,
    pub done: u64,
    /// A note that the cache cannot be used was emitted.
    pub noted: bool,
}

impl Encoder<'_> {
    /// The ids of a shard, from the cache if they are there. Its broken rows are counted in
    /// `bad`, which is that of a shard.
    pub(super) fn open(
        &mut self,
        shard: &Shard,
        bad: &mut BadRows,
        listen: &mut dyn FnMut(&DataEvent),
    ) -> Result<Cached, Error> {
        let Shard { path, found, .. } = shard;
        let name =
            cache::name(shard, &self.tokenizer.digest(), self.field, self.template).map_err(|e| failed(path, e))?;
        let size = self.tokenizer.vocab_size();
        let hit = self.cache.as_ref().and_then(|cache| Cached::open(&cache.path(&name)));
        let hit = hit.filter(|cached| cached.all_below(size));
        tracing::debug!(target: "ferrane::cache", hit = hit.is_some(), path = %path.display(), "ids of a text");
        if let Some(cached) = hit {
            bad.count = cached.footer.bad;
            bad.reasons = cached.footer.reasons.clone();
            bad.check()?;
            self.done += found.bytes;
            return Ok(cached);
        }
        let mut writer = self.writer(&name, listen)?;
        // Ids of conversations have a mark in their highest bit.
        let marked = self.template.is_some();
        let width = if size <= 1 << 16 && !marked { Width::Two } else { Width::Four };
        let folder = self.cache.as_ref().map_or_else(std::env::temp_dir, |cache| cache.folder().to_path_buf());
        let unwritten = |source| Error::Cache { folder: folder.clone(), source };
        let Some(mut documents) = documents::open(shard, self.rows())? else {
            return Err(Error::Changed(path.clone()));
        };
        let (done, total) = (self.done, self.total);
        let mut progress = |read: u64| {
            let done = done + read.min(found.bytes);
            listen(&DataEvent::Encoding { path: path.clone(), done, total });
        };
        let mut sink = |ids: &[u32]| writer.write(ids, width).map_err(unwritten);
        self.encode(&mut *documents, bad, &mut sink, &mut progress)?;
        let now = File::open(path).and_then(|file| Found::of(&file)).map_err(|e| failed(path, e))?;
        if now != *found {
            return Err(Error::Changed(path.clone()));
        }
        self.done += found.bytes;
        writer.finish(width, marked, bad.count, &bad.reasons).map_err(unwritten)
    }

    fn rows(&self) -> Rows<'_> {
        if self.template.is_some() { Rows::Conversation } else { Rows::Field(self.field) }
    }

    /// Encodes documents in their order. Each starts with the id that begins a sequence; if the
    /// vocabulary has none, with the id that ends one, if any. A conversation has only what its
    /// template writes.
    fn encode(
        &self,
        documents: &mut dyn Documents,
        bad: &mut BadRows,
        sink: &mut dyn FnMut(&[u32]) -> Result<(), Error>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Error> {
        let mark = self.tokenizer.bos().or(self.tokenizer.eos()).filter(|_| self.template.is_none());
        loop {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while bytes < BATCH
                && let Some(piece) = documents.next(bad)?
            {
                bytes += piece.text.len() + 64;
                batch.push((piece, Ok(Vec::new())));
            }
            if batch.is_empty() {
                return Ok(());
            }
            encode_batch(&mut batch, |text| match self.template {
                None => Ok(self.tokenizer.encode(text)),
                Some(template) => conversation::encode(text, self.field, template, self.tokenizer),
            });
            let mut ids = Vec::new();
            for (piece, encoded) in batch {
                match encoded {
                    Ok(encoded) => {
                        ids.extend(mark.filter(|_| piece.begins));
                        ids.extend(encoded);
                    }
                    Err(reason) => bad.add(&format!("line {}", piece.row), &reason)?,
                }
            }
            sink(&ids)?;
            progress(documents.read());
        }
    }

    /// A file in the cache, or a temporary one if the cache cannot be written to.
    fn writer(&mut self, name: &str, listen: &mut dyn FnMut(&DataEvent)) -> Result<IdsWriter, Error> {
        let created = self.cache.as_ref().map(|cache| (cache.create(name), cache.folder()));
        let text = match created {
            Some((Ok(writer), _)) => return Ok(writer),
            Some((Err(e), folder)) => format!("{}: the cache of ids cannot be written to: {e}", folder.display()),
            None => "there is no folder for the cache of ids, because the home folder is not known".to_string(),
        };
        if !std::mem::replace(&mut self.noted, true) {
            let remedy = format!("set {} to a folder that can be written to", cache::VARIABLE);
            listen(&DataEvent::Note(format!("{text}; the data are encoded again next time; {remedy}")));
        }
        IdsWriter::temporary().map_err(|source| Error::Cache { folder: std::env::temp_dir(), source })
    }
}

/// The ids of each piece, or why its row is broken, in parallel.
fn encode_batch(
    batch: &mut [(DocumentPiece, Result<Vec<u32>, String>)],
    encode: impl Fn(&str) -> Result<Vec<u32>, String> + Sync,
) {
    pool::for_each_chunk_mut(batch, 4, |_, pieces| {
        for (piece, ids) in pieces {
            *ids = encode(&piece.text);
        }
    });
}

/// The ids of a text in memory.
pub(super) fn text(text: &str, tokenizer: &Tokenizer) -> Vec<u32> {
    let piece = |text: &str| (DocumentPiece { text: text.to_string(), begins: true, row: 0 }, Ok(Vec::new()));
    let mut batch: Vec<_> = documents::documents(text).map(piece).collect();
    encode_batch(&mut batch, |text| Ok(tokenizer.encode(text)));
    let mark = tokenizer.bos().or(tokenizer.eos());
    batch.into_iter().flat_map(|(_, ids)| mark.into_iter().chain(ids.unwrap_or_default())).collect()
}

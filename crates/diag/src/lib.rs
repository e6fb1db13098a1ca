//! Source text, spans, codes, findings and their rendering.
#![deny(missing_docs)]

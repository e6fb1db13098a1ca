//! Constant weights of products that stay codes.

use std::sync::Arc;

use ferrane_host::gemm::{CodedMatrix, Codes, GemmError};
use ferrane_mil::weights::Bytes;

/// A matrix `[rows, cols]` of codes, shared with the weights of the program: every plan of the
/// program reads the same bytes.
#[derive(Clone)]
pub(crate) struct CodedWeight {
    pub rows: usize,
    pub cols: usize,
    pub codes: Bytes,
    /// fp16 scales, or the entries of palettes.
    pub values: Bytes,
    pub bits: usize,
    pub form: CodedForm,
}

/// What the codes of a weight are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodedForm {
    /// Signed codes, `block` of which share a scale.
    Scaled { block: usize },
    /// Indices into palettes, one for each of `tables` groups of rows.
    Palette { tables: usize },
}

impl std::fmt::Debug for CodedWeight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the bytes, which may be millions.
        write!(f, "{}×{} of {} bits, {:?}", self.rows, self.cols, self.bits, self.form)
    }
}

impl CodedWeight {
    /// The factor of a product.
    ///
    /// # Errors
    /// Codes or values of another size.
    pub(crate) fn matrix(&self) -> Result<CodedMatrix<'_>, GemmError> {
        let bits = self.bits;
        let codes = match self.form {
            CodedForm::Scaled { block } => Codes::Scaled { bits, codes: &self.codes, scales: &self.values, block },
            CodedForm::Palette { tables } => {
                Codes::Palette { bits, indices: &self.codes, entries: &self.values, tables }
            }
        };
        CodedMatrix::new(self.rows, self.cols, codes)
    }

    /// Bytes of codes, scales and palettes.
    pub(crate) fn bytes(&self) -> usize {
        self.codes.len() + self.values.len()
    }
}

/// A product with a coded weight, `out = x · weightᵀ`: reads x, and perhaps a dense fp32 bias with
/// a value for each row of the weight. Both views are matrices.
#[derive(Clone, Debug)]
pub(crate) struct CodedMatmul {
    pub weight: Arc<CodedWeight>,
    pub bias: bool,
    pub round: bool,
}

//! Additional instances of a loaded model with their own weights (apple-runtime §8, §12). No
//! published program has run one.

use super::class;
use super::foundation::{List, Text, Url};

class! {
    /// A weight file with a name. It has no effect in a request; it is for instances of a model.
    Weight = c"_ANEWeight" {
        /// Takes a symbol and the URL of a file.
        pub class with(symbol: &Text, file: &Url) -> Option<Weight> = c"weightWithSymbolAndURL:weightURL:", "@@:@@";
    }
}

class! {
    /// The weights of a procedure.
    ProcedureData = c"_ANEProcedureData" {
        /// Takes the name of a procedure and a list of [`Weight`]s.
        pub class with(symbol: &Text, weights: &List) -> Option<ProcedureData> = c"procedureDataWithSymbol:weightArray:", "@@:@@";
    }
}

class! {
    /// The parameters in which an instance differs from its model.
    InstanceParameters = c"_ANEModelInstanceParameters" {
        /// Takes a name and a list of [`ProcedureData`]. In published dumps the name comes first,
        /// despite the selector.
        pub class with(name: &Text, procedures: &List) -> Option<InstanceParameters> = c"withProcedureData:procedureArray:", "@@:@@";
    }
}

//! Further instances of a loaded model, with weights of their own (apple-runtime §8, §12). No
//! published program has run one.

use super::class;
use super::foundation::{List, Text, Url};

class! {
    /// A weight file with a name. Given to a request it has no effect; instances of a model are
    /// made with it.
    Weight = c"_ANEWeight" {
        /// Of a symbol and a file.
        pub class with(symbol: &Text, file: &Url) -> Option<Weight> = c"weightWithSymbolAndURL:weightURL:", "@@:@@";
    }
}

class! {
    /// A procedure's weights.
    ProcedureData = c"_ANEProcedureData" {
        /// A procedure's name and a list of [`Weight`]s.
        pub class with(symbol: &Text, weights: &List) -> Option<ProcedureData> = c"procedureDataWithSymbol:weightArray:", "@@:@@";
    }
}

class! {
    /// What makes one instance of a model differ from another.
    InstanceParameters = c"_ANEModelInstanceParameters" {
        /// A name, and a list of [`ProcedureData`]; published dumps have the name as the first
        /// part, whatever the selector says.
        pub class with(name: &Text, procedures: &List) -> Option<InstanceParameters> = c"withProcedureData:procedureArray:", "@@:@@";
    }
}

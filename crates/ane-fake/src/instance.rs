//! Additional instances of a model. Selectors and types as in apple-runtime §6, §8, §12 and in
//! published dumps.

use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, define_class};

use crate::foundation::{elements, given, make, text};

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEWeight"]
    #[ivars = ()]
    struct FakeWeight;

    impl FakeWeight {
        #[unsafe(method_id(weightWithSymbolAndURL:weightURL:))]
        fn with(symbol: Option<&AnyObject>, url: Option<&AnyObject>) -> Option<Retained<FakeWeight>> {
            given(|| {
                text(symbol)?;
                url.map(|_| make!(FakeWeight, ()))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEProcedureData"]
    #[ivars = ()]
    struct FakeProcedureData;

    impl FakeProcedureData {
        #[unsafe(method_id(procedureDataWithSymbol:weightArray:))]
        fn with(symbol: Option<&AnyObject>, weights: Option<&AnyObject>) -> Option<Retained<FakeProcedureData>> {
            given(|| {
                text(symbol)?;
                let all = elements(weights)?.iter().all(|w| w.downcast_ref::<FakeWeight>().is_some());
                all.then(|| make!(FakeProcedureData, ()))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEModelInstanceParameters"]
    #[ivars = ()]
    pub(crate) struct FakeInstanceParameters;

    impl FakeInstanceParameters {
        #[unsafe(method_id(withProcedureData:procedureArray:))]
        fn with(_name: Option<&AnyObject>, procedures: Option<&AnyObject>) -> Option<Retained<FakeInstanceParameters>> {
            given(|| {
                let all = elements(procedures)?.iter().all(|p| p.downcast_ref::<FakeProcedureData>().is_some());
                all.then(|| make!(FakeInstanceParameters, ()))
            })
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeWeight::class(), FakeProcedureData::class(), FakeInstanceParameters::class());
}

//! The machine, and classes without effect. Selectors and types as in apple-runtime §2, §6, §8.

use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, define_class};

use crate::foundation::{FakeString, given, make, string, text};

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEDeviceInfo"]
    #[ivars = ()]
    struct FakeDeviceInfo;

    impl FakeDeviceInfo {
        #[unsafe(method_id(aneSubType))]
        fn sub_type() -> Retained<FakeString> {
            string("h16")
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEProgramIOSurfacesMapper"]
    #[ivars = ()]
    struct FakeMapper;

    impl FakeMapper {
        #[unsafe(method_id(mapperWithProgramHandle:))]
        fn with(handle: u64) -> Option<Retained<FakeMapper>> {
            (handle != 0).then(|| make!(FakeMapper, ()))
        }
    }
);

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

pub(crate) fn register() {
    let _ = (FakeDeviceInfo::class(), FakeMapper::class(), FakeWeight::class());
}

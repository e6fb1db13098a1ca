//! The value classes: strings, data, numbers, arrays, dictionaries, errors.

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ferrane_ane::runtime::throw;
use ferrane_host::sync::lock;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::session::CallFailure;

pub(crate) type Object = Retained<AnyObject>;

/// A slice of memory that the caller provides.
///
/// # Safety
/// `pointer` must be valid for `length` elements, or `length` must be 0.
unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if pointer.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: `pointer` is valid for `length` elements by this function's contract.
    unsafe { std::slice::from_raw_parts(pointer, length) }
}

/// The result of a method that may be nil; method bodies cannot use `?` themselves.
pub(crate) fn given<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    body()
}

/// Makes an object with these instance variables.
macro_rules! make {
    ($class:ident, $ivars:expr) => {{
        let this = <$class as objc2::AllocAnyThread>::alloc().set_ivars($ivars);
        // SAFETY: `init` of NSObject returns the object that `alloc` made.
        unsafe { objc2::msg_send![super(this), init] }
    }};
}

pub(crate) use make;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSString"]
    #[ivars = CString]
    pub(crate) struct FakeString;

    impl FakeString {
        #[unsafe(method_id(stringWithUTF8String:))]
        fn string_with(text: *const c_char) -> Retained<FakeString> {
            // SAFETY: Foundation's contract: the argument is a terminated string.
            let text = unsafe { std::ffi::CStr::from_ptr(text) };
            make!(FakeString, text.to_owned())
        }

        #[unsafe(method(UTF8String))]
        fn utf8(&self) -> *const c_char {
            self.ivars().as_ptr()
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSData"]
    #[ivars = Vec<u8>]
    pub(crate) struct FakeData;

    impl FakeData {
        #[unsafe(method_id(dataWithBytes:length:))]
        fn data_with(bytes: *const c_void, length: usize) -> Retained<FakeData> {
            // SAFETY: Foundation's contract: the argument has `length` bytes.
            let bytes = unsafe { slice(bytes.cast::<u8>(), length) };
            make!(FakeData, bytes.to_vec())
        }

        #[unsafe(method(length))]
        fn length(&self) -> usize {
            self.ivars().len()
        }

        #[unsafe(method(bytes))]
        fn bytes(&self) -> *const c_void {
            self.ivars().as_ptr().cast()
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSNumber"]
    #[ivars = u64]
    pub(crate) struct FakeNumber;

    impl FakeNumber {
        #[unsafe(method_id(numberWithUnsignedLongLong:))]
        fn number_with(value: u64) -> Retained<FakeNumber> {
            make!(FakeNumber, value)
        }

        #[unsafe(method_id(numberWithBool:))]
        fn number_with_bool(value: bool) -> Retained<FakeNumber> {
            make!(FakeNumber, u64::from(value))
        }

        #[unsafe(method(unsignedLongLongValue))]
        fn value(&self) -> u64 {
            *self.ivars()
        }

        #[unsafe(method(longLongValue))]
        fn signed(&self) -> i64 {
            i64::try_from(*self.ivars()).unwrap_or(i64::MAX)
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSArray"]
    #[ivars = Vec<Object>]
    pub(crate) struct FakeArray;

    impl FakeArray {
        #[unsafe(method_id(arrayWithObjects:count:))]
        fn array_with(objects: *const *mut AnyObject, count: usize) -> Retained<FakeArray> {
            // SAFETY: Foundation's contract: the argument has `count` objects.
            make!(FakeArray, unsafe { objects_of(objects, count) })
        }

        #[unsafe(method(count))]
        fn count(&self) -> usize {
            self.ivars().len()
        }

        #[unsafe(method_id(objectAtIndex:))]
        fn object_at(&self, index: usize) -> Option<Object> {
            let count = self.ivars().len();
            let beyond = || throw("NSRangeException", &format!("index {index} beyond bounds for {count} objects"));
            Some(self.ivars().get(index).cloned().unwrap_or_else(beyond))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSDictionary"]
    #[ivars = Vec<(Object, Object)>]
    pub(crate) struct FakeDictionary;

    impl FakeDictionary {
        #[unsafe(method_id(dictionaryWithObjects:forKeys:count:))]
        fn dictionary_with(
            objects: *const *mut AnyObject,
            keys: *const *mut AnyObject,
            count: usize,
        ) -> Retained<FakeDictionary> {
            // SAFETY: Foundation's contract: the arguments have `count` objects and keys.
            let (keys, values) = unsafe { (objects_of(keys, count), objects_of(objects, count)) };
            make!(FakeDictionary, keys.into_iter().zip(values).collect())
        }

        #[unsafe(method(count))]
        fn count(&self) -> usize {
            self.ivars().len()
        }

        #[unsafe(method_id(objectForKey:))]
        fn object_for(&self, key: &AnyObject) -> Option<Object> {
            text(Some(key)).and_then(|key| self.get(&key))
        }

        #[unsafe(method_id(allKeys))]
        fn all_keys(&self) -> Retained<FakeArray> {
            make!(FakeArray, self.ivars().iter().map(|(k, _)| k.clone()).collect())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSMutableArray"]
    #[ivars = Vec<Object>]
    pub(crate) struct FakeMutableArray;

    impl FakeMutableArray {
        #[unsafe(method_id(arrayWithObjects:count:))]
        fn array_with(objects: *const *mut AnyObject, count: usize) -> Retained<FakeMutableArray> {
            // SAFETY: Foundation's contract: the argument has `count` objects.
            make!(FakeMutableArray, unsafe { objects_of(objects, count) })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSMutableDictionary"]
    #[ivars = Mutex<Vec<(String, Object)>>]
    pub(crate) struct FakeMutableDictionary;

    impl FakeMutableDictionary {
        #[unsafe(method_id(dictionaryWithDictionary:))]
        fn dictionary_with(other: Option<&AnyObject>) -> Option<Retained<FakeMutableDictionary>> {
            given(|| {
                let other = other?.downcast_ref::<FakeDictionary>()?;
                Some(make!(FakeMutableDictionary, Mutex::new(other.entries().collect())))
            })
        }

        #[unsafe(method(setObject:forKey:))]
        fn set_object(&self, object: Option<&AnyObject>, key: Option<&AnyObject>) {
            // SAFETY: a live object, which is retained.
            let object = object.and_then(|o| unsafe { Retained::retain(std::ptr::from_ref(o).cast_mut()) });
            let (Some(object), Some(key)) = (object, text(key)) else {
                throw("NSInvalidArgumentException", "object or key is nil");
            };
            let mut entries = lock(self.ivars());
            entries.retain(|(k, _)| *k != key);
            entries.push((key, object));
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSError"]
    #[ivars = CallFailure]
    pub(crate) struct FakeError;

    impl FakeError {
        #[unsafe(method_id(domain))]
        fn domain(&self) -> Retained<FakeString> {
            string(&self.ivars().domain)
        }

        #[unsafe(method(code))]
        fn code(&self) -> isize {
            self.ivars().code
        }

        #[unsafe(method_id(localizedDescription))]
        fn description(&self) -> Retained<FakeString> {
            string(&self.ivars().text)
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSException"]
    #[ivars = CallFailure]
    pub(crate) struct FakeException;

    impl FakeException {
        #[unsafe(method_id(name))]
        fn name(&self) -> Retained<FakeString> {
            string(&self.ivars().domain)
        }

        #[unsafe(method_id(reason))]
        fn reason(&self) -> Retained<FakeString> {
            string(&self.ivars().text)
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSURL"]
    #[ivars = String]
    pub(crate) struct FakeUrl;

    impl FakeUrl {
        #[unsafe(method_id(fileURLWithPath:))]
        fn file(path: Option<&AnyObject>) -> Option<Retained<FakeUrl>> {
            given(|| {
                let path = text(path)?;
                Some(make!(FakeUrl, path))
            })
        }

        #[unsafe(method_id(path))]
        fn path(&self) -> Retained<FakeString> {
            string(self.ivars())
        }
    }
);

/// # Safety
/// `objects` must point to `count` live objects.
unsafe fn objects_of(objects: *const *mut AnyObject, count: usize) -> Vec<Object> {
    // SAFETY: `objects` points to `count` live objects by this function's contract.
    unsafe { slice(objects, count).iter().filter_map(|&o| Retained::retain(o)).collect() }
}

impl FakeMutableDictionary {
    pub(crate) fn get(&self, key: &str) -> Option<Object> {
        lock(self.ivars()).iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
    }

    /// Whether a value is a mutable array.
    pub(crate) fn has_mutable_list(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| v.downcast_ref::<FakeMutableArray>().is_some())
    }
}

impl FakeDictionary {
    pub(crate) fn get(&self, key: &str) -> Option<Object> {
        self.ivars().iter().find(|(k, _)| text(Some(k)).as_deref() == Some(key)).map(|(_, v)| v.clone())
    }

    /// The entries with string keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (String, Object)> + '_ {
        self.ivars().iter().filter_map(|(k, v)| Some((text(Some(k))?, v.clone())))
    }
}

/// The text of a string, if it is one.
pub(crate) fn text(object: Option<&AnyObject>) -> Option<String> {
    Some(object?.downcast_ref::<FakeString>()?.ivars().to_string_lossy().into_owned())
}

/// The path of a file URL, if it is one.
pub(crate) fn path(object: Option<&AnyObject>) -> Option<PathBuf> {
    Some(PathBuf::from(object?.downcast_ref::<FakeUrl>()?.ivars()))
}

pub(crate) fn url(path: &Path) -> Retained<FakeUrl> {
    make!(FakeUrl, path.to_string_lossy().into_owned())
}

/// The bytes of a data object, if it is one.
pub(crate) fn bytes(object: Option<&AnyObject>) -> Option<&[u8]> {
    Some(object?.downcast_ref::<FakeData>()?.ivars())
}

/// The value of a number object, if it is one.
pub(crate) fn number(object: Option<&AnyObject>) -> Option<u64> {
    Some(*object?.downcast_ref::<FakeNumber>()?.ivars())
}

/// The elements of an array, if it is one.
pub(crate) fn elements(object: Option<&AnyObject>) -> Option<&[Object]> {
    let object = object?;
    let fixed = object.downcast_ref::<FakeArray>().map(|a| a.ivars());
    fixed.or_else(|| Some(object.downcast_ref::<FakeMutableArray>()?.ivars())).map(Vec::as_slice)
}

pub(crate) fn string(text: &str) -> Retained<FakeString> {
    make!(FakeString, CString::new(text).unwrap_or_default())
}

pub(crate) fn array<T: objc2::Message>(objects: impl IntoIterator<Item = Retained<T>>) -> Object {
    // SAFETY: every object is an `AnyObject`.
    let objects = objects.into_iter().map(|o| unsafe { Retained::cast_unchecked::<AnyObject>(o) }).collect();
    let made: Retained<FakeArray> = make!(FakeArray, objects);
    made.into_super().into()
}

pub(crate) fn numbers(values: impl IntoIterator<Item = u64>) -> Object {
    array(values.into_iter().map(|v| -> Retained<FakeNumber> { make!(FakeNumber, v) }))
}

pub(crate) fn number_object(value: u64) -> Object {
    let made: Retained<FakeNumber> = make!(FakeNumber, value);
    made.into_super().into()
}

pub(crate) fn dictionary(entries: Vec<(&str, Object)>) -> Object {
    let entries = entries.into_iter().map(|(k, v)| (string(k).into_super().into(), v)).collect();
    let made: Retained<FakeDictionary> = make!(FakeDictionary, entries);
    made.into_super().into()
}

pub(crate) fn error_object(failure: CallFailure) -> Object {
    let made: Retained<FakeError> = make!(FakeError, failure);
    made.into_super().into()
}

/// Writes an error through an `NSError **`, autoreleased as in Cocoa.
pub(crate) fn report(out: *mut *mut AnyObject, failure: CallFailure) {
    if out.is_null() {
        return;
    }
    let error = error_object(failure);
    // SAFETY: by the method's contract, a pointer that is not null is writable.
    unsafe { *out = Retained::autorelease_ptr(error).cast() };
}

pub(crate) fn register() {
    let _ = (FakeString::class(), FakeData::class(), FakeNumber::class());
    let _ = (FakeArray::class(), FakeDictionary::class(), FakeError::class());
    let _ = (FakeException::class(), FakeUrl::class());
    let _ = (FakeMutableArray::class(), FakeMutableDictionary::class());
}

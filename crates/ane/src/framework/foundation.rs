//! Values of Foundation: made from Rust, read back, and errors.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use ferrane_device::{Error, ErrorKind, Result};
use objc2::msg_send;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{AnyClass, AnyObject};

use super::{Answer, class};

/// An object that may go to other threads.
#[derive(Clone)]
pub(crate) struct Object(Retained<AnyObject>);

// SAFETY: what is kept are values of Foundation, which never change once made, and the engine's models, requests and surface
// objects, which published programs compile and evaluate from several threads at once (apple-runtime §2). Reference counts are
// atomic.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl From<Retained<AnyObject>> for Object {
    fn from(object: Retained<AnyObject>) -> Object {
        Object(object)
    }
}

impl Object {
    /// The object, or an error where there is nil.
    pub(crate) fn new(object: Option<Retained<AnyObject>>, kind: ErrorKind, message: &str) -> Result<Object> {
        object.map(Object).ok_or_else(|| Error::new(kind, message))
    }

    /// The object, for a message.
    pub(crate) fn raw(&self) -> &AnyObject {
        &self.0
    }
}

/// The classes of values.
pub(crate) struct Foundation {
    string: &'static AnyClass,
    data: &'static AnyClass,
    number: &'static AnyClass,
    array: &'static AnyClass,
    dictionary: &'static AnyClass,
}

fn made(object: Option<Retained<AnyObject>>) -> Result<Object> {
    Object::new(object, ErrorKind::OutOfMemory, "Foundation made no object")
}

/// The objects as a C array; valid as long as they are.
fn pointers(objects: &[Object]) -> Vec<*const AnyObject> {
    objects.iter().map(|o| ptr::from_ref(o.raw())).collect()
}

impl Foundation {
    pub(crate) fn new() -> Result<Foundation> {
        Ok(Foundation {
            string: class(c"NSString")?,
            data: class(c"NSData")?,
            number: class(c"NSNumber")?,
            array: class(c"NSArray")?,
            dictionary: class(c"NSDictionary")?,
        })
    }

    pub(crate) fn string(&self, text: &str) -> Result<Object> {
        let text = CString::new(text)
            .map_err(|e| Error::new(ErrorKind::InvalidProgram, "a name holds a zero byte").with_source(e))?;
        // SAFETY: a terminated string, which is copied.
        made(autoreleasepool(|_| unsafe { msg_send![self.string, stringWithUTF8String: text.as_ptr()] }))
    }

    pub(crate) fn data(&self, bytes: &[u8]) -> Result<Object> {
        let start = bytes.as_ptr().cast::<c_void>();
        // SAFETY: as many bytes as are said, which are copied.
        made(autoreleasepool(|_| unsafe { msg_send![self.data, dataWithBytes: start, length: bytes.len()] }))
    }

    pub(crate) fn number(&self, value: u64) -> Result<Object> {
        // SAFETY: a plain number. `unsigned long long` is 64 bits on every Mac.
        made(autoreleasepool(|_| unsafe { msg_send![self.number, numberWithUnsignedLongLong: value] }))
    }

    pub(crate) fn array(&self, objects: &[Object]) -> Result<Object> {
        let list = pointers(objects);
        // SAFETY: as many objects as are said; the array keeps them.
        made(autoreleasepool(|_| unsafe { msg_send![self.array, arrayWithObjects: list.as_ptr(), count: list.len()] }))
    }

    /// A dictionary; `keys` and `values` go together.
    pub(crate) fn dictionary(&self, keys: &[Object], values: &[Object]) -> Result<Object> {
        let (keys, values) = (pointers(keys), pointers(values));
        let count = keys.len().min(values.len());
        // SAFETY: as many objects and keys as are said; the dictionary keeps the objects and copies the keys.
        made(autoreleasepool(|_| unsafe {
            msg_send![
                self.dictionary,
                dictionaryWithObjects: values.as_ptr(),
                forKeys: keys.as_ptr(),
                count: count
            ]
        }))
    }

    fn is(&self, object: &Object, wanted: &AnyClass) -> bool {
        // SAFETY: every object of Foundation answers this.
        unsafe { msg_send![object.raw(), isKindOfClass: wanted] }
    }

    fn expect(&self, object: &Object, wanted: &AnyClass) -> Result<()> {
        if self.is(object, wanted) {
            return Ok(());
        }
        let name = wanted.name().to_string_lossy();
        Err(Error::new(ErrorKind::System, format!("the framework answered with something else than {name}")))
    }

    /// The text of a string.
    pub(crate) fn text(&self, object: &Object) -> Result<String> {
        self.expect(object, self.string)?;
        autoreleasepool(|_| {
            // SAFETY: a string gives a terminated string that lives as long as the pool.
            let text: *const c_char = unsafe { msg_send![object.raw(), UTF8String] };
            if text.is_null() {
                return Ok(String::new());
            }
            // SAFETY: as above.
            Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        })
    }

    /// The value of a number.
    pub(crate) fn value(&self, object: &Object) -> Result<u64> {
        self.expect(object, self.number)?;
        // SAFETY: a number.
        Ok(unsafe { msg_send![object.raw(), unsignedLongLongValue] })
    }

    /// The elements of an array.
    pub(crate) fn elements(&self, object: &Object) -> Result<Vec<Object>> {
        self.expect(object, self.array)?;
        autoreleasepool(|_| {
            // SAFETY: an array; the indices are below its count.
            unsafe {
                let count: usize = msg_send![object.raw(), count];
                (0..count).map(|i| made(msg_send![object.raw(), objectAtIndex: i])).collect()
            }
        })
    }

    /// The value of a key, if the dictionary has it.
    pub(crate) fn get(&self, object: &Object, key: &str) -> Result<Option<Object>> {
        self.expect(object, self.dictionary)?;
        let key = self.string(key)?;
        // SAFETY: a dictionary and a key; the answer is an object or nil.
        let found: Option<Retained<AnyObject>> =
            autoreleasepool(|_| unsafe { msg_send![object.raw(), objectForKey: key.raw()] });
        Ok(found.map(Object))
    }

    /// The keys of a dictionary.
    pub(crate) fn keys(&self, object: &Object) -> Result<Vec<Object>> {
        self.expect(object, self.dictionary)?;
        // SAFETY: a dictionary; the answer is an array.
        let keys: Option<Retained<AnyObject>> = autoreleasepool(|_| unsafe { msg_send![object.raw(), allKeys] });
        self.elements(&made(keys)?)
    }

    /// Makes a call that answers with BOOL and an `NSError **`. A NO without an error is an error too.
    pub(crate) fn answer(&self, call: impl FnOnce(&mut *mut AnyObject) -> Answer) -> Result<()> {
        autoreleasepool(|_| {
            let mut error: *mut AnyObject = ptr::null_mut();
            if call(&mut error).as_bool() {
                return Ok(());
            }
            // SAFETY: an error that the callee made lives as long as the pool.
            match unsafe { Retained::retain(error) } {
                Some(error) => Err(self.error(&Object(error))),
                None => Err(Error::new(ErrorKind::System, "the framework refused and gave no reason")),
            }
        })
    }

    fn error(&self, error: &Object) -> Error {
        // SAFETY: an NSError: two strings and an NSInteger.
        let (domain, code, text): (Option<Retained<AnyObject>>, isize, Option<Retained<AnyObject>>) = unsafe {
            let error = error.raw();
            (msg_send![error, domain], msg_send![error, code], msg_send![error, localizedDescription])
        };
        let read =
            |object: Option<Retained<AnyObject>>| object.and_then(|o| self.text(&Object(o)).ok()).unwrap_or_default();
        Error::from_raw(read(domain), code as i64, &read(text))
    }
}

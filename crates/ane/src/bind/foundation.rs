//! Values of Foundation: made from Rust, read back, and errors.

use std::ffi::{CStr, CString, c_char, c_void};

use ferrane_device::{Error, ErrorKind, Result};
use objc2::runtime::AnyObject;

use super::method::Method;
use super::object::{Object, Wrap};
use super::{BoundClass, class};

class! {
    /// Text.
    Text = c"NSString" {
        /// Text of a terminated C string, which is copied.
        pub(crate) class with_utf8(text: *const c_char) -> Result<Text> = c"stringWithUTF8String:", "@@:*";
        /// Its bytes in UTF-8, terminated, which live as long as it does or the pool around the
        /// call.
        pub method utf8() -> *const c_char = c"UTF8String", "*@:";
    }
}

class! {
    /// Bytes.
    Data = c"NSData" {
        /// So many bytes, which are copied.
        pub(crate) class with_bytes(bytes: *const c_void, length: usize) -> Result<Data> = c"dataWithBytes:length:", "@@:^vQ";
    }
}

class! {
    /// A number.
    Number = c"NSNumber" {
        /// A number without sign; 64 bits on every Mac.
        pub class with(value: u64) -> Result<Number> = c"numberWithUnsignedLongLong:", "@@:Q";
        /// Yes or no.
        pub(crate) class with_bool(value: bool) -> Result<Number> = c"numberWithBool:", "@@:B";
        /// Its value as a number with a sign.
        pub method value() -> i64 = c"longLongValue", "q@:";
    }
}

class! {
    /// A list.
    List = c"NSArray" {
        /// So many objects, which it keeps.
        pub(crate) class with_objects(objects: *const *const AnyObject, count: usize) -> Result<List> = c"arrayWithObjects:count:", "@@:^@Q";
        /// How many there are.
        pub method count() -> usize = c"count", "Q@:";
        /// One of them; raises past the end.
        pub method at(index: usize) -> Option<Object> = c"objectAtIndex:", "@@:Q";
    }
}

class! {
    /// Values by key.
    Map = c"NSDictionary" {
        /// So many values and keys.
        pub(crate) class with_objects(values: *const *const AnyObject, keys: *const *const AnyObject, count: usize) -> Result<Map> = c"dictionaryWithObjects:forKeys:count:", "@@:^@^@Q";
        /// The value of a key.
        pub method get(key: &Text) -> Option<Object> = c"objectForKey:", "@@:@";
        /// Every key.
        pub method keys() -> Result<List> = c"allKeys", "@@:";
    }
}

class! {
    /// Why something failed.
    Failure = c"NSError" {
        /// Who says so.
        pub method domain() -> Option<Text> = c"domain", "@@:";
        /// Its number there.
        pub method code() -> isize = c"code", "q@:";
        /// In words.
        pub method words() -> Option<Text> = c"localizedDescription", "@@:";
    }
}

class! {
    /// What was raised.
    Raised = c"NSException" {
        /// Its kind.
        pub method kind() -> Option<Text> = c"name", "@@:";
        /// In words.
        pub method reason() -> Option<Text> = c"reason", "@@:";
    }
}

class! {
    /// A file's address.
    Url = c"NSURL" {
        /// That of a path.
        pub class file(path: &Text) -> Result<Url> = c"fileURLWithPath:", "@@:@";
        /// The path.
        pub method path() -> Option<Text> = c"path", "@@:";
    }
}

pub(super) fn methods() -> Vec<&'static Method> {
    let lists = [
        Text::methods(),
        Data::methods(),
        Number::methods(),
        List::methods(),
        Map::methods(),
        Failure::methods(),
        Raised::methods(),
        Url::methods(),
    ];
    lists.into_iter().flatten().collect()
}

/// Text.
///
/// # Errors
/// [`ErrorKind::InvalidProgram`] for text with a zero byte.
pub fn text(text: &str) -> Result<Text> {
    let text = CString::new(text)
        .map_err(|e| Error::new(ErrorKind::InvalidProgram, "a name holds a zero byte").with_source(e))?;
    Text::with_utf8(text.as_ptr())?
}

/// Bytes, copied.
///
/// # Errors
/// Foundation made no object.
pub fn data(bytes: &[u8]) -> Result<Data> {
    Data::with_bytes(bytes.as_ptr().cast(), bytes.len())?
}

/// A number.
///
/// # Errors
/// Foundation made no object.
pub fn number(value: u64) -> Result<Number> {
    Number::with(value)?
}

/// Yes or no.
///
/// # Errors
/// Foundation made no object.
pub fn flag(value: bool) -> Result<Number> {
    Number::with_bool(value)?
}

/// A list of objects.
///
/// # Errors
/// Foundation made no object.
pub fn list<'a, T: Wrap + 'a>(objects: impl IntoIterator<Item = &'a T>) -> Result<List> {
    let objects: Vec<_> = objects.into_iter().map(|o| o.object().as_ptr()).collect();
    List::with_objects(objects.as_ptr(), objects.len())?
}

/// A dictionary.
///
/// # Errors
/// As [`text`], or Foundation made no object.
pub fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Object)>) -> Result<Map> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        keys.push(text(key)?);
        values.push(value);
    }
    let pointers = (
        values.iter().map(Object::as_ptr).collect::<Vec<_>>(),
        keys.iter().map(|k| k.object().as_ptr()).collect::<Vec<_>>(),
    );
    Map::with_objects(pointers.0.as_ptr(), pointers.1.as_ptr(), keys.len())?
}

impl Text {
    /// As Rust has it.
    ///
    /// # Errors
    /// The framework failed.
    pub fn read(&self) -> Result<String> {
        objc2::rc::autoreleasepool(|_| {
            let text = self.utf8()?;
            if text.is_null() {
                return Ok(String::new());
            }
            // SAFETY: a string gives a terminated text that lives as long as the pool around this.
            Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        })
    }
}

impl List {
    /// Its elements.
    ///
    /// # Errors
    /// The framework failed.
    pub fn elements(&self) -> Result<Vec<Object>> {
        let all = (0..self.count()?).map(|i| self.at(i));
        all.filter_map(Result::transpose).collect()
    }
}

/// An `NSError` as an error.
pub(crate) fn error(object: Object) -> Error {
    let read = |text: Result<Option<Text>>| text.ok().flatten().and_then(|t| t.read().ok()).unwrap_or_default();
    match object.cast::<Failure>() {
        Ok(failure) => {
            let code = failure.code().unwrap_or(0);
            Error::from_raw(read(failure.domain()), code as i64, &read(failure.words()))
        }
        Err(error) => error,
    }
}

/// What was raised, in words.
#[cfg(target_vendor = "apple")]
pub(crate) fn exception(object: Object) -> super::Exception {
    let read = |text: Result<Option<Text>>| text.ok().flatten().and_then(|t| t.read().ok()).unwrap_or_default();
    let class = object.class_name();
    match object.cast::<Raised>() {
        Ok(raised) => super::Exception { name: read(raised.kind()), reason: read(raised.reason()) },
        Err(_) => super::Exception { name: class, reason: String::new() },
    }
}

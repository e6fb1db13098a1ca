//! Foundation's values: conversion from and to Rust, and errors.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;

use ferrane_device::{Error, ErrorKind, Result};
use objc2::runtime::AnyObject;

use super::method::Method;
use super::object::{Object, Wrap};
use super::{BoundClass, class};

class! {
    /// A string.
    Text = c"NSString" {
        /// Copies a terminated C string.
        pub(crate) class with_utf8(text: *const c_char) -> Result<Text> = c"stringWithUTF8String:", "@@:*";
        /// The terminated UTF-8 bytes, valid as long as the string or the autorelease pool around
        /// the call.
        pub method utf8() -> *const c_char = c"UTF8String", "*@:";
    }
}

class! {
    /// Bytes.
    Data = c"NSData" {
        /// Copies `length` bytes.
        pub(crate) class with_bytes(bytes: *const c_void, length: usize) -> Result<Data> = c"dataWithBytes:length:", "@@:^vQ";
    }
}

class! {
    /// A number.
    Number = c"NSNumber" {
        /// An unsigned 64-bit number.
        pub class with(value: u64) -> Result<Number> = c"numberWithUnsignedLongLong:", "@@:Q";
        /// A BOOL as a number.
        pub(crate) class with_bool(value: bool) -> Result<Number> = c"numberWithBool:", "@@:B";
        /// The value as a signed number.
        pub method value() -> i64 = c"longLongValue", "q@:";
    }
}

class! {
    /// A list.
    List = c"NSArray" {
        /// A list of `count` objects, which it retains.
        pub(crate) class with_objects(objects: *const *const AnyObject, count: usize) -> Result<List> = c"arrayWithObjects:count:", "@@:^@Q";
        /// The number of elements.
        pub method count() -> usize = c"count", "Q@:";
        /// The element at an index; raises an exception beyond the end.
        pub method at(index: usize) -> Option<Object> = c"objectAtIndex:", "@@:Q";
    }
}

class! {
    /// A dictionary with string keys.
    Map = c"NSDictionary" {
        /// A dictionary of as many values and keys, which it retains.
        pub(crate) class with_objects(values: *const *const AnyObject, keys: *const *const AnyObject, count: usize) -> Result<Map> = c"dictionaryWithObjects:forKeys:count:", "@@:^@^@Q";
        /// The value for a key; nil if there is none.
        pub method get(key: &Text) -> Option<Object> = c"objectForKey:", "@@:@";
        /// Every key.
        pub method keys() -> Result<List> = c"allKeys", "@@:";
    }
}

class! {
    /// A list that its receiver may change.
    MutableList = c"NSMutableArray" {
        /// A list of `count` objects, which it retains; inherited from `NSArray`.
        pub(crate) class with_objects(objects: *const *const AnyObject, count: usize) -> Result<MutableList> = c"arrayWithObjects:count:", "@@:^@Q";
    }
}

class! {
    /// A dictionary that can be changed.
    MutableMap = c"NSMutableDictionary" {
        /// A copy of a dictionary; inherited from `NSDictionary`.
        pub class with_map(map: &Map) -> Result<MutableMap> = c"dictionaryWithDictionary:", "@@:@";
        /// Sets the value of a key.
        pub method set(value: &MutableList, key: &Text) -> () = c"setObject:forKey:", "v@:@@";
    }
}

class! {
    /// The reason of a failure.
    Failure = c"NSError" {
        /// The domain of the code.
        pub method domain() -> Option<Text> = c"domain", "@@:";
        /// The code in its domain.
        pub method code() -> isize = c"code", "q@:";
        /// The localized description.
        pub method words() -> Option<Text> = c"localizedDescription", "@@:";
    }
}

class! {
    /// An exception object.
    Raised = c"NSException" {
        /// The exception's name.
        pub method kind() -> Option<Text> = c"name", "@@:";
        /// The reason in words.
        pub method reason() -> Option<Text> = c"reason", "@@:";
    }
}

class! {
    /// The URL of a file.
    Url = c"NSURL" {
        /// The URL of a path.
        pub class file(path: &Text) -> Result<Url> = c"fileURLWithPath:", "@@:@";
        /// The path of the URL.
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
        MutableList::methods(),
        MutableMap::methods(),
        Failure::methods(),
        Raised::methods(),
        Url::methods(),
    ];
    lists.into_iter().flatten().collect()
}

/// A string object.
///
/// # Errors
/// [`ErrorKind::InvalidProgram`] for text with a zero byte; [`ErrorKind::System`] if Foundation
/// returns nil.
pub fn text(text: &str) -> Result<Text> {
    let text = CString::new(text)
        .map_err(|e| Error::new(ErrorKind::InvalidProgram, "a name holds a zero byte").with_source(e))?;
    Text::with_utf8(text.as_ptr())?
}

/// A path as a string object.
///
/// # Errors
/// As [`text`]; [`ErrorKind::System`] for a path that is not UTF-8.
pub fn path_text(path: &Path) -> Result<Text> {
    let odd = || Error::new(ErrorKind::System, format!("the path {} is not UTF-8", path.display()));
    text(path.to_str().ok_or_else(odd)?)
}

/// The URL of a file or folder.
///
/// # Errors
/// As [`path_text`], or Foundation returned nil.
pub fn url(path: &Path) -> Result<Url> {
    Url::file(&path_text(path)?)?
}

/// A data object with a copy of the bytes.
///
/// # Errors
/// Foundation returned nil.
pub fn data(bytes: &[u8]) -> Result<Data> {
    Data::with_bytes(bytes.as_ptr().cast(), bytes.len())?
}

/// A number object.
///
/// # Errors
/// Foundation returned nil.
pub fn number(value: u64) -> Result<Number> {
    Number::with(value)?
}

/// A number object that holds a BOOL.
///
/// # Errors
/// Foundation returned nil.
pub fn flag(value: bool) -> Result<Number> {
    Number::with_bool(value)?
}

/// A list object.
///
/// # Errors
/// Foundation returned nil.
pub fn list<'a, T: Wrap + 'a>(objects: impl IntoIterator<Item = &'a T>) -> Result<List> {
    let objects: Vec<_> = objects.into_iter().map(|o| o.object().as_ptr()).collect();
    List::with_objects(objects.as_ptr(), objects.len())?
}

/// A dictionary object.
///
/// # Errors
/// As [`text`], or Foundation returned nil.
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
    /// The text as a Rust string.
    ///
    /// # Errors
    /// The framework raised an exception or lacks the method.
    pub fn read(&self) -> Result<String> {
        objc2::rc::autoreleasepool(|_| {
            let text = self.utf8()?;
            if text.is_null() {
                return Ok(String::new());
            }
            // SAFETY: the string's text is terminated and lives as long as the autorelease pool
            // around this.
            Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        })
    }
}

impl List {
    /// The elements in order.
    ///
    /// # Errors
    /// The framework raised an exception or lacks the method.
    pub fn elements(&self) -> Result<Vec<Object>> {
        let all = (0..self.count()?).map(|i| self.at(i));
        all.filter_map(Result::transpose).collect()
    }
}

/// Converts an `NSError`.
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

/// Converts an `NSException`.
#[cfg(target_vendor = "apple")]
pub(crate) fn exception(object: Object) -> super::Exception {
    let read = |text: Result<Option<Text>>| text.ok().flatten().and_then(|t| t.read().ok()).unwrap_or_default();
    let class = object.class_name();
    match object.cast::<Raised>() {
        Ok(raised) => super::Exception { name: read(raised.kind()), reason: read(raised.reason()) },
        Err(_) => super::Exception { name: class, reason: String::new() },
    }
}

//! Classes of a framework as the Objective-C runtime describes them, and their differences from the
//! bindings.
//!
//! A dump is data: it can be made on a Mac and compared with the bindings on any system. The
//! bindings are also data (`data/bound.txt`, compared with the code by a test), so the comparison
//! needs no runtime. [`to_json`] and [`from_json`] are the file between the two.

use ferrane_device::{Error, ErrorKind, Result};
use serde_json::{Value, json};

/// The word that the file of a dump begins with.
const FORMAT: &str = "ferrane-classes";
/// The version of the form of that file.
const VERSION: u64 = 1;
/// The framework of the engine.
const ENGINE: &str = "AppleNeuralEngine";

/// A class of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The name, as registered with the runtime.
    pub name: String,
    /// The name of the superclass, if it has one.
    pub superclass: Option<String>,
    /// The methods that the class itself defines: class methods first, each kind sorted by name.
    pub methods: Vec<Method>,
}

/// A method of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// The selector, preceded by `+` for a class method and `-` for an instance method.
    pub name: String,
    /// The type encoding as the runtime reports it.
    pub types: String,
}

/// A method that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundMethod {
    /// The name of the class.
    pub class: &'static str,
    /// The selector, preceded by `+` or `-`.
    pub name: &'static str,
    /// The documented encoding without offsets.
    pub types: &'static str,
}

impl BoundMethod {
    /// The name in Objective-C notation: `-[_ANEClient beginRealTimeTask]`.
    pub fn words(&self) -> String {
        let (sign, selector) = self.name.split_at(1);
        format!("{sign}[{} {selector}]", self.class)
    }
}

/// Every bound method, including Foundation's.
pub fn bound() -> Vec<BoundMethod> {
    let row = |line: &'static str| {
        let mut parts = line.split(' ');
        Some(BoundMethod { class: parts.next()?, name: parts.next()?, types: parts.next()? })
    };
    include_str!("../data/bound.txt").lines().filter_map(row).collect()
}

/// A difference between a dump and the bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The dump lacks a class.
    Class(&'static str),
    /// The dump has the class but lacks a method.
    Method(BoundMethod),
    /// A method has other types than those of the binding.
    Types(BoundMethod, String),
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Class(name) => write!(f, "no class {name}"),
            Difference::Method(bound) => write!(f, "no method {}", bound.words()),
            Difference::Types(bound, found) => {
                write!(f, "{} has the types {found}, but is called with {}", bound.words(), bound.types)
            }
        }
    }
}

impl Difference {
    /// The difference for a program: what is `missing`, or which method has `other` types, with
    /// those `found` and those `bound`.
    pub fn json(&self) -> Value {
        match self {
            Difference::Class(name) => json!({ "missing": name }),
            Difference::Method(bound) => json!({ "missing": bound.words() }),
            Difference::Types(bound, found) => json!({ "other": bound.words(), "found": found, "bound": bound.types }),
        }
    }
}

/// Why a file is not a dump.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// A file that is not JSON; the message says at which line and column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// JSON of another kind.
    #[error("it does not begin with \"format\": \"{FORMAT}\"")]
    Format,
    /// A dump that another Ferrane wrote.
    #[error("another version; this Ferrane reads version {VERSION}")]
    Version,
    /// A dump that lacks a part.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// The file of a [`dump`]: its classes, the framework that they are of, and the system of this
/// computer if it has an engine.
pub fn to_json(framework: Option<&str>, classes: &[Class]) -> Value {
    let method = |m: &Method| json!({ "name": m.name, "types": m.types });
    let class = |c: &Class| {
        let methods: Vec<Value> = c.methods.iter().map(method).collect();
        json!({ "name": c.name, "superclass": c.superclass, "methods": methods })
    };
    let facts = crate::facts().ok();
    json!({
        "format": FORMAT, "version": VERSION, "framework": framework.unwrap_or(ENGINE),
        "os": facts.as_ref().map(|f| f.os.clone()), "build": facts.as_ref().map(|f| f.build.clone()),
        "classes": classes.iter().map(class).collect::<Vec<_>>(),
    })
}

/// The classes in the text of a file that [`to_json`] made.
///
/// ```
/// use ferrane_ane::classes::{Class, from_json, to_json};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let classes = [Class { name: "_ANEClient".into(), superclass: None, methods: Vec::new() }];
/// let file = to_json(None, &classes).to_string();
/// assert_eq!(from_json(file.as_bytes())?, classes);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A [`DumpError`].
pub fn from_json(text: &[u8]) -> std::result::Result<Vec<Class>, DumpError> {
    let value: Value = serde_json::from_slice(text)?;
    if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(DumpError::Format);
    }
    if value.get("version").and_then(Value::as_u64) != Some(VERSION) {
        return Err(DumpError::Version);
    }
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
    let method = |value: &Value| Some(Method { name: text(value, "name")?, types: text(value, "types")? });
    let class = |value: &Value| {
        let methods = value.get("methods")?.as_array()?.iter().map(method).collect::<Option<Vec<_>>>()?;
        Some(Class { name: text(value, "name")?, superclass: text(value, "superclass"), methods })
    };
    let classes = value.get("classes").and_then(Value::as_array);
    let classes = classes.ok_or(DumpError::Incomplete("it has no classes"))?.iter();
    let unnamed = || DumpError::Incomplete("a class without a name or methods");
    classes.map(|c| class(c).ok_or_else(unnamed)).collect()
}

/// The prefixes of a framework's private classes: the engine's and Core ML's.
const FAMILIES: [&str; 2] = ["_ANE", "ML"];

/// Compares a dump with the bindings. A dump is of one framework, so only families with at least
/// one class in the dump are compared.
pub fn differences(dump: &[Class]) -> Vec<Difference> {
    let families: Vec<&str> =
        FAMILIES.into_iter().filter(|family| dump.iter().any(|c| c.name.starts_with(family))).collect();
    let judged = |b: &BoundMethod| families.iter().any(|family| b.class.starts_with(family));
    let mut found = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    for bound in bound().into_iter().filter(judged) {
        let Some(class) = dump.iter().find(|c| c.name == bound.class) else {
            if !missing.contains(&bound.class) {
                missing.push(bound.class);
                found.push(Difference::Class(bound.class));
            }
            continue;
        };
        match method(dump, class, bound.name) {
            None => found.push(Difference::Method(bound)),
            Some(method) if !same(bound.types, &method.types) => {
                found.push(Difference::Types(bound, method.types.clone()));
            }
            Some(_) => {}
        }
    }
    found
}

/// The method in a class or one of its superclasses in the dump.
fn method<'d>(dump: &'d [Class], class: &'d Class, name: &str) -> Option<&'d Method> {
    let mut next = Some(class);
    // Bounded by the length of the dump, in case a file has a cycle of superclasses.
    for _ in 0..=dump.len() {
        let class = next?;
        if let Some(found) = class.methods.iter().find(|m| m.name == name) {
            return Some(found);
        }
        next = class.superclass.as_ref().and_then(|above| dump.iter().find(|c| c.name == *above));
    }
    None
}

/// True if two encodings have the same types. BOOL is `B` on some systems, and a signed or unsigned
/// char on others.
fn same(bound: &str, found: &str) -> bool {
    let (bound, found) = (bare(bound), bare(found));
    let letter = |(b, f): (u8, u8)| b == f || b == b'B' && matches!(f, b'c' | b'C');
    bound.len() == found.len() && bound.bytes().zip(found.bytes()).all(letter)
}

/// The encoding without offsets, qualifiers, class names and contents of structs.
fn bare(encoding: &str) -> String {
    let (mut out, mut depth, mut inside, mut quoted) = (String::new(), 0usize, false, false);
    for c in encoding.chars() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '(' | '[' => {
                depth += 1;
                if depth == 1 {
                    inside = false;
                }
                if !inside {
                    out.push(c);
                }
            }
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    inside = false;
                }
                if !inside {
                    out.push(c);
                }
            }
            '=' if depth > 0 => inside = true,
            _ if depth > 0 => {
                if !inside {
                    out.push(c);
                }
            }
            '0'..='9' | '-' | 'r' | 'n' | 'N' | 'o' | 'O' | 'R' | 'V' | 'A' => {}
            c => out.push(c),
        }
    }
    out
}

/// The classes of a framework, given by name or path; by default those of the engine.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the framework does not exist here.
pub fn dump(framework: Option<&str>) -> Result<Vec<Class>> {
    #[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
    if let Some(classes) = runtime::dump(framework)? {
        return Ok(classes);
    }
    let name = framework.unwrap_or(ENGINE);
    let message =
        format!("there is no framework {name} here: frameworks are Apple's, and this is {}", std::env::consts::OS);
    Err(Error::new(ErrorKind::Unavailable, message))
}

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod runtime {
    use std::ffi::CStr;

    use ferrane_device::Result;
    use objc2::ffi;
    use objc2::runtime::{AnyClass, Method as RuntimeMethod};

    use super::{Class, Method};

    /// The items of a list that the runtime allocated; frees the list.
    ///
    /// # Safety
    /// `list` must be null or point to `count` pointers in memory that `free` releases, each null
    /// or valid forever.
    unsafe fn taken<T>(list: *mut *const T, count: u32) -> Vec<&'static T> {
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: `list` holds `count` pointers by this function's contract, is read before it is
        // freed, and freed once.
        unsafe {
            let items = std::slice::from_raw_parts(list, count as usize).iter().filter_map(|p| p.as_ref()).collect();
            ffi::free(list.cast());
            items
        }
    }

    fn all() -> Vec<&'static AnyClass> {
        let mut count = 0;
        // SAFETY: the runtime returns the list with its count, and classes live forever.
        unsafe {
            let list = ffi::objc_copyClassList(&mut count);
            taken(list, count)
        }
    }

    fn methods(class: &AnyClass, sign: char) -> Vec<Method> {
        let mut count = 0;
        // SAFETY: `class` is a class; its methods live as long as it does.
        let list: Vec<&RuntimeMethod> = unsafe {
            let list = ffi::class_copyMethodList(class, &mut count);
            taken(list.cast(), count)
        };
        let one = |method: &RuntimeMethod| {
            // SAFETY: a method of the runtime, whose encoding is a terminated text that lives as
            // long as the method.
            let types = unsafe {
                let types = ffi::method_getTypeEncoding(method);
                if types.is_null() { c"" } else { CStr::from_ptr(types) }
            };
            Method {
                name: format!("{sign}{}", method.name().name().to_string_lossy()),
                types: types.to_string_lossy().into_owned(),
            }
        };
        let mut methods: Vec<Method> = list.into_iter().map(one).collect();
        methods.sort_by(|a, b| a.name.cmp(&b.name));
        methods
    }

    fn read(class: &AnyClass) -> Class {
        let mut all = methods(class.metaclass(), '+');
        all.extend(methods(class, '-'));
        let name = |c: &AnyClass| c.name().to_string_lossy().into_owned();
        Class { name: name(class), superclass: class.superclass().map(name), methods: all }
    }

    fn sorted(classes: impl Iterator<Item = &'static AnyClass>) -> Vec<Class> {
        let mut classes: Vec<Class> = classes.map(read).collect();
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        classes
    }

    /// An injected framework has the private classes; images cannot distinguish them from others.
    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn dump(framework: Option<&str>) -> Result<Option<Vec<Class>>> {
        if crate::system::find().is_none() || framework.is_some() {
            return Ok(None);
        }
        Ok(Some(sorted(
            all()
                .into_iter()
                .filter(|c| super::FAMILIES.iter().any(|family| c.name().to_bytes().starts_with(family.as_bytes()))),
        )))
    }

    #[cfg(target_vendor = "apple")]
    pub(super) fn dump(framework: Option<&str>) -> Result<Option<Vec<Class>>> {
        let name = framework.unwrap_or(super::ENGINE);
        if !opened(name) {
            return Ok(None);
        }
        // A name or a path such as `…/AppleNeuralEngine.framework/Versions/A/AppleNeuralEngine`
        // gives the same last component.
        let name = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).trim_end_matches(".framework");
        let part = format!("/{name}.framework/");
        let of = |class: &&AnyClass| {
            // SAFETY: a class of the runtime; its image name is a terminated text or null.
            let image = unsafe {
                let image = ffi::class_getImageName(*class);
                if image.is_null() { c"" } else { CStr::from_ptr(image) }
            };
            image.to_string_lossy().contains(&part)
        };
        Ok(Some(sorted(all().into_iter().filter(of))))
    }

    /// Opens a framework by its name or path and keeps it open.
    #[cfg(target_vendor = "apple")]
    fn opened(name: &str) -> bool {
        let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).trim_end_matches(".framework");
        let inside = |folder: &str| format!("{folder}/{last}.framework/{last}");
        let paths = match name.contains('/') {
            true => vec![format!("{}/{last}", name.trim_end_matches('/')), name.to_string()],
            false => vec![inside("/System/Library/PrivateFrameworks"), inside("/System/Library/Frameworks")],
        };
        let open = |path: String| {
            let Ok(path) = std::ffi::CString::new(path) else { return false };
            // SAFETY: a terminated path; opening a framework only runs its initializers.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            !library.is_null()
        };
        paths.into_iter().any(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_compared_by_their_types() {
        for (bound, found) in [
            ("B@:I@^@", "B40@0:8I16@20^@28"),
            ("B@:", "c16@0:8"),
            ("@@:@", "@24@0:8@\"NSString\"16"),
            ("@@:^{__IOSurface=}", "@24@0:8^{__IOSurface=}16"),
            ("@@:^{__IOSurface=}", "@24@0:8^{__IOSurface}16"),
            ("v@:", "Vv16@0:8"),
        ] {
            assert!(same(bound, found), "{bound} {found}: {} {}", bare(bound), bare(found));
        }
        for (bound, found) in [("B@:I", "B24@0:8Q16"), ("@@:", "@16@0:8@24"), ("@@:^{A=}", "@@:^{B=}"), ("c@:", "B@:")]
        {
            assert!(!same(bound, found), "{bound} {found}");
        }
        // Arbitrary text must not panic.
        for odd in ["", "{{{", "}}}", "\"", "=", "[3{(", "é"] {
            let _ = same(odd, "@@:");
        }
    }

    fn complete() -> Vec<Class> {
        let mut dump: Vec<Class> = Vec::new();
        for bound in bound() {
            let method = Method { name: bound.name.into(), types: bound.types.into() };
            match dump.iter_mut().find(|c| c.name == bound.class) {
                Some(class) => class.methods.push(method),
                None => dump.push(Class { name: bound.class.into(), superclass: None, methods: vec![method] }),
            }
        }
        dump
    }

    #[test]
    fn what_is_missing_or_other_is_told() {
        assert!(bound().len() > 80);
        let mut dump = complete();
        assert_eq!(differences(&dump), []);
        let place = |dump: &[Class], name: &str| dump.iter().position(|c| c.name == name).unwrap();
        let client = place(&dump, "_ANEClient");
        dump.remove(client);
        let info = place(&dump, "_ANEDeviceInfo");
        dump[info].methods.clear();
        let request = place(&dump, "_ANERequest");
        dump[request].methods[0].types = "v16@0:8".into();
        let told: Vec<String> = differences(&dump).iter().map(ToString::to_string).collect();
        assert!(told.contains(&"no class _ANEClient".to_string()), "{told:?}");
        assert!(told.contains(&"no method +[_ANEDeviceInfo aneSubType]".to_string()), "{told:?}");
        assert!(told.iter().any(|t| t.contains("_ANERequest") && t.contains("v16@0:8")), "{told:?}");
        // A method may be a superclass's, and superclasses in a file may form a cycle.
        let above = Class { name: "Above".into(), superclass: Some("_ANEDeviceInfo".into()), methods: Vec::new() };
        dump[info].superclass = Some("Above".into());
        dump.push(above);
        assert_eq!(differences(&dump).len(), told.len());
    }

    #[test]
    fn a_file_has_what_the_dump_had() {
        let mut dump = complete();
        dump[0].superclass = Some("NSObject".into());
        let file = to_json(Some("Other"), &dump);
        assert_eq!(file["framework"], "Other");
        assert_eq!(from_json(file.to_string().as_bytes()).unwrap(), dump);
        let with = |key: &str, value: Value| {
            let mut file = file.clone();
            file[key] = value;
            from_json(file.to_string().as_bytes()).unwrap_err()
        };
        assert!(matches!(from_json(b""), Err(DumpError::Json(_))));
        assert!(matches!(with("format", "other".into()), DumpError::Format));
        assert!(matches!(with("version", 2.into()), DumpError::Version));
        assert!(matches!(with("classes", 1.into()), DumpError::Incomplete(_)));
        assert!(matches!(with("classes", json!([{ "name": "NSObject" }])), DumpError::Incomplete(_)));
    }
}

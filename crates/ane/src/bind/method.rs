//! A bound method: looked up by name when it is first sent, checked against the runtime's type
//! encoding, and only then called.

use std::ffi::CStr;
use std::sync::OnceLock;

use ferrane_device::{Error, ErrorKind, Result};
use objc2::encode::{EncodeArguments, Encoding};
use objc2::ffi;
use objc2::rc::autoreleasepool;
use objc2::runtime::{AnyClass, AnyObject, Bool, MessageReceiver, Sel};
use objc2::sel;

use super::encoding::agrees;
use super::exception;
use super::object::{Object, Ret, raised, retained};
use crate::system;

/// The receiver of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The class: a class method.
    Class,
    /// An object of the class: an instance method.
    Instance,
}

/// A bound method: a row of [`super::table`].
pub struct Method {
    /// The name of the class that declares it.
    pub class: &'static CStr,
    /// Class method or instance method.
    pub receiver: Receiver,
    /// The name of the selector.
    pub selector: &'static CStr,
    /// The documented type encoding without offsets: result, receiver, selector, arguments.
    pub encoding: &'static str,
    /// The encodings of the Rust types of the call.
    pub(crate) types: fn() -> Vec<Encoding>,
    pub(crate) found: OnceLock<std::result::Result<Found, String>>,
}

/// A method that was found on this system.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    class: &'static AnyClass,
    selector: Sel,
}

/// The class with this name.
fn look_up(name: &CStr) -> std::result::Result<&'static AnyClass, String> {
    let found = AnyClass::get(name).or_else(|| {
        // Core ML's classes come with Core ML, which only the E5 path opens.
        if name.to_bytes().starts_with(b"ML") {
            system::open_core_ml();
        }
        AnyClass::get(name)
    });
    found.ok_or_else(|| format!("{} has no class {}", system::words(), name.to_string_lossy()))
}

impl Method {
    /// The name in Objective-C notation: `-[_ANEClient beginRealTimeTask]`.
    pub fn name(&self) -> String {
        let sign = if self.receiver == Receiver::Class { '+' } else { '-' };
        format!("{sign}[{} {}]", self.class.to_string_lossy(), self.selector.to_string_lossy())
    }

    /// True if the Rust types of the call match the documented encoding.
    pub fn is_consistent(&self) -> bool {
        agrees(self.encoding, &(self.types)())
    }

    /// Checks that this system has the method with this encoding. The result is cached.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the class or the method is missing or has other types; the
    /// message names it and the system.
    pub fn check(&self) -> Result<()> {
        self.find().map(drop)
    }

    fn find(&self) -> Result<Found> {
        match self.found.get_or_init(|| self.search()) {
            Ok(found) => Ok(*found),
            Err(message) => Err(Error::new(ErrorKind::Unavailable, message.clone())),
        }
    }

    fn search(&self) -> std::result::Result<Found, String> {
        let class = look_up(self.class)?;
        let selector = Sel::register(self.selector);
        let method = match self.receiver {
            Receiver::Class => class.class_method(selector),
            Receiver::Instance => class.instance_method(selector),
        };
        let method = method.ok_or_else(|| format!("{} has no method {}", system::words(), self.name()))?;
        // SAFETY: a method of the runtime, whose encoding is a terminated text that lives as long
        // as the method.
        let text = unsafe {
            let text = ffi::method_getTypeEncoding(method);
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        let text = text.to_string_lossy();
        if agrees(&text, &(self.types)()) {
            return Ok(Found { class, selector });
        }
        let words = system::words();
        Err(format!("{words}: {} has the types {text}, but is called with {}", self.name(), self.encoding))
    }

    /// Sends it to the class.
    ///
    /// # Safety
    /// Objects among the arguments must be of the classes that the selector expects, and pointers
    /// must be valid for the method's use of them.
    pub(crate) unsafe fn send_class<A: EncodeArguments, R: Ret>(&self, arguments: A) -> Result<R> {
        let found = self.find()?;
        let receiver: *const AnyObject = std::ptr::from_ref(found.class).cast();
        // SAFETY: `receiver` is a class, which is an object; the arguments meet this function's
        // contract.
        unsafe { self.send_raw(receiver, found.selector, arguments, false) }
    }

    /// Sends it to an object.
    ///
    /// # Safety
    /// As [`Method::send_class`]; the object must be of the method's class.
    pub(crate) unsafe fn send<A: EncodeArguments, R: Ret>(&self, receiver: &Object, arguments: A) -> Result<R> {
        let found = self.find()?;
        // SAFETY: the receiver is an object of the method's class, and the arguments meet this
        // function's contract.
        unsafe { self.send_raw(receiver.as_ptr(), found.selector, arguments, false) }
    }

    /// Sends it, an initializer, to a new object of the class.
    ///
    /// # Safety
    /// As [`Method::send_class`].
    pub(crate) unsafe fn send_new<A: EncodeArguments, R: Ret>(&self, arguments: A) -> Result<R> {
        let found = self.find()?;
        // SAFETY: every class responds to `alloc`. Its result goes to the initializer, which
        // consumes that reference and returns one.
        unsafe {
            let new: *mut AnyObject = found.class.send_message(sel!(alloc), ());
            self.send_raw(new, found.selector, arguments, true)
        }
    }

    unsafe fn send_raw<A: EncodeArguments, R: Ret>(
        &self,
        receiver: *const AnyObject,
        selector: Sel,
        arguments: A,
        owned: bool,
    ) -> Result<R> {
        autoreleasepool(|_| {
            // SAFETY: `search` compared the method's encoding with these types; receiver, objects
            // and pointers meet this function's contract.
            let raw = exception::catch(|| unsafe { receiver.send_message::<A, R::Raw>(selector, arguments) });
            let raw = raw.map_err(|e| raised(self, e))?;
            // SAFETY: `raw` is the result of this message: an object that lives as long as the
            // autorelease pool, or one with a reference for us if `owned`.
            unsafe { R::from_raw(self, raw, owned) }
        })
    }

    /// Sends a method that returns BOOL and has an `NSError **`. NO without an error object is an
    /// error as well.
    ///
    /// # Safety
    /// As [`Method::send`]; `arguments` must pass the error pointer where the selector expects it.
    pub(crate) unsafe fn attempt<A: EncodeArguments>(
        &self,
        receiver: &Object,
        arguments: impl FnOnce(*mut *mut AnyObject) -> A,
    ) -> Result<()> {
        let found = self.find()?;
        autoreleasepool(|_| {
            let mut error: *mut AnyObject = std::ptr::null_mut();
            let arguments = arguments(&mut error);
            let receiver = receiver.as_ptr();
            // SAFETY: as in `send_raw`: encoding and arguments match.
            let answer = exception::catch(|| unsafe { receiver.send_message::<A, Bool>(found.selector, arguments) });
            if answer.map_err(|e| raised(self, e))?.as_bool() {
                return Ok(());
            }
            // SAFETY: `error` is nil or an object that the callee made, which lives as long as the
            // autorelease pool.
            Err(unsafe { self.refusal(error) })
        })
    }

    /// Sends a method that returns an object, or nil and an `NSError **`.
    ///
    /// # Safety
    /// As [`Method::attempt`].
    pub(crate) unsafe fn fetch<A: EncodeArguments, T>(
        &self,
        receiver: &Object,
        arguments: impl FnOnce(*mut *mut AnyObject) -> A,
    ) -> Result<T>
    where
        Option<T>: Ret,
    {
        let found = self.find()?;
        // SAFETY: the receiver is an object of the method's class; the arguments meet this
        // function's contract.
        unsafe { self.fetch_raw(receiver.as_ptr(), found.selector, arguments, false) }
    }

    /// Sends such a method to the class.
    ///
    /// # Safety
    /// As [`Method::attempt`].
    pub(crate) unsafe fn fetch_class<A: EncodeArguments, T>(
        &self,
        arguments: impl FnOnce(*mut *mut AnyObject) -> A,
    ) -> Result<T>
    where
        Option<T>: Ret,
    {
        let found = self.find()?;
        let receiver: *const AnyObject = std::ptr::from_ref(found.class).cast();
        // SAFETY: `receiver` is a class, which is an object; the arguments meet this function's
        // contract.
        unsafe { self.fetch_raw(receiver, found.selector, arguments, false) }
    }

    /// Sends such a method, an initializer, to a new object of the class.
    ///
    /// # Safety
    /// As [`Method::attempt`].
    pub(crate) unsafe fn fetch_new<A: EncodeArguments, T>(
        &self,
        arguments: impl FnOnce(*mut *mut AnyObject) -> A,
    ) -> Result<T>
    where
        Option<T>: Ret,
    {
        let found = self.find()?;
        // SAFETY: as in `send_new`: `alloc` gives the object that the initializer consumes.
        unsafe {
            let new: *mut AnyObject = found.class.send_message(sel!(alloc), ());
            self.fetch_raw(new, found.selector, arguments, true)
        }
    }

    unsafe fn fetch_raw<A: EncodeArguments, T>(
        &self,
        receiver: *const AnyObject,
        selector: Sel,
        arguments: impl FnOnce(*mut *mut AnyObject) -> A,
        owned: bool,
    ) -> Result<T>
    where
        Option<T>: Ret,
    {
        autoreleasepool(|_| {
            let mut error: *mut AnyObject = std::ptr::null_mut();
            let arguments = arguments(&mut error);
            // SAFETY: as in `send_raw`: encoding and arguments match.
            let raw = exception::catch(|| unsafe {
                receiver.send_message::<A, <Option<T> as Ret>::Raw>(selector, arguments)
            });
            let raw = raw.map_err(|e| raised(self, e))?;
            // SAFETY: `raw` is the result of this message, as in `send_raw`; `error` is as in
            // `attempt`.
            unsafe {
                let found: Option<T> = Ret::from_raw(self, raw, owned)?;
                found.ok_or_else(|| self.refusal(error))
            }
        })
    }

    /// The error of a method that refused.
    ///
    /// # Safety
    /// `error` must be nil or an object.
    unsafe fn refusal(&self, error: *mut AnyObject) -> Error {
        // SAFETY: `error` is nil or an object by this function's contract.
        match unsafe { retained(error) } {
            Some(error) => super::foundation::error(error),
            None => Error::new(ErrorKind::System, format!("{} failed without a reason", self.name())),
        }
    }
}

#[cfg(all(test, not(target_vendor = "apple")))]
mod tests {
    use objc2::rc::Retained;
    use objc2::runtime::NSObject;
    use objc2::{AllocAnyThread as _, ClassType as _, define_class, msg_send};

    use super::*;
    use crate::bind::object::retained;
    use crate::bind::table;
    use crate::runtime;

    define_class!(
        #[unsafe(super(NSObject))]
        #[name = "FerraneProbe"]
        struct Probe;

        impl Probe {
            #[unsafe(method(twice:))]
            fn twice(&self, value: u32) -> u32 {
                if value > 1 << 30 {
                    runtime::throw("NSRangeException", "too large");
                }
                2 * value
            }
        }
    );

    fn method<A: EncodeArguments, R: objc2::encode::EncodeReturn>(
        class: &'static CStr,
        selector: &'static CStr,
    ) -> Method {
        let types = crate::bind::encoding::sent::<A, R>;
        Method { class, receiver: Receiver::Instance, selector, encoding: "I@:I", types, found: OnceLock::new() }
    }

    #[test]
    fn what_is_not_there_or_has_other_types_is_an_error_and_never_a_call() {
        let _ = Probe::class();
        // SAFETY: `init` of NSObject returns the object that `alloc` made.
        let probe: Retained<Probe> = unsafe { msg_send![Probe::alloc(), init] };
        // SAFETY: the pointer is a live object.
        let probe = unsafe { retained(Retained::as_ptr(&probe).cast_mut().cast()) }.unwrap();
        let twice = method::<(u32,), u32>(c"FerraneProbe", c"twice:");
        // SAFETY: the only argument is an integer.
        let send = |m: &Method, value: u32| unsafe { m.send::<_, u32>(&probe, (value,)) };
        assert_eq!(send(&twice, 21).unwrap(), 42);
        let message = send(&twice, u32::MAX).unwrap_err().to_string();
        assert!(message.contains("-[FerraneProbe twice:] raised NSRangeException: too large"), "{message}");

        let told = |m: Method, parts: &[&str]| {
            let error = m.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            parts.iter().for_each(|part| assert!(error.message().contains(part), "{error}: {part}"));
        };
        told(method::<(u32,), u32>(c"FerraneNobody", c"twice:"), &["this system", "no class FerraneNobody"]);
        told(method::<(u32,), u32>(c"FerraneProbe", c"thrice:"), &["no method -[FerraneProbe thrice:]"]);
        told(method::<(u64,), u32>(c"FerraneProbe", c"twice:"), &["-[FerraneProbe twice:] has the types I@:I"]);
        told(method::<(u32,), u64>(c"FerraneProbe", c"twice:"), &["has the types"]);
        told(method::<(), u32>(c"FerraneProbe", c"twice:"), &["has the types"]);
    }

    #[test]
    fn every_documented_encoding_is_what_is_sent_and_no_mutant_of_it_is() {
        const LETTERS: [&str; 10] = ["@", "B", "I", "Q", "q", "v", "^@", ":", "*", "@?"];
        let mut mutants = 0;
        for method in table() {
            assert!(method.is_consistent(), "{}: {}", method.name(), method.encoding);
            // One argument for each colon of the selector.
            let colons = method.selector.to_bytes().iter().filter(|b| **b == b':').count();
            let types = crate::bind::encoding::split(method.encoding).unwrap();
            assert_eq!(types.len(), 3 + colons, "{}", method.name());
            for at in (0..types.len()).filter(|at| *at != 1) {
                for letter in LETTERS.iter().filter(|l| **l != types[at]) {
                    let mut mutant = types.clone();
                    mutant[at] = letter;
                    assert!(!agrees(&mutant.concat(), &(method.types)()), "{}: {}", method.name(), mutant.concat());
                    mutants += 1;
                }
            }
        }
        assert!(mutants > 1000, "{mutants}");
    }
}

//! One method: looked up by name when it is first sent, compared with its own type encoding, and
//! only then called.

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

/// Whom a method is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The class.
    Class,
    /// An instance.
    Instance,
}

/// A method that is bound: a row of [`super::table`].
pub struct Method {
    /// The class that declares it.
    pub class: &'static CStr,
    /// Whom it is sent to.
    pub receiver: Receiver,
    /// Its selector.
    pub selector: &'static CStr,
    /// Its documented type encoding, without offsets: result, receiver, selector, arguments.
    pub encoding: &'static str,
    /// The encodings of the Rust types that it is sent with.
    pub(crate) types: fn() -> Vec<Encoding>,
    pub(crate) found: OnceLock<std::result::Result<Found, String>>,
}

/// A method of this system.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    class: &'static AnyClass,
    selector: Sel,
}

/// A class by name.
fn look_up(name: &CStr) -> std::result::Result<&'static AnyClass, String> {
    let found = AnyClass::get(name).or_else(|| {
        // What is Core ML's comes with Core ML, which only the E5 path needs.
        if name.to_bytes().starts_with(b"ML") {
            system::open_core_ml();
        }
        AnyClass::get(name)
    });
    found.ok_or_else(|| format!("{} has no class {}", system::words(), name.to_string_lossy()))
}

impl Method {
    /// Its name as Objective-C writes it: `-[_ANEClient beginRealTimeTask]`.
    pub fn name(&self) -> String {
        let sign = if self.receiver == Receiver::Class { '+' } else { '-' };
        format!("{sign}[{} {}]", self.class.to_string_lossy(), self.selector.to_string_lossy())
    }

    /// True if the Rust types that it is sent with are those of its documented encoding.
    pub fn is_consistent(&self) -> bool {
        agrees(self.encoding, &(self.types)())
    }

    /// Whether this system has it, with the encoding that it is called by. The answer is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: the class, the method or its types are not there; the message names it and the system.
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
        // SAFETY: a method of the runtime; its encoding is a terminated text that lives as long as
        // the method.
        let text = unsafe {
            let text = ffi::method_getTypeEncoding(method);
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        let text = text.to_string_lossy();
        if agrees(&text, &(self.types)()) {
            return Ok(Found { class, selector });
        }
        let words = system::words();
        Err(format!("{words}: {} has the types {text}, and is called by {}", self.name(), self.encoding))
    }

    /// Sends it to the class.
    ///
    /// # Safety
    /// Objects among the arguments are of the classes that the selector wants, pointers are valid
    /// for what it does with them.
    pub(crate) unsafe fn send_class<A: EncodeArguments, R: Ret>(&self, arguments: A) -> Result<R> {
        let found = self.find()?;
        let receiver: *const AnyObject = std::ptr::from_ref(found.class).cast();
        // SAFETY: a class is an object; the rest is the caller's promise.
        unsafe { self.send_raw(receiver, found.selector, arguments, false) }
    }

    /// Sends it to an object.
    ///
    /// # Safety
    /// As [`Method::send_class`]; the object is of the method's class.
    pub(crate) unsafe fn send<A: EncodeArguments, R: Ret>(&self, receiver: &Object, arguments: A) -> Result<R> {
        let found = self.find()?;
        // SAFETY: the caller's promise.
        unsafe { self.send_raw(receiver.as_ptr(), found.selector, arguments, false) }
    }

    /// Sends it, an initializer, to a new object of the class.
    ///
    /// # Safety
    /// As [`Method::send_class`].
    pub(crate) unsafe fn send_new<A: EncodeArguments, R: Ret>(&self, arguments: A) -> Result<R> {
        let found = self.find()?;
        // SAFETY: every class answers to `alloc`; its result is given to the initializer, which
        // takes its count and gives one.
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
            // SAFETY: the method has the encoding of these types (`search`); objects and pointers
            // are the caller's promise.
            let raw = exception::catch(|| unsafe { receiver.send_message::<A, R::Raw>(selector, arguments) });
            let raw = raw.map_err(|e| raised(self, e))?;
            // SAFETY: the result of this message; an object lives as long as the pool, or is ours.
            unsafe { R::from_raw(self, raw, owned) }
        })
    }

    /// Sends a method that answers with BOOL and an `NSError **`. A NO without an error is an error
    /// too.
    ///
    /// # Safety
    /// As [`Method::send`]; `arguments` puts the place of the error where the selector wants it.
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
            // SAFETY: as in `send_raw`.
            let answer = exception::catch(|| unsafe { receiver.send_message::<A, Bool>(found.selector, arguments) });
            if answer.map_err(|e| raised(self, e))?.as_bool() {
                return Ok(());
            }
            // SAFETY: an error that the callee made lives as long as the pool.
            Err(unsafe { self.refusal(error) })
        })
    }

    /// Sends a method that gives something, or nil and an `NSError **`.
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
        // SAFETY: the caller's promise.
        unsafe { self.fetch_raw(receiver.as_ptr(), found.selector, arguments, false) }
    }

    /// The same to the class.
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
        // SAFETY: a class is an object; the rest is the caller's promise.
        unsafe { self.fetch_raw(receiver, found.selector, arguments, false) }
    }

    /// The same, an initializer, to a new object of the class.
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
        // SAFETY: as in `send_new`.
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
            // SAFETY: as in `send_raw`.
            let raw = exception::catch(|| unsafe {
                receiver.send_message::<A, <Option<T> as Ret>::Raw>(selector, arguments)
            });
            let raw = raw.map_err(|e| raised(self, e))?;
            // SAFETY: as in `send_raw` and `attempt`.
            unsafe {
                let found: Option<T> = Ret::from_raw(self, raw, owned)?;
                found.ok_or_else(|| self.refusal(error))
            }
        })
    }

    /// Why a method refused.
    ///
    /// # Safety
    /// `error` is nil or an object.
    unsafe fn refusal(&self, error: *mut AnyObject) -> Error {
        // SAFETY: the caller's promise.
        match unsafe { retained(error) } {
            Some(error) => super::foundation::error(error),
            None => Error::new(ErrorKind::System, format!("{} refused and gave no reason", self.name())),
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
        // SAFETY: `init` of NSObject gives the object that was allocated.
        let probe: Retained<Probe> = unsafe { msg_send![Probe::alloc(), init] };
        // SAFETY: an object.
        let probe = unsafe { retained(Retained::as_ptr(&probe).cast_mut().cast()) }.unwrap();
        let twice = method::<(u32,), u32>(c"FerraneProbe", c"twice:");
        // SAFETY: a plain number.
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

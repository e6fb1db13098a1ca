//! Objects, and conversions of message arguments and results.

use std::ffi::{CStr, c_char, c_void};

use ferrane_device::{Error, ErrorKind, Result};
use objc2::encode::{EncodeArgument, EncodeReturn, Encoding, RefEncode};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool};

use super::block::HandlerBlock;
use super::exception::Exception;
use super::method::Method;

/// A reference-counted object that may move between threads.
#[derive(Clone)]
pub struct Object(Retained<AnyObject>);

// SAFETY: wrapped objects are Foundation values, which never change after construction, and the
// engine's clients, models, requests and surface objects, which published programs compile and
// evaluate from several threads at once (apple-runtime §2). Of Core ML they are engines, which
// accept predictions from several threads, and values, plans, options and configurations, which
// this crate does not modify once they are in use. Of IOReport and IOHID they are what one sensor
// owns and calls only through `&mut self`, so from one thread at a time, and no function of theirs
// is bound to a thread. Reference counts are atomic.
unsafe impl Send for Object {}
// SAFETY: as for `Send`: the objects are immutable or documented for concurrent use.
unsafe impl Sync for Object {}

impl Object {
    /// The address, valid while a reference is held.
    pub fn as_ptr(&self) -> *const AnyObject {
        Retained::as_ptr(&self.0)
    }

    /// The name of the object's class.
    pub fn class_name(&self) -> String {
        self.0.class().name().to_string_lossy().into_owned()
    }

    /// True if it is an instance of this class or of a subclass.
    pub fn is(&self, class: &CStr) -> bool {
        let mut at = Some(self.0.class());
        while let Some(found) = at {
            if found.name() == class {
                return true;
            }
            at = found.superclass();
        }
        false
    }

    /// Converts the object to the wrapper of its class.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if it is of another class.
    pub fn cast<T: Wrap>(self) -> Result<T> {
        match T::CLASS {
            Some(class) if !self.is(class) => {
                let (found, wanted) = (self.class_name(), class.to_string_lossy());
                Err(Error::new(ErrorKind::System, format!("the framework answered with {found}, not with {wanted}")))
            }
            _ => Ok(T::wrap(self)),
        }
    }
}

/// Retains the object at a pointer; `None` for nil.
///
/// # Safety
/// The pointer must be nil or a live object.
pub(crate) unsafe fn retained(pointer: *mut AnyObject) -> Option<Object> {
    // SAFETY: `pointer` is nil or a live object by this function's contract.
    unsafe { Retained::retain(pointer) }.map(Object)
}

/// Takes over the reference of the object at a pointer; `None` for nil.
///
/// # Safety
/// The pointer must be nil or an object with a reference that the caller owns.
pub(crate) unsafe fn owned(pointer: *mut AnyObject) -> Option<Object> {
    // SAFETY: `pointer` is nil or carries an owned reference by this function's contract.
    unsafe { Retained::from_raw(pointer) }.map(Object)
}

/// A wrapper type for the objects of one class, or of any class.
pub trait Wrap: Sized {
    /// The class that is wrapped; `None` for any class.
    const CLASS: Option<&'static CStr>;
    /// Wraps an object of the class.
    fn wrap(object: Object) -> Self;
    /// The wrapped object, still owned by the wrapper.
    fn object(&self) -> &Object;
}

impl Wrap for Object {
    const CLASS: Option<&'static CStr> = None;

    fn wrap(object: Object) -> Object {
        object
    }

    fn object(&self) -> &Object {
        self
    }
}

/// `struct __IOSurface`, known by address only.
#[repr(C)]
pub struct IoSurface {
    _opaque: [u8; 0],
}

// SAFETY: Apple's headers declare a pointer to an opaque struct, which is what the encoding says.
unsafe impl RefEncode for IoSurface {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("__IOSurface", &[]));
}

/// A type that can be an argument of a message.
pub(crate) trait Arg {
    type Raw: EncodeArgument;
    fn raw(&self) -> Self::Raw;
}

/// A type that can be the result of a message.
pub(crate) trait Ret: Sized {
    type Raw: EncodeReturn;
    /// # Safety
    /// `raw` must be the method's result. If it is an object, it must have a reference for us
    /// (`owned`) or be alive.
    unsafe fn from_raw(method: &Method, raw: Self::Raw, owned: bool) -> Result<Self>;
}

macro_rules! plain {
    ($($ty:ty),*) => {
        $(
            impl Arg for $ty {
                type Raw = $ty;

                fn raw(&self) -> $ty {
                    *self
                }
            }

            impl Ret for $ty {
                type Raw = $ty;

                unsafe fn from_raw(_: &Method, raw: $ty, _: bool) -> Result<$ty> {
                    Ok(raw)
                }
            }
        )*
    };
}

plain!(i8, i32, u32, i64, u64, isize, usize, f64);
plain!(*const c_char, *const c_void, *mut c_void, *const *const AnyObject, *mut u32);

impl Arg for &IoSurface {
    type Raw = *const IoSurface;

    fn raw(&self) -> *const IoSurface {
        std::ptr::from_ref(*self)
    }
}

impl<'a> Arg for &HandlerBlock<'a> {
    type Raw = *const HandlerBlock<'a>;

    fn raw(&self) -> *const HandlerBlock<'a> {
        std::ptr::from_ref(*self)
    }
}

impl Arg for bool {
    type Raw = Bool;

    fn raw(&self) -> Bool {
        Bool::new(*self)
    }
}

impl Ret for bool {
    type Raw = Bool;

    unsafe fn from_raw(_: &Method, raw: Bool, _: bool) -> Result<bool> {
        Ok(raw.as_bool())
    }
}

impl Ret for () {
    type Raw = ();

    unsafe fn from_raw(_: &Method, (): (), _: bool) -> Result<()> {
        Ok(())
    }
}

impl<T: Wrap> Arg for &T {
    type Raw = *const AnyObject;

    fn raw(&self) -> *const AnyObject {
        self.object().as_ptr()
    }
}

impl<T: Wrap> Arg for Option<&T> {
    type Raw = *const AnyObject;

    fn raw(&self) -> *const AnyObject {
        self.map_or(std::ptr::null(), |o| o.object().as_ptr())
    }
}

impl<T: Wrap> Ret for Option<T> {
    type Raw = *mut AnyObject;

    unsafe fn from_raw(_: &Method, raw: *mut AnyObject, is_owned: bool) -> Result<Option<T>> {
        // SAFETY: `raw` is nil, or an object with a reference for us if `is_owned`, or a live
        // object otherwise.
        let object = unsafe { if is_owned { owned(raw) } else { retained(raw) } };
        object.map(Object::cast).transpose()
    }
}

impl<T: Wrap> Ret for Result<T> {
    type Raw = *mut AnyObject;

    unsafe fn from_raw(method: &Method, raw: *mut AnyObject, owned: bool) -> Result<Result<T>> {
        // SAFETY: passes on the contract of `from_raw` unchanged.
        let object: Option<T> = unsafe { Ret::from_raw(method, raw, owned) }?;
        Ok(object.ok_or_else(|| Error::new(ErrorKind::System, format!("{} gave nil", method.name()))))
    }
}

/// The error for a call that raised an exception.
pub(crate) fn raised(method: &Method, exception: Exception) -> Error {
    let Exception { name, reason } = exception;
    Error::new(ErrorKind::System, format!("{} raised {name}: {reason}", method.name()))
}

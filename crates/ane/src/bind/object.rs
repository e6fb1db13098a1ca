//! Objects, and what goes into messages and comes out of them.

use std::ffi::{CStr, c_char, c_void};

use ferrane_device::{Error, ErrorKind, Result};
use objc2::encode::{EncodeArgument, EncodeReturn, Encoding, RefEncode};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool};

use super::block::HandlerBlock;
use super::exception::Exception;
use super::method::Method;

/// An object that may go to other threads, counted.
#[derive(Clone)]
pub struct Object(Retained<AnyObject>);

// SAFETY: what is kept are values of Foundation, which never change once made, and the engine's
// clients, models, requests and surface objects, which published programs compile and evaluate from
// several threads at once (apple-runtime §2). Of Core ML it is engines, which take predictions from
// several threads, and values, options and configurations, which nobody changes once they are in
// use. Reference counts are atomic.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Its address, good while this or another count of it is held.
    pub fn as_ptr(&self) -> *const AnyObject {
        Retained::as_ptr(&self.0)
    }

    /// The name of its class.
    pub fn class_name(&self) -> String {
        self.0.class().name().to_string_lossy().into_owned()
    }

    /// True if it is of that class or of one below it.
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

    /// The object as one of a class.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if it is none.
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

/// The object behind a pointer, counted; `None` for nil.
///
/// # Safety
/// The pointer is nil or an object.
pub(crate) unsafe fn retained(pointer: *mut AnyObject) -> Option<Object> {
    // SAFETY: the caller's promise.
    unsafe { Retained::retain(pointer) }.map(Object)
}

/// The object behind a pointer whose count is ours.
///
/// # Safety
/// The pointer is nil or an object with a count for us.
pub(crate) unsafe fn owned(pointer: *mut AnyObject) -> Option<Object> {
    // SAFETY: the caller's promise.
    unsafe { Retained::from_raw(pointer) }.map(Object)
}

/// A type for the objects of one class, or of any.
pub trait Wrap: Sized {
    /// The class, if it is one.
    const CLASS: Option<&'static CStr>;
    /// Takes an object of the class.
    fn wrap(object: Object) -> Self;
    /// The object.
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

// SAFETY: the encoding that Apple's headers give a pointer to the opaque struct.
unsafe impl RefEncode for IoSurface {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("__IOSurface", &[]));
}

/// What can be an argument of a message.
pub(crate) trait Arg {
    type Raw: EncodeArgument;
    fn raw(&self) -> Self::Raw;
}

/// What a message can give.
pub(crate) trait Ret: Sized {
    type Raw: EncodeReturn;
    /// # Safety
    /// `raw` is the method's result; if it is an object, then one with a count for us (`owned`) or
    /// one that lives now.
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

plain!(i8, i32, u32, i64, u64, isize, usize);
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
        // SAFETY: the caller's promise.
        let object = unsafe { if is_owned { owned(raw) } else { retained(raw) } };
        object.map(Object::cast).transpose()
    }
}

impl<T: Wrap> Ret for Result<T> {
    type Raw = *mut AnyObject;

    unsafe fn from_raw(method: &Method, raw: *mut AnyObject, owned: bool) -> Result<Result<T>> {
        // SAFETY: the caller's promise.
        let object: Option<T> = unsafe { Ret::from_raw(method, raw, owned) }?;
        Ok(object.ok_or_else(|| Error::new(ErrorKind::System, format!("{} gave nil", method.name()))))
    }
}

/// The error of a call that raised.
pub(crate) fn raised(method: &Method, exception: Exception) -> Error {
    let Exception { name, reason } = exception;
    Error::new(ErrorKind::System, format!("{} raised {name}: {reason}", method.name()))
}

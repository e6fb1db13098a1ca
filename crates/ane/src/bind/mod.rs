//! Bindings of the private classes: a small type for each class, a function for each method with
//! its documented types.
//!
//! Nothing is linked. A class is looked up when one of its methods is first sent; so is the method,
//! and the runtime's type encoding is compared with the types of our call. A missing class, method
//! or type is an error that names it and the system; so is an exception. So a wrong guess about a
//! private signature is an error message, never a crash.
//!
//! Selectors and types are those of apple-runtime.md. If that page has a call without types, or
//! contradicts itself, the function's documentation gives the source. [`table`] has all bindings as
//! data; docs/ane-bindings.md lists them, and what is not bound and why.

mod block;
mod chaining;
mod client;
pub mod coreml;
pub mod e5;
pub mod encoding;
mod events;
mod exception;
pub mod foundation;
mod instance;
mod machine;
mod method;
mod model;
mod object;
pub mod plan;
mod request;

pub use block::{Ended, Handler, HandlerBlock, Held};
pub use chaining::{Buffer, ChainingRequest, InputBuffersReady, OutputSetEnqueue, OutputSets};
pub use client::{Client, VirtualClient};
pub use events::{SharedEvent, SharedEvents, SignalEvent, WaitEvent};
pub use exception::Exception;
pub(crate) use exception::catch;
pub use instance::{InstanceParameters, ProcedureData, Weight};
pub use machine::{DeviceController, DeviceInfo, QosMapper, SurfacesMapper};
pub use method::{Method, Receiver};
pub use model::{Descriptor, InMemoryModel, Model, Program};
pub use object::{IoSurface, Object, Wrap};
pub(crate) use object::{owned, retained};
pub use request::{PerformanceStats, Request, StatsSurface, SurfaceObject};

/// A class that is bound.
pub(crate) trait BoundClass {
    fn methods() -> Vec<&'static Method>;
}

/// Every bound method, by class.
pub fn table() -> Vec<&'static Method> {
    let lists = [
        Descriptor::methods(),
        InMemoryModel::methods(),
        Model::methods(),
        Program::methods(),
        Request::methods(),
        SurfaceObject::methods(),
        PerformanceStats::methods(),
        StatsSurface::methods(),
        Client::methods(),
        VirtualClient::methods(),
        DeviceInfo::methods(),
        QosMapper::methods(),
        DeviceController::methods(),
        SurfacesMapper::methods(),
        Weight::methods(),
        ProcedureData::methods(),
        InstanceParameters::methods(),
        Buffer::methods(),
        OutputSets::methods(),
        ChainingRequest::methods(),
        InputBuffersReady::methods(),
        OutputSetEnqueue::methods(),
        SharedEvent::methods(),
        SignalEvent::methods(),
        WaitEvent::methods(),
        SharedEvents::methods(),
        coreml::methods(),
        e5::methods(),
        plan::methods(),
        foundation::methods(),
    ];
    lists.into_iter().flatten().collect()
}

/// Defines a class with its methods. Each line is a row of the table and a function: receiver
/// (`class`, `method`; `make` for an initializer), name, arguments, result, selector, encoding. A
/// method with an `NSError **` at its end is an `attempt` if it returns BOOL, and a `fetch`
/// (`fetch_class`, `fetch_new`) if it returns an object or nil.
macro_rules! class {
    (
        $(#[$doc:meta])*
        $name:ident = $class:literal {
            $($(#[$mdoc:meta])* $fvis:vis $kind:ident $f:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $selector:literal, $encoding:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name($crate::bind::Object);

        impl $crate::bind::Wrap for $name {
            const CLASS: Option<&'static std::ffi::CStr> = Some($class);

            fn wrap(object: $crate::bind::Object) -> $name {
                $name(object)
            }

            fn object(&self) -> &$crate::bind::Object {
                &self.0
            }
        }

        const _: () = {
            #[allow(unused_imports)]
            use $crate::bind::method::{Method, Receiver};
            #[allow(unused_imports)]
            use $crate::bind::object::{Arg, Ret};

            struct Methods {
                $($f: Method,)*
            }

            static METHODS: Methods = Methods {
                $($f: Method {
                    class: $class,
                    receiver: class!(@receiver $kind),
                    selector: $selector,
                    encoding: $encoding,
                    types: class!(@types $kind ($($ty),*) $ret),
                    found: std::sync::OnceLock::new(),
                },)*
            };

            impl $crate::bind::BoundClass for $name {
                fn methods() -> Vec<&'static Method> {
                    vec![$(&METHODS.$f),*]
                }
            }

            impl $name {
                $(class! { @function $kind $(#[$mdoc])* $fvis $f ($($arg: $ty),*) $ret })*
            }
        };
    };
    (@receiver class) => { Receiver::Class };
    (@receiver fetch_class) => { Receiver::Class };
    (@receiver $other:ident) => { Receiver::Instance };
    (@types attempt ($($ty:ty),*) $ret:ty) => {
        $crate::bind::encoding::sent::<($(<$ty as Arg>::Raw,)* *mut *mut objc2::runtime::AnyObject,), objc2::runtime::Bool>
    };
    (@types fetch ($($ty:ty),*) $ret:ty) => {
        $crate::bind::encoding::sent::<($(<$ty as Arg>::Raw,)* *mut *mut objc2::runtime::AnyObject,), <Option<$ret> as Ret>::Raw>
    };
    (@types fetch_class ($($ty:ty),*) $ret:ty) => { class!(@types fetch ($($ty),*) $ret) };
    (@types fetch_new ($($ty:ty),*) $ret:ty) => { class!(@types fetch ($($ty),*) $ret) };
    (@types $kind:ident ($($ty:ty),*) $ret:ty) => {
        $crate::bind::encoding::sent::<($(<$ty as Arg>::Raw,)*), <$ret as Ret>::Raw>
    };
    (@function class $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The method is missing, or it raised an exception.
        // Selectors keep their names, and one is called `default`.
        #[allow(clippy::should_implement_trait)]
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the Rust types of the arguments wrap objects of the classes that the selector
            // expects.
            unsafe { METHODS.$f.send_class(($($arg.raw(),)*)) }
        }
    };
    (@function method $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The method is missing, or it raised an exception.
        $fvis fn $f(&self, $($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the Rust types of the arguments wrap objects of the classes that the selector
            // expects.
            unsafe { METHODS.$f.send(&self.0, ($($arg.raw(),)*)) }
        }
    };
    (@function make $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The method is missing, or it raised an exception.
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the Rust types of the arguments wrap objects of the classes that the selector
            // expects.
            unsafe { METHODS.$f.send_new(($($arg.raw(),)*)) }
        }
    };
    (@function attempt $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The framework's error, with the catalog's kind; or the method is missing or raised an
        /// exception.
        $fvis fn $f(&self, $($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the Rust types of the arguments wrap objects of the classes that the selector
            // expects, and the error pointer comes last.
            unsafe { METHODS.$f.attempt(&self.0, |error| ($($arg.raw(),)* error,)) }
        }
    };
    (@function fetch $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The framework's error; or the method is missing or raised an exception.
        $fvis fn $f(&self, $($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: as for `attempt`: argument classes match, and the error pointer comes last.
            unsafe { METHODS.$f.fetch(&self.0, |error| ($($arg.raw(),)* error,)) }
        }
    };
    (@function fetch_class $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The framework's error; or the method is missing or raised an exception.
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: as for `attempt`: argument classes match, and the error pointer comes last.
            unsafe { METHODS.$f.fetch_class(|error| ($($arg.raw(),)* error,)) }
        }
    };
    (@function fetch_new $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The framework's error; or the method is missing or raised an exception.
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: as for `attempt`: argument classes match, and the error pointer comes last.
            unsafe { METHODS.$f.fetch_new(|error| ($($arg.raw(),)* error,)) }
        }
    };
}
pub(crate) use class;

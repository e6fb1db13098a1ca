//! The private classes, by name: each a small type, each method a function with the types that are
//! documented for it.
//!
//! Nothing is linked. A class is looked up when a method of it is first sent; so is the method, and
//! its own type encoding is compared with the one we would call it by. A class, a method or a type
//! that is not there is an error that names it and the system, an exception that is raised is an
//! error too. So a wrong guess of a private signature is a message, never a crash.
//!
//! Selectors and types are those of apple-runtime.md. Where that page gives a call without types,
//! or contradicts itself, the function says where they come from. [`table`] is the whole as data;
//! docs/ane-bindings.md shows it, with what is not bound and why.

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
mod request;

pub use block::{Handler, HandlerBlock, Held};
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
pub use request::{PerformanceStats, Request, StatsSurface, SurfaceObject};

/// A class that is bound.
pub(crate) trait BoundClass {
    fn methods() -> Vec<&'static Method>;
}

/// Every method that is bound, by class.
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
        foundation::methods(),
    ];
    lists.into_iter().flatten().collect()
}

/// A class with its methods. Each line is a row of the table and a function: who receives it
/// (`class`, `method`; `make` for an initializer), name, arguments, result, selector, encoding.
/// With an `NSError **` at its end it is an `attempt` if it answers with BOOL, and a `fetch`
/// (`fetch_class`, `fetch_new`) if it gives something or nil.
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
        /// It is not there, or it raised an exception.
        // Selectors keep their names, and one is called `default`.
        #[allow(clippy::should_implement_trait)]
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the types of the wrapped objects are the classes that the selector wants.
            unsafe { METHODS.$f.send_class(($($arg.raw(),)*)) }
        }
    };
    (@function method $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// It is not there, or it raised an exception.
        $fvis fn $f(&self, $($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the types of the wrapped objects are the classes that the selector wants.
            unsafe { METHODS.$f.send(&self.0, ($($arg.raw(),)*)) }
        }
    };
    (@function make $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// It is not there, or it raised an exception.
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the types of the wrapped objects are the classes that the selector wants.
            unsafe { METHODS.$f.send_new(($($arg.raw(),)*)) }
        }
    };
    (@function attempt $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// What the framework refused with, in the catalog's words; it is not there, or it raised
        /// an exception.
        $fvis fn $f(&self, $($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: the types of the wrapped objects are the classes that the selector wants, and
            // the error comes last.
            unsafe { METHODS.$f.attempt(&self.0, |error| ($($arg.raw(),)* error,)) }
        }
    };
    (@function fetch $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// What the framework refused with; it is not there, or it raised an exception.
        $fvis fn $f(&self, $($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: as for `attempt`.
            unsafe { METHODS.$f.fetch(&self.0, |error| ($($arg.raw(),)* error,)) }
        }
    };
    (@function fetch_class $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// What the framework refused with; it is not there, or it raised an exception.
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: as for `attempt`.
            unsafe { METHODS.$f.fetch_class(|error| ($($arg.raw(),)* error,)) }
        }
    };
    (@function fetch_new $(#[$doc:meta])* $fvis:vis $f:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// What the framework refused with; it is not there, or it raised an exception.
        $fvis fn $f($($arg: $ty),*) -> ferrane_device::Result<$ret> {
            // SAFETY: as for `attempt`.
            unsafe { METHODS.$f.fetch_new(|error| ($($arg.raw(),)* error,)) }
        }
    };
}
pub(crate) use class;

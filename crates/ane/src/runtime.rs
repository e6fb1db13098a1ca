//! A small Objective-C runtime with the functions that `objc2` calls with its feature
//! `gnustep-1-7`.
//!
//! Classes, methods and selectors live forever. Every object starts with its class and a reference
//! count; classes are objects of their metaclasses. An unknown selector panics with its name, which
//! fails the test.
//!
//! The functions are exported under the runtime's C names, with the contracts of the runtime.
//! Exceptions are panics with an [`Exception`] as payload ([`throw`]).
#![allow(missing_docs, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]
// A poisoned table or a missing method fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicUsize};
use std::sync::{LazyLock, Mutex, Once, RwLock};

use crate::bind::Exception;

type Imp = unsafe extern "C-unwind" fn();
type Sel = *const c_char;

#[repr(C)]
pub struct Object {
    isa: AtomicPtr<Class>,
    count: AtomicUsize,
}

#[repr(C)]
pub struct Class {
    isa: AtomicPtr<Class>,
    data: AtomicPtr<Data>,
}

pub struct Method {
    selector: Sel,
    types: CString,
    imp: Imp,
}

pub struct Ivar {
    name: CString,
    offset: isize,
}

struct Data {
    name: CString,
    superclass: *const Class,
    meta: bool,
    size: AtomicUsize,
    live: AtomicIsize,
    methods: RwLock<HashMap<usize, &'static Method>>,
    ivars: RwLock<HashMap<CString, &'static Ivar>>,
}

#[repr(C)]
pub struct Super {
    receiver: *mut Object,
    class: *const Class,
}

static SELECTORS: LazyLock<Mutex<HashMap<CString, usize>>> = LazyLock::new(Default::default);
static CLASSES: LazyLock<Mutex<HashMap<CString, usize>>> = LazyLock::new(Default::default);

const fn empty() -> Class {
    Class { isa: AtomicPtr::new(ptr::null_mut()), data: AtomicPtr::new(ptr::null_mut()) }
}

#[unsafe(export_name = "_OBJC_CLASS_NSObject")]
pub static NSOBJECT: Class = empty();
static NSOBJECT_META: Class = empty();

fn pointer(class: &'static Class) -> *mut Class {
    ptr::from_ref(class).cast_mut()
}

fn set_up(class: &Class, name: &CStr, superclass: *const Class, meta: bool, size: usize) {
    let data = Data {
        name: name.into(),
        superclass,
        meta,
        size: AtomicUsize::new(size),
        live: AtomicIsize::new(0),
        methods: Default::default(),
        ivars: Default::default(),
    };
    class.data.store(Box::into_raw(Box::new(data)), Release);
}

fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_up(&NSOBJECT, c"NSObject", ptr::null(), false, size_of::<Object>());
        set_up(&NSOBJECT_META, c"NSObject", pointer(&NSOBJECT), true, size_of::<Class>());
        NSOBJECT_META.isa.store(pointer(&NSOBJECT_META), Release);
        NSOBJECT.isa.store(pointer(&NSOBJECT_META), Release);
        CLASSES.lock().unwrap().insert(c"NSObject".into(), pointer(&NSOBJECT) as usize);
        macro_rules! method {
            ($class:expr, $name:literal, $types:literal, $function:expr, $ty:ty) => {
                // SAFETY: the function has the type in its encoding, and is called with that type.
                unsafe {
                    let imp = std::mem::transmute::<$ty, Imp>($function as $ty);
                    add(&$class, sel_registerName($name.as_ptr()), $types, imp)
                }
            };
        }
        type Give = unsafe extern "C-unwind" fn(*mut Object, Sel) -> *mut Object;
        type Act = unsafe extern "C-unwind" fn(*mut Object, Sel);
        type Count = unsafe extern "C-unwind" fn(*mut Object, Sel) -> usize;
        type Ask = unsafe extern "C-unwind" fn(*mut Object, Sel, *const c_void) -> u8;
        method!(NSOBJECT_META, c"alloc", c"@@:", alloc, Give);
        method!(NSOBJECT_META, c"new", c"@@:", new, Give);
        method!(NSOBJECT_META, c"class", c"#@:", itself, Give);
        method!(NSOBJECT_META, c"retain", c"@@:", itself, Give);
        method!(NSOBJECT_META, c"release", c"v@:", nothing, Act);
        method!(NSOBJECT_META, c"autorelease", c"@@:", itself, Give);
        method!(NSOBJECT, c"init", c"@@:", itself, Give);
        method!(NSOBJECT, c"retain", c"@@:", retain, Give);
        method!(NSOBJECT, c"release", c"v@:", release, Act);
        method!(NSOBJECT, c"autorelease", c"@@:", autorelease, Give);
        method!(NSOBJECT, c"dealloc", c"v@:", dealloc, Act);
        method!(NSOBJECT, c"retainCount", c"Q@:", count, Count);
        method!(NSOBJECT, c"class", c"#@:", class_of, Give);
        method!(NSOBJECT, c"respondsToSelector:", c"C@::", responds, Ask);
        method!(NSOBJECT, c"isKindOfClass:", c"C@:#", is_kind_of, Ask);
    });
}

/// Raises an Objective-C exception.
pub fn throw(name: &str, reason: &str) -> ! {
    std::panic::resume_unwind(Box::new(Exception { name: name.into(), reason: reason.into() }))
}

/// The number of live objects of each class with at least one.
pub fn live() -> Vec<(String, isize)> {
    init();
    let classes: Vec<usize> = CLASSES.lock().unwrap().values().copied().collect();
    // SAFETY: every registered address is a class of this runtime.
    let count = |class: usize| unsafe {
        let data = data(class as *const Class);
        (data.name.to_string_lossy().into_owned(), data.live.load(Relaxed))
    };
    let mut all: Vec<_> = classes.into_iter().map(count).filter(|(_, n)| *n != 0).collect();
    all.sort();
    all
}

unsafe extern "C-unwind" fn itself(object: *mut Object, _: Sel) -> *mut Object {
    object
}

unsafe extern "C-unwind" fn nothing(_: *mut Object, _: Sel) {}

unsafe extern "C-unwind" fn nil_method(_: *mut Object, _: Sel) -> *mut Object {
    ptr::null_mut()
}

unsafe extern "C-unwind" fn class_of(object: *mut Object, _: Sel) -> *mut Object {
    // SAFETY: the receiver of a message is a live object.
    unsafe { object_getClass(object).cast() }
}

fn instance(class: *const Class) -> Layout {
    // SAFETY: the caller passes a class of this runtime.
    let size = unsafe { data(class) }.size.load(Relaxed).max(size_of::<Object>());
    Layout::from_size_align(size, 16).unwrap()
}

unsafe extern "C-unwind" fn alloc(class: *mut Object, _: Sel) -> *mut Object {
    let class = class.cast::<Class>();
    // SAFETY: the layout has a nonzero size, and zero bytes are a valid object header.
    unsafe {
        let object = std::alloc::alloc_zeroed(instance(class)).cast::<Object>();
        (*object).isa.store(class, Release);
        (*object).count.store(1, Release);
        data(class).live.fetch_add(1, Relaxed);
        object
    }
}

unsafe extern "C-unwind" fn new(class: *mut Object, selector: Sel) -> *mut Object {
    // SAFETY: the receiver is a class of this runtime.
    unsafe { send(alloc(class, selector), c"init") }
}

unsafe extern "C-unwind" fn retain(object: *mut Object, _: Sel) -> *mut Object {
    // SAFETY: the receiver of a message is a live object.
    unsafe { (*object).count.fetch_add(1, Relaxed) };
    object
}

unsafe extern "C-unwind" fn release(object: *mut Object, _: Sel) {
    // SAFETY: the receiver is a live object; the last reference deallocates it.
    unsafe {
        if (*object).count.fetch_sub(1, AcqRel) == 1 {
            send(object, c"dealloc");
        }
    }
}

unsafe extern "C-unwind" fn dealloc(object: *mut Object, _: Sel) {
    // SAFETY: `alloc` made the object with this layout, and its reference count is zero.
    unsafe {
        data(object_getClass(object)).live.fetch_sub(1, Relaxed);
        std::alloc::dealloc(object.cast(), instance(object_getClass(object)));
    }
}

unsafe extern "C-unwind" fn count(object: *mut Object, _: Sel) -> usize {
    // SAFETY: the receiver of a message is a live object.
    unsafe { (*object).count.load(Relaxed) }
}

unsafe extern "C-unwind" fn responds(object: *mut Object, _: Sel, selector: *const c_void) -> u8 {
    // SAFETY: the receiver of a message is a live object.
    unsafe { find(object_getClass(object), selector.cast()).is_some().into() }
}

unsafe extern "C-unwind" fn is_kind_of(object: *mut Object, _: Sel, wanted: *const c_void) -> u8 {
    // SAFETY: the receiver is a live object, and the chain of superclasses ends with null.
    unsafe {
        let mut class = object_getClass(object).cast_const();
        while !class.is_null() {
            if class.cast() == wanted {
                return 1;
            }
            class = data(class).superclass;
        }
    }
    0
}

thread_local!(static POOL: RefCell<Vec<*mut Object>> = const { RefCell::new(Vec::new()) });

unsafe extern "C-unwind" fn autorelease(object: *mut Object, _: Sel) -> *mut Object {
    POOL.with(|pool| pool.borrow_mut().push(object));
    object
}

unsafe fn send(object: *mut Object, name: &CStr) -> *mut Object {
    // SAFETY: the methods sent here take no arguments and return nothing or an object; a missing
    // result is not used.
    unsafe {
        let selector = sel_registerName(name.as_ptr());
        let imp = objc_msg_lookup(object, selector);
        let method: unsafe extern "C-unwind" fn(*mut Object, Sel) -> *mut Object = std::mem::transmute(imp);
        method(object, selector)
    }
}

unsafe fn data<'a>(class: *const Class) -> &'a Data {
    init();
    // SAFETY: every class of this runtime has data, and classes live forever.
    unsafe { &*(*class).data.load(Acquire) }
}

unsafe fn add(class: &Class, selector: Sel, types: &CStr, imp: Imp) {
    let method = Box::leak(Box::new(Method { selector, types: types.into(), imp }));
    // SAFETY: the data are initialized before methods are added.
    let data = unsafe { &*class.data.load(Acquire) };
    data.methods.write().unwrap().insert(selector as usize, method);
}

unsafe fn find(mut class: *const Class, selector: Sel) -> Option<&'static Method> {
    while !class.is_null() {
        // SAFETY: `class` is a class of this runtime.
        let data = unsafe { data(class) };
        if let Some(method) = data.methods.read().unwrap().get(&(selector as usize)) {
            return Some(method);
        }
        class = data.superclass;
    }
    None
}

unsafe fn lookup(class: *const Class, selector: Sel) -> Imp {
    // SAFETY: a class and a selector of this runtime.
    unsafe {
        match find(class, selector) {
            Some(method) => method.imp,
            None => panic!("{}: no method {:?}", data(class).name.to_string_lossy(), CStr::from_ptr(selector)),
        }
    }
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
}

/// Copies pointers into memory that the caller frees with `free`, as the runtime returns lists.
unsafe fn copied(pointers: &[usize], count: *mut u32) -> *mut usize {
    // SAFETY: the allocation has room for all pointers; `count` is null or valid for a write.
    unsafe {
        let list = malloc(size_of_val(pointers).max(1)).cast::<usize>();
        assert!(!list.is_null(), "no memory");
        ptr::copy_nonoverlapping(pointers.as_ptr(), list, pointers.len());
        if !count.is_null() {
            *count = pointers.len() as u32;
        }
        list
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sel_registerName(name: *const c_char) -> Sel {
    // SAFETY: `name` is a terminated string.
    let name = unsafe { CStr::from_ptr(name) };
    let mut selectors = SELECTORS.lock().unwrap();
    if let Some(known) = selectors.get(name) {
        return *known as Sel;
    }
    let kept = CString::from(name).into_raw();
    selectors.insert(name.into(), kept as usize);
    kept
}

macro_rules! exported {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) $(-> $ret)? {
                init();
                // SAFETY: the arguments meet the contract of the runtime's function of this name.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

exported! {
    fn sel_getName(selector: Sel) -> *const c_char { selector }
    fn sel_isEqual(a: Sel, b: Sel) -> u8 { (a == b).into() }
    fn objc_getClass(name: *const c_char) -> *mut Class {
        CLASSES.lock().unwrap().get(CStr::from_ptr(name)).map_or(ptr::null_mut(), |c| *c as *mut Class)
    }
    fn object_getClass(object: *const Object) -> *mut Class {
        if object.is_null() { ptr::null_mut() } else { (*object).isa.load(Acquire) }
    }
    fn objc_msg_lookup(object: *mut Object, selector: Sel) -> Imp {
        if object.is_null() {
            return std::mem::transmute::<*const (), Imp>(nil_method as *const ());
        }
        lookup(object_getClass(object), selector)
    }
    fn objc_msg_lookup_super(target: *const Super, selector: Sel) -> Imp { lookup((*target).class, selector) }
    fn class_getName(class: *const Class) -> *const c_char { data(class).name.as_ptr() }
    fn class_getSuperclass(class: *const Class) -> *const Class { data(class).superclass }
    fn class_isMetaClass(class: *const Class) -> u8 { data(class).meta.into() }
    fn class_getInstanceMethod(class: *const Class, selector: Sel) -> *const Method {
        find(class, selector).map_or(ptr::null(), |m| m)
    }
    fn class_getClassMethod(class: *const Class, selector: Sel) -> *const Method {
        find((*class).isa.load(Acquire), selector).map_or(ptr::null(), |m| m)
    }
    fn objc_copyClassList(count: *mut u32) -> *mut *const Class {
        let classes: Vec<usize> = CLASSES.lock().unwrap().values().copied().collect();
        copied(&classes, count).cast()
    }
    fn class_copyMethodList(class: *const Class, count: *mut u32) -> *mut *const Method {
        let methods: Vec<usize> = data(class).methods.read().unwrap().values().map(|m| ptr::from_ref(*m) as usize).collect();
        copied(&methods, count).cast()
    }
    fn method_getName(method: *const Method) -> Sel { (*method).selector }
    fn method_getTypeEncoding(method: *const Method) -> *const c_char { (*method).types.as_ptr() }
    fn class_addMethod(class: *mut Class, selector: Sel, imp: Imp, types: *const c_char) -> u8 {
        if data(class).methods.read().unwrap().contains_key(&(selector as usize)) {
            return 0;
        }
        add(&*class, selector, CStr::from_ptr(types), imp);
        1
    }
    fn class_addIvar(class: *mut Class, name: *const c_char, size: usize, align: u8, _types: *const c_char) -> u8 {
        let data = data(class);
        let offset = data.size.load(Relaxed).next_multiple_of(1usize << align);
        data.size.store(offset + size, Relaxed);
        let name: CString = CStr::from_ptr(name).into();
        let ivar = Box::leak(Box::new(Ivar { name: name.clone(), offset: offset as isize }));
        data.ivars.write().unwrap().insert(name, ivar);
        1
    }
    fn class_getInstanceVariable(class: *const Class, name: *const c_char) -> *const Ivar {
        let mut class = class;
        while !class.is_null() {
            let data = data(class);
            if let Some(ivar) = data.ivars.read().unwrap().get(CStr::from_ptr(name)) {
                return *ivar;
            }
            class = data.superclass;
        }
        ptr::null()
    }
    fn ivar_getOffset(ivar: *const Ivar) -> isize { (*ivar).offset }
    fn ivar_getName(ivar: *const Ivar) -> *const c_char { (*ivar).name.as_ptr() }
    fn objc_allocateClassPair(superclass: *const Class, name: *const c_char, _extra: usize) -> *mut Class {
        let name = CStr::from_ptr(name);
        if CLASSES.lock().unwrap().contains_key(name) {
            return ptr::null_mut();
        }
        let (class, meta) = (Box::leak(Box::new(empty())), Box::leak(Box::new(empty())));
        set_up(class, name, superclass, false, data(superclass).size.load(Relaxed));
        set_up(meta, name, (*superclass).isa.load(Acquire), true, size_of::<Class>());
        meta.isa.store(pointer(&NSOBJECT_META), Release);
        class.isa.store(meta, Release);
        class
    }
    fn objc_registerClassPair(class: *mut Class) {
        CLASSES.lock().unwrap().insert(data(class).name.clone(), class as usize);
    }
    fn objc_disposeClassPair(_class: *mut Class) {}
    fn objc_retain(object: *mut Object) -> *mut Object {
        if object.is_null() { object } else { send(object, c"retain") }
    }
    fn objc_release(object: *mut Object) {
        if !object.is_null() {
            send(object, c"release");
        }
    }
    fn objc_autorelease(object: *mut Object) -> *mut Object {
        if object.is_null() { object } else { send(object, c"autorelease") }
    }
    fn objc_autoreleaseReturnValue(object: *mut Object) -> *mut Object { objc_autorelease(object) }
    fn objc_retainAutoreleasedReturnValue(object: *mut Object) -> *mut Object { objc_retain(object) }
    fn objc_autoreleasePoolPush() -> *mut c_void { POOL.with(|pool| pool.borrow().len()) as *mut c_void }
    fn objc_autoreleasePoolPop(token: *mut c_void) {
        loop {
            let last = POOL.with(|pool| {
                let mut pool = pool.borrow_mut();
                if pool.len() > token as usize { pool.pop() } else { None }
            });
            match last {
                Some(object) => objc_release(object),
                None => break,
            }
        }
    }
}

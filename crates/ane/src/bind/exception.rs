//! Catches Objective-C exceptions at the message that raised them.
//!
//! `@catch` needs a landing pad with Objective-C's personality routine, which Rust cannot express.
//! The usual solution is a file in Objective-C that every build compiles; it requires clang and
//! Apple's headers. This module instead contains the twenty instructions that clang generates, for
//! AArch64, the only processor with an engine. On other processors exceptions are panics with an
//! [`Exception`] as payload, as the runtime of the feature `objc-runtime` raises them.
//!
//! Rust panics are not Objective-C exceptions and pass through.

/// An exception that was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The name, such as `NSInvalidArgumentException`.
    pub name: String,
    /// The reason in words.
    pub reason: String,
}

#[cfg(not(target_vendor = "apple"))]
pub(crate) fn catch<R>(call: impl FnOnce() -> R) -> Result<R, Exception> {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    // The closures here send one message and own nothing that could be left half-done.
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| match payload.downcast::<Exception>() {
        Ok(exception) => *exception,
        Err(panic) => resume_unwind(panic),
    })
}

/// Without a landing pad exceptions cannot be caught; Macs with such a processor have no engine.
#[cfg(all(target_vendor = "apple", not(target_arch = "aarch64")))]
pub(crate) fn catch<R>(call: impl FnOnce() -> R) -> Result<R, Exception> {
    Ok(call())
}

#[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
pub(crate) use apple::catch;

#[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
mod apple {
    use std::ffi::c_void;
    use std::mem::ManuallyDrop;
    use std::ptr;

    use objc2::runtime::AnyObject;

    use super::super::foundation::exception;
    use super::super::object::owned;
    use super::Exception;

    // One call site with a landing pad, whose action catches `id`; one without. The table has the
    // format of the Itanium ABI, with call sites in uleb128 and types as indirect, relative 32-bit
    // words.
    std::arch::global_asm!(
        ".section __TEXT,__text,regular,pure_instructions",
        ".private_extern _ferrane_objc_try",
        ".globl _ferrane_objc_try",
        ".p2align 2",
        "_ferrane_objc_try:",
        "Lferrane_begin:",
        ".cfi_startproc",
        ".cfi_personality 155, ___objc_personality_v0",
        ".cfi_lsda 16, Lferrane_table",
        "stp x20, x19, [sp, #-32]!",
        "stp x29, x30, [sp, #16]",
        "add x29, sp, #16",
        ".cfi_def_cfa w29, 16",
        ".cfi_offset w30, -8",
        ".cfi_offset w29, -16",
        ".cfi_offset w19, -24",
        ".cfi_offset w20, -32",
        "mov x19, x2",
        "mov x8, x0",
        "mov x0, x1",
        "Lferrane_call:",
        "blr x8",
        "Lferrane_called:",
        "mov w0, #0",
        "Lferrane_return:",
        "ldp x29, x30, [sp, #16]",
        "ldp x20, x19, [sp], #32",
        "ret",
        "Lferrane_pad:",
        "bl _objc_begin_catch",
        "bl _objc_retain",
        "str x0, [x19]",
        "bl _objc_end_catch",
        "mov w0, #1",
        "b Lferrane_return",
        "Lferrane_end:",
        ".cfi_endproc",
        ".section __TEXT,__gcc_except_tab",
        ".p2align 2",
        "Lferrane_table:",
        ".byte 255",
        ".byte 155",
        ".uleb128 Lferrane_types-Lferrane_types_from",
        "Lferrane_types_from:",
        ".byte 1",
        ".uleb128 Lferrane_sites_end-Lferrane_sites",
        "Lferrane_sites:",
        ".uleb128 Lferrane_call-Lferrane_begin",
        ".uleb128 Lferrane_called-Lferrane_call",
        ".uleb128 Lferrane_pad-Lferrane_begin",
        ".byte 1",
        ".uleb128 Lferrane_called-Lferrane_begin",
        ".uleb128 Lferrane_end-Lferrane_called",
        ".byte 0",
        ".byte 0",
        "Lferrane_sites_end:",
        ".byte 1",
        ".byte 0",
        ".p2align 2",
        "Lferrane_type:",
        ".long _OBJC_EHTYPE_id@GOT-Lferrane_type",
        "Lferrane_types:",
        ".p2align 2",
        ".text",
    );

    unsafe extern "C-unwind" {
        #[link_name = "ferrane_objc_try"]
        fn objc_try(
            call: unsafe extern "C-unwind" fn(*mut c_void),
            context: *mut c_void,
            raised: *mut *mut AnyObject,
        ) -> u8;
    }

    /// Holds a closure before the call and its result after it.
    union CallSlot<F, R> {
        call: ManuallyDrop<F>,
        result: ManuallyDrop<R>,
    }

    unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(context: *mut c_void) {
        // SAFETY: `catch` passes a slot that holds the closure; it is taken once and replaced with
        // the result.
        unsafe {
            let slot = &mut *context.cast::<CallSlot<F, R>>();
            let call = ManuallyDrop::take(&mut slot.call);
            slot.result = ManuallyDrop::new(call());
        }
    }

    pub(crate) fn catch<F: FnOnce() -> R, R>(call: F) -> Result<R, Exception> {
        let mut slot = CallSlot::<F, R> { call: ManuallyDrop::new(call) };
        let mut raised: *mut AnyObject = ptr::null_mut();
        // SAFETY: the function calls `run` once with the slot. If it returns 0, the slot holds the
        // result; if it returns 1, the closure has been taken, and `raised` is an object with a
        // reference for us.
        unsafe {
            match objc_try(run::<F, R>, ptr::from_mut(&mut slot).cast(), &mut raised) {
                0 => Ok(ManuallyDrop::take(&mut slot.result)),
                _ => Err(owned(raised)
                    .map_or_else(|| Exception { name: "an exception".into(), reason: "nil".into() }, exception)),
            }
        }
    }
}

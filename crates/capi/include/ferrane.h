// The C interface of Ferrane: programs for the Apple Neural Engine, on the engine or on its
// emulator. See docs/c-api.md.
//
// Every function may be called from any thread. Handles are numbers and not addresses: a handle
// that was freed, or is null, or belongs to another type, is an error (FERRANE_INVALID_HANDLE) and
// does no harm. A pointer that is not null must point to as many elements as the function says
// until it returns; a null pointer is an error unless the function allows it, or the number of
// elements is 0. Text is UTF-8. A result is written to its pointer only if the call succeeds, except
// handles and blobs, which are null after a failure.
//
// This file is generated from the sources by cbindgen (crates/capi/tests/all/header.rs).

#ifndef FERRANE_H
#define FERRANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The kind of an input.
#define FERRANE_INPUT 0

// The kind of an output.
#define FERRANE_OUTPUT 1

// The kind of a state, which runs read and write.
#define FERRANE_STATE 2

// One scale for all values.
#define FERRANE_PER_TENSOR 0

// One scale for each row (axis 0, the output channels of a weight).
#define FERRANE_PER_CHANNEL 1

// A kernel: a compiled and loaded program with memory for its ports. The type has the name in the
// reference's bridge. The handle is not an address; it may be used from any thread.
typedef struct ANEKernelHandle ANEKernelHandle;

// A device. The handle is not an address; it may be used from any thread.
typedef struct FerraneDevice FerraneDevice;

// The result of a call: FERRANE_OK or the kind of failure. Numbers from 600 on are those of
// Ferrane's error codes (E0601 is 601).
typedef int32_t FerraneStatus;

// A blob file for ferrane_compile.
typedef struct {
    // The path in the program, such as "@model_path/weights/weight.bin"; UTF-8, terminated by a
    // zero byte.
    const char *name;
    // The contents of the file.
    const uint8_t *data;
    // The size of the file in bytes.
    size_t len;
} FerraneWeight;

// An element type. Numbers below 100 are those of blob files (weight-blob §1).
typedef int32_t FerraneDtype;

// The properties of a port.
typedef struct {
    // The type of the elements.
    FerraneDtype dtype;
    // The number of axes; see ferrane_port_shape.
    size_t rank;
    // The number of elements.
    size_t elements;
    // The bytes that ferrane_write and ferrane_read transfer: the elements row-major without gaps,
    // regardless of the device's layout.
    size_t bytes;
} FerranePort;

// Called once when a submitted run ends, on a thread of the library. The arguments are the pointer
// given to ferrane_submit, the status of the run, and the error text (empty after a success; valid
// only during the call). It may read and write the kernel, submit it again and free it. It must
// not wait for a kernel (ferrane_wait returns an error there), and it must return: no longjmp, no
// C++ exception.
typedef void (*FerraneDone)(void *user, FerraneStatus status, const char *message);

// Elements of one type, for ferrane_blob.
typedef struct {
    // The type of the elements; its number must be below 100.
    FerraneDtype dtype;
    // The elements, row-major without gaps.
    const void *data;
    // The size in bytes, a multiple of the element size.
    size_t bytes;
} FerraneTensor;

// The call succeeded; its results are valid.
#define FERRANE_OK 0

// An argument is invalid: a null pointer, a wrong size, a misaligned array, text that is not
// UTF-8, a number out of range.
#define FERRANE_INVALID_ARGUMENT 1

// A handle is null, was freed, or was never valid.
#define FERRANE_INVALID_HANDLE 2

// The buffer is too small; the required length was returned.
#define FERRANE_BUFFER_TOO_SMALL 3

// An internal error of Ferrane. This is a bug.
#define FERRANE_INTERNAL 4

// The program is not valid MIL.
#define FERRANE_INVALID_PROGRAM 601

// The device has no way to run an op or shape.
#define FERRANE_UNSUPPORTED 602

// The compile budget of the process is spent.
#define FERRANE_COMPILE_BUDGET 603

// A compiled program could not be loaded.
#define FERRANE_LOAD 604

// An evaluation failed; the outputs must be discarded.
#define FERRANE_EVALUATE 605

// A surface or port does not match: size, type, name.
#define FERRANE_BINDING 606

// A layout is invalid.
#define FERRANE_LAYOUT 607

// A surface or kernel is in use.
#define FERRANE_BUSY 608

// The device's queue holds as many requests as it can.
#define FERRANE_QUEUE_FULL 609

// The program was unloaded.
#define FERRANE_UNLOADED 610

// The device, or a feature of it, is not available here.
#define FERRANE_UNAVAILABLE 611

// A device name or option is unknown or has an invalid value.
#define FERRANE_OPTION 612

// Memory could not be allocated.
#define FERRANE_OUT_OF_MEMORY 613

// The underlying system failed with an error of its own.
#define FERRANE_SYSTEM 614

// The process that the device runs in has died or hung.
#define FERRANE_CRASHED 615

// IEEE half precision, 16 bits.
#define FERRANE_FP16 1

// IEEE single precision, 32 bits.
#define FERRANE_FP32 2

// An unsigned integer of 8 bits.
#define FERRANE_UINT8 3

// A signed integer of 8 bits.
#define FERRANE_INT8 4

// The upper half of IEEE single precision.
#define FERRANE_BF16 5

// A signed integer of 16 bits.
#define FERRANE_INT16 6

// An unsigned integer of 16 bits.
#define FERRANE_UINT16 7

// A signed integer of 32 bits.
#define FERRANE_INT32 14

// An unsigned integer of 32 bits.
#define FERRANE_UINT32 15

// A float of 8 bits, 4 of them exponent, without infinities.
#define FERRANE_FP8_E4M3FN 16

// A float of 8 bits, 5 of them exponent.
#define FERRANE_FP8_E5M2 17

// A byte, 0 or 1. Ports only.
#define FERRANE_BOOL 100

// IEEE double precision. Ports only.
#define FERRANE_FP64 101

// A signed integer of 64 bits. Ports only.
#define FERRANE_INT64 102

// An unsigned integer of 64 bits. Ports only.
#define FERRANE_UINT64 103

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as "0.1.0". The text is static.
const char *ferrane_version(void);

// The status of the last call on this thread, of either family. The functions ferrane_version,
// ferrane_last_status, ferrane_last_error and ferrane_last_remedy do not count as calls.
FerraneStatus ferrane_last_status(void);

// The error text of the last call on this thread, UTF-8; empty after a success. The text is valid
// until the next call on this thread and never null.
const char *ferrane_last_error(void);

// The remedy for the last error, one or two sentences; otherwise as ferrane_last_error.
const char *ferrane_last_remedy(void);

// Chooses the process's device: the one for calls with a null device, and for the functions
// ane_bridge_*. Names are those of ferrane_open. Null keeps an open device, and otherwise opens
// "emulator". Kernels that were compiled before stay on their device. This call is optional: the
// first use opens "emulator".
FerraneStatus ferrane_init(const char *name);

// Opens a device: "emulator" (on any computer), "ane" (the Neural Engine of a Mac),
// "ane-or-emulator". Options follow a question mark, as in
// "emulator?numerics=exact&machine=m4-macos15-inmem". The error for an unknown name or option
// lists the known ones. Release the handle with ferrane_close.
FerraneStatus ferrane_open(const char *name, FerraneDevice **device);

// Releases the handle of a device; null has no effect. Kernels that were compiled on it keep
// working.
FerraneStatus ferrane_close(FerraneDevice *device);

// Copies the name of a device, such as "emulator (fast)". Null means the process's device.
// `length`, if not null, receives the length without the terminating zero byte; with a capacity of
// 0 only the length is returned.
FerraneStatus ferrane_device_name(FerraneDevice *device, char *buffer, size_t capacity, size_t *length);

// Compiles and loads a program: MIL text, UTF-8, `mil_len` bytes without a terminating zero byte,
// and the blob files that it names, which are copied. A null device means the process's. The
// kernel is bound to the program's first function and has zeroed memory for each port. Free it
// with ferrane_free.
FerraneStatus ferrane_compile(FerraneDevice *device,
                              const char *mil,
                              size_t mil_len,
                              const FerraneWeight *weights,
                              size_t n_weights,
                              ANEKernelHandle **kernel);

// Makes another kernel on the same loaded program, with its own memory: for several runs in
// flight, or for another function of the program. A null name means the function of the given
// kernel. Nothing is compiled. Free it with ferrane_free.
FerraneStatus ferrane_clone(ANEKernelHandle *kernel, const char *function, ANEKernelHandle **clone);

// Makes a port of a kernel use the memory of another kernel's port from now on, so an output that
// is the next kernel's input needs no copy. Type, shape and strides must be the same; memory that
// a kernel writes cannot be bound to it twice. The memory lives as long as a kernel uses it.
FerraneStatus ferrane_share(ANEKernelHandle *kernel,
                            int kind,
                            size_t index,
                            ANEKernelHandle *from,
                            int from_kind,
                            size_t from_index);

// Frees a kernel; null has no effect. A run in flight completes first, and its callback is still
// called; the program is unloaded with its last kernel.
FerraneStatus ferrane_free(ANEKernelHandle *kernel);

// The number of programs that the process has compiled and loaded since it started or the count
// was reset. An engine was observed to allow about 119 per process (apple-runtime §3).
int ferrane_compile_count(void);

// Sets the count to zero. This does not restore the engine's budget.
void ferrane_reset_compile_count(void);

// The number of ports of a kind (FERRANE_INPUT, FERRANE_OUTPUT, FERRANE_STATE) of a kernel.
FerraneStatus ferrane_port_count(ANEKernelHandle *kernel, int kind, size_t *count);

// The properties of a port. Ports are in the order that the device reports.
FerraneStatus ferrane_port(ANEKernelHandle *kernel, int kind, size_t index, FerranePort *port);

// Copies the name of a port; buffer and length as in ferrane_device_name.
FerraneStatus ferrane_port_name(ANEKernelHandle *kernel,
                                int kind,
                                size_t index,
                                char *buffer,
                                size_t capacity,
                                size_t *length);

// Copies the extents of a port, outermost first. `capacity` is the number of elements of `shape`,
// at least the port's rank.
FerraneStatus ferrane_port_shape(ANEKernelHandle *kernel,
                                 int kind,
                                 size_t index,
                                 size_t *shape,
                                 size_t capacity);

// Finds the port with this kind and name.
FerraneStatus ferrane_port_index(ANEKernelHandle *kernel, int kind, const char *name, size_t *index);

// Writes all elements of a port: `bytes` is the value in FerranePort. An input or state keeps its
// value from run to run.
FerraneStatus ferrane_write(ANEKernelHandle *kernel, int kind, size_t index, const void *data, size_t bytes);

// Reads all elements of a port: `bytes` is the value in FerranePort.
FerraneStatus ferrane_read(ANEKernelHandle *kernel, int kind, size_t index, void *data, size_t bytes);

// Writes all `count` elements of an fp16 or fp32 port from fp32 values, rounded to nearest even.
FerraneStatus ferrane_write_f32(ANEKernelHandle *kernel,
                                int kind,
                                size_t index,
                                const float *values,
                                size_t count);

// Reads all `count` elements of an fp16 or fp32 port as fp32 values.
FerraneStatus ferrane_read_f32(ANEKernelHandle *kernel, int kind, size_t index, float *values, size_t count);

// Runs a kernel and waits. Returns FERRANE_BUSY while the kernel's memory is in use by a run in
// flight or by another thread.
FerraneStatus ferrane_eval(ANEKernelHandle *kernel);

// Queues a run. `done` may be null; it receives `user`. If this call fails, `done` is not called.
// A kernel has one run in flight at a time, because its memory is in use; ferrane_clone makes more
// kernels. A device runs submissions in order.
FerraneStatus ferrane_submit(ANEKernelHandle *kernel, FerraneDone done, void *user);

// Waits until no run of the kernel is in flight and its callbacks have returned. Returns the
// status of the last run.
FerraneStatus ferrane_wait(ANEKernelHandle *kernel);

// Returns in `in_flight` whether a run of the kernel is in flight.
FerraneStatus ferrane_in_flight(ANEKernelHandle *kernel, bool *in_flight);

// Makes a blob file of several records. `offsets`, if not null, receives the offset of each
// record, for use in a program's text. Free the blob with ferrane_free_blob.
FerraneStatus ferrane_blob(const FerraneTensor *tensors,
                           size_t n_tensors,
                           uint64_t *offsets,
                           uint8_t **blob,
                           size_t *len);

// Makes a blob file of one fp16 record from `rows` × `cols` fp32 values, rounded to nearest even.
// If `transposed` is not 0, the transposed matrix is stored. Free the blob with ferrane_free_blob.
FerraneStatus ferrane_blob_fp16(const float *src,
                                size_t rows,
                                size_t cols,
                                int transposed,
                                uint8_t **blob,
                                size_t *len);

// Makes a blob file of one int8 record from `rows` × `cols` fp32 values: round(w / scale), half
// away from zero, with the scale max |w| / 127 (1 if all values are zero) of all values
// (FERRANE_PER_TENSOR) or of each row (FERRANE_PER_CHANNEL). `scales` receives the one scale or
// the `rows` scales. If `scales_offset` is not null, the scales are rounded to fp16 and stored as
// a second record, whose offset it receives. Free the blob with ferrane_free_blob.
FerraneStatus ferrane_blob_int8(const float *src,
                                size_t rows,
                                size_t cols,
                                int granularity,
                                float *scales,
                                uint64_t *scales_offset,
                                uint8_t **blob,
                                size_t *len);

// Frees a blob of this library; null has no effect.
FerraneStatus ferrane_free_blob(void *blob);

// Opens the process's device ("emulator", unless ferrane_init chose another). Returns 0, or -1
// after a failure. Further calls have no effect.
int ane_bridge_init(void);

// Compiles MIL text with at most one blob file, which the program finds as
// @model_path/weights/weight.bin; there is no file if `weights` is null or empty. The sizes are
// the bytes of each input and output, in the order of the ports, and must be correct. Returns null
// after a failure.
ANEKernelHandle *ane_bridge_compile(const char *mil_text,
                                    size_t mil_len,
                                    const uint8_t *weight_data,
                                    size_t weight_len,
                                    int n_inputs,
                                    const size_t *input_sizes,
                                    int n_outputs,
                                    const size_t *output_sizes);

// As ane_bridge_compile, with several blob files under the names in the program.
ANEKernelHandle *ane_bridge_compile_multi_weights(const char *mil_text,
                                                  size_t mil_len,
                                                  const char *const *weight_names,
                                                  const uint8_t *const *weight_datas,
                                                  const size_t *weight_lens,
                                                  int n_weights,
                                                  int n_inputs,
                                                  const size_t *input_sizes,
                                                  int n_outputs,
                                                  const size_t *output_sizes);

// Compiles MIL text whose last `n_weights` inputs are weights. They can be written at run time
// without another compile. The sizes are the bytes of each input, each weight and the one output,
// and must be correct. Returns null after a failure.
ANEKernelHandle *ane_bridge_compile_dyn(const char *mil_text,
                                        size_t mil_len,
                                        int n_inputs,
                                        const size_t *input_sizes,
                                        int n_weights,
                                        const size_t *weight_sizes,
                                        size_t output_size);

// Runs a kernel and waits. Returns false after a failure.
bool ane_bridge_eval(ANEKernelHandle *kernel);

// Writes all bytes of an input. After a failure, nothing was written; ferrane_last_status returns
// the status.
void ane_bridge_write_input(ANEKernelHandle *kernel, int idx, const void *data, size_t bytes);

// Writes all bytes of a weight of ane_bridge_compile_dyn; the first weight has index 0. After a
// failure, nothing was written; ferrane_last_status returns the status.
void ane_bridge_write_weight(ANEKernelHandle *kernel, int idx, const void *fp16_data, size_t bytes);

// Writes all `count` elements of a weight from fp32 values, rounded to nearest even; otherwise as
// ane_bridge_write_weight.
void ane_bridge_write_weight_f32(ANEKernelHandle *kernel, int idx, const float *fp32_data, size_t count);

// Copies an output of one kernel to an input of another, which must have as many bytes.
// ferrane_share avoids the copy. After a failure, nothing was copied; ferrane_last_status returns
// the status.
void ane_bridge_copy_io(ANEKernelHandle *src, int src_out_idx, ANEKernelHandle *dst, int dst_in_idx);

// Reads all bytes of an output. After a failure, nothing was read; ferrane_last_status returns the
// status.
void ane_bridge_read_output(ANEKernelHandle *kernel, int idx, void *data, size_t bytes);

// Frees a kernel; null has no effect.
void ane_bridge_free(ANEKernelHandle *kernel);

// The same as ferrane_compile_count.
int ane_bridge_get_compile_count(void);

// The same as ferrane_reset_compile_count.
void ane_bridge_reset_compile_count(void);

// Makes a blob file of one fp16 record, 128 + 2·rows·cols bytes. Free it with
// ane_bridge_free_blob. Returns null after a failure.
uint8_t *ane_bridge_build_weight_blob(const float *src, int rows, int cols, size_t *out_len);

// As ane_bridge_build_weight_blob, with the transposed matrix.
uint8_t *ane_bridge_build_weight_blob_transposed(const float *src, int rows, int cols, size_t *out_len);

// Makes a blob file of one int8 record, 128 + rows·cols bytes, including the file header that the
// reference omits. Free it with ane_bridge_free_blob. Returns null after a failure.
uint8_t *ane_bridge_build_weight_blob_int8(const int8_t *src, int rows, int cols, size_t *out_len);

// Makes a blob file of one int8 record from fp32 values with one scale, max |w| / 127 (1 if all
// values are zero); ferrane_blob_int8 supports a scale for each row. Free it with
// ane_bridge_free_blob. Returns null after a failure.
uint8_t *ane_bridge_build_weight_blob_quantized(const float *src,
                                                int rows,
                                                int cols,
                                                float *out_scale,
                                                size_t *out_len);

// Frees a blob; null has no effect.
void ane_bridge_free_blob(void *blob);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FERRANE_H */

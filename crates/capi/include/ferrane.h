// The C interface of Ferrane: programs for the Apple Neural Engine, on the engine or on its
// emulator. See docs/c-api.md.
//
// Every function may be called from any thread. Handles are numbers and not addresses: a handle
// that was freed, or is null, or belongs to another type, is an error (FERRANE_INVALID_HANDLE) and
// does no harm. A pointer that is not null must point to as many elements as the function says
// until it returns; a null pointer is an error unless it is said to be allowed, or has no elements.
// Text is UTF-8. A result is written to its pointer only if the call went well, but for handles and
// blobs, which are null else.
//
// This file is made from the sources by cbindgen (crates/capi/tests/all/header.rs).

#ifndef FERRANE_H
#define FERRANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// An input of a kernel.
#define FERRANE_INPUT 0

// An output.
#define FERRANE_OUTPUT 1

// A state, read and written.
#define FERRANE_STATE 2

// One scale for all values.
#define FERRANE_PER_TENSOR 0

// A scale for each row (axis 0, the output channels of a weight).
#define FERRANE_PER_CHANNEL 1

// A kernel: a compiled and loaded program with memory for its ports. The name is that of the
// reference's bridge. The handle is no address; it may be used from any thread.
typedef struct ANEKernelHandle ANEKernelHandle;

// A device. The handle is no address; it may be used from any thread.
typedef struct FerraneDevice FerraneDevice;

// How a call went: FERRANE_OK, or what failed. Numbers from 600 on are those of Ferrane's error
// codes (E0601 is 601).
typedef int32_t FerraneStatus;

// A blob file for ferrane_compile.
typedef struct {
    // The path that the program uses, "@model_path/weights/weight.bin" for example; UTF-8, ends
    // with a zero byte.
    const char *name;
    // The file.
    const uint8_t *data;
    // Its size in bytes.
    size_t len;
} FerraneWeight;

// An element type. Numbers below 100 are those of blob files (weight-blob §1).
typedef int32_t FerraneDtype;

// What a port is like.
typedef struct {
    // The type of its elements.
    FerraneDtype dtype;
    // How many axes it has; see ferrane_port_shape.
    size_t rank;
    // How many elements.
    size_t elements;
    // Bytes that ferrane_write and ferrane_read move: the elements row-major without gaps, however
    // the device lays them out.
    size_t bytes;
} FerranePort;

// Called once when a submitted run ends, on a thread of the library: with what was given to
// ferrane_submit, how the run went, and what failed (empty text if nothing did; valid during the
// call only). It may read and write the kernel, submit it again and free it. It must not wait for
// a kernel (ferrane_wait is an error there), and must return: no longjmp, no C++ exception.
typedef void (*FerraneDone)(void *user, FerraneStatus status, const char *message);

// Elements of one type, for ferrane_blob.
typedef struct {
    // Their type, of a number below 100.
    FerraneDtype dtype;
    // Row-major and packed.
    const void *data;
    // Size in bytes, whole elements.
    size_t bytes;
} FerraneTensor;

// It went well.
#define FERRANE_OK 0

// An argument cannot be: a null pointer, a wrong size, a misaligned array, text that is not UTF-8,
// a number out of range.
#define FERRANE_INVALID_ARGUMENT 1

// A handle that is null, was freed, or never was.
#define FERRANE_INVALID_HANDLE 2

// The buffer is too small; the length that is needed was told.
#define FERRANE_BUFFER_TOO_SMALL 3

// Ferrane failed inside. This is a bug.
#define FERRANE_INTERNAL 4

// The program is not valid MIL.
#define FERRANE_INVALID_PROGRAM 601

// The device has no way to run an op or shape.
#define FERRANE_UNSUPPORTED 602

// The compile budget of the process is spent.
#define FERRANE_COMPILE_BUDGET 603

// A compiled program could not be loaded.
#define FERRANE_LOAD 604

// An evaluation failed.
#define FERRANE_EVALUATE 605

// A surface or port does not fit: size, type, name.
#define FERRANE_BINDING 606

// A layout that cannot be.
#define FERRANE_LAYOUT 607

// A surface or kernel is in use.
#define FERRANE_BUSY 608

// The device's queue holds as many requests as it can.
#define FERRANE_QUEUE_FULL 609

// The program was unloaded.
#define FERRANE_UNLOADED 610

// The device, or an ability of it, is not here.
#define FERRANE_UNAVAILABLE 611

// A device name or option that is unknown or has a wrong value.
#define FERRANE_OPTION 612

// Memory could not be had.
#define FERRANE_OUT_OF_MEMORY 613

// The system below failed in a way of its own.
#define FERRANE_SYSTEM 614

// IEEE half precision.
#define FERRANE_FP16 1

// IEEE single precision.
#define FERRANE_FP32 2

// Unsigned, 8 bits.
#define FERRANE_UINT8 3

// Signed, 8 bits.
#define FERRANE_INT8 4

// The upper half of single precision.
#define FERRANE_BF16 5

// Signed, 16 bits.
#define FERRANE_INT16 6

// Unsigned, 16 bits.
#define FERRANE_UINT16 7

// Signed, 32 bits.
#define FERRANE_INT32 14

// Unsigned, 32 bits.
#define FERRANE_UINT32 15

// Eight bits, four of exponent.
#define FERRANE_FP8_E4M3FN 16

// Eight bits, five of exponent.
#define FERRANE_FP8_E5M2 17

// A byte, 0 or 1. Ports only.
#define FERRANE_BOOL 100

// IEEE double precision. Ports only.
#define FERRANE_FP64 101

// Signed, 64 bits. Ports only.
#define FERRANE_INT64 102

// Unsigned, 64 bits. Ports only.
#define FERRANE_UINT64 103

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, "0.1.0" for example. The text lives for ever.
const char *ferrane_version(void);

// The status of the last call on this thread, of either family. The functions ferrane_version,
// ferrane_last_status, ferrane_last_error and ferrane_last_remedy do not count as calls.
FerraneStatus ferrane_last_status(void);

// What failed in the last call on this thread, UTF-8; empty if it went well. The text is valid
// until the next call on this thread and never null.
const char *ferrane_last_error(void);

// What to do about it, one or two sentences; as ferrane_last_error.
const char *ferrane_last_remedy(void);

// Chooses the process's device: what is used where a device is null, and by the functions
// ane_bridge_*. Names are those of ferrane_open. Null keeps the device that is open, and opens
// "emulator" if there is none. Kernels that were compiled before stay on their device. Calling it
// is not needed: the first use opens "emulator".
FerraneStatus ferrane_init(const char *name);

// Opens a device: "emulator" (on any computer), "ane" (the Neural Engine of a Mac),
// "ane-or-emulator"; options follow a question mark, as in
// "emulator?numerics=exact&machine=m4-macos15-inmem". The error of an unknown name or option lists
// the known ones. End the handle with ferrane_close.
FerraneStatus ferrane_open(const char *name, FerraneDevice **device);

// Ends the handle of a device; null does nothing. Kernels that were compiled on it keep working.
FerraneStatus ferrane_close(FerraneDevice *device);

// Copies what a device calls itself, "emulator (fast)" for example. Null is the process's device.
// `length` gets the length without the zero byte at the end, and may be null; with a capacity of 0
// only the length is told.
FerraneStatus ferrane_device_name(FerraneDevice *device, char *buffer, size_t capacity, size_t *length);

// Compiles a program and loads it: MIL text, UTF-8, `mil_len` bytes without a zero byte at the
// end, and the blob files that it names, which are copied. A null device is the process's. The
// kernel is bound to the program's first function and has zeroed memory for each port. Free it
// with ferrane_free.
FerraneStatus ferrane_compile(FerraneDevice *device,
                              const char *mil,
                              size_t mil_len,
                              const FerraneWeight *weights,
                              size_t n_weights,
                              ANEKernelHandle **kernel);

// Makes another kernel on the same loaded program, with memory of its own: for several runs in
// flight, or for another function of the program. A null name is the function of the given kernel.
// Nothing is compiled. Free it with ferrane_free.
FerraneStatus ferrane_clone(ANEKernelHandle *kernel, const char *function, ANEKernelHandle **clone);

// Lets a port of a kernel use the memory of another kernel's port from now on: an output that is
// the next kernel's input needs no copy. Type, shape and strides must be the same; memory that a
// kernel writes cannot be bound to it twice. The memory lives as long as a kernel uses it.
FerraneStatus ferrane_share(ANEKernelHandle *kernel,
                            int kind,
                            size_t index,
                            ANEKernelHandle *from,
                            int from_kind,
                            size_t from_index);

// Ends a kernel; null does nothing. A run in flight ends first and its callback is still called;
// the program is unloaded with the last kernel on it.
FerraneStatus ferrane_free(ANEKernelHandle *kernel);

// How many programs the process has compiled and loaded since it started or the count was reset.
// An engine was seen to allow about 119 to a process (apple-runtime §3).
int ferrane_compile_count(void);

// Sets the count to zero. It gives no budget back.
void ferrane_reset_compile_count(void);

// How many ports of a kind (FERRANE_INPUT, FERRANE_OUTPUT, FERRANE_STATE) a kernel has.
FerraneStatus ferrane_port_count(ANEKernelHandle *kernel, int kind, size_t *count);

// What a port is like. Ports are in the order that the device reports.
FerraneStatus ferrane_port(ANEKernelHandle *kernel, int kind, size_t index, FerranePort *port);

// Copies a port's name; buffer and length as in ferrane_device_name.
FerraneStatus ferrane_port_name(ANEKernelHandle *kernel,
                                int kind,
                                size_t index,
                                char *buffer,
                                size_t capacity,
                                size_t *length);

// Copies a port's extents, outermost first. `capacity` is the room in `shape`, at least the port's
// rank.
FerraneStatus ferrane_port_shape(ANEKernelHandle *kernel,
                                 int kind,
                                 size_t index,
                                 size_t *shape,
                                 size_t capacity);

// Finds the port of that kind and name.
FerraneStatus ferrane_port_index(ANEKernelHandle *kernel, int kind, const char *name, size_t *index);

// Writes all elements of a port: `bytes` is what FerranePort says. An input or state keeps its
// value from run to run.
FerraneStatus ferrane_write(ANEKernelHandle *kernel, int kind, size_t index, const void *data, size_t bytes);

// Reads all elements of a port: `bytes` is what FerranePort says.
FerraneStatus ferrane_read(ANEKernelHandle *kernel, int kind, size_t index, void *data, size_t bytes);

// Writes all `count` elements of an fp16 or fp32 port from fp32 values, rounded to nearest even.
FerraneStatus ferrane_write_f32(ANEKernelHandle *kernel,
                                int kind,
                                size_t index,
                                const float *values,
                                size_t count);

// Reads all `count` elements of an fp16 or fp32 port as fp32 values.
FerraneStatus ferrane_read_f32(ANEKernelHandle *kernel, int kind, size_t index, float *values, size_t count);

// Runs a kernel and waits. It is FERRANE_BUSY while the kernel's memory is in use: by a run in
// flight, or by another thread.
FerraneStatus ferrane_eval(ANEKernelHandle *kernel);

// Queues a run. `done` may be null; `user` is given to it. If this call fails, `done` is not
// called. A kernel has one run in flight at a time, as its memory is in use; ferrane_clone makes
// more. A device runs what is submitted in order.
FerraneStatus ferrane_submit(ANEKernelHandle *kernel, FerraneDone done, void *user);

// Waits until no run of the kernel is in flight and its callbacks have returned. Gives how the
// last one ended.
FerraneStatus ferrane_wait(ANEKernelHandle *kernel);

// Tells whether a run of the kernel is in flight.
FerraneStatus ferrane_in_flight(ANEKernelHandle *kernel, bool *in_flight);

// Makes a blob file of several records. `offsets`, if not null, gets the offset of each record,
// which the text of a program says for it. Free the blob with ferrane_free_blob.
FerraneStatus ferrane_blob(const FerraneTensor *tensors,
                           size_t n_tensors,
                           uint64_t *offsets,
                           uint8_t **blob,
                           size_t *len);

// Makes a blob file of one fp16 record from `rows` × `cols` fp32 values, rounded to nearest even;
// `transposed` other than 0 stores the transposed matrix. Free the blob with ferrane_free_blob.
FerraneStatus ferrane_blob_fp16(const float *src,
                                size_t rows,
                                size_t cols,
                                int transposed,
                                uint8_t **blob,
                                size_t *len);

// Makes a blob file of one int8 record from `rows` × `cols` fp32 values: round(w / scale), half
// away from zero, with the scale max |w| / 127 (1 where all is zero) of all values
// (FERRANE_PER_TENSOR) or of each row (FERRANE_PER_CHANNEL). `scales` gets the one scale or the
// `rows` scales. If `scales_offset` is not null, the scales are rounded to fp16 and stored as a
// second record, and it gets its offset. Free the blob with ferrane_free_blob.
FerraneStatus ferrane_blob_int8(const float *src,
                                size_t rows,
                                size_t cols,
                                int granularity,
                                float *scales,
                                uint64_t *scales_offset,
                                uint8_t **blob,
                                size_t *len);

// Frees a blob of this library; null does nothing.
FerraneStatus ferrane_free_blob(void *blob);

// Opens the process's device ("emulator", unless ferrane_init chose another). 0, or -1 after a
// failure. Calling it again does nothing.
int ane_bridge_init(void);

// Compiles MIL text with at most one blob file, which the program finds as
// @model_path/weights/weight.bin; no file if it is null or empty. The sizes are the bytes of each
// input and output, in the order of the ports, and must be right. Null after a failure.
ANEKernelHandle *ane_bridge_compile(const char *mil_text,
                                    size_t mil_len,
                                    const uint8_t *weight_data,
                                    size_t weight_len,
                                    int n_inputs,
                                    const size_t *input_sizes,
                                    int n_outputs,
                                    const size_t *output_sizes);

// As ane_bridge_compile, with several blob files under the names that the program uses.
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

// Compiles MIL text whose last `n_weights` inputs are weights, which are written at run time and
// need no compile anew. The sizes are the bytes of each input, each weight and the one output, and
// must be right. Null after a failure.
ANEKernelHandle *ane_bridge_compile_dyn(const char *mil_text,
                                        size_t mil_len,
                                        int n_inputs,
                                        const size_t *input_sizes,
                                        int n_weights,
                                        const size_t *weight_sizes,
                                        size_t output_size);

// Runs a kernel and waits. False after a failure.
bool ane_bridge_eval(ANEKernelHandle *kernel);

// Writes all bytes of an input. After a failure, ferrane_last_status says so, and nothing was
// written.
void ane_bridge_write_input(ANEKernelHandle *kernel, int idx, const void *data, size_t bytes);

// Writes all bytes of a weight of ane_bridge_compile_dyn; 0 is the first weight. After a failure,
// ferrane_last_status says so, and nothing was written.
void ane_bridge_write_weight(ANEKernelHandle *kernel, int idx, const void *fp16_data, size_t bytes);

// Writes all `count` elements of a weight from fp32 values, rounded to nearest even; else as
// ane_bridge_write_weight.
void ane_bridge_write_weight_f32(ANEKernelHandle *kernel, int idx, const float *fp32_data, size_t count);

// Copies an output of one kernel to an input of another, which must have as many bytes.
// ferrane_share needs no copy. After a failure, ferrane_last_status says so, and nothing was
// copied.
void ane_bridge_copy_io(ANEKernelHandle *src, int src_out_idx, ANEKernelHandle *dst, int dst_in_idx);

// Reads all bytes of an output. After a failure, ferrane_last_status says so, and nothing was
// read.
void ane_bridge_read_output(ANEKernelHandle *kernel, int idx, void *data, size_t bytes);

// Ends a kernel; null does nothing.
void ane_bridge_free(ANEKernelHandle *kernel);

// As ferrane_compile_count.
int ane_bridge_get_compile_count(void);

// As ferrane_reset_compile_count.
void ane_bridge_reset_compile_count(void);

// Makes a blob file of one fp16 record, 128 + 2·rows·cols bytes. Free it with
// ane_bridge_free_blob. Null after a failure.
uint8_t *ane_bridge_build_weight_blob(const float *src, int rows, int cols, size_t *out_len);

// As ane_bridge_build_weight_blob, with the transposed matrix.
uint8_t *ane_bridge_build_weight_blob_transposed(const float *src, int rows, int cols, size_t *out_len);

// Makes a blob file of one int8 record, 128 + rows·cols bytes: with the file header that the
// reference leaves out. Free it with ane_bridge_free_blob. Null after a failure.
uint8_t *ane_bridge_build_weight_blob_int8(const int8_t *src, int rows, int cols, size_t *out_len);

// Makes a blob file of one int8 record from fp32 values with one scale, max |w| / 127 (1 where all
// is zero); for a scale of each row see ferrane_blob_int8. Free it with ane_bridge_free_blob. Null
// after a failure.
uint8_t *ane_bridge_build_weight_blob_quantized(const float *src,
                                                int rows,
                                                int cols,
                                                float *out_scale,
                                                size_t *out_len);

// Frees a blob; null does nothing.
void ane_bridge_free_blob(void *blob);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FERRANE_H */

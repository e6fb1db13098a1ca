/* Every function with every kind of wrong argument returns a status and a text, and later calls work. */
#include "check.h"

static ANEKernelHandle *compiled(void) {
    ANEKernelHandle *kernel = NULL;
    CHECK(ferrane_compile(NULL, PROGRAM, strlen(PROGRAM), NULL, 0, &kernel) == FERRANE_OK);
    CHECK(kernel != NULL);
    return kernel;
}

static void devices(void) {
    FerraneDevice *device = NULL;
    char name[64];
    size_t length = 99;
    CHECK(ferrane_open("emulator?numerics=exact", &device) == FERRANE_OK);
    CHECK(ferrane_last_status() == FERRANE_OK && ferrane_last_error()[0] == '\0');
    CHECK(ferrane_device_name(device, NULL, 0, &length) == FERRANE_OK && length > 0 && length < sizeof name);
    CHECK(ferrane_device_name(device, name, length + 1, NULL) == FERRANE_OK && strlen(name) == length);
    CHECK(strstr(name, "exact") != NULL);
    FAILS(ferrane_device_name(device, name, length, NULL), FERRANE_BUFFER_TOO_SMALL, "needed");
    FAILS(ferrane_device_name(device, NULL, 8, &length), FERRANE_INVALID_ARGUMENT, "`buffer` is null");
    FAILS(ferrane_device_name(device, NULL, 0, NULL), FERRANE_BUFFER_TOO_SMALL, "needed");

    /* A kernel outlives its device's handle, and a handle of one kind is not valid as the other. */
    ANEKernelHandle *kernel = NULL;
    CHECK(ferrane_compile(device, PROGRAM, strlen(PROGRAM), NULL, 0, &kernel) == FERRANE_OK);
    FAILS(ferrane_close((FerraneDevice *)(void *)kernel), FERRANE_INVALID_HANDLE, "device was freed");
    FAILS(ferrane_free((ANEKernelHandle *)(void *)device), FERRANE_INVALID_HANDLE, "kernel was freed");
    CHECK(ferrane_close(device) == FERRANE_OK);
    FAILS(ferrane_close(device), FERRANE_INVALID_HANDLE, "freed");
    FAILS(ferrane_device_name(device, name, sizeof name, NULL), FERRANE_INVALID_HANDLE, "freed");
    CHECK(ferrane_eval(kernel) == FERRANE_OK);
    CHECK(ferrane_free(kernel) == FERRANE_OK);
    kernel = (ANEKernelHandle *)&length;
    FAILS(ferrane_compile(device, PROGRAM, strlen(PROGRAM), NULL, 0, &kernel), FERRANE_INVALID_HANDLE, "freed");
    CHECK(kernel == NULL);
    CHECK(ferrane_close(NULL) == FERRANE_OK && ferrane_free(NULL) == FERRANE_OK);

    device = (FerraneDevice *)&length;
    FAILS(ferrane_open("emulatr", &device), FERRANE_OPTION, "did you mean `emulator`");
    CHECK(device == NULL);
    FAILS(ferrane_open("emulator?numerics=slow", &device), FERRANE_OPTION, "numerics=fast|exact");
    FAILS(ferrane_open("caf\xE9", &device), FERRANE_INVALID_ARGUMENT, "UTF-8");
    FAILS(ferrane_open(NULL, &device), FERRANE_INVALID_ARGUMENT, "`name` is null");
    FAILS(ferrane_open("emulator", NULL), FERRANE_INVALID_ARGUMENT, "`device` is null");
    FAILS(ferrane_init("toaster"), FERRANE_OPTION, "unknown device");
    FAILS(ferrane_init("\xFF"), FERRANE_INVALID_ARGUMENT, "UTF-8");
#ifndef __APPLE__
    FAILS(ferrane_open("ane", &device), FERRANE_UNAVAILABLE, "E0611");
#endif
    CHECK(ferrane_init("emulator?numerics=exact") == FERRANE_OK);
    CHECK(ferrane_init(NULL) == FERRANE_OK);
    CHECK(ferrane_device_name(NULL, name, sizeof name, NULL) == FERRANE_OK && strstr(name, "exact") != NULL);
    CHECK(ferrane_init("emulator") == FERRANE_OK);
}

static void compiles(void) {
    ANEKernelHandle *kernel = NULL;
    size_t len = strlen(PROGRAM);
    ferrane_reset_compile_count();
    FAILS(ferrane_compile(NULL, NULL, len, NULL, 0, &kernel), FERRANE_INVALID_ARGUMENT, "`mil` is null");
    FAILS(ferrane_compile(NULL, PROGRAM, len, NULL, 0, NULL), FERRANE_INVALID_ARGUMENT, "`kernel` is null");
    FAILS(ferrane_compile(NULL, PROGRAM, len, NULL, 1, &kernel), FERRANE_INVALID_ARGUMENT, "`weights` is null");
    FAILS(ferrane_compile(NULL, PROGRAM, (size_t)-1, NULL, 0, &kernel), FERRANE_INVALID_ARGUMENT, "elements");
    FAILS(ferrane_compile(NULL, NULL, 0, NULL, 0, &kernel), FERRANE_INVALID_PROGRAM, "E0601");
    FAILS(ferrane_compile(NULL, PROGRAM, len / 2, NULL, 0, &kernel), FERRANE_INVALID_PROGRAM, "E0601");
    FAILS(ferrane_compile(NULL, "\xFF\xFE\x00", 3, NULL, 0, &kernel), FERRANE_INVALID_PROGRAM, "E0601");
    const char *unknown = "program(1.3)\n{\n func main<ios18>(tensor<fp16, [2]> x) {\n"
                          "  tensor<fp16, [2]> y = frobnicate(x = x)[name = string(\"y\")];\n } -> (y);\n}\n";
    FAILS(ferrane_compile(NULL, unknown, strlen(unknown), NULL, 0, &kernel), FERRANE_UNSUPPORTED, "frobnicate");
    CHECK(kernel == NULL && ferrane_compile_count() == 0);

    /* Weights: absent, null, of a wrong type, right. */
    const char *weighted =
        "program(1.3)\n{\n func main<ios18>(tensor<fp16, [2]> x) {\n"
        "  tensor<fp16, [2]> w = const()[name = string(\"w\"), val = tensor<fp16, [2]>("
        "BLOBFILE(path = string(\"@model_path/weights/w.bin\"), offset = uint64(64)))];\n"
        "  tensor<fp16, [2]> y = mul(x = x, y = w)[name = string(\"y\")];\n } -> (y);\n}\n";
    size_t n = strlen(weighted);
    FAILS(ferrane_compile(NULL, weighted, n, NULL, 0, &kernel), FERRANE_INVALID_PROGRAM, "w.bin");
    FerraneWeight weight = {"@model_path/weights/w.bin", NULL, 8};
    FAILS(ferrane_compile(NULL, weighted, n, &weight, 1, &kernel), FERRANE_INVALID_ARGUMENT, "`weights.data` is null");
    uint8_t *blob = NULL;
    size_t blob_len = 0;
    const float values[2] = {0.5f, -2};
    const int8_t codes[2] = {1, 2};
    FerraneTensor tensor = {FERRANE_INT8, codes, 2};
    CHECK(ferrane_blob(&tensor, 1, NULL, &blob, &blob_len) == FERRANE_OK);
    weight.data = blob, weight.len = blob_len;
    FAILS(ferrane_compile(NULL, weighted, n, &weight, 1, &kernel), FERRANE_INVALID_PROGRAM, "type");
    CHECK(ferrane_free_blob(blob) == FERRANE_OK);
    CHECK(ferrane_blob_fp16(values, 1, 2, 0, &blob, &blob_len) == FERRANE_OK);
    weight.data = blob, weight.len = 70;
    FAILS(ferrane_compile(NULL, weighted, n, &weight, 1, &kernel), FERRANE_INVALID_PROGRAM, "E0601");
    weight.len = blob_len, weight.name = "caf\xE9";
    FAILS(ferrane_compile(NULL, weighted, n, &weight, 1, &kernel), FERRANE_INVALID_ARGUMENT, "UTF-8");
    weight.name = NULL;
    FAILS(ferrane_compile(NULL, weighted, n, &weight, 1, &kernel), FERRANE_INVALID_ARGUMENT, "`weights.name` is null");
    weight.name = "@model_path/weights/w.bin";
    CHECK(ferrane_compile(NULL, weighted, n, &weight, 1, &kernel) == FERRANE_OK);
    CHECK(ferrane_compile_count() == 1);
    /* The file was copied, so its buffer may be overwritten. */
    memset(blob, 0, blob_len);
    CHECK(ferrane_free_blob(blob) == FERRANE_OK);
    float x[2] = {3, 5}, y[2] = {0, 0};
    CHECK(ferrane_write_f32(kernel, FERRANE_INPUT, 0, x, 2) == FERRANE_OK && ferrane_eval(kernel) == FERRANE_OK);
    CHECK(ferrane_read_f32(kernel, FERRANE_OUTPUT, 0, y, 2) == FERRANE_OK && y[0] == 1.5f && y[1] == -10);
    CHECK(ferrane_free(kernel) == FERRANE_OK);
}

static void ports(void) {
    ANEKernelHandle *kernel = compiled(), *other = NULL;
    size_t count = 9, length = 0, index = 9, shape[4] = {0, 0, 0, 0};
    char name[16];
    FerranePort port;
    CHECK(ferrane_port_count(kernel, FERRANE_INPUT, &count) == FERRANE_OK && count == 1);
    CHECK(ferrane_port_count(kernel, FERRANE_OUTPUT, &count) == FERRANE_OK && count == 1);
    CHECK(ferrane_port_count(kernel, FERRANE_STATE, &count) == FERRANE_OK && count == 1);
    CHECK(ferrane_port(kernel, FERRANE_STATE, 0, &port) == FERRANE_OK);
    CHECK(port.dtype == FERRANE_FP16 && port.rank == 1 && port.elements == 2 && port.bytes == 4);
    CHECK(ferrane_port_name(kernel, FERRANE_STATE, 0, name, sizeof name, &length) == FERRANE_OK);
    CHECK(strcmp(name, "total") == 0 && length == 5);
    CHECK(ferrane_clone(kernel, "difference", &other) == FERRANE_OK);
    CHECK(ferrane_port_index(other, FERRANE_INPUT, "b", &index) == FERRANE_OK && index == 1);
    CHECK(ferrane_port(other, FERRANE_INPUT, 1, &port) == FERRANE_OK);
    CHECK(port.dtype == FERRANE_FP32 && port.rank == 2 && port.elements == 6 && port.bytes == 24);
    CHECK(ferrane_port_shape(other, FERRANE_INPUT, 1, shape, 4) == FERRANE_OK);
    CHECK(shape[0] == 2 && shape[1] == 3 && shape[2] == 0);

    FAILS(ferrane_port_shape(other, FERRANE_INPUT, 1, shape, 1), FERRANE_BUFFER_TOO_SMALL, "2 are needed");
    FAILS(ferrane_port_shape(other, FERRANE_INPUT, 1, NULL, 4), FERRANE_INVALID_ARGUMENT, "`shape` is null");
    FAILS(ferrane_port_shape(other, FERRANE_INPUT, 2, shape, 4), FERRANE_BINDING, "no input 2");
    FAILS(ferrane_port_count(kernel, 3, &count), FERRANE_INVALID_ARGUMENT, "3 is not a kind of port");
    FAILS(ferrane_port_count(kernel, -1, &count), FERRANE_INVALID_ARGUMENT, "-1 is not a kind of port");
    FAILS(ferrane_port_count(kernel, FERRANE_INPUT, NULL), FERRANE_INVALID_ARGUMENT, "`count` is null");
    FAILS(ferrane_port_count(NULL, FERRANE_INPUT, &count), FERRANE_INVALID_HANDLE, "kernel is null");
    FAILS(ferrane_port(kernel, FERRANE_OUTPUT, 1, &port), FERRANE_BINDING, "no output 1: `main` has 1");
    FAILS(ferrane_port(kernel, FERRANE_OUTPUT, (size_t)-1, &port), FERRANE_BINDING, "no output");
    FAILS(ferrane_port(kernel, FERRANE_OUTPUT, 0, NULL), FERRANE_INVALID_ARGUMENT, "`port` is null");
    FAILS(ferrane_port(kernel, FERRANE_OUTPUT, 0, (FerranePort *)(void *)((char *)&port + 1)), FERRANE_INVALID_ARGUMENT,
          "not aligned");
    FAILS(ferrane_port_name(kernel, FERRANE_STATE, 0, name, 5, &length), FERRANE_BUFFER_TOO_SMALL, "6 are needed");
    FAILS(ferrane_port_index(kernel, FERRANE_INPUT, "total", &index), FERRANE_BINDING, "there are x");
    FAILS(ferrane_port_index(kernel, FERRANE_INPUT, "\xFF", &index), FERRANE_INVALID_ARGUMENT, "UTF-8");
    FAILS(ferrane_port_index(kernel, FERRANE_INPUT, "x", NULL), FERRANE_INVALID_ARGUMENT, "`index` is null");
    FAILS(ferrane_clone(kernel, "quotient", &other), FERRANE_BINDING, "main, difference");
    CHECK(other == NULL);
    FAILS(ferrane_clone(kernel, NULL, NULL), FERRANE_INVALID_ARGUMENT, "`clone` is null");
    FAILS(ferrane_clone(NULL, NULL, &other), FERRANE_INVALID_HANDLE, "null");
    CHECK(ferrane_free(kernel) == FERRANE_OK);
    FAILS(ferrane_port_count(kernel, FERRANE_INPUT, &count), FERRANE_INVALID_HANDLE, "freed");
}

static void runs(void) {
    ANEKernelHandle *kernel = compiled(), *difference = NULL, *again = NULL;
    CHECK(ferrane_clone(kernel, "difference", &difference) == FERRANE_OK);
    CHECK(ferrane_clone(kernel, NULL, &again) == FERRANE_OK);
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {10, 20, 30, 40, 50, 60};
    float x[2] = {3, 5}, y[2] = {0, 0}, d[6];
    CHECK(ferrane_write(difference, FERRANE_INPUT, 0, a, sizeof a) == FERRANE_OK);
    CHECK(ferrane_write(difference, FERRANE_INPUT, 1, b, sizeof b) == FERRANE_OK);
    CHECK(ferrane_eval(difference) == FERRANE_OK);
    CHECK(ferrane_read(difference, FERRANE_OUTPUT, 0, d, sizeof d) == FERRANE_OK);
    for (int i = 0; i < 6; i++) CHECK(d[i] == a[i] - b[i]);
    /* Each kernel keeps a state of its own from run to run. */
    CHECK(ferrane_write_f32(kernel, FERRANE_INPUT, 0, x, 2) == FERRANE_OK);
    for (int run = 1; run <= 3; run++) {
        CHECK(ferrane_eval(kernel) == FERRANE_OK && ferrane_read_f32(kernel, FERRANE_OUTPUT, 0, y, 2) == FERRANE_OK);
        CHECK(y[0] == (float)(6 * run) && y[1] == (float)(10 * run));
    }
    CHECK(ferrane_read_f32(kernel, FERRANE_STATE, 0, y, 2) == FERRANE_OK && y[0] == 9 && y[1] == 15);
    CHECK(ferrane_read_f32(again, FERRANE_STATE, 0, y, 2) == FERRANE_OK && y[0] == 0 && y[1] == 0);
    x[0] = 100;
    CHECK(ferrane_write_f32(kernel, FERRANE_STATE, 0, x, 2) == FERRANE_OK && ferrane_eval(kernel) == FERRANE_OK);
    CHECK(ferrane_read_f32(kernel, FERRANE_OUTPUT, 0, y, 2) == FERRANE_OK && y[0] == 206 && y[1] == 20);

    FAILS(ferrane_write(difference, FERRANE_INPUT, 0, a, 23), FERRANE_BINDING, "23 bytes for `a`, which has 24");
    FAILS(ferrane_write(difference, FERRANE_INPUT, 0, a, 25), FERRANE_BINDING, "25 bytes");
    FAILS(ferrane_write(difference, FERRANE_INPUT, 0, a, 0), FERRANE_BINDING, "0 bytes");
    FAILS(ferrane_write(difference, FERRANE_INPUT, 0, NULL, 24), FERRANE_INVALID_ARGUMENT, "`data` is null");
    FAILS(ferrane_write(difference, FERRANE_INPUT, 2, a, 24), FERRANE_BINDING, "no input 2");
    FAILS(ferrane_write(difference, FERRANE_STATE, 0, a, 24), FERRANE_BINDING, "no state 0");
    FAILS(ferrane_write(difference, 77, 0, a, 24), FERRANE_INVALID_ARGUMENT, "77");
    FAILS(ferrane_write(NULL, FERRANE_INPUT, 0, a, 24), FERRANE_INVALID_HANDLE, "null");
    FAILS(ferrane_read(difference, FERRANE_OUTPUT, 0, d, 20), FERRANE_BINDING, "20 bytes for `d`");
    FAILS(ferrane_read(difference, FERRANE_OUTPUT, 0, NULL, 24), FERRANE_INVALID_ARGUMENT, "`data` is null");
    FAILS(ferrane_read(difference, FERRANE_OUTPUT, 1, d, 24), FERRANE_BINDING, "no output 1");
    FAILS(ferrane_write_f32(kernel, FERRANE_INPUT, 0, x, 1), FERRANE_LAYOUT, "1 values");
    FAILS(ferrane_write_f32(kernel, FERRANE_INPUT, 0, NULL, 2), FERRANE_INVALID_ARGUMENT, "null");
    FAILS(ferrane_write_f32(kernel, FERRANE_INPUT, 0, (float *)(void *)((char *)x + 1), 1), FERRANE_INVALID_ARGUMENT,
          "not aligned");
    FAILS(ferrane_read_f32(kernel, FERRANE_OUTPUT, 0, y, 3), FERRANE_LAYOUT, "3 values");
    FAILS(ferrane_read_f32(kernel, FERRANE_OUTPUT, 0, NULL, 2), FERRANE_INVALID_ARGUMENT, "null");
    FAILS(ferrane_eval(NULL), FERRANE_INVALID_HANDLE, "null");
    FAILS(ferrane_submit(NULL, NULL, NULL), FERRANE_INVALID_HANDLE, "null");
    FAILS(ferrane_wait(NULL), FERRANE_INVALID_HANDLE, "null");
    FAILS(ferrane_wait(kernel), FERRANE_INVALID_ARGUMENT, "nothing was submitted");
    bool flying = true;
    CHECK(ferrane_in_flight(kernel, &flying) == FERRANE_OK && !flying);
    FAILS(ferrane_in_flight(kernel, NULL), FERRANE_INVALID_ARGUMENT, "null");

    /* Sharing: a port that fits is bound; one that does not is refused, and nothing changes. */
    CHECK(ferrane_share(again, FERRANE_INPUT, 0, kernel, FERRANE_OUTPUT, 0) == FERRANE_OK);
    CHECK(ferrane_eval(again) == FERRANE_OK && ferrane_read_f32(again, FERRANE_OUTPUT, 0, y, 2) == FERRANE_OK);
    CHECK(y[0] == 412 && y[1] == 40);
    FAILS(ferrane_share(again, FERRANE_INPUT, 0, difference, FERRANE_OUTPUT, 0), FERRANE_BINDING, "surface is fp32");
    FAILS(ferrane_share(again, FERRANE_OUTPUT, 0, again, FERRANE_STATE, 0), FERRANE_BINDING, "also bound");
    FAILS(ferrane_share(again, FERRANE_INPUT, 1, kernel, FERRANE_OUTPUT, 0), FERRANE_BINDING, "no input 1");
    FAILS(ferrane_share(again, FERRANE_INPUT, 0, kernel, FERRANE_OUTPUT, 1), FERRANE_BINDING, "no output 1");
    FAILS(ferrane_share(again, FERRANE_INPUT, 0, NULL, FERRANE_OUTPUT, 0), FERRANE_INVALID_HANDLE, "null");
    CHECK(ferrane_free(kernel) == FERRANE_OK);
    CHECK(ferrane_eval(again) == FERRANE_OK && ferrane_read_f32(again, FERRANE_INPUT, 0, y, 2) == FERRANE_OK);
    CHECK(y[0] == 206 && y[1] == 20);
    FAILS(ferrane_eval(kernel), FERRANE_INVALID_HANDLE, "freed");
    FAILS(ferrane_free(kernel), FERRANE_INVALID_HANDLE, "freed");
    FAILS(ferrane_free((ANEKernelHandle *)(void *)x), FERRANE_INVALID_HANDLE, "never was");
    CHECK(ferrane_free(again) == FERRANE_OK && ferrane_free(difference) == FERRANE_OK);
}

/* A callback that makes the allowed calls and the forbidden one. */
struct told {
    ANEKernelHandle *kernel;
    int calls, resubmits;
    FerraneStatus status, waited;
    float first;
};

static void done(void *user, FerraneStatus status, const char *message) {
    struct told *told = user;
    float y[2];
    told->calls++;
    told->status = status != FERRANE_OK || message[0] != '\0' ? 1 : 0;
    told->waited = ferrane_wait(told->kernel);
    if (ferrane_read_f32(told->kernel, FERRANE_OUTPUT, 0, y, 2) == FERRANE_OK) told->first = y[0];
    if (told->resubmits-- > 0) {
        if (ferrane_submit(told->kernel, done, user) != FERRANE_OK) told->status = ferrane_last_status();
    } else {
        ferrane_free(told->kernel);
    }
}

static void submissions(void) {
    ANEKernelHandle *kernel = compiled(), *held = NULL;
    const float x[2] = {1, 1};
    CHECK(ferrane_write_f32(kernel, FERRANE_INPUT, 0, x, 2) == FERRANE_OK);
    CHECK(ferrane_submit(kernel, NULL, NULL) == FERRANE_OK && ferrane_wait(kernel) == FERRANE_OK);
    CHECK(ferrane_wait(kernel) == FERRANE_OK);
    /* Ten runs of each of two kernels; some submits find the kernel busy with its previous run. */
    CHECK(ferrane_clone(kernel, NULL, &held) == FERRANE_OK);
    for (int run = 0; run < 10; run++) {
        FerraneStatus status = ferrane_submit(kernel, NULL, NULL);
        CHECK(status == FERRANE_OK || status == FERRANE_BUSY);
        status = ferrane_submit(held, NULL, NULL);
        CHECK(status == FERRANE_OK || status == FERRANE_BUSY);
    }
    CHECK(ferrane_wait(kernel) == FERRANE_OK && ferrane_wait(held) == FERRANE_OK);
    CHECK(ferrane_free(held) == FERRANE_OK);

    CHECK(ferrane_clone(kernel, NULL, &held) == FERRANE_OK);
    CHECK(ferrane_write_f32(held, FERRANE_INPUT, 0, x, 2) == FERRANE_OK);
    struct told told = {held, 0, 4, -1, -1, 0};
    CHECK(ferrane_submit(held, done, &told) == FERRANE_OK);
    /* The last callback frees the kernel, perhaps before this call. Callbacks come in the order of submission: a later run
       ends after it. */
    FerraneStatus end = ferrane_wait(held);
    CHECK(end == FERRANE_OK || end == FERRANE_INVALID_HANDLE);
    CHECK(ferrane_submit(kernel, NULL, NULL) == FERRANE_OK && ferrane_wait(kernel) == FERRANE_OK);
    CHECK(told.calls == 5 && told.status == 0 && told.waited == FERRANE_BUSY && told.first == 10);
    FAILS(ferrane_free(held), FERRANE_INVALID_HANDLE, "freed");
    CHECK(ferrane_free(kernel) == FERRANE_OK);
}

static void blobs(void) {
    const float values[6] = {1, -2, 0.5f, 3, 0, 12.7f};
    float scales[3];
    uint8_t *blob = (uint8_t *)scales;
    size_t len = 0;
    uint64_t offsets[2], scales_offset = 0;
    CHECK(ferrane_blob_fp16(values, 2, 3, 1, &blob, &len) == FERRANE_OK && len == 140 && blob[68] == 1);
    /* Element (0, 1), -2 = 0xC000, is in row 1 of the transposed matrix. */
    CHECK(blob[128 + 2 * 2 + 1] == 0xC0);
    CHECK(ferrane_free_blob(blob) == FERRANE_OK);
    FAILS(ferrane_free_blob(blob), FERRANE_INVALID_HANDLE, "freed");
    FAILS(ferrane_free_blob(scales), FERRANE_INVALID_HANDLE, "no blob");
    CHECK(ferrane_free_blob(NULL) == FERRANE_OK);
    CHECK(ferrane_blob_int8(values, 2, 3, FERRANE_PER_CHANNEL, scales, NULL, &blob, &len) == FERRANE_OK);
    CHECK(len == 134 && blob[68] == 4 && scales[0] == 2 / 127.0f && scales[1] == 12.7f / 127.0f);
    CHECK((int8_t)blob[129] == -127 && (int8_t)blob[133] == 127);
    CHECK(ferrane_free_blob(blob) == FERRANE_OK);
    CHECK(ferrane_blob_int8(values, 2, 3, FERRANE_PER_TENSOR, scales, &scales_offset, &blob, &len) == FERRANE_OK);
    CHECK(scales_offset == 192 && len == 192 + 64 + 2 && blob[0] == 2);
    CHECK(ferrane_free_blob(blob) == FERRANE_OK);
    FerraneTensor two[2] = {{FERRANE_FP32, values, 24}, {FERRANE_UINT8, "abc", 3}};
    CHECK(ferrane_blob(two, 2, offsets, &blob, &len) == FERRANE_OK);
    CHECK(offsets[0] == 64 && offsets[1] == 192 && len == 192 + 64 + 3 && memcmp(blob + 256, "abc", 3) == 0);
    CHECK(ferrane_free_blob(blob) == FERRANE_OK);

    blob = (uint8_t *)scales;
    two[0].bytes = 23;
    FAILS(ferrane_blob(two, 2, offsets, &blob, &len), FERRANE_INVALID_ARGUMENT, "not a whole number of elements of fp32");
    CHECK(blob == NULL);
    two[0].bytes = 24, two[0].dtype = 99;
    FAILS(ferrane_blob(two, 2, offsets, &blob, &len), FERRANE_INVALID_ARGUMENT, "99 is not an element type");
    two[0].dtype = FERRANE_BOOL;
    FAILS(ferrane_blob(two, 2, offsets, &blob, &len), FERRANE_INVALID_ARGUMENT, "100 is not an element type");
    two[0].dtype = FERRANE_FP32, two[1].data = NULL;
    FAILS(ferrane_blob(two, 2, offsets, &blob, &len), FERRANE_INVALID_ARGUMENT, "`tensors.data` is null");
    FAILS(ferrane_blob(NULL, 2, offsets, &blob, &len), FERRANE_INVALID_ARGUMENT, "`tensors` is null");
    FAILS(ferrane_blob(two, 1, offsets, NULL, &len), FERRANE_INVALID_ARGUMENT, "`blob` is null");
    FAILS(ferrane_blob(two, 1, offsets, &blob, NULL), FERRANE_INVALID_ARGUMENT, "`len` is null");
    FAILS(ferrane_blob_fp16(NULL, 2, 3, 0, &blob, &len), FERRANE_INVALID_ARGUMENT, "`src` is null");
    FAILS(ferrane_blob_fp16(values, 0, 3, 0, &blob, &len), FERRANE_INVALID_ARGUMENT, "matrix of 0");
    FAILS(ferrane_blob_fp16(values, (size_t)-1, 3, 0, &blob, &len), FERRANE_INVALID_ARGUMENT, "matrix");
    FAILS(ferrane_blob_fp16(values, 1, 1, 0, NULL, &len), FERRANE_INVALID_ARGUMENT, "`blob` is null");
    FAILS(ferrane_blob_int8(values, 2, 3, 2, scales, NULL, &blob, &len), FERRANE_INVALID_ARGUMENT, "granularity");
    FAILS(ferrane_blob_int8(values, 2, 3, FERRANE_PER_CHANNEL, NULL, NULL, &blob, &len), FERRANE_INVALID_ARGUMENT,
          "`scales` is null");
    const float infinite[1] = {1e30f * 1e30f};
    FAILS(ferrane_blob_int8(infinite, 1, 1, FERRANE_PER_TENSOR, scales, NULL, &blob, &len), FERRANE_INVALID_ARGUMENT,
          "value 0 is inf");
}

int main(void) {
    CHECK(strchr(ferrane_version(), '.') != NULL);
    CHECK(ferrane_last_status() == FERRANE_OK && ferrane_last_error()[0] == '\0');
    devices();
    compiles();
    ports();
    runs();
    submissions();
    blobs();
    puts("every error is an error");
    return 0;
}

/* The reference's functions as its programs use them, with values that expose swapped operands. */
#include "check.h"

static const char *const LINEAR =
    "program(1.3)\n"
    "{\n"
    "    func main<ios18>(tensor<fp16, [1, 3, 1, 2]> x) {\n"
    "        string pad_type = const()[name = string(\"pad_type\"), val = string(\"valid\")];\n"
    "        tensor<int32, [2]> strides = const()[name = string(\"strides\"), val = tensor<int32, [2]>([1, 1])];\n"
    "        tensor<int32, [4]> pad = const()[name = string(\"pad\"), val = tensor<int32, [4]>([0, 0, 0, 0])];\n"
    "        tensor<int32, [2]> dilations = const()[name = string(\"dilations\"), val = tensor<int32, [2]>([1, 1])];\n"
    "        int32 groups = const()[name = string(\"groups\"), val = int32(1)];\n"
    "        tensor<fp16, [2, 3, 1, 1]> w = const()[name = string(\"w\"), val = tensor<fp16, [2, 3, 1, 1]>("
    "BLOBFILE(path = string(\"@model_path/weights/%s\"), offset = uint64(64)))];\n"
    "        tensor<fp16, [1, 2, 1, 2]> y = conv(dilations = dilations, groups = groups, pad = pad, pad_type = pad_type,"
    " strides = strides, weight = w, x = x)[name = string(\"y\")];\n"
    "    } -> (y);\n"
    "}\n";

/* fp16 of 1, 10, 2, 20, 3, 30, and of the outputs with the weights: 14, 140, -3, -30. */
static const uint16_t X[6] = {0x3C00, 0x4900, 0x4000, 0x4D00, 0x4200, 0x4F80};
static const uint16_t Y[4] = {0x4B00, 0x5860, 0xC200, 0xCF80};
static const float W[6] = {1, 2, 3, 0, 0, -1};

static void run(ANEKernelHandle *kernel) {
    uint16_t y[4] = {0, 0, 0, 0};
    CHECK(kernel != NULL);
    ane_bridge_write_input(kernel, 0, X, sizeof X);
    CHECK(ferrane_last_status() == FERRANE_OK);
    CHECK(ane_bridge_eval(kernel));
    ane_bridge_read_output(kernel, 0, y, sizeof y);
    CHECK(ferrane_last_status() == FERRANE_OK);
    CHECK(memcmp(y, Y, sizeof y) == 0);
}

static const char *const PRODUCT =
    "program(1.3)\n"
    "{\n"
    "    func main<ios18>(tensor<fp16, [1, 3, 2]> x, tensor<fp16, [1, 2, 3]> a, tensor<fp16, [1, 1, 1]> b) {\n"
    "        bool no = const()[name = string(\"no\"), val = bool(false)];\n"
    "        tensor<fp16, [1, 2, 2]> ax = matmul(transpose_x = no, transpose_y = no, x = a, y = x)[name = string(\"ax\")];\n"
    "        tensor<fp16, [1, 2, 2]> y = add(x = ax, y = b)[name = string(\"y\")];\n"
    "    } -> (y);\n"
    "}\n";

static const char *const TWICE =
    "program(1.3)\n"
    "{\n"
    "    func main<ios18>(tensor<fp16, [4]> v) {\n"
    "        tensor<fp16, [4]> w = add(x = v, y = v)[name = string(\"w\")];\n"
    "    } -> (w);\n"
    "}\n";

/* One compile, new weights for each run, and a copy into the next kernel. */
static void weights_as_inputs(void) {
    const size_t x = sizeof X, sizes[2] = {12, 2}, y = sizeof Y;
    const size_t len = strlen(PRODUCT);
    ANEKernelHandle *kernel = ane_bridge_compile_dyn(PRODUCT, len, 1, &x, 2, sizes, y);
    CHECK(kernel != NULL);
    const float zero = 0, one = 1;
    ane_bridge_write_weight_f32(kernel, 0, W, 6);
    ane_bridge_write_weight_f32(kernel, 1, &zero, 1);
    CHECK(ferrane_last_status() == FERRANE_OK);
    run(kernel);
    /* The rows in reverse: fp16 of 0, 0, -1, 1, 2, 3, and 1 is added: -2, -29, 15, 141. */
    const uint16_t turned[6] = {0, 0, 0xBC00, 0x3C00, 0x4000, 0x4200};
    ane_bridge_write_weight(kernel, 0, turned, sizeof turned);
    ane_bridge_write_weight_f32(kernel, 1, &one, 1);
    CHECK(ane_bridge_eval(kernel));
    const uint16_t wanted[4] = {0xC000, 0xCF40, 0x4B80, 0x5868};
    uint16_t found[4] = {0, 0, 0, 0};
    ane_bridge_read_output(kernel, 0, found, sizeof found);
    CHECK(memcmp(found, wanted, sizeof found) == 0);

    ANEKernelHandle *twice = ane_bridge_compile_dyn(TWICE, strlen(TWICE), 1, &y, 0, NULL, y);
    CHECK(twice != NULL);
    ane_bridge_copy_io(kernel, 0, twice, 0);
    CHECK(ferrane_last_status() == FERRANE_OK && ane_bridge_eval(twice));
    const uint16_t doubled[4] = {0xC400, 0xD340, 0x4F80, 0x5C68};
    ane_bridge_read_output(twice, 0, found, sizeof found);
    CHECK(memcmp(found, doubled, sizeof found) == 0);

    ane_bridge_write_weight(kernel, 2, turned, sizeof turned);
    CHECK(ferrane_last_status() == FERRANE_BINDING && strstr(ferrane_last_error(), "no weight 2: the kernel was compiled with 2"));
    ane_bridge_write_weight(kernel, -1, turned, sizeof turned);
    CHECK(ferrane_last_status() == FERRANE_INVALID_ARGUMENT);
    ane_bridge_write_weight(kernel, 0, turned, sizeof turned - 1);
    CHECK(ferrane_last_status() == FERRANE_BINDING);
    ane_bridge_write_weight(kernel, 0, NULL, sizeof turned);
    CHECK(ferrane_last_status() == FERRANE_INVALID_ARGUMENT);
    ane_bridge_write_weight(twice, 0, turned, sizeof turned);
    CHECK(strstr(ferrane_last_error(), "compiled with 0"));
    ane_bridge_write_weight_f32(kernel, 0, W, 5);
    CHECK(ferrane_last_status() == FERRANE_LAYOUT);
    ane_bridge_write_weight_f32(NULL, 0, W, 6);
    CHECK(ferrane_last_status() == FERRANE_INVALID_HANDLE);
    ane_bridge_copy_io(kernel, 0, kernel, 0);
    CHECK(ferrane_last_status() == FERRANE_BINDING);
    ane_bridge_copy_io(kernel, 1, twice, 0);
    CHECK(ferrane_last_status() == FERRANE_BINDING);
    ane_bridge_copy_io(kernel, 0, NULL, 0);
    CHECK(ferrane_last_status() == FERRANE_INVALID_HANDLE);
    CHECK(!ane_bridge_compile_dyn(PRODUCT, len, 1, &x, 1, sizes, y) && ferrane_last_status() == FERRANE_BINDING);
    CHECK(!ane_bridge_compile_dyn(PRODUCT, len, 1, &x, 2, sizes, y + 2) && ferrane_last_status() == FERRANE_BINDING);
    CHECK(!ane_bridge_compile_dyn(PRODUCT, len, 1, &x, 2, NULL, y));
    CHECK(ferrane_last_status() == FERRANE_INVALID_ARGUMENT);
    CHECK(!ane_bridge_compile_dyn(PRODUCT, len, 1, &x, -1, sizes, y));
    ane_bridge_free(kernel);
    ane_bridge_free(twice);
}

int main(void) {
    char text[4096];
    const size_t in = sizeof X, out = sizeof Y, zero = 0;
    CHECK(ane_bridge_init() == 0 && ane_bridge_init() == 0 && ane_bridge_get_compile_count() == 0);

    /* One file, by the name that the bridge gives it. */
    size_t len = 0;
    uint8_t *blob = ane_bridge_build_weight_blob(W, 2, 3, &len);
    CHECK(blob != NULL && len == 128 + 12);
    int n = snprintf(text, sizeof text, LINEAR, "weight.bin");
    ANEKernelHandle *kernel = ane_bridge_compile(text, (size_t)n, blob, len, 1, &in, 1, &out);
    run(kernel);
    ane_bridge_free(kernel);
    CHECK(!ane_bridge_eval(kernel) && ferrane_last_status() == FERRANE_INVALID_HANDLE);
    ane_bridge_free(kernel);
    CHECK(ferrane_last_status() == FERRANE_INVALID_HANDLE);
    ane_bridge_free(NULL);
    CHECK(ferrane_last_status() == FERRANE_OK && ane_bridge_get_compile_count() == 1);

    /* Several files; the transposed builder on the transposed values gives the same bytes. */
    const float transposed[6] = {1, 0, 2, 0, 3, -1};
    size_t other_len = 0;
    uint8_t *other = ane_bridge_build_weight_blob_transposed(transposed, 3, 2, &other_len);
    CHECK(other != NULL && other_len == len && memcmp(blob, other, len) == 0);
    const char *names[2] = {"@model_path/weights/unused.bin", "@model_path/weights/deep/w.bin"};
    const uint8_t *datas[2] = {blob, other};
    const size_t lens[2] = {len, other_len};
    n = snprintf(text, sizeof text, LINEAR, "deep/w.bin");
    kernel = ane_bridge_compile_multi_weights(text, (size_t)n, names, datas, lens, 2, 1, &in, 1, &out);
    run(kernel);

    /* What the reference does not check. */
    uint16_t y[4];
    ane_bridge_write_input(kernel, 0, X, sizeof X - 1);
    CHECK(ferrane_last_status() == FERRANE_BINDING);
    ane_bridge_write_input(kernel, -1, X, sizeof X);
    CHECK(ferrane_last_status() == FERRANE_INVALID_ARGUMENT);
    ane_bridge_write_input(kernel, 1, X, sizeof X);
    CHECK(ferrane_last_status() == FERRANE_BINDING);
    ane_bridge_write_input(kernel, 0, NULL, sizeof X);
    CHECK(ferrane_last_status() == FERRANE_INVALID_ARGUMENT);
    ane_bridge_read_output(kernel, 0, y, 2 * sizeof y);
    CHECK(ferrane_last_status() == FERRANE_BINDING);
    ane_bridge_read_output(NULL, 0, y, sizeof y);
    CHECK(ferrane_last_status() == FERRANE_INVALID_HANDLE);
    CHECK(!ane_bridge_eval(NULL));
    run(kernel);
    ane_bridge_free(kernel);

    /* Wrong sizes, counts, names. */
    const size_t two[2] = {sizeof X, 4};
    CHECK(!ane_bridge_compile_multi_weights(text, (size_t)n, names, datas, lens, 2, 2, two, 1, &out));
    CHECK(ferrane_last_status() == FERRANE_BINDING && strstr(ferrane_last_error(), "2 input sizes for a program of 1"));
    CHECK(!ane_bridge_compile_multi_weights(text, (size_t)n, names, datas, lens, 2, 1, &out, 1, &out));
    CHECK(strstr(ferrane_last_error(), "8 bytes for input `x`, which has 12"));
    CHECK(!ane_bridge_compile_multi_weights(text, (size_t)n, names, datas, lens, 2, 1, &in, 1, &zero));
    CHECK(!ane_bridge_compile_multi_weights(text, (size_t)n, names, datas, lens, -2, 1, &in, 1, &out));
    CHECK(strstr(ferrane_last_error(), "`n_weights` is -2"));
    CHECK(!ane_bridge_compile_multi_weights(text, (size_t)n, NULL, datas, lens, 2, 1, &in, 1, &out));
    CHECK(!ane_bridge_compile_multi_weights(text, (size_t)n, names, datas, lens, 1, 1, &in, 1, &out));
    CHECK(ferrane_last_status() == FERRANE_INVALID_PROGRAM);
    CHECK(!ane_bridge_compile(text, (size_t)n, NULL, len, 1, &in, 1, &out));
    CHECK(!ane_bridge_compile(NULL, (size_t)n, blob, len, 1, &in, 1, &out));
    CHECK(!ane_bridge_compile(text, (size_t)n, blob, len, 1, NULL, 1, &out));
    CHECK(ferrane_last_status() == FERRANE_INVALID_ARGUMENT);
    ane_bridge_free_blob(blob);
    ane_bridge_free_blob(other);
    ane_bridge_free_blob(NULL);
    CHECK(ferrane_last_status() == FERRANE_OK);
    ane_bridge_free_blob(blob);
    CHECK(ferrane_last_status() == FERRANE_INVALID_HANDLE);

    /* int8: complete files; the reference's lack the first 64 bytes. */
    const int8_t codes[3] = {-128, 0, 127};
    blob = ane_bridge_build_weight_blob_int8(codes, 1, 3, &len);
    CHECK(blob != NULL && len == 128 + 3 && blob[0] == 1 && blob[4] == 2 && blob[68] == 4 && blob[72] == 3);
    CHECK(memcmp(blob + 128, codes, 3) == 0);
    ane_bridge_free_blob(blob);
    float scale = 0;
    blob = ane_bridge_build_weight_blob_quantized(W, 2, 3, &scale, &len);
    CHECK(blob != NULL && len == 128 + 6 && scale == 3 / 127.0f);
    /* round(1 / scale) = 42.33, round(2 / scale) = 84.67. */
    const int8_t wanted[6] = {42, 85, 127, 0, 0, -42};
    CHECK(memcmp(blob + 128, wanted, 6) == 0);
    ane_bridge_free_blob(blob);
    const float nothing[2] = {0, 0};
    blob = ane_bridge_build_weight_blob_quantized(nothing, 1, 2, &scale, &len);
    CHECK(blob != NULL && scale == 1);
    ane_bridge_free_blob(blob);
    CHECK(!ane_bridge_build_weight_blob(W, -2, 3, &len) && strstr(ferrane_last_error(), "`rows` is -2"));
    CHECK(!ane_bridge_build_weight_blob(NULL, 2, 3, &len));
    CHECK(!ane_bridge_build_weight_blob(W, 2, 3, NULL));
    CHECK(!ane_bridge_build_weight_blob_transposed(W, 2, 0, &len));
    CHECK(!ane_bridge_build_weight_blob_int8(NULL, 2, 3, &len));
    CHECK(!ane_bridge_build_weight_blob_quantized(W, 2, 3, NULL, &len));

    /* Two, and three that were compiled before their sizes were found wrong. */
    CHECK(ane_bridge_get_compile_count() == 5);
    weights_as_inputs();
    CHECK(ane_bridge_get_compile_count() == 9);
    ane_bridge_reset_compile_count();
    CHECK(ane_bridge_get_compile_count() == 0 && ferrane_compile_count() == 0);
    puts("the bridge holds");
    return 0;
}

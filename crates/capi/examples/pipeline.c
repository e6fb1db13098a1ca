/* Two kernels in a row without a copy between them, weights of one as int8 with a scale for each channel, runs submitted,
   whose completion a callback reports. */
#include <ferrane.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 3, OUT = 2, WIDTH = 4, RUNS = 100 };

/* %llu is the offset of the scales in the blob file. */
static const char *LINEAR =
    "program(1.0)\n"
    "{\n"
    "    func main<ios16>(tensor<fp16, [1, 3, 1, 4]> x) {\n"
    "        tensor<fp16, [2, 3, 1, 1]> w = constexpr_affine_dequantize()[axis = int32(0), name = string(\"w\"),\n"
    "            quantized_data = tensor<int8, [2, 3, 1, 1]>(BLOBFILE(path = string(\"@model_path/weights/w.bin\"),"
    " offset = uint64(64))),\n"
    "            scale = tensor<fp16, [2]>(BLOBFILE(path = string(\"@model_path/weights/w.bin\"), offset = uint64(%llu))),\n"
    "            zero_point = tensor<int8, [2]>([0, 0])];\n"
    "        string pad_type = const()[name = string(\"pad_type\"), val = string(\"valid\")];\n"
    "        tensor<int32, [2]> strides = const()[name = string(\"strides\"), val = tensor<int32, [2]>([1, 1])];\n"
    "        tensor<int32, [4]> pad = const()[name = string(\"pad\"), val = tensor<int32, [4]>([0, 0, 0, 0])];\n"
    "        tensor<int32, [2]> dilations = const()[name = string(\"dilations\"), val = tensor<int32, [2]>([1, 1])];\n"
    "        int32 groups = const()[name = string(\"groups\"), val = int32(1)];\n"
    "        tensor<fp16, [1, 2, 1, 4]> y = conv(dilations = dilations, groups = groups, pad = pad, pad_type = pad_type,"
    " strides = strides, weight = w, x = x)[name = string(\"y\")];\n"
    "    } -> (y);\n"
    "}\n";

static const char *RELU =
    "program(1.0)\n"
    "{\n"
    "    func main<ios16>(tensor<fp16, [1, 2, 1, 4]> u) {\n"
    "        tensor<fp16, [1, 2, 1, 4]> v = relu(x = u)[name = string(\"v\")];\n"
    "    } -> (v);\n"
    "}\n";

static void must(FerraneStatus status, const char *what) {
    if (status == FERRANE_OK) return;
    fprintf(stderr, "%s: status %d: %s\n", what, (int)status, ferrane_last_error());
    exit(1);
}

/* Called on a thread of the library, in the order of the submissions. */
static void landed(void *user, FerraneStatus status, const char *message) {
    int *count = user;
    if (status == FERRANE_OK) (*count)++;
    else fprintf(stderr, "a run failed: %s\n", message);
}

int main(void) {
    const float w[OUT * IN] = {1.0f, -2.0f, 0.5f, 0.01f, 0.02f, -0.03f};
    float scales[OUT], x[IN * WIDTH], y[OUT * WIDTH];
    uint64_t scales_offset;
    uint8_t *blob;
    size_t blob_len;
    must(ferrane_blob_int8(w, OUT, IN, FERRANE_PER_CHANNEL, scales, &scales_offset, &blob, &blob_len), "blob");

    char text[4096];
    snprintf(text, sizeof text, LINEAR, (unsigned long long)scales_offset);
    FerraneWeight weight = {"@model_path/weights/w.bin", blob, blob_len};
    ANEKernelHandle *linear, *relu;
    must(ferrane_compile(NULL, text, strlen(text), &weight, 1, &linear), "linear");
    must(ferrane_free_blob(blob), "free_blob");
    must(ferrane_compile(NULL, RELU, strlen(RELU), NULL, 0, &relu), "relu");
    must(ferrane_share(relu, FERRANE_INPUT, 0, linear, FERRANE_OUTPUT, 0), "share");

    int linear_runs = 0, relu_runs = 0;
    for (int run = 0; run < RUNS; run++) {
        for (int i = 0; i < IN * WIDTH; i++) x[i] = (float)((i * 7 + run) % 11 - 5);
        must(ferrane_write_f32(linear, FERRANE_INPUT, 0, x, IN * WIDTH), "write");
        must(ferrane_submit(linear, landed, &linear_runs), "submit");
        must(ferrane_wait(linear), "wait");
        must(ferrane_submit(relu, landed, &relu_runs), "submit");
        must(ferrane_wait(relu), "wait");
        must(ferrane_read_f32(relu, FERRANE_OUTPUT, 0, y, OUT * WIDTH), "read");
        for (int o = 0; o < OUT; o++) {
            for (int at = 0; at < WIDTH; at++) {
                float wanted = 0;
                for (int i = 0; i < IN; i++) wanted += w[o * IN + i] * x[i * WIDTH + at];
                if (wanted < 0) wanted = 0;
                /* A code is off by at most half a scale, |x| is at most 5, and the error of fp16 is smaller than that. */
                float bound = 2 * IN * 5 * scales[o] / 2;
                if (fabsf(y[o * WIDTH + at] - wanted) > bound) {
                    fprintf(stderr, "run %d: %g instead of %g\n", run, (double)y[o * WIDTH + at], (double)wanted);
                    return 1;
                }
            }
        }
    }
    must(ferrane_free(linear), "free");
    must(ferrane_free(relu), "free");
    if (linear_runs != RUNS || relu_runs != RUNS) return 1;
    printf("%d runs of two kernels on %s\n", RUNS, "one device");
    return 0;
}

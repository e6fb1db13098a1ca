/* Compiles a program, runs it and prints the result. */
#include <ferrane.h>
#include <stdio.h>
#include <string.h>

static const char *PROGRAM =
    "program(1.3)\n"
    "{\n"
    "    func main<ios18>(tensor<fp16, [1, 4, 1, 2]> x) {\n"
    "        tensor<fp16, [1, 4, 1, 2]> y = sigmoid(x = x)[name = string(\"y\")];\n"
    "    } -> (y);\n"
    "}\n";

int main(int argc, char **argv) {
    float x[8] = {0, 1, -1, 2, -2, 4, -4, 60000}, y[8];
    FerraneDevice *device = NULL;
    ANEKernelHandle *kernel = NULL;

    if (ferrane_open(argc > 1 ? argv[1] : "emulator", &device) ||
        ferrane_compile(device, PROGRAM, strlen(PROGRAM), NULL, 0, &kernel) ||
        ferrane_write_f32(kernel, FERRANE_INPUT, 0, x, 8) ||
        ferrane_eval(kernel) ||
        ferrane_read_f32(kernel, FERRANE_OUTPUT, 0, y, 8)) {
        fprintf(stderr, "%s\n%s\n", ferrane_last_error(), ferrane_last_remedy());
        return 1;
    }
    for (int i = 0; i < 8; i++) printf("sigmoid(%g) = %g\n", (double)x[i], (double)y[i]);
    ferrane_free(kernel);
    ferrane_close(device);
    return 0;
}

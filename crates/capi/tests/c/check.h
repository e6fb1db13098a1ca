/* Shared by the test programs. */
#ifndef CHECK_H
#define CHECK_H

#include <ferrane.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: %s\n    status %d: %s\n", __FILE__, __LINE__, #condition, \
                    (int)ferrane_last_status(), ferrane_last_error());                       \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* The call fails with `status`, ferrane_last_status returns it, and the text contains `words`. */
#define FAILS(call, status, words)                                            \
    do {                                                                      \
        CHECK((call) == (status));                                            \
        CHECK(ferrane_last_status() == (status));                             \
        CHECK(strstr(ferrane_last_error(), words) != NULL);                   \
        CHECK(ferrane_last_remedy()[0] != '\0');                              \
    } while (0)

/* Two functions: a sum kept in a state, and a difference of two inputs. */
static const char *const PROGRAM =
    "program(1.3)\n"
    "{\n"
    "    func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> total) {\n"
    "        tensor<fp16, [2]> old = read_state(input = total)[name = string(\"old\")];\n"
    "        tensor<fp16, [2]> sum = add(x = old, y = x)[name = string(\"sum\")];\n"
    "        tensor<fp16, [2]> new = coreml_update_state(state = total, value = sum)[name = string(\"new\")];\n"
    "        tensor<fp16, [2]> twice = add(x = new, y = new)[name = string(\"twice\")];\n"
    "    } -> (twice);\n"
    "    func difference<ios18>(tensor<fp32, [2, 3]> a, tensor<fp32, [2, 3]> b) {\n"
    "        tensor<fp32, [2, 3]> d = sub(x = a, y = b)[name = string(\"d\")];\n"
    "    } -> (d);\n"
    "}\n";

#endif

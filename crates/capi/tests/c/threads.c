/* Threads that write, run, read, submit and free the same kernels at once: every call succeeds or returns a status. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200 };

static ANEKernelHandle *shared_kernel;
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static int told, submitted;

static void done(void *user, FerraneStatus status, const char *message) {
    (void)message;
    CHECK(status == FERRANE_OK && user == &told);
    pthread_mutex_lock(&told_lock);
    told++;
    pthread_mutex_unlock(&told_lock);
}

static bool allowed(FerraneStatus status) {
    return status == FERRANE_OK || status == FERRANE_BUSY || status == FERRANE_QUEUE_FULL;
}

static void *work(void *argument) {
    const float number = (float)(size_t)argument, x[2] = {number, -number};
    float y[2];
    ANEKernelHandle *own = NULL, *handles[2] = {NULL, NULL};
    CHECK(ferrane_clone(shared_kernel, NULL, &own) == FERRANE_OK);
    CHECK(ferrane_write_f32(own, FERRANE_INPUT, 0, x, 2) == FERRANE_OK);
    for (int round = 1; round <= ROUNDS; round++) {
        /* Calls on a thread's own kernel always succeed. */
        CHECK(ferrane_eval(own) == FERRANE_OK);
        CHECK(ferrane_read_f32(own, FERRANE_STATE, 0, y, 2) == FERRANE_OK);
        CHECK(y[0] == number * (float)round && y[1] == -number * (float)round);
        /* Calls on the shared kernel succeed or find it busy, and the text belongs to this thread. */
        CHECK(allowed(ferrane_write_f32(shared_kernel, FERRANE_INPUT, 0, x, 2)));
        CHECK(allowed(ferrane_eval(shared_kernel)));
        CHECK(allowed(ferrane_read_f32(shared_kernel, FERRANE_OUTPUT, 0, y, 2)));
        FerraneStatus status = ferrane_submit(shared_kernel, done, &told);
        CHECK(allowed(status));
        if (status == FERRANE_OK) {
            pthread_mutex_lock(&told_lock);
            submitted++;
            pthread_mutex_unlock(&told_lock);
        }
        FAILS(ferrane_eval(handles[0]), FERRANE_INVALID_HANDLE, handles[0] ? "freed" : "null");
        CHECK(ferrane_clone(own, "difference", &handles[round % 2]) == FERRANE_OK);
        CHECK(ferrane_free(handles[round % 2]) == FERRANE_OK);
    }
    CHECK(ferrane_free(own) == FERRANE_OK);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    CHECK(ferrane_compile(NULL, PROGRAM, strlen(PROGRAM), NULL, 0, &shared_kernel) == FERRANE_OK);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ferrane_wait(shared_kernel) == FERRANE_OK);
    CHECK(submitted > 0 && told == submitted);
    CHECK(ferrane_free(shared_kernel) == FERRANE_OK);
    puts("threads agree");
    return 0;
}

/*
 * What orders threads in a Rust program, told to helgrind.
 *
 * Helgrind knows the locks of pthreads. Rust's own are words that are changed by atomic instructions, with a system call only where
 * a thread has to sleep, so helgrind takes everything that they guard for a race. This library is loaded before the program; it
 * wraps the functions of Rust's standard library that take and give back a lock, and says with helgrind's requests: what one thread
 * did before it gave the lock back happens before what the next one does after it took it. Nothing else is ordered: data that is
 * handed over by a bare atomic alone is still reported.
 *
 * The functions are found by their symbols, which are functions of their own in a build without optimisation only, and by what they
 * are passed in registers: a lock by address, a guard by the address of a pair whose first word is the lock, a result by the address
 * where it goes. Where another Rust has other symbols the wrappers find nothing and false reports come back: never silence.
 *
 * In the patterns Za stands for * and ZZ for Z.
 */
#include <valgrind/helgrind.h>

typedef unsigned long word;

#define GIVES(object) ANNOTATE_HAPPENS_BEFORE((void *)(object))
#define TAKES(object) ANNOTATE_HAPPENS_AFTER((void *)(object))

#define WRAP(pattern, before, after)                                                              \
    word I_WRAP_SONAME_FNNAME_ZZ(NONE, pattern)(word a, word b, word c, word d);                  \
    word I_WRAP_SONAME_FNNAME_ZZ(NONE, pattern)(word a, word b, word c, word d)                   \
    {                                                                                             \
        OrigFn original;                                                                          \
        word result;                                                                              \
        VALGRIND_GET_ORIG_FN(original);                                                           \
        before;                                                                                   \
        CALL_FN_W_WWWW(result, original, a, b, c, d);                                             \
        after;                                                                                    \
        return result;                                                                            \
    }

/* Values that are made once and then only read: whoever comes first has made them. */
static word seen[4096];

static int is_first(word once)
{
    for (word i = 0; i < 4096; i++) {
        word *place = &seen[((once >> 2) + i) % 4096];
        word found = __atomic_load_n(place, __ATOMIC_RELAXED);
        if (found == once)
            return 0;
        if (!found) {
            __atomic_store_n(place, once, __ATOMIC_RELAXED);
            return 1;
        }
    }
    return 1;
}

/* Mutex::lock(result, mutex) and the end of a MutexGuard. */
WRAP(_ZZN3std4sync6poison5mutexZa4lock17hZa, (void)0, TAKES(b))
WRAP(_ZZNZaMutexGuardZaDropZa4drop17hZa, GIVES(*(word *)a), (void)0)

/* Condvar::wait(result, condvar, guard as two words): gives the lock and takes it again. */
WRAP(_ZZN3std4sync6poison7condvar7Condvar4wait17hZa, GIVES(c), TAKES(c))

/* Once, OnceLock, LazyLock: the address first. */
WRAP(_ZZN3std4sync6poison4once4Once9call_once17hZa, int first = is_first(a), if (first) GIVES(a); TAKES(a))
WRAP(_ZZN3std4sync9once_lockZaOnceLockZa10initialize17hZa, (void)0, GIVES(a))
WRAP(_ZZN3std4sync9once_lockZaOnceLockZa11get_or_init17hZa, (void)0, TAKES(a))
WRAP(_ZZN3std4sync9lazy_lockZaLazyLockZa5force17hZa, int first = is_first(a), if (first) GIVES(a); TAKES(a))
WRAP(_ZZNZaLazyLockZaDerefZa5deref17hZa, int first = is_first(a), if (first) GIVES(a); TAKES(a))

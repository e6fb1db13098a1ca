/*
 * Declares the locks of Rust's standard library to helgrind.
 *
 * Helgrind knows the locks of pthreads. Rust's locks are words that atomic instructions change, with
 * a system call only where a thread has to sleep, so helgrind reports everything that they guard as
 * a race. This library is loaded before the program. It wraps the functions of the standard library
 * that acquire and release a lock, and declares by helgrind's client requests that what a thread
 * does before it releases a lock happens before what the next thread does after it acquires it.
 * Nothing else is ordered: data that is handed over by an atomic alone is still reported.
 *
 * The functions are found by their symbols, which exist only in a build without optimization. Their
 * arguments are in registers: a lock by its address, a guard by the address of a pair whose first
 * word is the lock, a result by the address where it is stored. With another version of Rust, whose
 * symbols may differ, the wrappers find nothing and helgrind reports false races; it never misses
 * one for that reason.
 *
 * In the patterns Za stands for * and ZZ for Z.
 */
#include <sched.h>
#include <stdlib.h>
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

/*
 * Values that are made once and then only read. Each thread that arrives before a value is complete
 * may be the one that makes it, so all of them release, and each acquires after all have released.
 */
struct once {
    word address;
    word inside;
    word complete;
};

static struct once table[4096];

static struct once *find(word address)
{
    for (word i = 0; i < 4096; i++) {
        struct once *once = &table[((address >> 2) + i) % 4096];
        word none = 0;
        if (__atomic_load_n(&once->address, __ATOMIC_SEQ_CST) == address)
            return once;
        if (__atomic_compare_exchange_n(&once->address, &none, address, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
            || none == address)
            return once;
    }
    abort();
}

static int enter(struct once *once)
{
    if (__atomic_load_n(&once->complete, __ATOMIC_SEQ_CST))
        return 0;
    __atomic_fetch_add(&once->inside, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static void leave(struct once *once, int early)
{
    if (early) {
        GIVES(once->address);
        __atomic_store_n(&once->complete, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_sub(&once->inside, 1, __ATOMIC_SEQ_CST);
    }
    while (__atomic_load_n(&once->inside, __ATOMIC_SEQ_CST))
        sched_yield();
    TAKES(once->address);
}

#define WRAP_ONCE(pattern) WRAP(pattern, struct once *once = find(a); int early = enter(once), leave(once, early))

/* Mutex::lock(result, mutex) and the end of a MutexGuard. */
WRAP(_ZZN3std4sync6poison5mutexZa4lock17hZa, (void)0, TAKES(b))
WRAP(_ZZNZaMutexGuardZaDropZa4drop17hZa, GIVES(*(word *)a), (void)0)

/* Condvar::wait(result, condvar, guard as two words): gives the lock and takes it again. */
WRAP(_ZZN3std4sync6poison7condvar7Condvar4wait17hZa, GIVES(c), TAKES(c))

/* Once, OnceLock, LazyLock: the address first. */
WRAP_ONCE(_ZZN3std4sync4once4Once9call_once17hZa)
WRAP_ONCE(_ZZN3std4sync9once_lockZaOnceLockZa11get_or_init17hZa)
WRAP_ONCE(_ZZN3std4sync9lazy_lockZaLazyLockZa5force17hZa)
WRAP_ONCE(_ZZNZaLazyLockZaDerefZa5deref17hZa)

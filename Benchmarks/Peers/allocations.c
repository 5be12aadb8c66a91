// A library for LD_PRELOAD: counts the allocations of a program, and writes their number to the file ALLOCATIONS_LOG
// when it ends.
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

// glibc's functions, under the names by which another library can still reach them.
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_long allocations;

void *malloc(size_t size) {
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    allocations++;
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    allocations++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    allocations++;
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

__attribute__((destructor)) static void write_number(void) {
    long number = allocations;
    const char *path = getenv("ALLOCATIONS_LOG");
    FILE *log = path ? fopen(path, "we") : NULL;
    if (!log) return;
    fprintf(log, "%ld\n", number);
    fclose(log);
}

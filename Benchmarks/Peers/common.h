// Code that the C peers share.
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Nanoseconds of CLOCK_MONOTONIC.
static inline long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// Ends the process with a reason, because a partial measurement is useless.
static inline __attribute__((noreturn)) void end_with(const char *what, const char *why) {
    fprintf(stderr, "peer: %s: %s\n", what, why ? why : "failed");
    exit(1);
}

static inline long number(const char *text) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1) end_with(text, "a positive number was expected");
    return value;
}

static inline void say_ready(void) {
    puts("ready");
    fflush(stdout);
}

static inline int ascending(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

// Times COUNT calls, after a tenth as many uncounted calls, and prints the median.
static inline void time_calls(long count, void (*call)(long turn)) {
    long warm_up = count / 10 + 1;
    long long *times = calloc((size_t)count, sizeof *times);
    if (!times) end_with("calloc", strerror(errno));
    for (long i = -warm_up; i < count; i++) {
        long long start = now();
        call(i);
        if (i >= 0) times[i] = now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, ascending);
    printf("result count=%ld median-ns=%lld\n", count, times[count / 2]);
    free(times);
}

#endif

#ifndef CWAYLANDCLIENT_SHIM_H
#define CWAYLANDCLIENT_SHIM_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <wayland-client.h>

/// Milliseconds of the monotonic clock.
static inline int64_t CWayland_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000) + time.tv_nsec / 1000000;
}

/// Waits for events for this many milliseconds, without limit if it is -1, and handles them. An eventfd ends the wait;
/// -1 for none. Returns whether the connection is still there.
static inline bool CWayland_step(struct wl_display *display, int wakeup, int wait) {
    while (wl_display_prepare_read(display) != 0)
        if (wl_display_dispatch_pending(display) < 0) return false;
    struct pollfd files[] = {
        {.fd = wl_display_get_fd(display), .events = POLLIN}, {.fd = wakeup, .events = POLLIN}};
    bool isFlushed = wl_display_flush(display) >= 0;
    if (!isFlushed && errno == EAGAIN) files[0].events |= POLLOUT;
    int count = isFlushed || errno == EAGAIN ? poll(files, 2, wait) : -1;
    if (count > 0 && files[0].revents & ~POLLOUT) {
        if (wl_display_read_events(display) < 0) return false;
    } else {
        wl_display_cancel_read(display);
        if (count < 0 && errno != EINTR) return false;
    }
    uint64_t calls;
    if (count > 0 && files[1].revents) (void)!read(wakeup, &calls, sizeof calls);
    return wl_display_dispatch_pending(display) >= 0;
}

#endif

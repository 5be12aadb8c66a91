#ifndef CSCREEN_PARTS_H
#define CSCREEN_PARTS_H

#include "../CWaylandClient/shim.h"
#include "CScreen.h"

#include <xkbcommon/xkbcommon.h>

/// An output or a seat of the compositor.
typedef struct Global {
    struct Global *next;
    CScreen *screen;
    uint32_t name;
    struct wl_output *output;
    int32_t scale;
    struct wl_seat *seat;
    struct wl_keyboard *keyboard;
    struct xkb_state *keys;
    struct wl_pointer *pointer;
    struct wl_touch *touch;
    /// The surface below the pointer, and the pointer's place on it.
    struct wl_surface *pointed;
    double x, y;
} Global;

typedef struct {
    struct wl_buffer *buffer;
    unsigned char *pixels;
    size_t size;
    int width, height;
    /// Whether the compositor may read it.
    bool isUsed;
} Buffer;

typedef struct Surface {
    struct Surface *next;
    CScreen *screen;
    /// NULL if the compositor chooses the output.
    Global *output;
    struct wl_surface *surface;
    /// Of xdg-shell, of layer-shell or of the lock.
    struct wl_proxy *role;
    struct wl_proxy *toplevel;
    int width, height;
    bool isConfigured, isDrawn, isOutdated;
    /// Of a window.
    CScreen_Window window;
    Buffer buffers[2];
} Surface;

struct CScreen {
    CScreen_Handlers handlers;
    struct wl_display *display;
    struct wl_registry *registry;
    struct wl_compositor *compositor;
    struct wl_shm *memory;
    struct wl_proxy *shell, *layers, *locks;
    struct xkb_context *keyboards;
    Global *outputs, *seats;
    CScreen_Kind kind;
    Surface *surfaces;
    struct wl_proxy *lock;
    /// Whether the compositor has hidden all other programs; and the lock is only there to end an abandoned lock.
    bool isLocked, isRelease;
    /// When to show anything again after a refusal, in milliseconds of the monotonic clock.
    int64_t retryAt;
    int wakeup;
};

/// Follows the devices of a seat.
void CScreen_followSeat(Global *seat);
void CScreen_leaveSeat(Global *seat);

/// The surface of a picture that is shown; NULL if it is shown no longer.
const Surface *CScreen_surface(const CScreen *screen, const struct wl_surface *surface);

#endif

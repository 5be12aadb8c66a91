#ifndef CSCREEN_H
#define CSCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A connection to a Wayland compositor that shows pictures to the person at the device, and gets the person's input.
typedef struct CScreen CScreen;

typedef enum {
    CScreen_nothing,
    /// A panel at the upper edge, which gets touches and clicks but no keys.
    CScreen_panel,
    /// A cover of all outputs, which gets all input.
    CScreen_cover,
} CScreen_Kind;

/// The height of a panel, in units of length.
enum { CScreen_panelHeight = 120 };

/// How a window of xdg-shell stands to those of other programs.
typedef struct {
    /// Whether it has the keyboard; and whether it also fills its output.
    bool isActive, isCover;
    /// Whether it was such a cover and then was none. The windows below may have been seen, so it never counts again.
    bool hasFailed;
} CScreen_Window;

/// Adopts the states of xdg_toplevel that the compositor has sent.
void CScreen_adapt(CScreen_Window *window, const uint32_t *states, size_t count);

/// Called on the thread of `CScreen_run`.
typedef struct {
    void *context;
    /// Calls `CScreen_show` and `CScreen_redraw` as needed. Returns the milliseconds until the next call without an
    /// event; -1 for none.
    int (*update)(void *context);
    /// Draws a picture of `width` × `height` pixels of 32 bits without transparency, with `scale` pixels per unit of
    /// length.
    void (*draw)(void *context, unsigned char *pixels, int width, int height, int stride, int scale);
    /// A key was pressed: its symbol by xkbcommon, its text in UTF-8, and the time in milliseconds of the compositor's
    /// clock; 0 if unknown.
    void (*pressed)(void *context, uint32_t symbol, const char *text, uint32_t time);
    /// A picture of this size, in units of length, was touched or clicked.
    void (*touched)(void *context, double x, double y, int width, int height);
} CScreen_Handlers;

/// Connects to the compositor that the environment names.
///
/// Returns 0; ENOTSUP if the compositor lacks xdg_wm_base, wl_shm or wl_compositor; or another error of errno(3).
int CScreen_open(CScreen **opened);

/// The interface by which pictures of a kind are shown.
const char *CScreen_interface(const CScreen *screen, CScreen_Kind kind);

/// Shows pictures, and waits for input. Returns an error of errno(3) when the connection is lost. The compositor then
/// keeps a lock. The screen must not be used afterwards, except by `CScreen_wake`.
int CScreen_run(CScreen *screen, CScreen_Handlers handlers);

/// Causes a call of `update`. For all threads.
void CScreen_wake(CScreen *screen);

/// Changes what is shown. For handlers.
void CScreen_show(CScreen *screen, CScreen_Kind kind);

/// Removes a lock whose program has ended, if the compositor has one. For handlers, while nothing is shown.
void CScreen_release(CScreen *screen);

/// Draws all pictures again. For handlers.
void CScreen_redraw(CScreen *screen);

/// What the compositor shows, as far as the program can know. For handlers.
CScreen_Kind CScreen_shown(const CScreen *screen);

#endif

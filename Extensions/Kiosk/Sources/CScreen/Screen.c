#define _GNU_SOURCE
#include "Parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

// MARK: The protocols, as far as they are used here and in the form that wayland-scanner generates

// xdg-shell: windows
enum { shellSurface = 2, shellPong };
static const struct wl_message toplevelRequests[] = {
    {"destroy", "", NULL}, {"set_parent", "?o", NULL}, {"set_title", "s", NULL}, {"set_app_id", "s", NULL},
    {"show_window_menu", "ouii", NULL}, {"move", "ou", NULL}, {"resize", "ouu", NULL}, {"set_max_size", "ii", NULL},
    {"set_min_size", "ii", NULL}, {"set_maximized", "", NULL}, {"unset_maximized", "", NULL},
    {"set_fullscreen", "?o", (const struct wl_interface *[]){&wl_output_interface}},
};
enum { toplevelTitle = 2, toplevelIdentifier, toplevelFullscreen = 11 };
enum { isMaximized = 1, isFullscreen = 2, isActivated = 4 };
static const struct wl_message toplevelEvents[] = {{"configure", "iia", (const struct wl_interface *[3]){}}, {"close", "", NULL}};
static const struct wl_interface toplevelInterface = {"xdg_toplevel", 1, 12, toplevelRequests, 2, toplevelEvents};

static const struct wl_message windowRequests[] = {
    {"destroy", "", NULL}, {"get_toplevel", "n", (const struct wl_interface *[]){&toplevelInterface}},
    {"get_popup", "n?oo", NULL}, {"set_window_geometry", "iiii", NULL},
    {"ack_configure", "u", (const struct wl_interface *[1]){}},
};
enum { windowToplevel = 1, windowConfirm = 4 };
static const struct wl_message windowEvents[] = {{"configure", "u", (const struct wl_interface *[1]){}}};
static const struct wl_interface windowInterface = {"xdg_surface", 1, 5, windowRequests, 1, windowEvents};

static const struct wl_message shellRequests[] = {
    {"destroy", "", NULL}, {"create_positioner", "n", NULL},
    {"get_xdg_surface", "no", (const struct wl_interface *[]){&windowInterface, &wl_surface_interface}},
    {"pong", "u", (const struct wl_interface *[1]){}},
};
static const struct wl_message shellEvents[] = {{"ping", "u", (const struct wl_interface *[1]){}}};
static const struct wl_interface shellInterface = {"xdg_wm_base", 1, 4, shellRequests, 1, shellEvents};

// wlr-layer-shell: pictures above all windows
static const struct wl_interface *untyped[4];
static const struct wl_message layerRequests[] = {
    {"set_size", "uu", untyped}, {"set_anchor", "u", untyped}, {"set_exclusive_zone", "i", untyped},
    {"set_margin", "iiii", untyped}, {"set_keyboard_interactivity", "u", untyped}, {"get_popup", "o", untyped},
    {"ack_configure", "u", untyped}, {"destroy", "", untyped},
};
enum { layerSize, layerAnchor, layerZone, layerKeys = 4, layerConfirm = 6, layerDestroy };
static const struct wl_message layerEvents[] = {{"configure", "uuu", untyped}, {"closed", "", untyped}};
static const struct wl_interface layerInterface = {"zwlr_layer_surface_v1", 1, 8, layerRequests, 2, layerEvents};
static const struct wl_message layersRequests[] = {
    {"get_layer_surface", "no?ous",
     (const struct wl_interface *[]){&layerInterface, &wl_surface_interface, &wl_output_interface, NULL, NULL}},
};
static const struct wl_interface layersInterface = {"zwlr_layer_shell_v1", 1, 1, layersRequests, 0, NULL};
// The layer, and the edges: top 1, bottom 2, left 4, right 8.
enum { overlay = 3, atAllEdges = 15, atTopEdges = 13 };

// ext-session-lock: pictures instead of all windows
static const struct wl_message lockedRequests[] = {{"destroy", "", untyped}, {"ack_configure", "u", untyped}};
static const struct wl_message lockedEvents[] = {{"configure", "uuu", untyped}};
static const struct wl_interface lockedInterface = {"ext_session_lock_surface_v1", 1, 2, lockedRequests, 1, lockedEvents};
static const struct wl_message lockRequests[] = {
    {"destroy", "", untyped},
    {"get_lock_surface", "noo",
     (const struct wl_interface *[]){&lockedInterface, &wl_surface_interface, &wl_output_interface}},
    {"unlock_and_destroy", "", untyped},
};
enum { lockDestroy, lockSurface, lockEnd };
static const struct wl_message lockEvents[] = {{"locked", "", untyped}, {"finished", "", untyped}};
static const struct wl_interface lockInterface = {"ext_session_lock_v1", 1, 3, lockRequests, 2, lockEvents};
static const struct wl_message locksRequests[] = {
    {"destroy", "", untyped}, {"lock", "n", (const struct wl_interface *[]){&lockInterface}},
};
static const struct wl_interface locksInterface = {"ext_session_lock_manager_v1", 1, 2, locksRequests, 0, NULL};

#define REQUEST(object, number, ...) wl_proxy_marshal_flags(object, number, NULL, 1, 0, ##__VA_ARGS__)
#define CREATE(object, number, interface, ...) \
    wl_proxy_marshal_flags(object, number, interface, 1, 0, NULL, ##__VA_ARGS__)
#define DESTROY(object, number) wl_proxy_marshal_flags(object, number, NULL, 1, WL_MARSHAL_FLAG_DESTROY)

// MARK: Pictures

static void released(void *data, struct wl_buffer *buffer) { ((Buffer *)data)->isUsed = false; }
static const struct wl_buffer_listener bufferListener = {released};

static void freeBuffer(Buffer *buffer) {
    if (buffer->buffer) wl_buffer_destroy(buffer->buffer);
    if (buffer->pixels) munmap(buffer->pixels, buffer->size);
    *buffer = (Buffer){0};
}

/// Allocates memory that the compositor reads, if there is none of this size yet.
static bool fit(Buffer *buffer, struct wl_shm *memory, int width, int height) {
    if (buffer->buffer && buffer->width == width && buffer->height == height) return true;
    freeBuffer(buffer);
    buffer->size = (size_t)width * height * 4;
    int file = memfd_create("picture", MFD_CLOEXEC);
    if (file < 0) return false;
    void *pixels = buffer->size <= INT32_MAX && ftruncate(file, buffer->size) == 0
        ? mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
        : MAP_FAILED;
    if (pixels != MAP_FAILED) {
        buffer->pixels = pixels;
        buffer->width = width;
        buffer->height = height;
        struct wl_shm_pool *pool = wl_shm_create_pool(memory, file, buffer->size);
        if (pool) {
            buffer->buffer = wl_shm_pool_create_buffer(pool, 0, width, height, width * 4, WL_SHM_FORMAT_XRGB8888);
            wl_shm_pool_destroy(pool);
        }
        if (buffer->buffer) wl_buffer_add_listener(buffer->buffer, &bufferListener, buffer);
    }
    close(file);
    if (!buffer->buffer) freeBuffer(buffer);
    return buffer->buffer != NULL;
}

static void draw(Surface *surface) {
    CScreen *screen = surface->screen;
    int scale = 1;
    for (const Global *output = screen->outputs; output; output = output->next)
        if (output->scale > scale && (!surface->output || surface->output == output)) scale = output->scale;
    // While both are used, the release of one causes the next attempt.
    Buffer *buffer = surface->buffers[0].isUsed ? &surface->buffers[1] : &surface->buffers[0];
    if (buffer->isUsed || !fit(buffer, screen->memory, surface->width * scale, surface->height * scale)) return;
    screen->handlers.draw(
        screen->handlers.context, buffer->pixels, buffer->width, buffer->height, buffer->width * 4, scale);
    wl_surface_set_buffer_scale(surface->surface, scale);
    wl_surface_attach(surface->surface, buffer->buffer, 0, 0);
    wl_surface_damage(surface->surface, 0, 0, INT32_MAX, INT32_MAX);
    wl_surface_commit(surface->surface);
    buffer->isUsed = true;
    surface->isOutdated = false;
    surface->isDrawn = true;
}

const Surface *CScreen_surface(const CScreen *screen, const struct wl_surface *wlSurface) {
    const Surface *surface = screen->surfaces;
    while (surface && surface->surface != wlSurface) surface = surface->next;
    return surface;
}

static void resize(Surface *surface, int64_t width, int64_t height) {
    // The compositor may leave the size open; no screen is larger.
    surface->width = width > 0 && width <= 16384 ? (int)width : 640;
    surface->height = height > 0 && height <= 16384 ? (int)height : 480;
}

static void configure(Surface *surface, uint32_t width, uint32_t height) {
    resize(surface, width, height);
    surface->isConfigured = surface->isOutdated = true;
}

static void layerConfigured(void *data, struct wl_proxy *role, uint32_t serial, uint32_t width, uint32_t height) {
    REQUEST(role, layerConfirm, serial);
    configure(data, width, height);
}

static void lockConfigured(void *data, struct wl_proxy *role, uint32_t serial, uint32_t width, uint32_t height) {
    REQUEST(role, 1, serial);
    configure(data, width, height);
}

void CScreen_adapt(CScreen_Window *window, const uint32_t *states, size_t count) {
    bool isFull = false, wasCover = window->isCover;
    window->isActive = false;
    for (size_t index = 0; index < count; index++) {
        if (states[index] == isActivated) window->isActive = true;
        if (states[index] == isFullscreen || states[index] == isMaximized) isFull = true;
    }
    window->isCover = window->isActive && isFull;
    if (wasCover && !window->isCover) window->hasFailed = true;
}

static void toplevelConfigured(void *data, struct wl_proxy *role, int32_t width, int32_t height, struct wl_array *states) {
    Surface *surface = data;
    resize(surface, width, height);
    CScreen_adapt(&surface->window, states->data, states->size / sizeof(uint32_t));
}

static void windowConfigured(void *data, struct wl_proxy *role, uint32_t serial) {
    Surface *surface = data;
    REQUEST(role, windowConfirm, serial);
    surface->isConfigured = surface->isOutdated = true;
}

static void removeSurface(Surface **list) {
    Surface *surface = *list;
    *list = surface->next;
    if (surface->toplevel) DESTROY(surface->toplevel, 0);
    // “destroy” is the first request of the other roles.
    bool isLayer = surface->role && strcmp(wl_proxy_get_class(surface->role), layerInterface.name) == 0;
    if (surface->role) DESTROY(surface->role, isLayer ? layerDestroy : 0);
    if (surface->surface) wl_surface_destroy(surface->surface);
    for (int index = 0; index < 2; index++) freeBuffer(&surface->buffers[index]);
    free(surface);
}

/// The compositor has closed a picture. It comes again while it is wanted; those on other outputs stay.
static void closed(void *data, struct wl_proxy *role) {
    CScreen *screen = ((Surface *)data)->screen;
    Surface **list = &screen->surfaces;
    while (*list && *list != data) list = &(*list)->next;
    if (*list) removeSurface(list);
    screen->retryAt = CWayland_now() + 1000;
    if (!screen->surfaces) screen->kind = CScreen_nothing;
}

/// The person wants to close a window. That ends no lock and no sign-in.
static void closeWanted(void *data, struct wl_proxy *role) {
    if (((Surface *)data)->screen->kind != CScreen_cover) closed(data, role);
}

// The listeners' functions, in the order of the events.
static void (*const layerListener[])(void) = {(void (*)(void))layerConfigured, (void (*)(void))closed};
static void (*const lockedListener[])(void) = {(void (*)(void))lockConfigured};
static void (*const windowListener[])(void) = {(void (*)(void))windowConfigured};
static void (*const toplevelListener[])(void) = {(void (*)(void))toplevelConfigured, (void (*)(void))closeWanted};
#define LISTEN(object, listener, data) wl_proxy_add_listener(object, (void (**)(void))listener, data)

/// Shows a picture on an output; on the output that the compositor chooses if it is NULL.
static void add(CScreen *screen, Global *output) {
    Surface *surface = calloc(1, sizeof *surface);
    if (!surface) return;
    surface->next = screen->surfaces;
    surface->screen = screen;
    surface->output = output;
    surface->surface = wl_compositor_create_surface(screen->compositor);
    screen->surfaces = surface;
    struct wl_output *wlOutput = output ? output->output : NULL;
    if (screen->lock) {
        surface->role = CREATE(screen->lock, lockSurface, &lockedInterface, surface->surface, wlOutput);
        LISTEN(surface->role, lockedListener, surface);
        // A lock's surface is configured at once, and must not be committed before.
        return;
    }
    if (screen->layers) {
        bool isCover = screen->kind == CScreen_cover;
        surface->role = CREATE(
            screen->layers, 0, &layerInterface, surface->surface, wlOutput, overlay, "shared-device");
        LISTEN(surface->role, layerListener, surface);
        REQUEST(surface->role, layerSize, 0, isCover ? 0 : CScreen_panelHeight);
        REQUEST(surface->role, layerAnchor, isCover ? atAllEdges : atTopEdges);
        REQUEST(surface->role, layerZone, -1);
        REQUEST(surface->role, layerKeys, isCover);
    } else {
        surface->role = CREATE(screen->shell, shellSurface, &windowInterface, surface->surface);
        LISTEN(surface->role, windowListener, surface);
        surface->toplevel = CREATE(surface->role, windowToplevel, &toplevelInterface);
        LISTEN(surface->toplevel, toplevelListener, surface);
        REQUEST(surface->toplevel, toplevelTitle, "shared-device");
        REQUEST(surface->toplevel, toplevelIdentifier, "org.notifycenter.shared-device-screen");
        if (screen->kind == CScreen_cover) REQUEST(surface->toplevel, toplevelFullscreen, wlOutput);
    }
    wl_surface_commit(surface->surface);
}

// MARK: What is shown

static void endLock(CScreen *screen) {
    if (screen->lock) DESTROY(screen->lock, screen->isLocked ? lockEnd : lockDestroy);
    screen->lock = NULL;
    screen->isLocked = screen->isRelease = false;
}

static void locked(void *data, struct wl_proxy *lock) {
    CScreen *screen = data;
    screen->isLocked = true;
    if (screen->isRelease) endLock(screen);
}

/// Another program has locked the session.
static void finished(void *data, struct wl_proxy *lock) {
    CScreen *screen = data;
    while (screen->surfaces) removeSurface(&screen->surfaces);
    endLock(screen);
    screen->kind = CScreen_nothing;
    screen->retryAt = CWayland_now() + 1000;
}

static void (*const lockListener[])(void) = {(void (*)(void))locked, (void (*)(void))finished};

static bool beginLock(CScreen *screen) {
    screen->lock = CREATE(screen->locks, 1, &lockInterface);
    if (screen->lock) LISTEN(screen->lock, lockListener, screen);
    return screen->lock != NULL;
}

static bool isShownOn(const CScreen *screen, const Global *output) {
    const Surface *surface = screen->surfaces;
    while (surface && surface->output != output) surface = surface->next;
    return surface != NULL;
}

/// Covers the outputs that have no cover yet.
static void cover(CScreen *screen) {
    if (!screen->lock && !screen->layers && !screen->surfaces) add(screen, NULL);
    if (!screen->lock && !screen->layers) return;
    for (Global *output = screen->outputs; output; output = output->next)
        if (!isShownOn(screen, output)) add(screen, output);
}

void CScreen_show(CScreen *screen, CScreen_Kind kind) {
    if (kind != CScreen_nothing && CWayland_now() < screen->retryAt) return;
    if (kind == screen->kind) {
        if (kind == CScreen_cover) cover(screen);
        return;
    }
    // Until the compositor has confirmed a lock, it cannot be ended.
    if (screen->lock && !screen->isLocked && kind != CScreen_cover) return;
    bool wasLocked = screen->lock != NULL;
    if (wasLocked && kind != CScreen_cover) endLock(screen);
    while (screen->surfaces) removeSurface(&screen->surfaces);
    screen->kind = kind;
    if (kind == CScreen_nothing) return;
    if (kind == CScreen_cover && screen->locks && !wasLocked && !beginLock(screen)) return;
    screen->isRelease = false;
    if (kind == CScreen_cover) cover(screen);
    else add(screen, NULL);
}

void CScreen_release(CScreen *screen) {
    if (screen->kind == CScreen_nothing && screen->locks && !screen->lock) screen->isRelease = beginLock(screen);
}

void CScreen_redraw(CScreen *screen) {
    for (Surface *surface = screen->surfaces; surface; surface = surface->next) surface->isOutdated = true;
}

CScreen_Kind CScreen_shown(const CScreen *screen) {
    if (screen->lock) return screen->isLocked ? CScreen_cover : CScreen_nothing;
    bool isCover = screen->kind == CScreen_cover;
    for (const Surface *surface = screen->surfaces; surface; surface = surface->next) {
        const CScreen_Window *window = &surface->window;
        // Another window may be above a window that lacks the keyboard.
        bool isAbove = isCover ? window->isCover && !window->hasFailed : window->isActive;
        if (!surface->isDrawn || (surface->toplevel && !isAbove)) return CScreen_nothing;
    }
    // A window covers one output, and a layer's picture may be closed on one of them.
    if (isCover && !screen->layers && screen->outputs && screen->outputs->next) return CScreen_nothing;
    for (const Global *output = screen->outputs; isCover && screen->layers && output; output = output->next)
        if (!isShownOn(screen, output)) return CScreen_nothing;
    return screen->surfaces ? screen->kind : CScreen_nothing;
}

const char *CScreen_interface(const CScreen *screen, CScreen_Kind kind) {
    if (kind == CScreen_cover && screen->locks) return locksInterface.name;
    return screen->layers ? layersInterface.name : shellInterface.name;
}

// MARK: The compositor's objects

static void nothing(void *data, struct wl_output *output) {}
static void geometry(
    void *data, struct wl_output *output, int32_t x, int32_t y, int32_t width, int32_t height, int32_t subpixel,
    const char *make, const char *model, int32_t transform) {}
static void mode(
    void *data, struct wl_output *output, uint32_t flags, int32_t width, int32_t height, int32_t refresh) {}

static void scaled(void *data, struct wl_output *output, int32_t scale) {
    Global *global = data;
    global->scale = scale > 0 && scale <= 8 ? scale : 1;
    CScreen_redraw(global->screen);
}

static const struct wl_output_listener outputListener = {geometry, mode, nothing, scaled};

static void ping(void *data, struct wl_proxy *shell, uint32_t serial) { REQUEST(shell, shellPong, serial); }
static void (*const shellListener[])(void) = {(void (*)(void))ping};

static Global *insert(Global **list, CScreen *screen, uint32_t name) {
    Global *global = calloc(1, sizeof *global);
    if (!global) return NULL;
    global->next = *list;
    global->screen = screen;
    global->name = name;
    *list = global;
    return global;
}

static void added(void *data, struct wl_registry *registry, uint32_t name, const char *interface, uint32_t version) {
    CScreen *screen = data;
    if (strcmp(interface, wl_compositor_interface.name) == 0 && version >= 3) {
        screen->compositor = wl_registry_bind(registry, name, &wl_compositor_interface, 3);
    } else if (strcmp(interface, wl_shm_interface.name) == 0) {
        screen->memory = wl_registry_bind(registry, name, &wl_shm_interface, 1);
    } else if (strcmp(interface, shellInterface.name) == 0) {
        screen->shell = wl_registry_bind(registry, name, &shellInterface, 1);
        if (screen->shell) LISTEN(screen->shell, shellListener, screen);
    } else if (strcmp(interface, layersInterface.name) == 0) {
        screen->layers = wl_registry_bind(registry, name, &layersInterface, 1);
    } else if (strcmp(interface, locksInterface.name) == 0) {
        screen->locks = wl_registry_bind(registry, name, &locksInterface, 1);
    } else if (strcmp(interface, wl_output_interface.name) == 0 && version >= 2) {
        Global *output = insert(&screen->outputs, screen, name);
        if (!output) return;
        output->scale = 1;
        output->output = wl_registry_bind(registry, name, &wl_output_interface, 2);
        wl_output_add_listener(output->output, &outputListener, output);
        if (screen->kind == CScreen_cover && (screen->lock || screen->layers)) add(screen, output);
    } else if (strcmp(interface, wl_seat_interface.name) == 0) {
        Global *seat = insert(&screen->seats, screen, name);
        if (!seat) return;
        seat->seat = wl_registry_bind(registry, name, &wl_seat_interface, 1);
        CScreen_followSeat(seat);
    }
}

static void removeGlobal(Global **list) {
    Global *global = *list;
    *list = global->next;
    if (global->seat) CScreen_leaveSeat(global);
    if (global->output) {
        Surface **surfaces = &global->screen->surfaces;
        while (*surfaces)
            if ((*surfaces)->output == global) removeSurface(surfaces);
            else surfaces = &(*surfaces)->next;
        wl_output_destroy(global->output);
    }
    free(global);
}

static void removed(void *data, struct wl_registry *registry, uint32_t name) {
    CScreen *screen = data;
    Global **lists[] = {&screen->outputs, &screen->seats};
    for (int index = 0; index < 2; index++) {
        Global **list = lists[index];
        while (*list && (*list)->name != name) list = &(*list)->next;
        if (*list) removeGlobal(list);
    }
}

static const struct wl_registry_listener registryListener = {added, removed};

// MARK: The connection

int CScreen_open(CScreen **opened) {
    CScreen *screen = calloc(1, sizeof *screen);
    if (!screen) return ENOMEM;
    screen->display = wl_display_connect(NULL);
    if (!screen->display) {
        int error = errno;
        free(screen);
        return error ? error : ECONNREFUSED;
    }
    screen->keyboards = xkb_context_new(XKB_CONTEXT_NO_FLAGS);
    screen->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    screen->registry = wl_display_get_registry(screen->display);
    int error = screen->keyboards && screen->registry && screen->wakeup >= 0 ? 0 : ENOMEM;
    if (!error) {
        wl_registry_add_listener(screen->registry, &registryListener, screen);
        if (wl_display_roundtrip(screen->display) < 0) error = wl_display_get_error(screen->display);
    }
    if (!error && !(screen->compositor && screen->memory && screen->shell)) error = ENOTSUP;
    // After an error the program ends.
    if (!error) *opened = screen;
    return error;
}

void CScreen_wake(CScreen *screen) {
    uint64_t one = 1;
    // The counter can only be full of earlier calls.
    (void)!write(screen->wakeup, &one, sizeof one);
}

/// Waits for events, and handles them. Returns whether the connection is still there.
static bool step(CScreen *screen) {
    int wait = screen->handlers.update(screen->handlers.context);
    for (Surface *surface = screen->surfaces; surface; surface = surface->next)
        if (surface->isConfigured && surface->isOutdated) draw(surface);
    return CWayland_step(screen->display, screen->wakeup, wait);
}

int CScreen_run(CScreen *screen, CScreen_Handlers handlers) {
    screen->handlers = handlers;
    errno = 0;
    while (step(screen)) {}
    int error = wl_display_get_error(screen->display);
    return error ? error : errno ? errno : EPIPE;
}

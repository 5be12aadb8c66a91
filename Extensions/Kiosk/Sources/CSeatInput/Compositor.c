#include "../CWaylandClient/shim.h"
#include "CSeatInput.h"

#include <stdlib.h>
#include <string.h>

// MARK: The two protocols, as far as they are used here and in the form that wayland-scanner generates

// Both interfaces create an object for each seat, with the same two events. The requests differ in the order of their
// arguments.
static const struct wl_message noticeRequests[] = {{"destroy", "", NULL}};
static const struct wl_message noticeEvents[] = {{"idled", "", NULL}, {"resumed", "", NULL}};

static const struct wl_interface extNotice = {"ext_idle_notification_v1", 2, 1, noticeRequests, 2, noticeEvents};
static const struct wl_interface *extTypes[] = {&extNotice, NULL, &wl_seat_interface};
static const struct wl_message extRequests[] = {
    {"destroy", "", NULL},
    {"get_idle_notification", "nuo", extTypes},
    {"get_input_idle_notification", "2nuo", extTypes},
};
static const struct wl_interface extNotifier = {"ext_idle_notifier_v1", 2, 3, extRequests, 0, NULL};

static const struct wl_interface kdeNotice = {"org_kde_kwin_idle_timeout", 1, 1, noticeRequests, 2, noticeEvents};
static const struct wl_interface *kdeTypes[] = {&kdeNotice, &wl_seat_interface, NULL};
static const struct wl_message kdeRequests[] = {{"get_idle_timeout", "nou", kdeTypes}};
static const struct wl_interface kdeNotifier = {"org_kde_kwin_idle", 1, 1, kdeRequests, 0, NULL};

// MARK: Seats

typedef struct Seat {
    struct Seat *next;
    CSeatInput_Compositor *compositor;
    uint32_t global;
    struct wl_seat *seat;
    struct wl_proxy *notice;
    bool isUsed;
} Seat;

struct CSeatInput_Compositor {
    struct wl_display *display;
    struct wl_registry *registry;
    uint32_t pause;
    struct wl_proxy *ext;
    struct wl_proxy *kde;
    Seat *seats;
    bool isFollowed;
    /// Whether the compositor has not responded yet to the last question.
    bool isAsked;
    /// When `heard` was called last, in milliseconds of the monotonic clock.
    int64_t heardAt;
    void (*heard)(void *, bool);
    void *context;
};

static bool isUsed(const CSeatInput_Compositor *compositor) {
    for (const Seat *seat = compositor->seats; seat; seat = seat->next)
        if (seat->isUsed) return true;
    return false;
}

static void tell(CSeatInput_Compositor *compositor, bool value) {
    compositor->heardAt = CWayland_now();
    compositor->heard(compositor->context, value);
}

static void setUsed(Seat *seat, bool value) {
    seat->isUsed = value;
    if (value || !isUsed(seat->compositor)) tell(seat->compositor, value);
}

static void idled(void *data, struct wl_proxy *notice) { setUsed(data, false); }
static void resumed(void *data, struct wl_proxy *notice) { setUsed(data, true); }

static const struct {
    void (*idled)(void *, struct wl_proxy *);
    void (*resumed)(void *, struct wl_proxy *);
} noticeListener = {idled, resumed};

/// Asks for the notices of a seat, once it is known which interface the compositor has.
static void askForNotices(Seat *seat) {
    CSeatInput_Compositor *compositor = seat->compositor;
    if (compositor->ext) {
        uint32_t version = wl_proxy_get_version(compositor->ext);
        // From version 2 on, a program that keeps the screen on does not count as input.
        uint32_t request = version >= 2 ? 2 : 1;
        seat->notice = wl_proxy_marshal_flags(
            compositor->ext, request, &extNotice, version, 0, NULL, compositor->pause, seat->seat);
    } else {
        seat->notice =
            wl_proxy_marshal_flags(compositor->kde, 0, &kdeNotice, 1, 0, NULL, seat->seat, compositor->pause);
    }
    // A notice begins with the seat in use.
    seat->isUsed = seat->notice != NULL;
    if (seat->notice) wl_proxy_add_listener(seat->notice, (void (**)(void))&noticeListener, seat);
}

static void added(void *data, struct wl_registry *registry, uint32_t name, const char *interface, uint32_t version) {
    CSeatInput_Compositor *compositor = data;
    if (strcmp(interface, wl_seat_interface.name) == 0) {
        Seat *seat = calloc(1, sizeof *seat);
        if (!seat) return;
        seat->next = compositor->seats;
        seat->compositor = compositor;
        seat->global = name;
        seat->seat = wl_registry_bind(registry, name, &wl_seat_interface, 1);
        compositor->seats = seat;
        if (compositor->isFollowed) askForNotices(seat);
    } else if (strcmp(interface, extNotifier.name) == 0 && !compositor->ext) {
        compositor->ext = wl_registry_bind(registry, name, &extNotifier, version < 2 ? 1 : 2);
    } else if (strcmp(interface, kdeNotifier.name) == 0 && !compositor->kde) {
        compositor->kde = wl_registry_bind(registry, name, &kdeNotifier, 1);
    }
}

/// Removes the first seat of a list.
static void removeSeat(Seat **list) {
    Seat *seat = *list;
    *list = seat->next;
    // “destroy” and “release” are both the first request.
    if (seat->notice) wl_proxy_marshal_flags(seat->notice, 0, NULL, 1, WL_MARSHAL_FLAG_DESTROY);
    if (seat->seat) wl_seat_destroy(seat->seat);
    free(seat);
}

static void removed(void *data, struct wl_registry *registry, uint32_t name) {
    CSeatInput_Compositor *compositor = data;
    Seat **list = &compositor->seats;
    while (*list && (*list)->global != name) list = &(*list)->next;
    if (*list) removeSeat(list);
}

static const struct wl_registry_listener registryListener = {added, removed};

// MARK: The connection

static void closeCompositor(CSeatInput_Compositor *compositor) {
    while (compositor->seats) removeSeat(&compositor->seats);
    if (compositor->ext) wl_proxy_destroy(compositor->ext);
    if (compositor->kde) wl_proxy_destroy(compositor->kde);
    if (compositor->registry) wl_registry_destroy(compositor->registry);
    wl_display_disconnect(compositor->display);
    free(compositor);
}

int CSeatInput_openCompositor(uint32_t pause, CSeatInput_Compositor **opened) {
    CSeatInput_Compositor *compositor = calloc(1, sizeof *compositor);
    if (!compositor) return ENOMEM;
    compositor->pause = pause;
    compositor->display = wl_display_connect(NULL);
    if (!compositor->display) {
        int error = errno;
        free(compositor);
        return error ? error : ECONNREFUSED;
    }
    compositor->registry = wl_display_get_registry(compositor->display);
    int error = compositor->registry ? 0 : ENOMEM;
    if (!error) {
        wl_registry_add_listener(compositor->registry, &registryListener, compositor);
        if (wl_display_roundtrip(compositor->display) < 0) error = wl_display_get_error(compositor->display);
    }
    if (!error && !compositor->ext && !compositor->kde) error = ENOTSUP;
    if (error) {
        closeCompositor(compositor);
    } else {
        *opened = compositor;
    }
    return error;
}

const char *CSeatInput_interface(const CSeatInput_Compositor *compositor) {
    return compositor->ext ? extNotifier.name : kdeNotifier.name;
}

static void responded(void *data, struct wl_callback *callback, uint32_t serial) {
    CSeatInput_Compositor *compositor = data;
    wl_callback_destroy(callback);
    compositor->isAsked = false;
    if (isUsed(compositor)) tell(compositor, true);
}

static const struct wl_callback_listener responseListener = {responded};

/// Asks whether the compositor still responds, if it is time to.
///
/// Returns the milliseconds until then; -1 if the seat is not in use, or the compositor is asked already.
static int ask(CSeatInput_Compositor *compositor) {
    if (compositor->isAsked || !isUsed(compositor)) return -1;
    int64_t left = compositor->heardAt + compositor->pause + compositor->pause / 2 - CWayland_now();
    if (left > 0) return (int)left;
    struct wl_callback *callback = wl_display_sync(compositor->display);
    if (callback) wl_callback_add_listener(callback, &responseListener, compositor);
    compositor->isAsked = true;
    return -1;
}

int CSeatInput_followCompositor(
    CSeatInput_Compositor *compositor, void (*heard)(void *context, bool isUsed), void *context) {
    compositor->heard = heard;
    compositor->context = context;
    compositor->isFollowed = true;
    compositor->heardAt = CWayland_now();
    for (Seat *seat = compositor->seats; seat; seat = seat->next) askForNotices(seat);
    errno = 0;
    while (CWayland_step(compositor->display, -1, ask(compositor))) {}
    int error = wl_display_get_error(compositor->display);
    if (!error) error = errno ? errno : EPIPE;
    closeCompositor(compositor);
    return error;
}

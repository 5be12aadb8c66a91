#define _GNU_SOURCE
#include "Parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// MARK: Keys

static void keymap(void *data, struct wl_keyboard *keyboard, uint32_t format, int32_t descriptor, uint32_t size) {
    Global *seat = data;
    void *text = format == WL_KEYBOARD_KEYMAP_FORMAT_XKB_V1 && size > 0
        ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0)
        : MAP_FAILED;
    close(descriptor);
    if (text == MAP_FAILED) return;
    struct xkb_keymap *map = xkb_keymap_new_from_buffer(
        seat->screen->keyboards, text, size - 1, XKB_KEYMAP_FORMAT_TEXT_V1, XKB_KEYMAP_COMPILE_NO_FLAGS);
    munmap(text, size);
    if (!map) return;
    xkb_state_unref(seat->keys);
    seat->keys = xkb_state_new(map);
    xkb_keymap_unref(map);
}

static void key(void *data, struct wl_keyboard *keyboard, uint32_t serial, uint32_t time, uint32_t code, uint32_t state) {
    Global *seat = data;
    if (state != WL_KEYBOARD_KEY_STATE_PRESSED || !seat->keys) return;
    char text[32] = "";
    // 8 is the difference between the codes of evdev and of X.
    xkb_state_key_get_utf8(seat->keys, code + 8, text, sizeof text);
    uint32_t symbol = xkb_state_key_get_one_sym(seat->keys, code + 8);
    const CScreen_Handlers *handlers = &seat->screen->handlers;
    handlers->pressed(handlers->context, symbol, text, time);
    explicit_bzero(text, sizeof text);
}

static void modifiers(
    void *data, struct wl_keyboard *keyboard, uint32_t serial, uint32_t pressed, uint32_t latched, uint32_t locked,
    uint32_t group) {
    Global *seat = data;
    if (seat->keys) xkb_state_update_mask(seat->keys, pressed, latched, locked, 0, 0, group);
}

static void keysEntered(
    void *data, struct wl_keyboard *keyboard, uint32_t serial, struct wl_surface *surface, struct wl_array *keys) {}
static void keysLeft(void *data, struct wl_keyboard *keyboard, uint32_t serial, struct wl_surface *surface) {}

static const struct wl_keyboard_listener keyboardListener = {
    .keymap = keymap, .enter = keysEntered, .leave = keysLeft, .key = key, .modifiers = modifiers};

// MARK: Pointer and touch

static void hit(Global *seat, struct wl_surface *wlSurface, double x, double y) {
    const Surface *surface = CScreen_surface(seat->screen, wlSurface);
    if (!surface) return;
    const CScreen_Handlers *handlers = &seat->screen->handlers;
    handlers->touched(handlers->context, x, y, surface->width, surface->height);
}

static void moved(void *data, struct wl_pointer *pointer, uint32_t time, wl_fixed_t x, wl_fixed_t y) {
    Global *seat = data;
    seat->x = wl_fixed_to_double(x);
    seat->y = wl_fixed_to_double(y);
}

static void pointerEntered(
    void *data, struct wl_pointer *pointer, uint32_t serial, struct wl_surface *surface, wl_fixed_t x, wl_fixed_t y) {
    Global *seat = data;
    seat->pointed = surface;
    moved(data, pointer, 0, x, y);
}

static void pointerLeft(void *data, struct wl_pointer *pointer, uint32_t serial, struct wl_surface *surface) {
    Global *seat = data;
    seat->pointed = NULL;
}

static void clicked(
    void *data, struct wl_pointer *pointer, uint32_t serial, uint32_t time, uint32_t button, uint32_t state) {
    Global *seat = data;
    if (state == WL_POINTER_BUTTON_STATE_PRESSED) hit(seat, seat->pointed, seat->x, seat->y);
}

static void turned(void *data, struct wl_pointer *pointer, uint32_t time, uint32_t axis, wl_fixed_t value) {}

static const struct wl_pointer_listener pointerListener = {
    .enter = pointerEntered, .leave = pointerLeft, .motion = moved, .button = clicked, .axis = turned};

static void touched(
    void *data, struct wl_touch *touch, uint32_t serial, uint32_t time, struct wl_surface *surface, int32_t finger,
    wl_fixed_t x, wl_fixed_t y) {
    hit(data, surface, wl_fixed_to_double(x), wl_fixed_to_double(y));
}

static void lifted(void *data, struct wl_touch *touch, uint32_t serial, uint32_t time, int32_t finger) {}
static void slid(void *data, struct wl_touch *touch, uint32_t time, int32_t finger, wl_fixed_t x, wl_fixed_t y) {}
static void framed(void *data, struct wl_touch *touch) {}

static const struct wl_touch_listener touchListener = {
    .down = touched, .up = lifted, .motion = slid, .frame = framed, .cancel = framed};

// MARK: Seats

static void leaveKeyboard(Global *seat) {
    if (seat->keyboard) wl_keyboard_destroy(seat->keyboard);
    seat->keyboard = NULL;
    xkb_state_unref(seat->keys);
    seat->keys = NULL;
}

static void leavePointer(Global *seat) {
    if (seat->pointer) wl_pointer_destroy(seat->pointer);
    seat->pointer = NULL;
    seat->pointed = NULL;
}

static void leaveTouch(Global *seat) {
    if (seat->touch) wl_touch_destroy(seat->touch);
    seat->touch = NULL;
}

static void devices(void *data, struct wl_seat *wlSeat, uint32_t kinds) {
    Global *seat = data;
    if (!(kinds & WL_SEAT_CAPABILITY_KEYBOARD)) {
        leaveKeyboard(seat);
    } else if (!seat->keyboard && (seat->keyboard = wl_seat_get_keyboard(wlSeat))) {
        wl_keyboard_add_listener(seat->keyboard, &keyboardListener, seat);
    }
    if (!(kinds & WL_SEAT_CAPABILITY_POINTER)) {
        leavePointer(seat);
    } else if (!seat->pointer && (seat->pointer = wl_seat_get_pointer(wlSeat))) {
        wl_pointer_add_listener(seat->pointer, &pointerListener, seat);
    }
    if (!(kinds & WL_SEAT_CAPABILITY_TOUCH)) {
        leaveTouch(seat);
    } else if (!seat->touch && (seat->touch = wl_seat_get_touch(wlSeat))) {
        wl_touch_add_listener(seat->touch, &touchListener, seat);
    }
}

static const struct wl_seat_listener seatListener = {.capabilities = devices};

void CScreen_followSeat(Global *seat) { wl_seat_add_listener(seat->seat, &seatListener, seat); }

void CScreen_leaveSeat(Global *seat) {
    leaveKeyboard(seat);
    leavePointer(seat);
    leaveTouch(seat);
    wl_seat_destroy(seat->seat);
}

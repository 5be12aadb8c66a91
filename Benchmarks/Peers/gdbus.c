// The backend on GDBus (GLib). GDBus reads on a worker thread, and calls the handlers in the main loop.
#include "peer.h"

#include <gio/gio.h>

static GDBusConnection *connection;

static void check(GError *error, const char *what) {
    if (error) end_with(what, error->message);
}

static void posted(GDBusConnection *from, const char *sender, const char *path, const char *interface,
                   const char *member, GVariant *arguments, void *context) {
    (void)from;
    (void)sender;
    (void)path;
    (void)interface;
    (void)member;
    (void)context;
    const char *name;
    if (!g_variant_is_of_type(arguments, G_VARIANT_TYPE("(s)"))) return;
    g_variant_get(arguments, "(&s)", &name);
    received(name);
}

// GDBus sends AddMatch without waiting. The response to a later call proves that the bus has processed it.
static void wait_for_bus(void) {
    GError *error = NULL;
    GVariant *answer = g_dbus_connection_call_sync(connection, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                                   "org.freedesktop.DBus", "GetId", NULL, NULL,
                                                   G_DBUS_CALL_FLAGS_NONE, -1, NULL, &error);
    check(error, "GetId");
    g_variant_unref(answer);
}

static void subscribe(const char *name) {
    char interface[PEER_INTERFACE_MAX];
    interface_of(name, interface);
    g_dbus_connection_signal_subscribe(connection, NULL, interface, NULL, PEER_PATH, NULL, G_DBUS_SIGNAL_FLAGS_NONE,
                                       posted, NULL, NULL);
}

void bus_connect(void) {
    GError *error = NULL;
    connection = g_bus_get_sync(G_BUS_TYPE_SESSION, NULL, &error);
    check(error, "g_bus_get_sync");
}

void bus_observe(const char *name) {
    subscribe(name);
    wait_for_bus();
}

void bus_observe_many(const char *prefix, long count) {
    for (long i = 0; i < count; i++) {
        char name[PEER_INTERFACE_MAX];
        g_snprintf(name, sizeof name, "%s%ld", prefix, i);
        subscribe(name);
    }
    wait_for_bus();
}

void bus_post(const char *name) {
    char interface[PEER_INTERFACE_MAX];
    GError *error = NULL;
    interface_of(name, interface);
    g_dbus_connection_emit_signal(connection, NULL, PEER_PATH, interface, PEER_MEMBER, g_variant_new("(s)", name),
                                  &error);
    check(error, "g_dbus_connection_emit_signal");
}

void bus_flush(void) {
    GError *error = NULL;
    g_dbus_connection_flush_sync(connection, NULL, &error);
    check(error, "g_dbus_connection_flush_sync");
}

void bus_step(void) {
    g_main_context_iteration(NULL, TRUE);
}

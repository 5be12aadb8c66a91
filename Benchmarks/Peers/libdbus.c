// The baseline: a plain program on libdbus, written as libdbus's documentation shows.
#include "peer.h"

#include <dbus/dbus.h>

static DBusConnection *connection;
static char observed_interface[PEER_INTERFACE_MAX];
static long answers_due;

static DBusHandlerResult filter(DBusConnection *from, DBusMessage *message, void *context) {
    (void)from;
    (void)context;
    const char *name;
    if (!dbus_message_is_signal(message, observed_interface, PEER_MEMBER)) return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    if (dbus_message_get_args(message, NULL, DBUS_TYPE_STRING, &name, DBUS_TYPE_INVALID)) received(name);
    return DBUS_HANDLER_RESULT_HANDLED;
}

void bus_connect(void) {
    DBusError error = DBUS_ERROR_INIT;
    connection = dbus_bus_get_private(DBUS_BUS_SESSION, &error);
    if (!connection) end_with("dbus_bus_get_private", error.message);
    if (!dbus_connection_add_filter(connection, filter, NULL, NULL)) end_with("dbus_connection_add_filter", NULL);
}

void bus_observe(const char *name) {
    char rule[PEER_RULE_MAX];
    DBusError error = DBUS_ERROR_INIT;
    rule_of(name, rule);
    interface_of(name, observed_interface);
    dbus_bus_add_match(connection, rule, &error);
    if (dbus_error_is_set(&error)) end_with("AddMatch", error.message);
}

static void answered(DBusPendingCall *call, void *context) {
    (void)context;
    DBusMessage *answer = dbus_pending_call_steal_reply(call);
    if (!answer) end_with("AddMatch", "no reply");
    DBusError error = DBUS_ERROR_INIT;
    if (dbus_set_error_from_message(&error, answer)) end_with("AddMatch", error.message);
    dbus_message_unref(answer);
    answers_due--;
}

void bus_observe_many(const char *prefix, long count) {
    answers_due = count;
    for (long i = 0; i < count; i++) {
        char name[PEER_INTERFACE_MAX], text[PEER_RULE_MAX];
        const char *rule = text;
        snprintf(name, sizeof name, "%s%ld", prefix, i);
        rule_of(name, text);
        DBusMessage *message =
            dbus_message_new_method_call(DBUS_SERVICE_DBUS, DBUS_PATH_DBUS, DBUS_INTERFACE_DBUS, "AddMatch");
        DBusPendingCall *call = NULL;
        if (!message || !dbus_message_append_args(message, DBUS_TYPE_STRING, &rule, DBUS_TYPE_INVALID) ||
            !dbus_connection_send_with_reply(connection, message, &call, DBUS_TIMEOUT_INFINITE) || !call ||
            !dbus_pending_call_set_notify(call, answered, NULL, NULL))
            end_with("AddMatch", "not sent");
        dbus_pending_call_unref(call);
        dbus_message_unref(message);
    }
    while (answers_due > 0) bus_step();
}

void bus_post(const char *name) {
    char interface[PEER_INTERFACE_MAX];
    interface_of(name, interface);
    DBusMessage *message = dbus_message_new_signal(PEER_PATH, interface, PEER_MEMBER);
    if (!message || !dbus_message_append_args(message, DBUS_TYPE_STRING, &name, DBUS_TYPE_INVALID) ||
        !dbus_connection_send(connection, message, NULL))
        end_with("post", "not sent");
    dbus_message_unref(message);
}

void bus_flush(void) {
    dbus_connection_flush(connection);
}

void bus_step(void) {
    if (!dbus_connection_read_write_dispatch(connection, -1)) end_with("bus", "disconnected");
}

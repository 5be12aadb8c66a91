// The messages of a sign-out on plain libdbus, without any work between them: a device, its apps, and an app that signs
// out. Each message has the fields of the broker's interface (Documentation/Interface.md).
#include "common.h"

#include <dbus/dbus.h>

#define SERVICE "org.example.Device"
#define PATH "/org/example/Device"
#define BROADCAST "type='signal',interface='" SERVICE "',path='" PATH "',member='Changed'"

static DBusConnection *connection;

// MARK: Messages

// Opens and closes the dictionary that each message has. The fields are added in between.
static DBusMessageIter message_fields, *fields = &message_fields;
static DBusMessageIter arguments;

static DBusMessage *begin(DBusMessage *message) {
    if (!message) end_with("message", "not made");
    dbus_message_iter_init_append(message, &arguments);
    dbus_message_iter_open_container(&arguments, DBUS_TYPE_ARRAY, "{sv}", fields);
    return message;
}

static DBusMessage *finished(DBusMessage *message) {
    dbus_message_iter_close_container(&arguments, fields);
    return message;
}

static void add(const char *key, int type, const char *signature, const void *value) {
    DBusMessageIter entry, variant;
    dbus_message_iter_open_container(fields, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
    dbus_message_iter_append_basic(&entry, DBUS_TYPE_STRING, &key);
    dbus_message_iter_open_container(&entry, DBUS_TYPE_VARIANT, signature, &variant);
    dbus_message_iter_append_basic(&variant, type, value);
    dbus_message_iter_close_container(&entry, &variant);
    dbus_message_iter_close_container(fields, &entry);
}

static void add_text(const char *key, const char *text) { add(key, DBUS_TYPE_STRING, "s", &text); }

static void add_number(const char *key, dbus_uint64_t value) { add(key, DBUS_TYPE_UINT64, "t", &value); }

static DBusMessage *call(const char *method) {
    DBusMessage *message = begin(dbus_message_new_method_call(SERVICE, PATH, SERVICE, method));
    add_text("application", "org.example.follower");
    return message;
}

static void pass_on(DBusMessage *message) {
    if (!dbus_connection_send(connection, message, NULL)) end_with("dbus_connection_send", "out of memory");
    dbus_message_unref(message);
}

static void wait_for_response(DBusMessage *message) {
    DBusError error = DBUS_ERROR_INIT;
    DBusMessage *response = dbus_connection_send_with_reply_and_block(connection, message, -1, &error);
    if (!response) end_with("call", error.message);
    dbus_message_unref(message);
    dbus_message_unref(response);
}

static DBusMessage *report(const char *progress) {
    DBusMessage *message = call("ReportCleanup");
    add_number("session", 1);
    add_text("progress", progress);
    return finished(message);
}

// MARK: The device

static long apps;
// The receipts that are missing, and the call that waits for them.
static long missing;
static DBusMessage *waiting;

static DBusMessage *round_of(DBusMessage *of) {
    DBusMessage *response = begin(dbus_message_new_method_return(of));
    add_number("round", 1);
    return finished(response);
}

static DBusHandlerResult serve(DBusConnection *from, DBusMessage *message, void *context) {
    (void)from;
    (void)context;
    if (dbus_message_is_method_call(message, SERVICE, "SignOut")) {
        missing = apps;
        pass_on(dbus_message_new_signal(PATH, SERVICE, "Changed"));
        pass_on(round_of(message));
    } else if (dbus_message_is_method_call(message, SERVICE, "GetCurrentAccount")) {
        DBusMessage *response = begin(dbus_message_new_method_return(message));
        add_number("epoch", 1);
        add_text("owed", "ada@example.com");
        pass_on(finished(response));
    } else if (dbus_message_is_method_call(message, SERVICE, "ReportCleanup")) {
        if (dbus_message_get_no_reply(message)) return DBUS_HANDLER_RESULT_HANDLED;
        missing--;
        DBusMessage *response = begin(dbus_message_new_method_return(message));
        add_number("epoch", 1);
        pass_on(finished(response));
    } else if (dbus_message_is_method_call(message, SERVICE, "GetRound")) {
        waiting = dbus_message_ref(message);
    } else return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    if (missing == 0 && waiting) {
        pass_on(round_of(waiting));
        dbus_message_unref(waiting);
        waiting = NULL;
    }
    return DBUS_HANDLER_RESULT_HANDLED;
}

static void device(long count) {
    DBusError error = DBUS_ERROR_INIT;
    apps = count;
    dbus_connection_add_filter(connection, serve, NULL, NULL);
    if (dbus_bus_request_name(connection, SERVICE, 0, &error) != DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER)
        end_with("RequestName", dbus_error_is_set(&error) ? error.message : "taken");
    say_ready();
    while (dbus_connection_read_write_dispatch(connection, -1)) {}
}

// MARK: The apps

static int is_told;

static DBusHandlerResult note_broadcast(DBusConnection *from, DBusMessage *message, void *context) {
    (void)from;
    (void)context;
    if (!dbus_message_is_signal(message, SERVICE, "Changed")) return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    is_told = 1;
    return DBUS_HANDLER_RESULT_HANDLED;
}

static void start_listening(void) {
    DBusError error = DBUS_ERROR_INIT;
    dbus_bus_add_match(connection, BROADCAST, &error);
    if (dbus_error_is_set(&error)) end_with("AddMatch", error.message);
    dbus_connection_add_filter(connection, note_broadcast, NULL, NULL);
    say_ready();
}

// Waits for the broadcast, asks for the account, and reports the cleanup as an app does that has nothing to delete.
static void follow_once(void) {
    while (!is_told)
        if (!dbus_connection_read_write_dispatch(connection, -1)) end_with("bus", "disconnected");
    is_told = 0;
    wait_for_response(finished(call("GetCurrentAccount")));
    DBusMessage *begun = report("begun");
    dbus_message_set_no_reply(begun, TRUE);
    pass_on(begun);
    wait_for_response(report("finished"));
}

static void sign_out(long turn) {
    (void)turn;
    wait_for_response(finished(call("SignOut")));
    follow_once();
    wait_for_response(finished(call("GetRound")));
}

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    DBusError error = DBUS_ERROR_INIT;
    connection = dbus_bus_get_private(DBUS_BUS_SESSION, &error);
    if (!connection) end_with("dbus_bus_get_private", error.message);
    if (!strcmp(role, "device") && argc == 3) device(number(argv[2]));
    else if (!strcmp(role, "app") && argc == 2) for (start_listening();;) follow_once();
    else if (!strcmp(role, "sign-out") && argc == 3) start_listening(), time_calls(number(argv[2]), sign_out);
    else end_with(role, "no such role, or wrong arguments for it");
    return 0;
}

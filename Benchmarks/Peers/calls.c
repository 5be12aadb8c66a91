// The baseline for operations that wait for responses, on plain libdbus: adding and removing a match rule, and calling a
// service that keeps one number.
#include "common.h"

#include <dbus/dbus.h>

#define SERVICE "org.example.Number"
#define PATH "/org/example/Number"

static DBusConnection *connection;
static dbus_uint64_t value;

static void bus_connect(void) {
    DBusError error = DBUS_ERROR_INIT;
    connection = dbus_bus_get_private(DBUS_BUS_SESSION, &error);
    if (!connection) end_with("dbus_bus_get_private", error.message);
}

// MARK: Match rules

static char rule[512];

static void add_and_remove(long turn) {
    DBusError error = DBUS_ERROR_INIT;
    (void)turn;
    dbus_bus_add_match(connection, rule, &error);
    if (dbus_error_is_set(&error)) end_with("AddMatch", error.message);
    // Without a DBusError, libdbus sends the request and does not wait for the response.
    dbus_bus_remove_match(connection, rule, NULL);
}

static void churn(const char *name, long count) {
    snprintf(rule, sizeof rule, "type='signal',interface='org.notifycenter.Darwin1.%s',path='/org/notifycenter'", name);
    say_ready();
    time_calls(count, add_and_remove);
}

// MARK: The number

static DBusHandlerResult answer(DBusConnection *from, DBusMessage *message, void *context) {
    (void)context;
    if (dbus_message_get_type(message) != DBUS_MESSAGE_TYPE_METHOD_CALL) return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    DBusMessage *reply = dbus_message_new_method_return(message);
    if (dbus_message_is_method_call(message, SERVICE, "Set")) {
        const char *name;
        dbus_message_get_args(message, NULL, DBUS_TYPE_STRING, &name, DBUS_TYPE_UINT64, &value, DBUS_TYPE_INVALID);
    } else {
        dbus_message_append_args(reply, DBUS_TYPE_UINT64, &value, DBUS_TYPE_INVALID);
    }
    dbus_connection_send(from, reply, NULL);
    dbus_message_unref(reply);
    return DBUS_HANDLER_RESULT_HANDLED;
}

static void serve(void) {
    DBusError error = DBUS_ERROR_INIT;
    dbus_connection_add_filter(connection, answer, NULL, NULL);
    if (dbus_bus_request_name(connection, SERVICE, 0, &error) != DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER)
        end_with("RequestName", dbus_error_is_set(&error) ? error.message : "taken");
    say_ready();
    while (dbus_connection_read_write_dispatch(connection, -1)) {}
}

// Makes a call with a name as its argument, like the calls to notifyd.
static DBusMessage *call(const char *method) {
    const char *name = "BenchState";
    DBusMessage *message = dbus_message_new_method_call(SERVICE, PATH, SERVICE, method);
    if (!message || !dbus_message_append_args(message, DBUS_TYPE_STRING, &name, DBUS_TYPE_INVALID)) end_with(method, "not made");
    return message;
}

static void wait_for_answer(DBusMessage *message, const char *method) {
    DBusError error = DBUS_ERROR_INIT;
    DBusMessage *reply = dbus_connection_send_with_reply_and_block(connection, message, -1, &error);
    if (!reply) end_with(method, error.message);
    dbus_message_unref(message);
    dbus_message_unref(reply);
}

static void get(long turn) {
    (void)turn;
    wait_for_answer(call("Get"), "Get");
}

static void set(long turn) {
    dbus_uint64_t number = (dbus_uint64_t)turn;
    DBusMessage *message = call("Set");
    dbus_message_append_args(message, DBUS_TYPE_UINT64, &number, DBUS_TYPE_INVALID);
    wait_for_answer(message, "Set");
}

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    bus_connect();
    if (!strcmp(role, "serve") && argc == 2) serve();
    else if (!strcmp(role, "churn") && argc == 4) churn(argv[2], number(argv[3]));
    else if (!strcmp(role, "get") && argc == 4) say_ready(), time_calls(number(argv[3]), get);
    else if (!strcmp(role, "set") && argc == 4) say_ready(), time_calls(number(argv[3]), set);
    else end_with(role, "no such role, or wrong arguments for it");
    return 0;
}

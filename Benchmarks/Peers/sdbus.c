// The backend on sd-bus (libsystemd).
#include "peer.h"

#include <systemd/sd-bus.h>

static sd_bus *bus;
static long answers_due;

static int check(int result, const char *what) {
    if (result < 0) end_with(what, strerror(-result));
    return result;
}

static int posted(sd_bus_message *message, void *context, sd_bus_error *error) {
    (void)context;
    (void)error;
    const char *name;
    if (sd_bus_message_read(message, "s", &name) >= 0) received(name);
    return 0;
}

static int answered(sd_bus_message *message, void *context, sd_bus_error *error) {
    (void)context;
    (void)error;
    const sd_bus_error *refusal = sd_bus_message_get_error(message);
    if (refusal) end_with("AddMatch", refusal->message);
    answers_due--;
    return 0;
}

void bus_connect(void) {
    check(sd_bus_open_user(&bus), "sd_bus_open_user");
}

void bus_observe(const char *name) {
    char rule[PEER_RULE_MAX];
    rule_of(name, rule);
    check(sd_bus_add_match(bus, NULL, rule, posted, NULL), "sd_bus_add_match");
}

void bus_observe_many(const char *prefix, long count) {
    answers_due = count;
    for (long i = 0; i < count; i++) {
        char name[PEER_INTERFACE_MAX], rule[PEER_RULE_MAX];
        snprintf(name, sizeof name, "%s%ld", prefix, i);
        rule_of(name, rule);
        check(sd_bus_add_match_async(bus, NULL, rule, posted, answered, NULL), "sd_bus_add_match_async");
    }
    while (answers_due > 0) bus_step();
}

void bus_post(const char *name) {
    char interface[PEER_INTERFACE_MAX];
    interface_of(name, interface);
    check(sd_bus_emit_signal(bus, PEER_PATH, interface, PEER_MEMBER, "s", name), "sd_bus_emit_signal");
}

void bus_flush(void) {
    check(sd_bus_flush(bus), "sd_bus_flush");
}

void bus_step(void) {
    if (check(sd_bus_process(bus, NULL), "sd_bus_process") == 0) check(sd_bus_wait(bus, UINT64_MAX), "sd_bus_wait");
}

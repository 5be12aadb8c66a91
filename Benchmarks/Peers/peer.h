// A benchmark peer is roles.c linked with one backend. A backend implements the functions bus_…, and calls received()
// for each notification. It ends the process if a call fails.
#ifndef PEER_H
#define PEER_H

#include "common.h"

#define PEER_PATH "/org/notifycenter"
#define PEER_INTERFACE "org.notifycenter.Darwin1."
#define PEER_MEMBER "Posted"

enum { PEER_INTERFACE_MAX = 256, PEER_RULE_MAX = 512 };

// Connects to the bus at DBUS_SESSION_BUS_ADDRESS, on a private connection.
void bus_connect(void);

// Observes one name. Returns when the bus has responded.
void bus_observe(const char *name);

// Observes `count` names, PREFIX0, PREFIX1, …, with all requests in flight at once. Returns when the bus has responded
// to each.
void bus_observe_many(const char *prefix, long count);

// Posts one notification, as a program does that posts occasionally.
void bus_post(const char *name);

// Returns when all posts have been written to the socket.
void bus_flush(void);

// Waits for messages of the bus, and dispatches them.
void bus_step(void);

// The functions of roles.c. The backend calls received() with argument 0 of each signal.
void received(const char *name);

void interface_of(const char *name, char interface[PEER_INTERFACE_MAX]);
void rule_of(const char *name, char rule[PEER_RULE_MAX]);

#endif

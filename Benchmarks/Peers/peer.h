// A benchmark peer is roles.c linked with one backend: what each library must be able to do for the roles, and the one
// call that it makes back. A backend whose call fails ends the process with die(): half a measurement is none.
#ifndef PEER_H
#define PEER_H

#define PEER_PATH "/org/notifycenter"
#define PEER_INTERFACE "org.notifycenter.Darwin1."
#define PEER_MEMBER "Posted"

enum { PEER_INTERFACE_MAX = 256, PEER_RULE_MAX = 512 };

// Connects to the bus at DBUS_SESSION_BUS_ADDRESS, on a connection that nobody else uses.
void bus_connect(void);

// Observes one name. The bus has answered when it returns.
void bus_observe(const char *name);

// Observes `count` names, PREFIX0, PREFIX1, …, with all requests under way at once. The bus has answered each when it
// returns.
void bus_observe_many(const char *prefix, long count);

// Posts one notification, the way a program that posts now and then would.
void bus_post(const char *name);

// Returns when everything posted has been written to the socket.
void bus_flush(void);

// Waits for the bus and dispatches what has come.
void bus_step(void);

// roles.c; called by the backend for each notification, with argument 0 of the signal.
void received(const char *name);

void die(const char *what, const char *why) __attribute__((noreturn));
void interface_of(const char *name, char interface[PEER_INTERFACE_MAX]);
void rule_of(const char *name, char rule[PEER_RULE_MAX]);

#endif

#ifndef CWAYLANDCLIENT_SHIM_H
#define CWAYLANDCLIENT_SHIM_H

#include <wayland-client.h>

#endif

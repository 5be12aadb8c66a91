#ifndef CXCBSCREENSAVER_SHIM_H
#define CXCBSCREENSAVER_SHIM_H

#include <xcb/screensaver.h>
#include <xcb/xcb.h>

#endif

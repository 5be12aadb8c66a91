#include "CSeatInput.h"

#include <errno.h>
#include <stdlib.h>
#include <xcb/screensaver.h>
#include <xcb/xcb.h>

struct CSeatInput_Screen {
    xcb_connection_t *connection;
    xcb_window_t root;
};

static int lost(xcb_connection_t *connection) {
    switch (xcb_connection_has_error(connection)) {
    case 0: return 0;
    case XCB_CONN_CLOSED_PARSE_ERR: return EINVAL;
    case XCB_CONN_CLOSED_MEM_INSUFFICIENT: return ENOMEM;
    default: return ECONNREFUSED;
    }
}

int CSeatInput_openScreen(CSeatInput_Screen **opened) {
    CSeatInput_Screen *screen = calloc(1, sizeof *screen);
    if (!screen) return ENOMEM;
    int number = 0;
    screen->connection = xcb_connect(NULL, &number);
    int error = lost(screen->connection);
    if (!error) {
        const xcb_query_extension_reply_t *extension =
            xcb_get_extension_data(screen->connection, &xcb_screensaver_id);
        if (!extension || !extension->present) error = ENOTSUP;
    }
    if (!error) {
        xcb_screen_iterator_t screens = xcb_setup_roots_iterator(xcb_get_setup(screen->connection));
        while (screens.rem > 1 && number-- > 0) xcb_screen_next(&screens);
        if (screens.rem > 0) {
            screen->root = screens.data->root;
            *opened = screen;
            return 0;
        }
        error = EPROTO;
    }
    xcb_disconnect(screen->connection);
    free(screen);
    return error;
}

int CSeatInput_askScreen(CSeatInput_Screen *screen, uint32_t *unused) {
    xcb_screensaver_query_info_reply_t *reply = xcb_screensaver_query_info_reply(
        screen->connection, xcb_screensaver_query_info(screen->connection, screen->root), NULL);
    if (!reply) {
        int error = lost(screen->connection);
        return error ? error : EPROTO;
    }
    *unused = reply->ms_since_user_input;
    free(reply);
    return 0;
}

#ifndef CSEATINPUT_H
#define CSEATINPUT_H

#include <stdbool.h>
#include <stdint.h>

// When the input devices of a session were used, as its compositor or its X server says. Neither says which key was
// pressed, or where a finger was.

/// A connection to a Wayland compositor.
typedef struct CSeatInput_Compositor CSeatInput_Compositor;

/// Connects to the compositor that the environment names, and asks for notices of each pause of this many milliseconds.
///
/// Returns 0; ENOTSUP if the compositor gives no such notices; or another error of errno(3).
int CSeatInput_openCompositor(uint32_t pause, CSeatInput_Compositor **opened);

/// The interface by which the compositor gives notices.
const char *CSeatInput_interface(const CSeatInput_Compositor *compositor);

/// Calls `heard` with true at the first input after a pause, and at least once a pause and a half while there is input;
/// with false when a pause has been reached. `heard` is not called while the compositor does not respond.
///
/// Returns an error of errno(3) when the connection is lost. The compositor must not be used afterwards.
int CSeatInput_followCompositor(
    CSeatInput_Compositor *compositor, void (*heard)(void *context, bool isUsed), void *context);

/// A connection to an X server.
typedef struct CSeatInput_Screen CSeatInput_Screen;

/// Connects to the X server that the environment names.
///
/// Returns 0; ENOTSUP if the server lacks the extension MIT-SCREEN-SAVER; or another error of errno(3).
int CSeatInput_openScreen(CSeatInput_Screen **opened);

/// The milliseconds since the last input. Returns 0, or an error of errno(3).
int CSeatInput_askScreen(CSeatInput_Screen *screen, uint32_t *unused);

#endif

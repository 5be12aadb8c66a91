#ifndef _NOTIFY_H_
#define _NOTIFY_H_

// notify(3) for Linux: names between processes, without payload. “Something changed, go and look.”
//
// Source-compatible with Darwin's <notify.h>. A post travels as a D-Bus signal (module NotifyCenter, page Wire protocol), so it is
// also what the Darwin notify center of CFNotificationCenter hears and posts. The bus is the one that the environment variable
// NOTIFY_CENTER_BUS names (`session`, `system` or a D-Bus address), the session bus where it names none. The state of a name is
// kept by the service notifyd, which the bus starts when it is needed; posting and observing do without it.
//
// Names are UTF-8 of any length. `self.…` is private to the process. `user.uid.UID` and names that begin with `user.uid.UID.` belong
// to that user; all other names under `user.uid.` belong to root. /etc/notify.conf may reserve more (notifyd(8)). A receiver ignores
// posts by users who may not post the name.
//
// All functions may be called from any thread. notify_check and notify_is_valid_token may be called in a signal handler too: they
// take no lock and make no system call. A registration is in force for every post that begins after it returned.
//
// After each post every registration is notified at least once, in bounded memory: posts that come faster than the receiver takes them
// may be reported as one. The poster's own registrations are notified like all others.
//
// While the bus is lost, registrations stay, and a registration that is made meanwhile is in force when the bus is back; posts, and functions
// that need notifyd, return NOTIFY_STATUS_SERVER_NOT_FOUND. No function waits longer than 30 seconds.
//
// A post followed by any function that waits for an answer (notify_register_check, notify_get_state) is seen by notify_check.
//
// In a process that has used these functions and then forked, the child's tokens are gone and the functions return
// NOTIFY_STATUS_OPT_DISABLE or NOTIFY_STATUS_INVALID_TOKEN, except for names that begin with `self.`, until it calls exec.

#include <sys/cdefs.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__BLOCKS__) && !defined(__swift__)
#if __has_include(<dispatch/dispatch.h>)
#include <dispatch/dispatch.h>
#else
typedef struct dispatch_queue_s *dispatch_queue_t;
#endif
#endif

// Darwin's type and its guard. Here it holds a file descriptor, see notify_register_mach_port.
#ifndef _MACH_PORT_T
#define _MACH_PORT_T
typedef unsigned int mach_port_t;
#endif
#ifndef MACH_PORT_NULL
#define MACH_PORT_NULL ((mach_port_t)0)
#endif

/// Done.
#define NOTIFY_STATUS_OK 0
/// The name is NULL, or is not UTF-8.
#define NOTIFY_STATUS_INVALID_NAME 1
/// No registration of this process has the token: it was never given out, or is cancelled.
#define NOTIFY_STATUS_INVALID_TOKEN 2
/// The port is NULL, or with NOTIFY_REUSE not one that an earlier registration gave out.
#define NOTIFY_STATUS_INVALID_PORT 3
/// The descriptor is NULL, or with NOTIFY_REUSE not one that an earlier registration gave out.
#define NOTIFY_STATUS_INVALID_FILE 4
/// There is no such signal.
#define NOTIFY_STATUS_INVALID_SIGNAL 5
/// The call makes no sense for this token or with these arguments.
#define NOTIFY_STATUS_INVALID_REQUEST 6
/// The name is another user's, or reserved.
#define NOTIFY_STATUS_NOT_AUTHORIZED 7
/// The functions are out of use: in a forked child, or by notify_set_options.
#define NOTIFY_STATUS_OPT_DISABLE 8
/// The bus cannot be reached, or notifyd cannot where the function needs it.
#define NOTIFY_STATUS_SERVER_NOT_FOUND 9
/// A pointer is NULL that must point to something.
#define NOTIFY_STATUS_NULL_INPUT 10
/// Anything else: the process has no descriptor or memory left, or the bus refuses.
#define NOTIFY_STATUS_FAILED 1000000

/// For notify_register_file_descriptor and notify_register_mach_port: use the one that is passed in.
#define NOTIFY_REUSE 0x00000001

/// No token.
#define NOTIFY_TOKEN_INVALID -1

__BEGIN_DECLS

/// Posts a name to all its registrations in all processes; there need not be any. When it returns the kernel has the post, and a process that
/// ends by exit or by returning from main waits until the bus has read it. A reserved name goes through notifyd where it runs, because
/// receivers ask the bus who the sender is: without notifyd they may miss a post whose process ends at once.
///
/// Errors: INVALID_NAME, NOT_AUTHORIZED, OPT_DISABLE, FAILED; SERVER_NOT_FOUND where there is no bus, or where it has not read for 30 seconds.
uint32_t notify_post(const char *name);

#if defined(__BLOCKS__) && !defined(__swift__)
/// What notify_register_dispatch calls.
typedef void (^notify_handler_t)(int token);

/// After each post of `name`, calls `handler` with the token, on `queue` and asynchronously. The library retains the queue and copies the
/// block until the registration is cancelled, and releases the block on the queue. Right before a call it looks at the token again: no call
/// begins after notify_cancel. At most 16 calls wait to begin; further posts meanwhile add none. The handler may cancel its token.
///
/// Errors: as notify_register_check, NULL_INPUT also for the queue and the handler.
uint32_t notify_register_dispatch(const char *name, int *out_token, dispatch_queue_t queue, notify_handler_t handler);
#endif

/// Registers for asking: notify_check tells whether the name was posted. Nothing is delivered.
///
/// On failure `*out_token` is NOTIFY_TOKEN_INVALID. Tokens are not negative, and no number is given out twice in a process.
///
/// Errors: INVALID_NAME, NULL_INPUT, NOT_AUTHORIZED, OPT_DISABLE, SERVER_NOT_FOUND (there was no bus so far, or it has not answered within
/// 25 seconds), FAILED; INVALID_REQUEST where the name asks for a path to be monitored (notify_private.h) and the path is not absolute.
uint32_t notify_register_check(const char *name, int *out_token);

/// Sends the process the signal `sig` after each post. Signals merge: for several names on one signal, notify_check tells in the
/// handler which were posted. The library's own thread blocks all signals.
///
/// Errors: as notify_register_check; INVALID_SIGNAL.
uint32_t notify_register_signal(const char *name, int sig, int *out_token);

/// Linux has no Mach ports: `*notify_port` becomes a file descriptor, as of notify_register_file_descriptor, to be read the same
/// way. Source that passes the port on, or waits on it by its own means, builds and works.
///
/// Errors: as notify_register_file_descriptor, with INVALID_PORT in place of INVALID_FILE.
uint32_t notify_register_mach_port(const char *name, mach_port_t *notify_port, int flags, int *out_token);

/// After each post, the token can be read from a descriptor: 4 bytes in network byte order. With `flags` 0 a new descriptor is
/// stored in `*notify_fd`; with NOTIFY_REUSE `*notify_fd` is one from an earlier call, which then serves both tokens.
///
/// It can be polled, and programs that exec starts inherit it. The library closes it with the last of its tokens: do not close it. A slow
/// reader loses repetitions and nothing else: where the descriptor is full, each token is written once more when there is room.
///
/// Errors: as notify_register_check; INVALID_FILE.
uint32_t notify_register_file_descriptor(const char *name, int *notify_fd, int flags, int *out_token);

/// Whether the token's name was posted since this was asked last: `*check` is 1 or 0. The first time it is 1. Each token has its own
/// answer, of whatever kind it is, and neither suspension nor delivery changes it. Costs a few nanoseconds.
///
/// Errors: INVALID_TOKEN, NULL_INPUT.
uint32_t notify_check(int token, int *check);

/// Ends a registration, and drops what it holds back. A handler may cancel its own token.
///
/// Errors: INVALID_TOKEN.
uint32_t notify_cancel(int token);

/// Holds back the token's notifications. Counted: as many calls of notify_resume end it. Other tokens of the name go on, and notify_check
/// does.
///
/// Errors: INVALID_TOKEN, OPT_DISABLE.
uint32_t notify_suspend(int token);

/// Undoes one notify_suspend. With the last, one notification follows if the name was posted meanwhile. Without any, does nothing.
///
/// Errors: INVALID_TOKEN, OPT_DISABLE.
uint32_t notify_resume(int token);

/// Sets the 64 bits that belong to the token's name, for all processes, and posts nothing. The last writer wins. The bits are 0 at first,
/// and again when no process has a registration of the name any more.
///
/// Errors: INVALID_TOKEN, NOT_AUTHORIZED, OPT_DISABLE, SERVER_NOT_FOUND (no notifyd), FAILED.
uint32_t notify_set_state(int token, uint64_t state64);

/// Reads the 64 bits of the token's name.
///
/// Errors: INVALID_TOKEN, NULL_INPUT, OPT_DISABLE, SERVER_NOT_FOUND (no notifyd), FAILED.
uint32_t notify_get_state(int token, uint64_t *state64);

/// Whether a registration of this process has the token.
bool notify_is_valid_token(int val);

__END_DECLS

#endif

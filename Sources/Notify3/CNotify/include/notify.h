#ifndef _NOTIFY_H_
#define _NOTIFY_H_

// notify(3) for Linux: names between processes, without payload. “Something changed, go and look.”
//
// Source-compatible with Darwin's <notify.h>. A post travels as a D-Bus signal (module NotifyCenter, page Wire protocol), so it is
// also what the Darwin notify center of CFNotificationCenter hears and posts. The bus is the one that the environment variable
// NOTIFY_CENTER_BUS names (`session`, `system` or a D-Bus address), the session bus where it names none. The state of a name is
// kept by the service notifyd, which the bus starts when it is needed; posting and observing do without it.
//
// Names are UTF-8 of any length. `self.…` is private to the process. `user.uid.UID` and what begins with `user.uid.UID.` belongs to
// that user; the rest of `user.uid.…` to root. /etc/notify.conf may reserve more (notifyd(8)). A receiver disregards posts from
// who may not post the name.
//
// All functions may be called from any thread. notify_check and notify_is_valid_token may be called in a signal handler too: they
// take no lock and make no system call. A registration is in force for every post that begins after it returned.
//
// For each post a registration is notified at least once after it, in bounded memory: posts that come faster than they are taken
// may be reported as one. The poster's own registrations are notified like all others.
//
// A post followed by any function that waits for an answer (notify_register_check, notify_get_state) is seen by notify_check.
//
// In a process that has used these functions and then forked, the child's tokens are gone and the functions return
// NOTIFY_STATUS_OPT_DISABLE or NOTIFY_STATUS_INVALID_TOKEN, but for names that begin with `self.`, until it calls exec.

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
/// The name is NULL or no UTF-8.
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
/// The bus, or notifyd where it is needed, cannot be reached.
#define NOTIFY_STATUS_SERVER_NOT_FOUND 9
/// A pointer is NULL that must not be.
#define NOTIFY_STATUS_NULL_INPUT 10
/// Anything else, such as a want of descriptors or memory, or a bus that refuses.
#define NOTIFY_STATUS_FAILED 1000000

/// For notify_register_file_descriptor and notify_register_mach_port: use the one that is passed in.
#define NOTIFY_REUSE 0x00000001

/// No token.
#define NOTIFY_TOKEN_INVALID -1

__BEGIN_DECLS

/// Posts a name to all its registrations in all processes. When it returns the bus has it or will get it, so the process may end at
/// once; nobody needs to be listening. Without notifyd too; but a name that not everybody may post goes through notifyd where there is
/// one, because its receivers ask the bus who the sender is: without, a post may be missed if its process ends at once.
///
/// Errors: INVALID_NAME, NOT_AUTHORIZED, OPT_DISABLE, SERVER_NOT_FOUND (no bus), FAILED.
uint32_t notify_post(const char *name);

#if defined(__BLOCKS__) && !defined(__swift__)
/// What notify_register_dispatch calls.
typedef void (^notify_handler_t)(int token);

/// Has `handler` called with the token after each post of `name`, on `queue` and asynchronously. The queue is retained and the block
/// copied until the registration is cancelled; the block is released on the queue. Right before a call the token is looked at
/// again: after notify_cancel none begins any more. At most 16 calls wait to begin; further posts meanwhile add none. The
/// handler may cancel its token.
///
/// Errors: as notify_register_check, NULL_INPUT also for the queue and the handler.
uint32_t notify_register_dispatch(const char *name, int *out_token, dispatch_queue_t queue, notify_handler_t handler);
#endif

/// Registers for asking: notify_check tells whether the name was posted. Nothing is delivered.
///
/// On failure `*out_token` is NOTIFY_TOKEN_INVALID. Tokens are not negative, and no number is given out twice in a process.
///
/// Errors: INVALID_NAME, NULL_INPUT, NOT_AUTHORIZED, OPT_DISABLE, SERVER_NOT_FOUND (no bus), FAILED; INVALID_REQUEST for a name that
/// monitors a path (notify_private.h) which is none.
uint32_t notify_register_check(const char *name, int *out_token);

/// Sends the process the signal `sig` after each post. Signals merge: for several names on one signal, notify_check tells in the
/// handler which were posted. The library's own thread blocks all signals.
///
/// Errors: as notify_register_check; INVALID_SIGNAL.
uint32_t notify_register_signal(const char *name, int sig, int *out_token);

/// Linux has no Mach ports: `*notify_port` becomes a file descriptor, as of notify_register_file_descriptor, to be read the same
/// way. Source that merely passes the port on, or waits on it by means of its own, builds and works.
///
/// Errors: as notify_register_file_descriptor, with INVALID_PORT in place of INVALID_FILE.
uint32_t notify_register_mach_port(const char *name, mach_port_t *notify_port, int flags, int *out_token);

/// After each post, the token can be read from a descriptor: 4 bytes in network byte order. With `flags` 0 a new descriptor is
/// stored in `*notify_fd`; with NOTIFY_REUSE `*notify_fd` is one from an earlier call, which then serves both tokens.
///
/// It can be polled, is inherited across exec, and is closed with the last of its tokens: do not close it. Who reads slowly loses
/// none but repetitions: a full descriptor takes each token once more when there is room.
///
/// Errors: as notify_register_check; INVALID_FILE.
uint32_t notify_register_file_descriptor(const char *name, int *notify_fd, int flags, int *out_token);

/// Whether the token's name was posted since this was asked last: `*check` is 1 or 0. The first time it is 1. Each token has its own
/// answer, whatever kind it is of, and neither suspension nor delivery changes it. Costs a few nanoseconds.
///
/// Errors: INVALID_TOKEN, NULL_INPUT.
uint32_t notify_check(int token, int *check);

/// Ends a registration; what it holds back is dropped. Allowed in the token's own handler.
///
/// Errors: INVALID_TOKEN.
uint32_t notify_cancel(int token);

/// Holds delivery back. Counted: as many notify_resume end it. Other tokens of the name go on, and notify_check does.
///
/// Errors: INVALID_TOKEN, OPT_DISABLE.
uint32_t notify_suspend(int token);

/// Undoes one notify_suspend. With the last, one notification follows if the name was posted meanwhile. Without any, does nothing.
///
/// Errors: INVALID_TOKEN, OPT_DISABLE.
uint32_t notify_resume(int token);

/// Sets the 64 bits that belong to the token's name, for all processes. The last writer wins; nothing is posted. They are there as
/// long as any process has a registration of the name, and 0 at first.
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

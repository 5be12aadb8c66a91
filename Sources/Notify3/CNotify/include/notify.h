#ifndef _NOTIFY_H_
#define _NOTIFY_H_

/* notify(3) for Linux: a process posts a name, and other processes learn that something changed. A post carries the
 * name and nothing else.
 *
 * Source-compatible with Darwin's <notify.h>. A post is a D-Bus signal (module NotifyCenter, page Wire protocol). The
 * Darwin notify center of CFNotificationCenter uses the same signals, so both hear each other's posts. The environment
 * variable NOTIFY_CENTER_BUS names the bus: `session` (the default), `system` or a D-Bus address. The service notifyd
 * keeps the state of names, and the bus starts notifyd when a process needs it. Posting and observing work without
 * notifyd, except for posts of reserved names.
 *
 * Names are UTF-8 of any length. `self.…` is private to the process. `user.uid.UID` and names that begin with
 * `user.uid.UID.` belong to that user; all other names under `user.uid.` belong to root. /etc/notify.conf may reserve
 * more (notify.conf(5)). notifyd posts a reserved name for a caller that may post it, and receivers take such a name
 * only from notifyd.
 *
 * All functions may be called from any thread. notify_check and notify_is_valid_token may be called in a signal handler
 * too: they take no lock and make no system call. A registration is in force for every post that begins after it
 * returned.
 *
 * After each post every registration is notified at least once. If posts come faster than the receiver takes them, one
 * notification may stand for several, so that the memory for them is bounded. The poster's own registrations are
 * notified like all others.
 *
 * While the bus is lost, registrations stay, and new ones succeed; all are in force when the bus is back. Until then,
 * posts and functions that need notifyd return NOTIFY_STATUS_SERVER_NOT_FOUND. Every function returns within 30
 * seconds.
 *
 * If a process posts, and then calls a function that waits for a response (notify_register_check, notify_get_state),
 * notify_check sees the post.
 *
 * When a process that has used the bus forks, the child has no tokens. It posts through a new connection. Until it
 * calls exec, the other functions return NOTIFY_STATUS_OPT_DISABLE or NOTIFY_STATUS_INVALID_TOKEN there, except for
 * names that begin with `self.`. A signal handler must not fork if it may have interrupted one of these functions. */

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

/* Darwin's type and its guard. Here it holds a file descriptor, see notify_register_mach_port. */
#ifndef _MACH_PORT_T
#define _MACH_PORT_T
typedef unsigned int mach_port_t;
#endif
#ifndef MACH_PORT_NULL
#define MACH_PORT_NULL ((mach_port_t)0)
#endif

/** Done. */
#define NOTIFY_STATUS_OK 0
/** The name is NULL, or is not UTF-8. */
#define NOTIFY_STATUS_INVALID_NAME 1
/** No registration of this process has the token: no function has returned it, or it is cancelled. */
#define NOTIFY_STATUS_INVALID_TOKEN 2
/** The port is NULL; or, with NOTIFY_REUSE, it does not come from an earlier registration. */
#define NOTIFY_STATUS_INVALID_PORT 3
/** The descriptor is NULL; or, with NOTIFY_REUSE, it does not come from an earlier registration. */
#define NOTIFY_STATUS_INVALID_FILE 4
/** There is no such signal. */
#define NOTIFY_STATUS_INVALID_SIGNAL 5
/** The call makes no sense for this token or with these arguments. */
#define NOTIFY_STATUS_INVALID_REQUEST 6
/** The name belongs to another user, or is reserved. */
#define NOTIFY_STATUS_NOT_AUTHORIZED 7
/** The function does not work in this process: it is a forked child, or notify_set_options has turned the functions
 * off. */
#define NOTIFY_STATUS_OPT_DISABLE 8
/** The bus cannot be reached; or the function needs notifyd, and notifyd cannot be reached. */
#define NOTIFY_STATUS_SERVER_NOT_FOUND 9
/** A pointer that must point to something is NULL. */
#define NOTIFY_STATUS_NULL_INPUT 10
/** Anything else: the process has no descriptor or memory left, or the bus refuses. */
#define NOTIFY_STATUS_FAILED 1000000

/** For notify_register_file_descriptor and notify_register_mach_port: use the descriptor or port that the caller
 * passes. */
#define NOTIFY_REUSE 0x00000001

/** No token. */
#define NOTIFY_TOKEN_INVALID -1

__BEGIN_DECLS

/** Posts a name to all its registrations in all processes. When this returns, the kernel has the post. A process that
 * ends by exit or by returning from main waits until the bus has read it, 2 seconds at most. In a forked child this
 * returns when the bus has read the post, after 10 seconds at most. notifyd posts a reserved name for the process, and
 * receivers take it only from notifyd.
 *
 * Errors: INVALID_NAME, NOT_AUTHORIZED, OPT_DISABLE, FAILED; SERVER_NOT_FOUND if there is no bus, if it has not read
 * for 30 seconds, or if the name is reserved and notifyd cannot be reached. */
uint32_t notify_post(const char *name);

#if defined(__BLOCKS__) && !defined(__swift__)
/** The handler of notify_register_dispatch. */
typedef void (^notify_handler_t)(int token);

/** After each post of `name`, calls `handler` with the token, on `queue` and asynchronously. The library retains the
 * queue and copies the block until the registration is cancelled, and releases the block on the queue. It checks the
 * token right before each call: no call begins after notify_cancel. At most 16 calls wait to begin; while they do,
 * further posts add no calls. The handler may cancel its token.
 *
 * Errors: as notify_register_check, NULL_INPUT also for the queue and the handler. */
uint32_t notify_register_dispatch(const char *name, int *out_token, dispatch_queue_t queue, notify_handler_t handler);
#endif

/** The object that a dispatch_queue_t points to. */
struct dispatch_queue_s;

/** notify_register_dispatch for compilers without blocks, and for other languages. Darwin does not have this function.
 *
 * After each post of `name`, calls `handler` with `context` and the token, asynchronously. `queue` is a
 * dispatch_queue_t, which the library retains until the registration is cancelled. If it is NULL, the calls come from
 * the library's own serial queue: one at a time for all such registrations of the process, in the order of the posts,
 * on a thread that blocks all signals that processes send. Such a handler may block: the library goes on reading, and
 * only the other handlers of that queue wait.
 *
 * The library checks the token right before each call: no call begins after notify_cancel has returned, but a call that
 * began earlier may still run on another thread. At most 16 calls wait to begin; while they do, further posts add no
 * calls. The handler may cancel its token.
 *
 * `release` may be NULL. After notify_cancel the library calls it once with `context`, on the queue, when the last call
 * of the handler has returned: until then the context must stay valid. The library does not call it when the
 * registration fails, when the process ends, or in a forked child.
 *
 * Errors: as notify_register_check, NULL_INPUT also for the handler. */
uint32_t notify_register_dispatch_f(const char *name, int *out_token, struct dispatch_queue_s *queue, void *context,
                                    void (*handler)(void *context, int token), void (*release)(void *context));

/** Registers a name for notify_check, which tells whether the name was posted. The library calls and sends nothing.
 *
 * On failure `*out_token` is NOTIFY_TOKEN_INVALID. Tokens are 0 or more, and a process gets each number once.
 *
 * Errors: INVALID_NAME, NULL_INPUT, NOT_AUTHORIZED, OPT_DISABLE, FAILED; SERVER_NOT_FOUND if the process has never
 * reached a bus, or if the bus does not respond within 25 seconds; INVALID_REQUEST if the name monitors a path
 * (notify_private.h) and the path is not absolute. */
uint32_t notify_register_check(const char *name, int *out_token);

/** Sends the process the signal `sig` after each post; the system chooses one of its threads. Several names may share a
 * signal: in its handler, notify_check tells which of them were posted. The library's own threads block all signals
 * but those of a crash. No signal is sent after notify_cancel has returned.
 *
 * Errors: as notify_register_check; INVALID_SIGNAL. */
uint32_t notify_register_signal(const char *name, int sig, int *out_token);

/** Linux has no Mach ports: the function stores a file descriptor in `*notify_port`, which the process reads like the
 * descriptor of notify_register_file_descriptor. Source that hands the port to other code, or waits on it by its own
 * means, builds and works.
 *
 * Errors: as notify_register_file_descriptor, with INVALID_PORT in place of INVALID_FILE. */
uint32_t notify_register_mach_port(const char *name, mach_port_t *notify_port, int flags, int *out_token);

/** After each post, the process can read the token from a descriptor: 4 bytes in network byte order. If `flags` is 0,
 * the function stores a new descriptor in `*notify_fd`. If it is NOTIFY_REUSE, `*notify_fd` must hold the descriptor of
 * an earlier call, which then serves both tokens.
 *
 * The descriptor can be polled, and programs that exec starts inherit it. Reads block, unless the caller sets
 * O_NONBLOCK. The library closes it when its last token is cancelled; the caller must not close it. A slow reader loses
 * only repetitions: when the descriptor is full, the library writes each token once more as soon as there is room.
 *
 * Errors: as notify_register_check; INVALID_FILE. */
uint32_t notify_register_file_descriptor(const char *name, int *notify_fd, int flags, int *out_token);

/** Sets `*check` to 1 if the token's name was posted since the last call with this token, and to 0 otherwise. The first
 * time it is 1. Each token of any kind has its own result, and neither suspension nor delivery changes it. Costs a few
 * nanoseconds.
 *
 * Errors: INVALID_TOKEN, NULL_INPUT. */
uint32_t notify_check(int token, int *check);

/** Ends a registration, and drops the notifications that it holds back. A handler may cancel its own token.
 *
 * Errors: INVALID_TOKEN. */
uint32_t notify_cancel(int token);

/** Holds back the token's notifications, until notify_resume has been called the same number of times. Changes neither
 * the other tokens of the name nor the results of notify_check.
 *
 * Errors: INVALID_TOKEN, OPT_DISABLE. */
uint32_t notify_suspend(int token);

/** Undoes one notify_suspend. After the last one, a notification follows if the name was posted during the suspension.
 * Does nothing if the token is not suspended.
 *
 * Errors: INVALID_TOKEN, OPT_DISABLE. */
uint32_t notify_resume(int token);

/** Sets the 64 bits of state of the token's name, for all processes, and does not post the name. The last writer wins.
 * The state is 0 at first. When the last registration of the name in all processes ends, it is 0 again.
 *
 * Errors: INVALID_TOKEN, NOT_AUTHORIZED, OPT_DISABLE, SERVER_NOT_FOUND (no notifyd), FAILED. */
uint32_t notify_set_state(int token, uint64_t state64);

/** Reads the 64 bits of state of the token's name.
 *
 * Errors: INVALID_TOKEN, NULL_INPUT, NOT_AUTHORIZED (the name has become reserved), OPT_DISABLE, SERVER_NOT_FOUND (no
 * notifyd), FAILED. */
uint32_t notify_get_state(int token, uint64_t *state64);

/** Whether a registration of this process has the token. */
__extension__ /* C90 has no bool. */
bool notify_is_valid_token(int val);

__END_DECLS

#endif

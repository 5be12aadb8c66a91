#ifndef _NOTIFY_PRIVATE_H_
#define _NOTIFY_PRIVATE_H_

/* Functions that Darwin's own programs use in addition to <notify.h>. They exist so that such source compiles; new code
 * does not need them. */

#include <notify.h>

/** Without effect: this library always has one channel for all registrations. */
#define NOTIFY_OPT_DISPATCH 0x00000001
/** Without effect: registrations always outlive a restart of the bus and of notifyd. */
#define NOTIFY_OPT_REGEN 0x00000002
/** Without effect here. */
#define NOTIFY_OPT_FILTERED 0x00000004
/** Without effect here. */
#define NOTIFY_OPT_OLD_IPC 0x00000008
/** Undoes NOTIFY_OPT_DISABLE. */
#define NOTIFY_OPT_ENABLE 0x04000000
/** From now on the functions return NOTIFY_STATUS_OPT_DISABLE, except to check, peek at or cancel a token, and for
 * `self.` names. */
#define NOTIFY_OPT_DISABLE 0x08000000

/** A flag of notify_register_mach_port, without effect here. */
#define NOTIFY_NO_DISPATCH 0x80000000

/** Which changes of a path notify_monitor_file watches; 0 means all. */
#define NOTIFY_FILE_DELETE 0x00000001
#define NOTIFY_FILE_WRITE 0x00000002
#define NOTIFY_FILE_EXTEND 0x00000004
#define NOTIFY_FILE_ATTRIB 0x00000008
#define NOTIFY_FILE_LINK 0x00000010
#define NOTIFY_FILE_RENAME 0x00000020
#define NOTIFY_FILE_REVOKE 0x00000040
#define NOTIFY_FILE_CREATE 0x00000080
#define NOTIFY_FILE_MTIME 0x00000100
#define NOTIFY_FILE_CTIME 0x00000200

__BEGIN_DECLS

/** Adds options (NOTIFY_OPT_…) for this process. */
void notify_set_options(uint32_t opts);

/** As notify_register_check, but notify_peek refuses the token. */
uint32_t notify_register_plain(const char *name, int *out_token);

/** Reads the counter behind notify_check, which changes with each post. Does not change the result of the next
 * notify_check. The token must come from notify_register_check, or its name begin with `self.`.
 *
 * Errors: INVALID_TOKEN, INVALID_REQUEST, NULL_INPUT. */
uint32_t notify_peek(int token, uint32_t *val);

/** Notifies only this registration when something changes at an absolute path, in addition to posts of its name. The
 * path need not exist yet. Changes within 100 ms count as one. A token monitors one path, until it is cancelled. The
 * function waits for the file system, 20 seconds at most. The caller's permissions decide what can be seen of the path.
 *
 * Errors: INVALID_TOKEN; INVALID_REQUEST (a path that is NULL, relative or not UTF-8, a `self.` name, a second path);
 * NOT_AUTHORIZED; OPT_DISABLE; FAILED. */
uint32_t notify_monitor_file(int token, char *path, int flags);

/** There are no events here: this sets both numbers to 0, and returns NOTIFY_STATUS_OK for any token. */
uint32_t notify_get_event(int token, int *ev, char *buf, int *len);

/** As notify_post. */
uint32_t notify_simple_post(const char *name);

/** Holds back all notifications of a process, until notify_resume_pid has been called the same number of times. Root
 * and the process's own user may call it.
 *
 * Errors: NOT_AUTHORIZED; INVALID_REQUEST (no such process, or a process without registrations); OPT_DISABLE;
 * SERVER_NOT_FOUND; FAILED. */
uint32_t notify_suspend_pid(int pid);

/** Undoes one notify_suspend_pid.
 *
 * Errors: as notify_suspend_pid. */
uint32_t notify_resume_pid(int pid);

/** Writes the status of notifyd to a file, with the caller's permissions. An existing file is overwritten.
 *
 * Errors: NULL_INPUT; OPT_DISABLE; SERVER_NOT_FOUND; FAILED. */
uint32_t notify_dump_status(const char *filepath);

/** Does the work that every forked child does by itself. A second call has no effect. */
void _notify_fork_child(void);

__END_DECLS

#endif

// Paths that a process watches.
#include "expect.h"
#include <fcntl.h>
#include <notify_private.h>
#include <sys/wait.h>

static void touch(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    EXPECT(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    char folder[] = "/tmp/notify-files-XXXXXX", path[128], other[128];
    EXPECT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/watched", folder);
    snprintf(other, sizeof other, "%s/deleted", folder);

    int fd = -1, token = -1, bystander = -1, bystander_fd = -1, own = -1, asked = watch("org.example.file");
    EXPECT_OK(notify_register_file_descriptor("org.example.file", &fd, 0, &token));
    EXPECT_OK(notify_register_file_descriptor("org.example.file", &bystander_fd, 0, &bystander));
    // Rules, a.13: `self.` names, relative paths and second paths are refused.
    EXPECT_OK(notify_register_check("self.file", &own));
    EXPECT_EQUAL(notify_monitor_file(own, path, 0), NOTIFY_STATUS_INVALID_REQUEST);
    EXPECT_EQUAL(notify_monitor_file(token, (char *)"relative", 0), NOTIFY_STATUS_INVALID_REQUEST);
    // The path need not exist yet. The kernel grants few inotify instances, and frees those of ended processes with a
    // delay.
    EVENTUALLY(notify_monitor_file(token, path, 0) == NOTIFY_STATUS_OK);
    EXPECT_EQUAL(notify_monitor_file(token, other, 0), NOTIFY_STATUS_INVALID_REQUEST);
    EXPECT_OK(notify_monitor_file(asked, path, 0));
    EXPECT_EQUAL(checked(asked), 0);
    touch(path);
    EXPECT_EQUAL(next_token(fd), token);
    EVENTUALLY(checked(asked) == 1);
    // A cancelled token is not notified, and the other registration is.
    EXPECT_OK(notify_cancel(asked));
    // Another change, a write, and a removal are each reported.
    while (is_readable(fd, 300)) next_token(fd);
    touch(path);
    EXPECT_EQUAL(next_token(fd), token);
    while (is_readable(fd, 300)) next_token(fd);
    // Rules, a.12: a forked child has no tokens, and takes nothing from its parent.
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(notify_monitor_file(token, other, 0) == NOTIFY_STATUS_INVALID_TOKEN ? 0 : 1);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT_EQUAL(status, 0);
    unlink(path);
    EXPECT_EQUAL(next_token(fd), token);
    // Only the registration with the path is notified.
    EXPECT(!is_readable(bystander_fd, 0));

    // Only the requested events notify: deletion, not writing.
    int deleted = -1, deleted_fd = -1;
    touch(other);
    EXPECT_OK(notify_register_file_descriptor("org.example.file.deleted", &deleted_fd, 0, &deleted));
    EXPECT_OK(notify_monitor_file(deleted, other, NOTIFY_FILE_DELETE));
    touch(other);
    EXPECT(!is_readable(deleted_fd, 400));
    unlink(other);
    EXPECT_EQUAL(next_token(deleted_fd), deleted);

    EXPECT_OK(notify_cancel(deleted));
    EXPECT_OK(notify_cancel(token));
    EXPECT_OK(notify_cancel(bystander));
    EXPECT_OK(notify_cancel(own));
    rmdir(folder);
    return finish();
}

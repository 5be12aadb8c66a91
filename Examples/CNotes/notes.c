/* Notes on a shared device, in C. The app uses only the broker's D-Bus interface (Documentation/Interface.md).
 *
 *     cc -o notes notes.c $(pkg-config --cflags --libs libsystemd) && ./notes FOLDER
 *
 * Each session has a folder in FOLDER, named by the session's number. The folders are also the app's record of
 * sessions. The app makes a session's folder and syncs it to the disk before it shows or stores anything. It deletes
 * each folder that the broker does not name as the current session's.
 *
 * This design is for an app with one process. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#define BROKER "org.notifycenter.SharedDevice1"
#define OBJECT "/org/notifycenter/SharedDevice"
#define BROADCAST "org.notifycenter.Darwin1.SHARED_MODE_CURRENT_ACCOUNT_CHANGED"
#define APP "org.notifycenter.example.c-notes"

/* A session that this app has to clean up, and the mark that the receipt returns to the broker. */
struct debt {
    uint64_t session, mark;
};

/* The broker's response to GetCurrentAccount. */
struct answer {
    uint64_t epoch;             /* of the current session; 0 if no user is signed in */
    char username[256];
    struct debt owed[64];       /* the response to the next request has the rest */
    size_t owed_count;
};

static sd_bus *bus;
static const char *data;        /* the folder of all sessions */
static bool must_ask = true;
static uint64_t shown;          /* the session on the screen; 0 if there is none */

static int say(const char *state) { return printf("%s\n", state), fflush(stdout); }

/* Syncs the folder's entries to the disk. */
static int force(const char *folder) {
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return -errno;
    int result = fsync(descriptor) < 0 ? -errno : 0;
    close(descriptor);
    return result;
}

/* Reads an a{sv}: an account's name, a session with its mark, a list of debts. Skips unknown fields. */
static int read_fields(sd_bus_message *message, struct answer *answer, struct debt *session) {
    int result = sd_bus_message_enter_container(message, 'a', "{sv}");
    while (result >= 0 && (result = sd_bus_message_enter_container(message, 'e', "sv")) > 0) {
        const char *key, *type, *text;
        if ((result = sd_bus_message_read(message, "s", &key)) < 0) return result;
        if ((result = sd_bus_message_peek_type(message, NULL, &type)) < 0) return result;
        if (!strcmp(key, "epoch") && !strcmp(type, "t")) {
            result = sd_bus_message_read(message, "v", "t", &session->session);
        } else if (!strcmp(key, "mark") && !strcmp(type, "t")) {
            result = sd_bus_message_read(message, "v", "t", &session->mark);
        } else if (!strcmp(key, "username") && !strcmp(type, "s")) {
            result = sd_bus_message_read(message, "v", "s", &text);
            if (result >= 0) snprintf(answer->username, sizeof answer->username, "%s", text);
        } else if (!strcmp(key, "account") && !strcmp(type, "a{sv}")) {
            struct debt none;
            result = sd_bus_message_enter_container(message, 'v', type);
            if (result >= 0) result = read_fields(message, answer, &none);
            if (result >= 0) result = sd_bus_message_exit_container(message);
        } else if (!strcmp(key, "owed") && !strcmp(type, "aa{sv}")) {
            result = sd_bus_message_enter_container(message, 'v', type);
            if (result >= 0) result = sd_bus_message_enter_container(message, 'a', "a{sv}");
            while (result >= 0 && (result = sd_bus_message_at_end(message, false)) == 0) {
                struct answer of_others = {0};
                struct debt debt = {0};
                result = read_fields(message, &of_others, &debt);
                if (result >= 0 && answer->owed_count < 64) answer->owed[answer->owed_count++] = debt;
            }
            if (result >= 0) result = sd_bus_message_exit_container(message);
            if (result >= 0) result = sd_bus_message_exit_container(message);
        } else {
            result = sd_bus_message_skip(message, "v");
        }
        if (result >= 0) result = sd_bus_message_exit_container(message);
    }
    return result < 0 ? result : sd_bus_message_exit_container(message);
}

/* Asks who is signed in and which cleanups are due.
 * Returns a negative errno if the broker does not respond or refuses the request. */
static int ask(struct answer *answer) {
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply = NULL;
    *answer = (struct answer){0};
    int result = sd_bus_call_method(bus, BROKER, OBJECT, BROKER, "GetCurrentAccount", &error, &reply, "a{sv}", 1,
                                    "application", "s", APP);
    struct debt current = {0};
    if (result >= 0) result = read_fields(reply, answer, &current);
    if (result < 0) fprintf(stderr, "notes: %s\n", error.message ? error.message : strerror(-result));
    if (answer->username[0]) answer->epoch = current.session;
    sd_bus_message_unref(reply);
    sd_bus_error_free(&error);
    return result;
}

static int report(struct debt debt, const char *progress) {
    return sd_bus_call_method(bus, BROKER, OBJECT, BROKER, "ReportCleanup", NULL, NULL, "a{sv}", 4, "application", "s", APP,
                              "session", "t", debt.session, "mark", "t", debt.mark, "progress", "s", progress);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    return remove(path);
}

/* Deletes a session's folder without following links, and then sends the receipt. */
static int clean(struct debt debt) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/%" PRIu64, data, debt.session);
    report(debt, "begun");
    if (nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 && errno != ENOENT) return -errno;
    int result = force(data);
    return result < 0 ? result : report(debt, "finished");
}

/* Cleans up each session with a folder except the current one, and then each session that the broker lists as owed.
 * Returns the number of cleanups. */
static int clean_up(const struct answer *answer) {
    int count = 0, result = 0;
    DIR *folders = opendir(data);
    if (!folders) return -errno;
    for (struct dirent *entry; result >= 0 && (entry = readdir(folders));) {
        char *end;
        uint64_t session = strtoull(entry->d_name, &end, 10);
        if (*end || session == 0 || session == answer->epoch) continue;
        if (shown) say("hidden"), shown = 0;
        struct debt debt = {.session = session};
        for (size_t index = 0; index < answer->owed_count; index++)
            if (answer->owed[index].session == session) debt = answer->owed[index];
        result = clean(debt), count++;
    }
    closedir(folders);
    for (size_t index = 0; result >= 0 && index < answer->owed_count; index++) result = clean(answer->owed[index]), count++;
    return result < 0 ? result : count;
}

/* Records the session on the disk, and only then shows and stores its data. */
static int show(const struct answer *answer) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%" PRIu64, data, answer->epoch);
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return -errno;
    int result = force(path);
    if (result >= 0) result = force(data);
    if (result < 0 || shown == answer->epoch) return result;
    snprintf(path + length, sizeof path - (size_t)length, "/notes");
    FILE *notes = fopen(path, "a");
    if (!notes) return -errno;
    fprintf(notes, "the secret of %s\n", answer->username);
    if (fclose(notes) != 0) return -errno;
    shown = answer->epoch;
    return say("open");
}

/* Asks the broker once and acts on the response.
 * Returns false after an error: main then tries again a second later. */
static bool follow(void) {
    struct answer answer;
    int result = ask(&answer);
    if (result >= 0) result = clean_up(&answer);
    // The session may have changed during the cleanup: ask again.
    if (result > 0) return must_ask = true;
    if (result >= 0 && answer.epoch) result = show(&answer);
    // No user is signed in, or it is unknown who is.
    if ((result < 0 || !answer.epoch) && shown) say("hidden"), shown = 0;
    if (result < 0) fprintf(stderr, "notes: %s; trying again\n", strerror(-result));
    return result >= 0;
}

static int changed(sd_bus_message *message, void *context, sd_bus_error *error) {
    (void)message, (void)context, (void)error;
    must_ask = true;
    return 0;
}

static int open_bus(void) {
    const char *name = getenv("NOTIFY_CENTER_BUS");
    if (!name || !strcmp(name, "session")) return sd_bus_open_user(&bus);
    if (!strcmp(name, "system")) return sd_bus_open_system(&bus);
    int result = sd_bus_new(&bus);
    if (result >= 0) result = sd_bus_set_address(bus, name);
    if (result >= 0) result = sd_bus_set_bus_client(bus, true);
    return result < 0 ? result : sd_bus_start(bus);
}

int main(int count, char **arguments) {
    if (count != 2) return fprintf(stderr, "usage: notes FOLDER\n"), 64;
    data = arguments[1];
    if (mkdir(data, 0700) < 0 && errno != EEXIST) return perror(data), 73;
    int result = open_bus();
    // Subscribes before the first request, so that no change is missed. The first rule admits only the broker's posts.
    // The app does not reconnect. It ends when the bus ends, and its supervisor starts it again.
    if (result >= 0) result = sd_bus_match_signal(bus, NULL, BROKER, "/org/notifycenter", BROADCAST, "Posted", changed, NULL);
    if (result >= 0)
        result = sd_bus_add_match(bus, NULL, "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" BROKER "'", changed, NULL);
    say("hidden");
    for (bool is_done = true; result >= 0;) {
        while ((result = sd_bus_process(bus, NULL)) > 0) {}
        if (result < 0) break;
        if (must_ask || !is_done) must_ask = false, is_done = follow();
        if (!must_ask) result = sd_bus_wait(bus, is_done ? UINT64_MAX : 1000000);
    }
    fprintf(stderr, "notes: the bus is gone: %s\n", strerror(-result));
    return say("hidden"), 69;
}

// Stubs that replace code which notifyutil never runs. ./quick-start builds them and prints the linker's flags.
#include <stdbool.h>
#include <stddef.h>

// MARK: libsystemd

// libdbus.a refers to these two for servers that systemd passes sockets to. Without libsystemd, none is ever passed.
int sd_listen_fds(int unset_environment) {
    (void)unset_environment;
    return 0;
}

int sd_is_socket(int descriptor, int family, int type, int listening) {
    (void)descriptor, (void)family, (void)type, (void)listening;
    return 0;
}

// MARK: The Swift runtime

// Two files of the runtime do work before main in every program: CommandLine.cpp reads /proc/self/maps to find the arguments, and
// Backtrace.cpp looks for the program swift-backtrace. That is a tenth of the time of `notifyutil -p`. The linker's --wrap turns each
// reference to `NAME` into a reference to `__wrap_NAME`, so nothing refers to those two files and the linker leaves them
// out. If another version of the runtime refers to a further name of these files, the linker includes the original file,
// and the program starts as slowly as without these stubs.
#define IN_PLACE_OF(name) __wrap__swift_##name

static char **arguments;
static int argument_count;

__attribute__((constructor)) static void keep_arguments(int count, char **values) {
    argument_count = count;
    arguments = values;
}

char **IN_PLACE_OF(stdlib_getUnsafeArgvArgc)(int *count) {
    *count = argument_count;
    return arguments;
}

void IN_PLACE_OF(stdlib_overrideUnsafeArgvArgc)(char **values, int count) {
    argument_count = count;
    arguments = values;
}

// Zero means “off”. Larger than the runtime's structure (88 bytes in Swift 6.3).
char IN_PLACE_OF(backtraceSettings)[1024];

void IN_PLACE_OF(displayCrashMessage)(int signal, const void *address) { (void)signal, (void)address; }

bool IN_PLACE_OF(spawnBacktracer)(const void *arguments_of_it) {
    (void)arguments_of_it;
    return false;
}

bool IN_PLACE_OF(backtrace_isThunkFunction)(const char *name) {
    (void)name;
    return false;
}

char *IN_PLACE_OF(backtrace_demangle)(const char *name, size_t length, char *buffer, size_t *size) {
    (void)name, (void)length, (void)buffer, (void)size;
    return NULL;
}

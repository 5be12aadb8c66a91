#ifndef CDBUS_SHIM_H
#define CDBUS_SHIM_H

#include <dbus/dbus.h>

// The size in bytes of the array that the iterator is inside of. The function is deprecated, but libdbus has no
// replacement.
static inline int CDBus_arrayLength(DBusMessageIter *iterator) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return dbus_message_iter_get_array_len(iterator);
#pragma GCC diagnostic pop
}

#endif

#ifndef CSQLITE_SHIM_H
#define CSQLITE_SHIM_H

#include <sqlite3.h>

/* What Swift does not import: functions with a variable number of arguments, and macros with a cast. */

/* From now on a word in double quotes is a name, and never a string. */
static inline int CSQLite_readDoubleQuotesAsNames(sqlite3 *connection)
{
    int result = sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DDL, 0, (int *)0);
    return result == SQLITE_OK ? sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DML, 0, (int *)0) : result;
}

/* Says that SQLite makes a copy of what is bound. */
static inline sqlite3_destructor_type CSQLite_transient(void) { return SQLITE_TRANSIENT; }

#endif

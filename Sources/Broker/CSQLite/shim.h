#ifndef CSQLITE_SHIM_H
#define CSQLITE_SHIM_H

#include <sqlite3.h>

/* Wrappers for functions with a variable number of arguments and macros with a cast, which Swift does not import. */

/* Makes the connection read a word in double quotes as a name, never as a string. */
static inline int CSQLite_readDoubleQuotesAsNames(sqlite3 *connection)
{
    int result = sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DDL, 0, (int *)0);
    return result == SQLITE_OK ? sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DML, 0, (int *)0) : result;
}

/* The destructor value that makes SQLite copy a bound value. */
static inline sqlite3_destructor_type CSQLite_transient(void) { return SQLITE_TRANSIENT; }

#endif

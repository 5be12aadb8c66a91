#include <COpenSSL.h>

// By default, `exit` frees OpenSSL's state while other threads still run. A thread that then calls OpenSSL, also through
// libcurl or libmosquitto, crashes. Only the first call of OpenSSL in a process can prevent this.
__attribute__((constructor)) static void keep_state_during_exit(void) {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

#ifndef COPENSSL_H
#define COPENSSL_H

#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/rsa.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

// A macro, which Swift does not import.
static inline EVP_PKEY *_Nullable notify_center_new_p256_key(void) { return EVP_EC_gen("P-256"); }

#endif

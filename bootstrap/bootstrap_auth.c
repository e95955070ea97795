/* SPDX-License-Identifier: Apache-2.0
 *
 * Challenge and response over a connected socket: HMAC-SHA256 with the job's secret as key.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#define HELLO_MAGIC 0x31525947u /* "GYR1" */

/* Process-wide, as libcrypto's state is, which its handler of exit() frees: our own threads may
 * still make proofs then (a server that tells the last ranks why, an init in the background). This
 * handler is registered after libcrypto's, so it runs before: no proof begins after it. A fork
 * waits for the lock, so libcrypto's own locks are free in the child. */
static pthread_mutex_t proof_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_exiting; /* under proof_lock, as the next */
static bool is_prepared;

GYRE_WATCH_FORKS(&proof_lock, NULL)

static void stop_proofs(void)
{
    pthread_mutex_lock(&proof_lock);
    is_exiting = true;
    pthread_mutex_unlock(&proof_lock);
}

void gyre_authenticate_prepare(void)
{
    pthread_mutex_lock(&proof_lock);
    if (!is_prepared) {
        OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
        atexit(stop_proofs);
        is_prepared = true;
    }
    pthread_mutex_unlock(&proof_lock);
}

static bool make_hmac(const uint8_t *secret, const uint8_t *text, size_t n_text, uint8_t *proof_out)
{
    unsigned n_proof = 0;
    gyre_authenticate_prepare();
    pthread_mutex_lock(&proof_lock);
    const bool is_made = !is_exiting && HMAC(EVP_sha256(), secret, GYRE_SECRET_BYTES, text, n_text,
                                             proof_out, &n_proof) != NULL;
    pthread_mutex_unlock(&proof_lock);
    return is_made && n_proof == GYRE_PROOF_BYTES;
}

gyre_status gyre_hello_make(struct gyre_hello *hello_out)
{
    hello_out->magic = HELLO_MAGIC;
    return gyre_random_bytes(hello_out->nonce, sizeof(hello_out->nonce));
}

bool gyre_hello_is_one(const struct gyre_hello *hello)
{
    return hello->magic == HELLO_MAGIC;
}

gyre_status gyre_proof_make(const uint8_t secret[GYRE_SECRET_BYTES], bool is_server,
                            const struct gyre_hello *client, const struct gyre_hello *server,
                            uint8_t proof_out[GYRE_PROOF_BYTES])
{
    uint8_t text[8 + 2 * GYRE_NONCE_BYTES];
    memcpy(text, is_server ? "server1:" : "client1:", 8);
    memcpy(text + 8, client->nonce, GYRE_NONCE_BYTES);
    memcpy(text + 8 + GYRE_NONCE_BYTES, server->nonce, GYRE_NONCE_BYTES);
    if (!make_hmac(secret, text, sizeof(text), proof_out))
        return gyre_fail(GYRE_ERROR_SYSTEM, "HMAC-SHA256 is not available in libcrypto");
    return GYRE_SUCCESS;
}

bool gyre_proof_equal(const uint8_t a[GYRE_PROOF_BYTES], const uint8_t b[GYRE_PROOF_BYTES])
{
    return CRYPTO_memcmp(a, b, GYRE_PROOF_BYTES) == 0;
}

static gyre_status authenticate_server(int fd, const uint8_t *secret, uint64_t deadline_ns)
{
    struct gyre_hello hello;
    struct gyre_answer answer;
    uint8_t proof[GYRE_PROOF_BYTES];
    GYRE_TRY(gyre_hello_make(&hello));
    GYRE_TRY(gyre_sock_send(fd, &hello, sizeof(hello), deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, &answer.hello, sizeof(answer.hello), deadline_ns));
    if (!gyre_hello_is_one(&answer.hello))
        return gyre_fail(GYRE_ERROR_REMOTE, "the peer does not speak gyre's protocol");
    GYRE_TRY(gyre_sock_recv(fd, answer.proof, sizeof(answer.proof), deadline_ns));
    GYRE_TRY(gyre_proof_make(secret, false, &answer.hello, &hello, proof));
    if (!gyre_proof_equal(proof, answer.proof))
        return gyre_fail(GYRE_ERROR_REMOTE, "the peer does not know this job's secret");
    GYRE_TRY(gyre_proof_make(secret, true, &answer.hello, &hello, proof));
    return gyre_sock_send(fd, proof, sizeof(proof), deadline_ns);
}

static gyre_status authenticate_client(int fd, const uint8_t *secret, uint64_t deadline_ns)
{
    struct gyre_hello hello;
    struct gyre_answer answer;
    uint8_t proof[GYRE_PROOF_BYTES];
    uint8_t expected[GYRE_PROOF_BYTES];
    GYRE_TRY(gyre_hello_make(&answer.hello));
    GYRE_TRY(gyre_sock_recv(fd, &hello, sizeof(hello), deadline_ns));
    if (!gyre_hello_is_one(&hello))
        return gyre_fail(GYRE_ERROR_REMOTE, "the peer does not speak gyre's protocol");
    GYRE_TRY(gyre_proof_make(secret, false, &answer.hello, &hello, answer.proof));
    GYRE_TRY(gyre_sock_send(fd, &answer, sizeof(answer), deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, proof, sizeof(proof), deadline_ns));
    GYRE_TRY(gyre_proof_make(secret, true, &answer.hello, &hello, expected));
    if (!gyre_proof_equal(proof, expected))
        return gyre_fail(GYRE_ERROR_REMOTE, "the peer does not know this job's secret");
    return GYRE_SUCCESS;
}

gyre_status gyre_authenticate(int fd, const uint8_t secret[GYRE_SECRET_BYTES], bool is_server,
                              uint64_t deadline_ns)
{
    return is_server ? authenticate_server(fd, secret, deadline_ns)
                     : authenticate_client(fd, secret, deadline_ns);
}

void gyre_authenticate_release(void)
{
    pthread_mutex_lock(&proof_lock);
    if (!is_exiting)
        OPENSSL_thread_stop();
    pthread_mutex_unlock(&proof_lock);
}

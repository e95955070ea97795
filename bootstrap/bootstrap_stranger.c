/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections that have not proved yet that they know the job's secret, on the accepting side: the
 * rendezvous' and the regroup listeners'. Nothing here waits. A stranger costs its server a fixed
 * buffer and a descriptor for a bounded time, and any number of silent ones delay a rank by no more
 * than the accepting takes.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <string.h>

#define MAX_STRANGERS  256
#define EVICT_AFTER_NS 500000000ULL /* a rank proves itself in milliseconds */

bool gyre_stranger_greet(struct gyre_stranger *stranger_out, int fd)
{
    memset(stranger_out, 0, sizeof(*stranger_out));
    stranger_out->fd = fd;
    stranger_out->born_ns = gyre_now_ns();
    /* 36 bytes into an empty socket buffer: all or nothing. */
    return gyre_hello_make(&stranger_out->hello) == GYRE_SUCCESS &&
           send(fd, &stranger_out->hello, sizeof(stranger_out->hello), MSG_NOSIGNAL) ==
               sizeof(stranger_out->hello);
}

/* Is the answer right? Then ours goes back. */
static bool answer_proof(struct gyre_stranger *stranger, const uint8_t secret[GYRE_SECRET_BYTES])
{
    uint8_t proof[GYRE_PROOF_BYTES];
    const struct gyre_hello *client = &stranger->answer.hello;
    return gyre_proof_make(secret, false, client, &stranger->hello, proof) == GYRE_SUCCESS &&
           gyre_proof_equal(proof, stranger->answer.proof) &&
           gyre_proof_make(secret, true, client, &stranger->hello, proof) == GYRE_SUCCESS &&
           send(stranger->fd, proof, sizeof(proof), MSG_NOSIGNAL) == sizeof(proof);
}

enum gyre_stranger_state gyre_stranger_read(struct gyre_stranger *stranger,
                                            const uint8_t secret[GYRE_SECRET_BYTES])
{
    while (stranger->n_read < sizeof(stranger->answer)) {
        const ssize_t n_got = recv(stranger->fd, (uint8_t *)&stranger->answer + stranger->n_read,
                                   sizeof(stranger->answer) - stranger->n_read, 0);
        if (n_got < 0 && errno == EINTR)
            continue;
        if (n_got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return GYRE_STRANGER_WAITS;
        if (n_got <= 0)
            return GYRE_STRANGER_REFUSED;
        stranger->n_read += (size_t)n_got;
        if (stranger->n_read >= sizeof(stranger->answer.hello.magic) &&
            !gyre_hello_is_one(&stranger->answer.hello))
            return GYRE_STRANGER_REFUSED;
    }
    return answer_proof(stranger, secret) ? GYRE_STRANGER_PROVED : GYRE_STRANGER_REFUSED;
}

enum gyre_stranger_room gyre_stranger_room(int n_strangers, const struct gyre_stranger *oldest)
{
    if (n_strangers < MAX_STRANGERS)
        return GYRE_STRANGER_ROOM;
    if (oldest == NULL || gyre_now_ns() - oldest->born_ns < EVICT_AFTER_NS)
        return GYRE_STRANGER_FULL;
    return GYRE_STRANGER_EVICT;
}

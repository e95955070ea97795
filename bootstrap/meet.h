/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BOOTSTRAP_MEET_H
#define GYRE_BOOTSTRAP_MEET_H

#include "bootstrap/launch.h"
#include "core/foundation/base/sock.h"

#include <sys/socket.h>
#include <sys/un.h>

#define GYRE_MEET_MAGIC     "gyre meets 0001"
#define GYRE_MEET_HELLO_NS  2000000000ULL
#define GYRE_MEET_NOTICE_NS 5000000000ULL /* a waiting rank logs it then */

/* Ranks send it to each other: fixed layout. */
struct gyre_meet_hello {
    char magic[16];
    int32_t rank;
    int32_t n_ranks;
    uint32_t number;
    int32_t pid;
    char host[64];
    char job[256];
};

enum gyre_meet_verdict { GYRE_MEET_TAKEN = 1, GYRE_MEET_REFUSED, GYRE_MEET_LATER };

struct gyre_meet_answer {
    char magic[16];
    int32_t verdict;
    int32_t status;
    char text[768];
};

bool gyre_meet_is_named(const struct gyre_meet_place *place);

bool gyre_meet_is_cancelled(const struct gyre_meet_place *place);

const char *gyre_meet_where(const struct gyre_meet_place *place, char *text_out, size_t text_bytes);

#define GYRE_MEET_MAX_ADDRESSES 8

/** Resolves anew: names may appear after the ranks start. Returns how many; 0 leaves a cause. */
int gyre_meet_addresses(const struct gyre_meet_place *place,
                        struct gyre_sock_address addresses_out[GYRE_MEET_MAX_ADDRESSES]);

/** An abstract socket whose name begins with the user's number. Returns its bytes. */
socklen_t gyre_meet_to_named(const struct gyre_meet_place *place, struct sockaddr_un *out);

/** Every local user can open an abstract socket. */
bool gyre_meet_is_own_user(int fd);

/** Adds to the thread's cause that the address is loopback, if it is. Returns status. */
gyre_status gyre_meet_blame_loopback(const struct gyre_meet_place *place, gyre_status status);

gyre_status gyre_meet_say_hello(const struct gyre_meet_place *place, uint64_t deadline_ns,
                                int *fd_out, struct gyre_meet_answer *answer_out);

/** After a failure the ranks that came are told. */
gyre_status gyre_meet_receive(const struct gyre_meet_place *place, struct gyre_meet *meet);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ranks.h"

enum { N_OLD = 2, N_NEW = 2, N_ALL = N_OLD + N_NEW };

static void check_sum(gyre_comm *comm, int rank)
{
    float data[100];
    gyre_stream stream;
    for (int i = 0; i < 100; i++)
        data[i] = (float)(rank + i);
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    CHECK_OK(gyre_all_reduce(data, data, 100, GYRE_FLOAT32, GYRE_SUM, comm, stream));
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    for (int i = 0; i < 100; i++) /* the sum of 0..3, and the index from each rank */
        CHECK_MSG(data[i] == (float)(6 + N_ALL * i), "element %d is %g", i, (double)data[i]);
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

struct newcomer {
    pthread_t thread;
    gyre_unique_id id;
    int rank;
    gyre_status expected;
};

static void *join(void *argument)
{
    struct newcomer *own = argument;
    const gyre_config config = test_config(own->rank);
    gyre_comm *comm = NULL;
    const gyre_status status = gyre_comm_init_rank(&comm, N_ALL, &own->id, own->rank, &config);
    CHECK_MSG(status == own->expected, "%s: %s", gyre_status_name(status), gyre_last_error());
    if (status == GYRE_SUCCESS) {
        check_sum(comm, own->rank);
        CHECK_OK(gyre_comm_destroy(comm));
    }
    return NULL;
}

static void start_newcomers(struct newcomer *newcomers, const gyre_unique_id *id,
                            gyre_status expected)
{
    for (int i = 0; i < N_NEW; i++) {
        newcomers[i] = (struct newcomer){0, *id, N_OLD + i, expected};
        pthread_create(&newcomers[i].thread, NULL, join, &newcomers[i]);
    }
}

static void wait_for_newcomers(struct newcomer *newcomers)
{
    for (int i = 0; i < N_NEW; i++)
        pthread_join(newcomers[i].thread, NULL);
}

TEST_ON_THREADS("two ranks grow to four and keep their numbers", N_OLD)
{
    struct newcomer newcomers[N_NEW];
    gyre_unique_id id;
    gyre_comm *grown = NULL;
    int value = -1;
    if (rank == 1) {
        CHECK_OK(gyre_get_unique_id(&id));
        start_newcomers(newcomers, &id, GYRE_SUCCESS);
    }
    CHECK_OK(gyre_comm_grow(comm, N_ALL, rank == 1 ? &id : NULL, &grown, NULL));
    CHECK_OK(gyre_comm_rank(grown, &value));
    CHECK(value == rank);
    CHECK_OK(gyre_comm_count(grown, &value));
    CHECK(value == N_ALL);
    check_sum(grown, rank);
    CHECK_OK(gyre_comm_destroy(grown));
    if (rank == 1)
        wait_for_newcomers(newcomers);
    CHECK_OK(gyre_comm_count(comm, &value)); /* the parent is as it was */
    CHECK(value == N_OLD);
}

TEST_ON_THREADS("ranks that grow differently all get the cause", N_OLD)
{
    struct newcomer newcomers[N_NEW];
    gyre_unique_id id;
    gyre_comm *grown = NULL;
    CHECK_BAD_ARGUMENT(gyre_comm_grow(comm, N_OLD, NULL, &grown, NULL), "legal is 3..");
    CHECK_BAD_ARGUMENT(gyre_comm_grow(comm, N_ALL, NULL, NULL, NULL), "comm_out is NULL");
    CHECK_BAD_USAGE(gyre_comm_grow(comm, N_ALL, NULL, &grown, NULL), "no rank gives a unique id");
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_BAD_USAGE(gyre_comm_grow(comm, N_ALL, &id, &grown, NULL), "both give a unique id");
    if (rank == 0) {
        CHECK_OK(gyre_get_unique_id(&id));
        start_newcomers(newcomers, &id, GYRE_ERROR_REMOTE);
    }
    CHECK_BAD_USAGE(gyre_comm_grow(comm, N_ALL + rank, rank == 0 ? &id : NULL, &grown, NULL),
                    "grows to");
    CHECK(grown == NULL);
    if (rank == 0)
        wait_for_newcomers(newcomers);
}

TEST_RANK(grow_by_a_bad_size)
{
    struct newcomer newcomers[N_NEW];
    gyre_unique_id id;
    gyre_comm *grown = NULL;
    if (rank == 0) {
        CHECK_BAD_ARGUMENT(gyre_comm_grow(comm, N_ALL, NULL, &grown, NULL),
                           "of the parent: grow: n_ranks is 1, legal is 3..");
    } else {
        CHECK_OK(gyre_get_unique_id(&id));
        start_newcomers(newcomers, &id, GYRE_ERROR_REMOTE);
        CHECK_BAD_ARGUMENT(gyre_comm_grow(comm, 1, &id, &grown, NULL),
                           "grow: n_ranks is 1, legal is 3..");
        wait_for_newcomers(newcomers);
    }
    CHECK(grown == NULL);
}

TEST_RANK(grow_by_bad_pointers)
{
    gyre_config config;
    gyre_comm *grown = NULL;
    memset(&config, 0, sizeof(config));
    CHECK_BAD_ARGUMENT(gyre_comm_grow(comm, N_ALL, NULL, rank == 1 ? NULL : &grown, NULL),
                       "comm_out is NULL");
    CHECK_BAD_ARGUMENT(gyre_comm_grow(comm, N_ALL, NULL, &grown, rank == 1 ? &config : NULL),
                       "GYRE_CONFIG_INIT");
    CHECK(grown == NULL);
}

TEST_CASE("a bad argument of one rank is an error of all ranks at once")
{
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "20", 1); /* of ranks that nobody tells */
    test_on_threads(N_OLD, grow_by_a_bad_size, NULL);
    test_on_threads(N_OLD, grow_by_bad_pointers, NULL);
}

TEST_ON_THREADS_WITH("a bad argument of one rank of a split is an error of its color", N_OLD,
                     "GYRE_BOOTSTRAP_TIMEOUT=20")
{
    gyre_comm *child = NULL;
    CHECK_BAD_ARGUMENT(gyre_comm_split(comm, 0, rank, rank == 1 ? NULL : &child, NULL),
                       "comm_out is NULL");
    /* An illegal color: no new communicator. */
    if (rank == 1) {
        CHECK_BAD_ARGUMENT(gyre_comm_split(comm, -7, rank, &child, NULL), "color -7");
    } else {
        CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL));
        CHECK_OK(gyre_comm_destroy(child));
    }
}

TEST_ON_THREADS("a communicator tells its properties", 2)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    uint64_t ids[2] = {0, 0};
    unsigned char before;
    CHECK_OK(gyre_comm_properties(comm, &facts));
    CHECK(facts.rank == rank && facts.n_ranks == n_ranks && facts.n_hosts == 1);
    CHECK(facts.device_kind == GYRE_DEVICE_HOST && facts.device_ordinal == -1);
    CHECK(facts.device_bytes == 0 && facts.host_bytes > 0);
    CHECK(facts.can_window == 1); /* threads of one process */
    CHECK_HAS(facts.transports, "P2P");
    CHECK_OK(gyre_comm_exchange(comm, &facts.id, sizeof(facts.id), ids));
    CHECK(ids[0] == ids[1] && ids[0] != 0);

    /* A caller of a shorter struct. */
    gyre_properties old = GYRE_PROPERTIES_INIT;
    old.struct_bytes = (uint32_t)offsetof(gyre_properties, can_window);
    memset(&old.can_window, 0xab, sizeof(old.can_window));
    memcpy(&before, &old.can_window, 1);
    CHECK_OK(gyre_comm_properties(comm, &old));
    CHECK(old.n_ranks == n_ranks && memcmp(&before, &old.can_window, 1) == 0);
    old.version = 0;
    CHECK_BAD_ARGUMENT(gyre_comm_properties(comm, &old), "GYRE_PROPERTIES_INIT");
}

TEST_CASE("every variable has a name and a value")
{
    char text[256];
    const char *name;
    int n = 0;
    while ((name = gyre_get_variable_name(n)) != NULL) {
        CHECK(strncmp(name, "GYRE_", 5) == 0);
        CHECK_OK(gyre_get_variable(name, text, sizeof(text)));
        n++;
    }
    CHECK(n > 40 && gyre_get_variable_name(-1) == NULL);
}

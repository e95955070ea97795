/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm/parts.h"
#include "tests/support/ranks.h"

enum { BYTES = 8192 };

static char *allocate(void)
{
    void *memory = NULL;
    CHECK_OK(gyre_mem_alloc(&memory, BYTES, test_device(), -1));
    return memory;
}

static gyre_comm *make_alone(void)
{
    gyre_comm *comm = NULL;
    const gyre_config config = test_config(0);
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    return comm;
}

TEST_ON_THREADS("the same range is counted", 1)
{
    gyre_registration first = NULL;
    gyre_registration second = NULL;
    char *memory = allocate();
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &first));
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &second));
    CHECK(first != NULL && first == second);
    CHECK(gyre_registrations_count(&comm->registrations) == 1);
    CHECK_OK(gyre_comm_deregister(comm, first));
    CHECK(gyre_registrations_count(&comm->registrations) == 1);
    CHECK_OK(gyre_comm_deregister(comm, first));
    CHECK(gyre_registrations_count(&comm->registrations) == 0);
    CHECK_BAD_ARGUMENT(gyre_comm_deregister(comm, first), "given back");
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

TEST_ON_THREADS("ranges may overlap", 1)
{
    gyre_registration whole = NULL;
    gyre_registration head = NULL;
    gyre_registration middle = NULL;
    char *memory = allocate();
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &whole));
    CHECK_OK(gyre_comm_register(comm, memory, BYTES / 2, &head));
    CHECK_OK(gyre_comm_register(comm, memory + 512, BYTES / 2, &middle));
    CHECK(whole != head && whole != middle && head != middle);
    CHECK_OK(gyre_comm_deregister(comm, whole));
    CHECK(gyre_registrations_count(&comm->registrations) == 2);
    CHECK_OK(gyre_comm_deregister(comm, head));
    CHECK_OK(gyre_comm_deregister(comm, middle));
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

TEST_ON_THREADS("many ranges come and go", 1)
{
    enum { N = 100 };
    gyre_registration handles[N];
    char *memory = allocate();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            CHECK_OK(gyre_comm_register(comm, memory + i, (size_t)(i + 1), &handles[i]));
        CHECK(gyre_registrations_count(&comm->registrations) == N);
        for (int i = 0; i < N; i++)
            CHECK_OK(gyre_comm_deregister(comm, handles[(i * 37) % N]));
        CHECK(gyre_registrations_count(&comm->registrations) == 0);
    }
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

TEST_ON_THREADS("a range that comes again has another handle", 1)
{
    gyre_registration before = NULL;
    gyre_registration after = NULL;
    char *memory = allocate();
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &before));
    CHECK_OK(gyre_comm_deregister(comm, before));
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &after));
    CHECK(after != before);
    CHECK_BAD_ARGUMENT(gyre_comm_deregister(comm, before), "given back");
    CHECK(gyre_registrations_count(&comm->registrations) == 1);
    CHECK_OK(gyre_comm_deregister(comm, after));
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

TEST_ON_THREADS("unknown handles are refused", 1)
{
    gyre_comm *other = make_alone();
    gyre_registration handle = NULL;
    gyre_registration second = NULL;
    char *memory = allocate();
    CHECK_BAD_ARGUMENT(gyre_comm_deregister(comm, NULL), "registration");
    CHECK_BAD_ARGUMENT(gyre_comm_deregister(comm, (gyre_registration)(void *)memory),
                       "registration");
    CHECK_OK(gyre_comm_register(other, memory + 1, 1, &handle));
    CHECK_OK(gyre_comm_register(other, memory, BYTES, &handle));
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &second));
    CHECK_BAD_ARGUMENT(gyre_comm_deregister(comm, handle), "registration");
    CHECK_BAD_ARGUMENT(gyre_comm_register(comm, NULL, BYTES, &handle), "no buffer");
    CHECK_BAD_ARGUMENT(gyre_comm_register(comm, memory, 0, &handle), "no bytes");
    CHECK_BAD_ARGUMENT(gyre_comm_register(comm, memory, BYTES, NULL), "handle_out");
    CHECK_BAD_ARGUMENT(gyre_comm_register(comm, memory, SIZE_MAX, &handle), "past the end");
    CHECK_OK(gyre_comm_destroy(other));
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

TEST_ON_THREADS("a failed communicator gives its buffers back", 1)
{
    gyre_registration handle = NULL;
    gyre_registration late = NULL;
    char *memory = allocate();
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &handle));
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_FAILS(gyre_comm_register(comm, memory, BYTES, &late), GYRE_ERROR_ABORTED, "aborted");
    CHECK_OK(gyre_comm_deregister(comm, handle));
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

TEST_CASE("the communicator may go first")
{
    gyre_comm *comm = make_alone();
    gyre_registration handle = NULL;
    char *memory = allocate();
    CHECK_OK(gyre_comm_register(comm, memory, BYTES, &handle));
    CHECK_OK(gyre_comm_finalize(comm));
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_BAD_USAGE(gyre_comm_deregister(comm, handle), "was destroyed");
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

struct registrar {
    gyre_comm *comm;
    char *memory;
};

static void *register_often(void *argument)
{
    const struct registrar *registrar = argument;
    for (int i = 0; i < 2000; i++) {
        gyre_registration handle = NULL;
        CHECK_OK(
            gyre_comm_register(registrar->comm, registrar->memory, (size_t)(i % 7 + 1), &handle));
        CHECK_OK(gyre_comm_deregister(registrar->comm, handle));
    }
    return NULL;
}

TEST_CASE("any thread registers")
{
    enum { N = 4 };
    struct registrar registrars[N];
    gyre_comm *comm = make_alone();
    char *memory = allocate();
    for (int i = 0; i < N; i++)
        registrars[i] = (struct registrar){.comm = comm, .memory = memory};
    test_run_threads(register_often, registrars, N, sizeof(registrars[0]));
    CHECK(gyre_registrations_count(&comm->registrations) == 0);
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

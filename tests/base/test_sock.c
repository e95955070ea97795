/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sock.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"

#include <arpa/inet.h>
#include <fcntl.h>

#define LONG_NS 30000000000ULL

static struct gyre_sock_interface four(const char *name, const char *address)
{
    struct gyre_sock_interface interface = {
        .address.family = AF_INET, .prefix_bits = 24, .is_up = true, .is_running = true};
    snprintf(interface.name, sizeof(interface.name), "%s", name);
    inet_pton(AF_INET, address, interface.address.bytes);
    interface.is_loopback = strcmp(name, "lo") == 0;
    return interface;
}

static struct gyre_sock_interface six(const char *name, const char *address)
{
    struct gyre_sock_interface interface = four(name, "0.0.0.0");
    interface.address.family = AF_INET6;
    inet_pton(AF_INET6, address, interface.address.bytes);
    return interface;
}

static const char *chosen(const struct gyre_sock_interface *table, int n, const char *ifname,
                          int family)
{
    static char text[512];
    struct gyre_sock_interface out[GYRE_MAX_INTERFACES];
    int n_out = 0;
    size_t n_text = 0;
    text[0] = '\0';
    if (gyre_sock_select(table, n, ifname, family, out, &n_out) != GYRE_SUCCESS)
        return "error";
    for (int i = 0; i < n_out; i++)
        n_text +=
            (size_t)snprintf(text + n_text, sizeof(text) - n_text, "%s%s/%d", i == 0 ? "" : " ",
                             out[i].name, out[i].address.family == AF_INET ? 4 : 6);
    return text;
}

#define CHECK_CHOSEN(table, ifname, family, expected)                                           \
    do {                                                                                        \
        const char *seen_ = chosen(table, (int)GYRE_ARRAY_LENGTH(table), ifname, family);       \
        CHECK_MSG(strcmp(seen_, expected) == 0, "\"%s\" family %d: %s", ifname, family, seen_); \
    } while (0)

TEST_CASE("without a rule, fabric comes first and loopback last")
{
    struct gyre_sock_interface table[] = {four("lo", "127.0.0.1"),    four("docker0", "172.17.0.1"),
                                          four("veth12", "10.9.0.1"), four("eth0", "10.0.0.1"),
                                          four("ib0", "10.1.0.1"),    four("virbr0", "10.2.0.1"),
                                          four("eth1", "10.0.1.1")};
    CHECK_CHOSEN(table, "", 0, "ib0/4 eth0/4 eth1/4 docker0/4 veth12/4 virbr0/4 lo/4");
    table[4].is_up = false;
    CHECK_CHOSEN(table, "", 0, "eth0/4 eth1/4 docker0/4 veth12/4 virbr0/4 lo/4");
}

TEST_CASE("rules are prefixes unless exact, and can be inverted")
{
    const struct gyre_sock_interface table[] = {four("lo", "127.0.0.1"), four("eth1", "10.0.1.1"),
                                                four("eth10", "10.0.10.1"),
                                                four("bond0", "10.0.0.1")};
    CHECK_CHOSEN(table, "eth", 0, "eth1/4 eth10/4");
    CHECK_CHOSEN(table, "eth1", 0, "eth1/4 eth10/4");
    CHECK_CHOSEN(table, "=eth1", 0, "eth1/4");
    CHECK_CHOSEN(table, "bond,eth1", 0, "bond0/4 eth1/4 eth10/4");
    CHECK_CHOSEN(table, "=eth10,bond0", 0, "eth10/4 bond0/4");
    CHECK_CHOSEN(table, "^eth", 0, "bond0/4 lo/4");
    CHECK_CHOSEN(table, "^=eth1,lo", 0, "eth10/4 bond0/4");
    CHECK_CHOSEN(table, "^bond,eth,lo", 0, "error");
    CHECK_CHOSEN(table, "=eth", 0, "error");
    CHECK_CHOSEN(table, "=lo", 0, "lo/4");
}

TEST_CASE("blanks in a list lose no interface")
{
    const struct gyre_sock_interface table[] = {four("eth0", "10.0.0.1"), four("eth1", "10.0.1.1"),
                                                four("lo", "127.0.0.1")};
    CHECK_CHOSEN(table, "eth0, eth1", 0, "eth0/4 eth1/4");
    CHECK_CHOSEN(table, " =eth1 ,eth0 ", 0, "eth1/4 eth0/4");
    CHECK_CHOSEN(table, "^ eth0 , lo", 0, "eth1/4");
    CHECK_CHOSEN(table, ",,eth1,", 0, "eth1/4");
}

TEST_CASE("many virtual addresses do not crowd out a real one")
{
    enum { N = 1000, LAST = N - 1 };
    static struct gyre_sock_interface table[N], out[N];
    static const char *const kinds[] = {"cali%d", "veth%d", "kube-ipvs0", "docker0", "svc0"};
    int n = 0;
    for (size_t k = 0; k < GYRE_ARRAY_LENGTH(kinds); k++) {
        for (int i = 0; i < LAST; i++) {
            char name[sizeof(table[0].name)];
            snprintf(name, sizeof(name), kinds[k], i);
            table[i] = four(name, "10.96.0.1");
        }
        table[LAST] = four("eth0", "10.0.0.1");
        CHECK_OK(gyre_sock_select(table, N, "=eth0", 0, out, &n));
        CHECK(n == 1 && strcmp(out[0].name, "eth0") == 0);
        CHECK_OK(gyre_sock_select(table, N, "", 0, out, &n));
        const char *first = out[0].name, *second = out[1].name;
        /* All but its first address come later. */
        CHECK_MSG(n == N && (strcmp(first, "eth0") == 0 || strcmp(second, "eth0") == 0),
                  "%s: %s %s", kinds[k], first, second);
        table[LAST].has_default_route = true;
        CHECK_OK(gyre_sock_select(table, N, "", 0, out, &n));
        CHECK_MSG(strcmp(out[0].name, "eth0") == 0, "%s: %s", kinds[k], out[0].name);
        CHECK_OK(gyre_sock_select(table, N, "^docker", 0, out, &n));
        CHECK(strcmp(out[0].name, "eth0") == 0);
    }
}

TEST_CASE("a link-local address gets the scopes of this host")
{
    struct gyre_sock_interface own[] = {four("eth0", "10.0.0.2"), six("eth0", "fe80::2"),
                                        six("eth1", "fe80::3"), six("eth2", "fe80::4"),
                                        six("eth0", "2001:db8::2")};
    struct gyre_sock_address theirs[8] = {four("", "10.0.0.1").address, six("", "fe80::1").address};
    const char *const expected[] = {"10.0.0.1:0", "[fe80::1%21]:0", "[fe80::1%41]:0"};
    char text[64];
    for (int i = 1; i < 4; i++)
        own[i].address.scope = 11 + 10 * (uint32_t)i;
    own[2].is_running = false;
    theirs[1].scope = 7;
    CHECK(gyre_sock_localise(own, 5, theirs, 2, 8) == 3);
    for (int i = 0; i < 3; i++)
        CHECK_MSG(strcmp(gyre_sock_to_text(&theirs[i], text, sizeof(text)), expected[i]) == 0,
                  "%d: %s", i, text);
    CHECK(gyre_sock_localise(own, 5, theirs, 3, 4) == 4); /* no more than there is room for */
    CHECK(gyre_sock_localise(own, 1, theirs, 3, 8) == 1); /* this host has no such address */
}

TEST_CASE("families filter, and scoped addresses come last")
{
    const struct gyre_sock_interface table[] = {six("eth0", "fe80::1"), six("eth0", "2001:db8::1"),
                                                four("eth1", "10.0.0.1"), six("lo", "::1")};
    CHECK_CHOSEN(table, "", 0, "eth1/4 eth0/6 eth0/6 lo/6");
    CHECK_CHOSEN(table, "eth0", AF_INET, "error");
    struct gyre_sock_interface out[4];
    int n = 0;
    CHECK_OK(gyre_sock_select(table, 4, "eth0", AF_INET6, out, &n));
    CHECK(n == 2 && out[0].address.bytes[0] == 0x20 && out[1].address.bytes[0] == 0xfe);
}

TEST_CASE("no match lists what exists")
{
    struct gyre_sock_interface out[4];
    struct gyre_sock_interface table[] = {four("eth0", "10.0.0.1"), six("eth1", "2001:db8::1")};
    int n = 0;
    table[1].is_up = false;
    CHECK_BAD_ARGUMENT(
        gyre_sock_select(table, 2, "ens", 0, out, &n),
        "has an address matches \"ens\"; there are: eth0 (10.0.0.1), eth1 ([2001:db8::1], down)");
    CHECK_FAILS(gyre_sock_select(table, 0, "", 0, out, &n), GYRE_ERROR_SYSTEM, "none");
}

TEST_CASE("a link that is not there comes after those that are, and before loopback")
{
    struct gyre_sock_interface table[] = {four("lo", "127.0.0.1"), four("eth0", "10.0.0.1"),
                                          four("docker0", "172.17.0.1")};
    table[1].is_running = false;
    CHECK_CHOSEN(table, "", 0, "docker0/4 eth0/4 lo/4");
    CHECK_CHOSEN(table, "eth,docker", 0, "docker0/4 eth0/4");
    CHECK_CHOSEN(table, "^docker", 0, "eth0/4 lo/4");
}

TEST_CASE("a peer's addresses are sorted by subnet")
{
    struct gyre_sock_interface own[] = {four("eth0", "10.77.0.2"), four("docker0", "172.17.0.1"),
                                        six("eth0", "2001:db8::2")};
    struct gyre_sock_address theirs[] = {
        four("", "172.17.0.1").address, four("", "172.20.9.1").address,
        four("", "10.77.0.1").address, six("", "2001:db8:10::1").address,
        six("", "2001:db8::1").address};
    const char *const expected[] = {"10.77.0.1:0", "[2001:db8::1]:0", "172.20.9.1:0",
                                    "[2001:db8:10::1]:0", "172.17.0.1:0"};
    own[2].prefix_bits = 44; /* 2001:db8:10:: differs in the 44th bit */
    gyre_sock_order_for(own, 3, theirs, 5);
    for (int i = 0; i < 5; i++) {
        char text[64];
        gyre_sock_to_text(&theirs[i], text, sizeof(text));
        CHECK_MSG(strcmp(text, expected[i]) == 0, "place %d: %s", i, text);
    }
}

TEST_CASE("interfaces are described with their state")
{
    char text[1024];
    gyre_sock_describe_interfaces(text, sizeof(text));
    CHECK_HAS(text, "lo (127.0.0.1");
}

TEST_CASE("the error names the variable that is set")
{
    static struct gyre_params params;
    struct gyre_sock_interface addresses[GYRE_MAX_INTERFACES];
    int n = 0;
    char *const lists[][2] = {{"NCCL_SOCKET_IFNAME=nothing9", NULL},
                              {"GYRE_SOCKET_IFNAME==nothing9", NULL}};
    const char *const expected[] = {"NCCL_SOCKET_IFNAME: no network interface that is up and has",
                                    "GYRE_SOCKET_IFNAME: no network interface that is up and has"};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gyre_params_from(lists[i], &params));
        CHECK_BAD_ARGUMENT(gyre_sock_list_addresses(&params, addresses, &n), expected[i]);
    }
}

TEST_CASE("loopback is listed only when it is alone")
{
    struct gyre_params params;
    struct gyre_sock_interface addresses[GYRE_MAX_INTERFACES];
    char *environment[] = {NULL};
    int n = 0;
    CHECK_OK(gyre_params_from(environment, &params));
    CHECK_OK(gyre_sock_list_addresses(&params, addresses, &n));
    CHECK(n >= 1);
    for (int i = 1; i < n; i++)
        CHECK(!addresses[i].is_loopback && !addresses[0].is_loopback);
}

TEST_CASE("a list of addresses comes back as it was packed")
{
    struct gyre_sock_address in[] = {four("", "10.0.0.1").address, six("", "2001:db8::1").address,
                                     six("", "fe80::1").address, four("", "10.0.0.2").address};
    struct gyre_sock_address out[GYRE_SOCK_LIST_MAX];
    struct gyre_sock_list list;
    char text[256];
    memset(&list, 0, sizeof(list));
    in[0].port = 65535;
    in[2].scope = 7;
    CHECK(gyre_sock_list_read(&list, out) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(gyre_sock_list_pack(&list, &in[i]));
    CHECK(gyre_sock_list_pack(&list, &in[3])); /* 7 + 19 + 23 + 7 = 56 bytes */
    CHECK(!gyre_sock_list_pack(&list, &in[3]));
    CHECK(gyre_sock_list_read(&list, out) == 4);
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    gyre_sock_list_to_text(out, 2, text, sizeof(text));
    CHECK_MSG(strcmp(text, "10.0.0.1:65535, [2001:db8::1]:0") == 0, "%s", text);
    memset(list.packed, 0xff, sizeof(list.packed));
    CHECK(gyre_sock_list_read(&list, out) == 0);
}

TEST_CASE("another host's loopback is no target")
{
    const struct gyre_sock_address loopback = four("", "127.0.0.1").address;
    const struct gyre_sock_address real = four("", "192.0.2.1").address;
    struct gyre_sock_address out[GYRE_SOCK_LIST_MAX];
    struct gyre_sock_list list;
    int n = 0;
    memset(&list, 0, sizeof(list));
    CHECK_OK(gyre_sock_network(&list.network));
    CHECK(gyre_sock_list_pack(&list, &loopback));
    CHECK_OK(gyre_sock_list_targets(&list, out, &n));
    CHECK(n == 1);
    list.network ^= 1;
    CHECK_BAD_USAGE(gyre_sock_list_targets(&list, out, &n), "on its own host alone");
    CHECK(gyre_sock_list_pack(&list, &real));
    CHECK_OK(gyre_sock_list_targets(&list, out, &n));
    CHECK(n == 1 && gyre_sock_is_same_host(&out[0], &real));
}

/* "" if ranks do not spread. */
static const char *spread(const char *ifname, int position, int n_positions, int *n_out)
{
    static struct gyre_sock_interface table[4];
    static const char *const names[] = {"eth0", "eth0", "eth1", "ib0"};
    memset(table, 0, sizeof(table));
    for (int i = 0; i < 4; i++)
        snprintf(table[i].name, sizeof(table[i].name), "%s", names[i]);
    *n_out = gyre_sock_spread(table, 4, ifname, position, n_positions);
    return table[0].name;
}

TEST_CASE("ranks spread over the interfaces that are listed")
{
    int n;
    for (int position = 0; position < 6; position++) {
        static const char *const of_six[] = {"eth0", "eth0", "eth1", "eth1", "ib0", "ib0"};
        CHECK(strcmp(spread("eth0,eth1,ib0", position, 6, &n), of_six[position]) == 0 && n == 3);
    }
    CHECK(strcmp(spread("eth,ib", 1, 2, &n), "eth1") == 0 && n == 3);
    CHECK(strcmp(spread("eth,ib", 0, 1, &n), "eth0") == 0 && n == 3);
    CHECK(strcmp(spread("eth", 2, 3, &n), "eth0") == 0 && n == 1);
    CHECK(strcmp(spread("^docker,lo", 2, 3, &n), "eth0") == 0 && n == 1);
    CHECK(strcmp(spread("", 2, 3, &n), "eth0") == 0 && n == 1);
}

TEST_CASE("this machine has a loopback")
{
    struct gyre_params params;
    struct gyre_sock_interface interface;
    char *environment[] = {"GYRE_SOCKET_IFNAME==lo", "GYRE_SOCKET_FAMILY=AF_INET", NULL};
    CHECK_OK(gyre_params_from(environment, &params));
    CHECK_OK(gyre_sock_choose(&params, &interface));
    CHECK(strcmp(interface.name, "lo") == 0 && interface.is_loopback);
    CHECK(interface.address.bytes[0] == 127 && interface.address.port == 0);
}

TEST_CASE("addresses have a text")
{
    char text[64];
    struct gyre_sock_interface interface = four("x", "10.0.0.1");
    interface.address.port = 4242;
    CHECK(strcmp(gyre_sock_to_text(&interface.address, text, sizeof(text)), "10.0.0.1:4242") == 0);
    interface = six("x", "fe80::1");
    interface.address.port = 4242;
    interface.address.scope = 2;
    CHECK(strcmp(gyre_sock_to_text(&interface.address, text, sizeof(text)), "[fe80::1%2]:4242") ==
          0);
}

static void open_pair(int *a_out, int *b_out)
{
    const uint64_t deadline_ns = gyre_now_ns() + LONG_NS;
    const struct gyre_sock_interface lo = four("lo", "127.0.0.1");
    struct gyre_sock_address bound;
    int listener = -1;
    CHECK_OK(gyre_sock_listen(&lo.address, &listener, &bound));
    CHECK(bound.port != 0);
    CHECK_OK(gyre_sock_connect(&bound, deadline_ns, a_out));
    CHECK_OK(gyre_sock_accept(listener, deadline_ns, b_out));
    gyre_sock_close(listener);
}

TEST_CASE("bytes go through, and sockets close on exec")
{
    const uint64_t deadline_ns = gyre_now_ns() + LONG_NS;
    char text[6] = "";
    int a = -1;
    int b = -1;
    open_pair(&a, &b);
    CHECK((fcntl(a, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(b, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((fcntl(a, F_GETFL) & O_NONBLOCK) != 0 && (fcntl(b, F_GETFL) & O_NONBLOCK) != 0);
    CHECK_OK(gyre_sock_send(a, "hello", 6, deadline_ns));
    CHECK_OK(gyre_sock_recv(b, text, 6, deadline_ns));
    CHECK(strcmp(text, "hello") == 0);
    gyre_sock_close(a);
    CHECK_FAILS(gyre_sock_recv(b, text, 1, deadline_ns), GYRE_ERROR_REMOTE, "closed");
    /* The first send may be taken; SIGPIPE would end this test. */
    gyre_status status = GYRE_SUCCESS;
    while (status == GYRE_SUCCESS && gyre_now_ns() < deadline_ns)
        status = gyre_sock_send(b, "x", 1, deadline_ns);
    CHECK(status == GYRE_ERROR_REMOTE);
    gyre_sock_close(b);
}

TEST_CASE("every wait ends at its deadline")
{
    const struct gyre_sock_interface lo = four("lo", "127.0.0.1");
    struct gyre_sock_address bound;
    static char bytes[1 << 20];
    int listener = -1;
    int a = -1;
    int b = -1;
    int none = -1;
    CHECK_OK(gyre_sock_listen(&lo.address, &listener, &bound));
    CHECK_FAILS(gyre_sock_accept(listener, gyre_now_ns() + 1000000, &none), GYRE_ERROR_TIMEOUT,
                "accept");
    gyre_sock_close(listener);
    /* Nobody listens there now: refused until the deadline. No try keeps a descriptor. */
    const int lowest = dup(STDERR_FILENO);
    close(lowest);
    CHECK_FAILS(gyre_sock_connect(&bound, gyre_now_ns() + 20000000, &none), GYRE_ERROR_SYSTEM,
                "refused");
    const int lowest_after = dup(STDERR_FILENO);
    close(lowest_after);
    CHECK(none == -1 && lowest_after == lowest);
    open_pair(&a, &b);
    CHECK_FAILS(gyre_sock_recv(a, bytes, 1, gyre_now_ns() + 1000000), GYRE_ERROR_TIMEOUT,
                "receive");
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < 64 && status == GYRE_SUCCESS; i++) /* b reads nothing */
        status = gyre_sock_send(a, bytes, sizeof(bytes), gyre_now_ns() + 20000000);
    CHECK_FAILS(status, GYRE_ERROR_TIMEOUT, "send");
    gyre_sock_close(a);
    gyre_sock_close(b);
}

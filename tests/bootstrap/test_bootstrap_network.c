/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/support/bootstrap_rig.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>

/* Far above gyre's 8 s, far below TCP's minutes. */
#define END_MS 15000

struct net {
    pid_t joiner; /* rank 1, in a namespace of its own */
    int to_joiner;
    int from_joiner;
};

static int run(const char *command)
{
    return system(command);
}

static int run_at(pid_t pid, const char *command)
{
    char line[512];
    snprintf(line, sizeof(line), "nsenter -t %d -n %s", pid, command);
    return system(line);
}

static struct gyre_params network_params(void)
{
    struct gyre_params params;
    char timeout[] = "GYRE_BOOTSTRAP_TIMEOUT=30";
    char family[] = "GYRE_SOCKET_FAMILY=AF_INET";
    char *environment[] = {timeout, family, NULL};
    CHECK_OK(gyre_params_from(environment, &params));
    return params;
}

/* As ranks do whose call makes no progress. Returns the words of the rank's end; "" if it did not
 * come. */
static const char *post_until_lost(struct gyre_bootstrap *bootstrap, char *text_out,
                                   size_t text_bytes)
{
    const char message[1024] = "still waiting";
    text_out[0] = '\0';
    for (int passed_ms = 0; passed_ms < END_MS; passed_ms += 250) {
        struct gyre_event event;
        const uint64_t end_ns = gyre_now_ns() + 250000000ULL;
        (void)bootstrap->ops->post(bootstrap, -1, message, sizeof(message));
        while (gyre_now_ns() < end_ns) {
            if (bootstrap->ops->poll(bootstrap, 50, &event) != GYRE_SUCCESS)
                snprintf(text_out, text_bytes, "%s", gyre_cause());
            else if (event.kind == GYRE_EVENT_LOST)
                snprintf(text_out, text_bytes, "%s", event.text);
            if (text_out[0] != '\0')
                return text_out;
        }
    }
    return text_out;
}

/* An id to join or, with `regroups`, a regroup listener's addresses. */
struct task {
    bool regroups;
    gyre_unique_id id;
    struct gyre_sock_list regroup_addresses;
};

static gyre_status go_on(void *context, const bool *missing)
{
    (void)context;
    (void)missing;
    return GYRE_SUCCESS;
}

static struct gyre_regroup regroup_of(const struct gyre_params *params, int rank)
{
    static const uint8_t secret[GYRE_SECRET_BYTES] = {1};
    static const bool is_member[2] = {true, true};
    return (struct gyre_regroup){.params = params,
                                 .secret = secret,
                                 .rank = rank,
                                 .n_ranks = 2,
                                 .is_member = is_member,
                                 .check = go_on};
}

static struct net open_net(void)
{
    struct net net;
    int down[2];
    int up[2];
    char word = 0;
    char line[256];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    CHECK(unshare(CLONE_NEWNET) == 0);
    net.joiner = fork();
    if (net.joiner == 0) {
        const int from_parent = down[0];
        const int to_parent = up[1];
        const struct gyre_params params = network_params();
        const struct gyre_regroup regroup = regroup_of(&params, 1);
        struct gyre_bootstrap *bootstrap = NULL;
        struct task task;
        char text[512] = "";
        char all[2];
        alarm(60);
        if (unshare(CLONE_NEWNET) != 0 || write(to_parent, "n", 1) != 1 ||
            read(from_parent, &task, sizeof(task)) != sizeof(task))
            _exit(1);
        gyre_status status = GYRE_SUCCESS;
        if (task.regroups)
            status = gyre_regroup_join(&task.regroup_addresses, &regroup, &task.id);
        if (status == GYRE_SUCCESS)
            status = open_tcp(&params, &task.id, 2, 1, &bootstrap);
        if (status == GYRE_SUCCESS)
            status = bootstrap->ops->all_gather(bootstrap, "x", 1, all);
        if (status != GYRE_SUCCESS)
            snprintf(text, sizeof(text), "not joined: %s", gyre_cause());
        else
            post_until_lost(bootstrap, text, sizeof(text));
        if (write(to_parent, text, sizeof(text)) != sizeof(text))
            _exit(1);
        /* The namespace keeps the veth pair, of which rank 0 may need its end. */
        for (;;)
            pause();
    }
    close(up[1]);
    net.to_joiner = down[1];
    net.from_joiner = up[0];
    CHECK(read(up[0], &word, 1) == 1);
    snprintf(line, sizeof(line), "ip link add gy0 type veth peer name gy1 netns %d", net.joiner);
    CHECK(run(line) == 0);
    CHECK(run("ip link set lo up && ip link set gy0 up") == 0);
    CHECK(run_at(net.joiner, "ip link set lo up") == 0);
    CHECK(run_at(net.joiner, "ip link set gy1 up") == 0);
    return net;
}

static void add_addresses(const struct net *net)
{
    CHECK(run("ip addr add 10.77.0.1/24 dev gy0") == 0);
    CHECK(run_at(net->joiner, "ip addr add 10.77.0.2/24 dev gy1") == 0);
}

static void close_net(const struct net *net, char *text_out, size_t text_bytes)
{
    struct pollfd entry = {.fd = net->from_joiner, .events = POLLIN};
    memset(text_out, 0, text_bytes);
    CHECK(poll(&entry, 1, 2 * END_MS) == 1 && read(net->from_joiner, text_out, text_bytes) > 0);
    kill(net->joiner, SIGKILL);
    waitpid(net->joiner, NULL, 0);
    close(net->from_joiner);
    close(net->to_joiner);
}

static void hand_out(const struct net *net, const struct task *task)
{
    CHECK(write(net->to_joiner, task, sizeof(*task)) == sizeof(*task));
}

static void lose(const char *command, bool is_at_joiner, const char *words_of_0,
                 const char *words_of_1)
{
    const struct net net = open_net();
    const struct gyre_params params = network_params();
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    char all[2];
    char text[512] = "";
    add_addresses(&net);
    CHECK_OK(gyre_unique_id_create(&params, &id));
    hand_out(&net, &(struct task){.id = id});
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    CHECK((is_at_joiner ? run_at(net.joiner, command) : run(command)) == 0);
    post_until_lost(bootstrap, text, sizeof(text));
    CHECK_MSG(strstr(text, words_of_0) != NULL, "rank 0: \"%s\"", text);
    close_net(&net, text, sizeof(text));
    CHECK_MSG(strstr(text, words_of_1) != NULL, "rank 1: \"%s\"", text);
    bootstrap->ops->close(bootstrap);
}

TEST_CASE("an interface that goes down ends both ranks")
{
    /* The other end of a veth pair loses its carrier, too. */
    lose("ip link set gy0 down", false, "interface gy0 is down", "interface gy1 has no link");
    lose("ip link set gy1 down", true, "interface gy0 has no link", "interface gy1 is down");
}

TEST_CASE("an address that is removed ends both ranks")
{
    lose("ip addr del 10.77.0.1/24 dev gy0", false, "lost its address 10.77.0.1",
         "stopped answering");
    lose("ip addr del 10.77.0.2/24 dev gy1", true, "stopped answering",
         "lost its address 10.77.0.2");
}

TEST_CASE("loss in one direction ends both ranks")
{
    lose("ip neigh replace 10.77.0.2 lladdr 02:00:00:00:77:99 nud permanent dev gy0", false,
         "heard nothing from this host", "stopped answering");
    lose("ip neigh replace 10.77.0.1 lladdr 02:00:00:00:77:99 nud permanent dev gy1", true,
         "stopped answering", "heard nothing from this host");
}

static void add_two_subnets(const struct net *net)
{
    CHECK(run("ip addr add 172.20.9.1/16 dev gy0") == 0);
    add_addresses(net);
}

static void join_and_leave(const struct net *net, const struct gyre_params *params,
                           const gyre_unique_id *id)
{
    struct gyre_bootstrap *bootstrap = NULL;
    char text[512] = "";
    char all[2];
    CHECK_OK(open_tcp(params, id, 2, 0, &bootstrap));
    if (bootstrap != NULL) {
        CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
        bootstrap->ops->close(bootstrap);
    }
    close_net(net, text, sizeof(text));
    CHECK_MSG(strstr(text, "closed its connection") != NULL, "rank 1: \"%s\"", text);
}

TEST_CASE("ranks meet at the second address of an interface")
{
    const struct net net = open_net();
    const struct gyre_params params = network_params();
    gyre_unique_id id;
    add_two_subnets(&net);
    CHECK_OK(gyre_unique_id_create(&params, &id));
    hand_out(&net, &(struct task){.id = id});
    join_and_leave(&net, &params, &id);
}

TEST_CASE("a regroup listener is found at the second address of an interface")
{
    const struct net net = open_net();
    const struct gyre_params params = network_params();
    const struct gyre_regroup regroup = regroup_of(&params, 0);
    struct gyre_sock_listeners listeners = {.n = 0};
    struct task task = {.regroups = true};
    gyre_unique_id id;
    add_two_subnets(&net);
    CHECK_OK(gyre_sock_listen_all(&params, NULL, &listeners, &task.regroup_addresses));
    hand_out(&net, &task);
    CHECK_OK(gyre_regroup_serve(&listeners, &regroup, &id));
    join_and_leave(&net, &params, &id);
    gyre_sock_close_all(&listeners);
}

TEST_CASE("the master's address is tried first")
{
    const struct net net = open_net();
    const struct gyre_params params = network_params();
    struct gyre_id_layout layout;
    gyre_unique_id id;
    char text[64];
    add_two_subnets(&net);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    CHECK_OK(gyre_unique_id_create(&params, &id));
    memcpy(&layout, &id, sizeof(layout));
    const struct gyre_sock_address first = address_of(&layout);
    gyre_sock_to_text(&first, text, sizeof(text));
    CHECK_MSG(strncmp(text, "10.77.0.1:", 10) == 0, "%s", text);
    hand_out(&net, &(struct task){.id = id});
    join_and_leave(&net, &params, &id);
}

TEST_CASE("an id of another host's loopback is an error at once")
{
    const struct net net = open_net();
    const struct gyre_params params = network_params();
    gyre_unique_id id;
    char text[512] = "";
    CHECK_OK(gyre_unique_id_create(&params, &id));
    hand_out(&net, &(struct task){.id = id});
    close_net(&net, text, sizeof(text));
    CHECK_MSG(strstr(text, "on its own host alone") != NULL, "rank 1: \"%s\"", text);
}

TEST_BEFORE
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) != 0)
            _exit(1);
        _exit(run("ip link add gy0 type veth peer name gy1 2>/dev/null && nsenter --version "
                  ">/dev/null 2>&1") == 0
                  ? 0
                  : 1);
    }
    if (!(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
          WEXITSTATUS(status) == 0))
        test_skip_case("two network namespaces need root, ip (iproute2), nsenter (util-linux) and "
                       "the kernel's veth");
    test_n_together = 8;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

const char *const fuzz_collective_names[FUZZ_N_COLLECTIVES] = {
    "all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
    "all_to_all", "gather",    "scatter", "send_recv"};

static const char *const fates[] = {"", ", canceled", ", left out"};

static int describe_peers(const struct fuzz_call *call, char *text, size_t n_bytes)
{
    if (call->kind == FUZZ_SEND_RECV && call->to >= 0 && call->from >= 0)
        return snprintf(text, n_bytes, " to %d, from %d", call->to, call->from);
    if (call->kind == FUZZ_SEND_RECV)
        return snprintf(text, n_bytes, call->to >= 0 ? " to %d" : " from %d",
                        call->to >= 0 ? call->to : call->from);
    if (call->values.is_reduction && call->values.op == FUZZ_PREMUL_SUM)
        return snprintf(text, n_bytes, " premul %lld root %d", (long long)call->values.scalar,
                        call->root);
    if (call->values.is_reduction)
        return snprintf(text, n_bytes, " %s root %d", fuzz_op_names[call->values.op], call->root);
    return snprintf(text, n_bytes, " root %d", call->root);
}

void fuzz_describe(const struct fuzz_rank *rank, const struct fuzz_call *call, char *text_out,
                   size_t n_bytes)
{
    char peers[64], chain[48] = "";
    describe_peers(call, peers, sizeof(peers));
    if (call->chain >= 0)
        snprintf(chain, sizeof(chain), ", sends the result of call %ld",
                 rank->calls[call->chain].index);
    snprintf(text_out, n_bytes,
             "call %ld: %s %zu %s%s on communicator %04x (slot %d, rank %d of %d), stream %d, "
             "send +%zu, recv +%zu%s%s%s%s",
             call->index, fuzz_collective_names[call->kind], call->count,
             fuzz_types[call->values.type].name, peers, (unsigned)(call->comm->uid & 0xffff),
             call->comm->slot, call->comm->rank, call->comm->n_ranks, call->stream, call->send.data,
             call->recv.data, call->is_in_place ? ", in place" : "",
             call->is_windowed ? ", in a window" : "", chain, fates[call->fate]);
}

static void print_group(const struct fuzz_rank *rank, const struct fuzz_group *group)
{
    char text[512];
    const char *kind = group->is_canceled ? "a canceled group" : "a group";
    fprintf(stderr, "    %s%s:\n", group->is_grouped ? kind : "one by one",
            group->is_nested ? " with groups in it" : "");
    for (int i = group->first; i < group->first + group->n_calls; i++) {
        fuzz_describe(rank, &rank->calls[i], text, sizeof(text));
        fprintf(stderr, "      %s%s\n", text,
                atomic_load(&rank->issuing) == i ? "   <- issued last" : "");
    }
}

void fuzz_print_rank(const struct fuzz_rank *rank)
{
    fprintf(stderr, "  rank %d is in round %ld, %s%s\n", rank->world_rank,
            atomic_load(&rank->round), atomic_load(&rank->phase),
            rank->n_replays > 0 ? "; the round is a CUDA graph" : "");
    for (int i = 0; i < rank->n_groups; i++)
        print_group(rank, &rank->groups[i]);
}

void fuzz_print_command(void)
{
    char command[4096];
    fuzz_options_command(command, sizeof(command));
    fprintf(stderr,
            "  repeat: %s\n  cut down: add --stop-at CALL (the last call made), --only A-B\n",
            command);
}

void fuzz_fail(const struct fuzz_rank *rank, enum fuzz_exit verdict, const char *format, ...)
{
    static const char *const headings[] = {"", "WRONG DATA", "HANG", "A CALL FAILED", "CRASH"};
    char text[2048];
    va_list arguments;
    int none = 0;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (!atomic_compare_exchange_strong(&fuzz_shared->verdict, &none, (int)verdict)) {
        fprintf(stderr, "fuzz: rank %d, after the first failure: %s\n",
                rank != NULL ? rank->world_rank : -1, text);
        while (fuzz_options.mode == FUZZ_THREADS || none == FUZZ_HANG)
            pause(); /* the first failure's thread ends the process */
        _exit((int)verdict);
    }
    fprintf(stderr, "fuzz: %s: rank %d, %s: %s\n", headings[verdict],
            rank != NULL ? rank->world_rank : -1,
            rank != NULL ? atomic_load(&rank->phase) : "before its first round", text);
    fuzz_print_command();
    if (rank != NULL)
        fuzz_print_rank(rank);
    _exit((int)verdict);
}

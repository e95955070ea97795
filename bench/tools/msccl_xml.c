/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the XML format of MSCCL: algo, gpu, tb (a thread block) and step. This file checks each
 * element by itself: its words, its ranges, and that the peers and steps that it names exist.
 */
#include "bench/tools/msccl.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES  (64U << 20)
#define MAX_CHUNKS      4096
#define MAX_BLOCKS      4096 /* of a GPU */
#define MAX_CHANNELS    256
#define MAX_TOTAL_MOVES (1 << 22)

const struct bench_msccl_traits bench_msccl_traits[BENCH_MSCCL_N_TYPES] = {
#define TRAITS(id, word, receives, reads_src, reads_dst, writes, sends) \
    {#word, receives, reads_src, reads_dst, writes, sends},
    BENCH_MSCCL_STEP_TABLE(TRAITS)
#undef TRAITS
};

gyre_status bench_msccl_fail(gyre_status status, const struct bench_msccl *algo, int line,
                             const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return gyre_fail(status, "%s, line %d: %s", algo->path, line, text);
}

void bench_msccl_free(struct bench_msccl *algo)
{
    for (int g = 0; algo->gpus != NULL && g < algo->n_gpus; g++) {
        for (int b = 0; b < algo->gpus[g].n_blocks; b++)
            free(algo->gpus[g].blocks[b].steps);
        free(algo->gpus[g].blocks);
    }
    free(algo->gpus);
    memset(algo, 0, sizeof(*algo));
}

#ifdef GYRE_WITH_LIBXML2

#include <libxml/parser.h>
#include <libxml/tree.h>

#define BAD(algo, element, ...) \
    bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, algo, (int)xmlGetLineNo(element), __VA_ARGS__)

static bool is_named(const xmlNode *node, const char *name)
{
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

static int count_children(const xmlNode *element, const char *name)
{
    int n = 0;
    for (const xmlNode *at = element->children; at != NULL; at = at->next)
        n += is_named(at, name);
    return n;
}

/* The attribute as text, cut to the size of the buffer; "" if it is missing. */
static void get_text(const xmlNode *element, const char *name, char *text_out, size_t text_bytes)
{
    xmlChar *value = xmlGetNoNsProp(element, (const xmlChar *)name);
    snprintf(text_out, text_bytes, "%s", value == NULL ? "" : (const char *)value);
    xmlFree(value);
}

/* Read an attribute as a number. @range: the least and the greatest legal number. @fallback: the
 * value of a missing attribute; if it is below the least legal number, the attribute is required.
 */
static gyre_status get_number(const struct bench_msccl *algo, const xmlNode *element,
                              const char *name, const int range[2], int fallback, int *number_out)
{
    char text[32];
    char *end = NULL;
    get_text(element, name, text, sizeof(text));
    const long number = strtol(text, &end, 10);
    if (text[0] == '\0' && fallback >= range[0]) {
        *number_out = fallback;
        return GYRE_SUCCESS;
    }
    if (end == text || *end != '\0' || number < range[0] || number > range[1])
        return BAD(algo, element, "%s: attribute %s is \"%s\"; expected a number from %d to %d",
                   (const char *)element->name, name, text, range[0], range[1]);
    *number_out = (int)number;
    return GYRE_SUCCESS;
}

static gyre_status get_place(const struct bench_msccl *algo, const struct bench_msccl_gpu *gpu,
                             const xmlNode *element, const char *side,
                             struct bench_msccl_step *step, struct bench_msccl_place *place_out)
{
    static const char letters[] = "ios";
    char name[16], word[8];
    snprintf(name, sizeof(name), "%sbuf", side);
    get_text(element, name, word, sizeof(word));
    const char *letter = word[0] == '\0' || word[1] != '\0' ? NULL : strchr(letters, word[0]);
    if (letter == NULL)
        return BAD(algo, element, "step: attribute %s is \"%s\"; expected i, o or s", name, word);
    place_out->buffer = (enum bench_msccl_buffer)(letter - letters);
    snprintf(name, sizeof(name), "%soff", side);
    const int n_chunks = gpu->n_chunks_of[place_out->buffer];
    GYRE_TRY(get_number(algo, element, name, (const int[]){0, MAX_CHUNKS}, -1, &place_out->offset));
    if (place_out->offset + step->n_chunks > n_chunks)
        return BAD(algo, element, "step: chunks %d to %d of buffer %s, which has %d",
                   place_out->offset, place_out->offset + step->n_chunks - 1, word, n_chunks);
    return GYRE_SUCCESS;
}

static gyre_status read_step(const struct bench_msccl *algo, const struct bench_msccl_gpu *gpu,
                             const struct bench_msccl_block *block, const xmlNode *element,
                             struct bench_msccl_step *step)
{
    char word[16];
    int type = 0;
    get_text(element, "type", word, sizeof(word));
    while (type < BENCH_MSCCL_N_TYPES && strcmp(bench_msccl_traits[type].word, word) != 0)
        type++;
    if (type == BENCH_MSCCL_N_TYPES)
        return BAD(algo, element, "step: type \"%s\" is none of s r cpy re rcs rrc rrs rrcs nop",
                   word);
    const struct bench_msccl_traits *traits = &bench_msccl_traits[type];
    step->type = (enum bench_msccl_type)type;
    step->line = (int)xmlGetLineNo(element);
    step->n_chunks = 1;
    GYRE_TRY(
        get_number(algo, element, "depid", (const int[]){-1, MAX_BLOCKS}, -1, &step->dep_block));
    GYRE_TRY(get_number(algo, element, "deps", (const int[]){-1, 1 << 20}, -1, &step->dep_step));
    if (type == BENCH_MSCCL_NOTHING)
        return GYRE_SUCCESS;
    GYRE_TRY(get_number(algo, element, "cnt", (const int[]){1, MAX_CHUNKS}, 1, &step->n_chunks));
    if (traits->reads_src)
        GYRE_TRY(get_place(algo, gpu, element, "src", step, &step->src));
    if (traits->reads_dst || traits->writes)
        GYRE_TRY(get_place(algo, gpu, element, "dst", step, &step->dst));
    if ((traits->sends && block->send_peer < 0) || (traits->receives && block->recv_peer < 0))
        return BAD(algo, element, "step: type %s in a tb without a peer to %s", word,
                   traits->sends && block->send_peer < 0 ? "send to" : "receive from");
    return GYRE_SUCCESS;
}

static gyre_status read_block(const struct bench_msccl *algo, const struct bench_msccl_gpu *gpu,
                              int own, const xmlNode *element, struct bench_msccl_block *block)
{
    const int peers[] = {-1, algo->n_gpus - 1};
    block->line = (int)xmlGetLineNo(element);
    GYRE_TRY(get_number(algo, element, "id", (const int[]){0, MAX_BLOCKS}, -1, &block->id));
    GYRE_TRY(get_number(algo, element, "send", peers, -1, &block->send_peer));
    GYRE_TRY(get_number(algo, element, "recv", peers, -1, &block->recv_peer));
    GYRE_TRY(get_number(algo, element, "chan", (const int[]){0, MAX_CHANNELS}, 0, &block->channel));
    if (block->send_peer == own || block->recv_peer == own)
        return BAD(algo, element, "tb: GPU %d sends to itself", own);
    const int n_steps = count_children(element, "step");
    block->steps = calloc((size_t)n_steps + 1, sizeof(*block->steps));
    if (block->steps == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s: out of memory", algo->path);
    for (const xmlNode *at = element->children; at != NULL; at = at->next) {
        int number = 0;
        if (!is_named(at, "step"))
            continue;
        GYRE_TRY(get_number(algo, at, "s", (const int[]){0, 1 << 20}, block->n_steps, &number));
        if (number != block->n_steps)
            return BAD(algo, at, "step: expected s=\"%d\", found s=\"%d\"", block->n_steps, number);
        GYRE_TRY(read_step(algo, gpu, block, at, &block->steps[block->n_steps]));
        block->n_steps++;
    }
    return GYRE_SUCCESS;
}

/* Replace the ids of thread blocks in dependencies by their indices. */
static gyre_status resolve_dependencies(const struct bench_msccl *algo, struct bench_msccl_gpu *gpu)
{
    for (int b = 0; b < gpu->n_blocks; b++)
        for (int s = 0; s < gpu->blocks[b].n_steps; s++) {
            struct bench_msccl_step *step = &gpu->blocks[b].steps[s];
            if (step->dep_block < 0)
                continue;
            int other = 0;
            while (other < gpu->n_blocks && gpu->blocks[other].id != step->dep_block)
                other++;
            if (other == gpu->n_blocks || step->dep_step < 0 ||
                step->dep_step >= gpu->blocks[other].n_steps)
                return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, algo, step->line,
                                        "step: it depends on step %d of tb %d, which is not there",
                                        step->dep_step, step->dep_block);
            step->dep_block = other;
        }
    return GYRE_SUCCESS;
}

static gyre_status read_gpu(struct bench_msccl *algo, const xmlNode *element)
{
    static const char *const names[] = {"i_chunks", "o_chunks", "s_chunks"};
    int id = 0;
    GYRE_TRY(get_number(algo, element, "id", (const int[]){0, algo->n_gpus - 1}, -1, &id));
    struct bench_msccl_gpu *gpu = &algo->gpus[id];
    if (gpu->line != 0)
        return BAD(algo, element, "gpu: id %d stands in line %d too", id, gpu->line);
    gpu->line = (int)xmlGetLineNo(element);
    for (int i = 0; i < BENCH_MSCCL_N_BUFFERS; i++)
        GYRE_TRY(get_number(algo, element, names[i], (const int[]){0, MAX_CHUNKS}, 0,
                            &gpu->n_chunks_of[i]));
    const int n_blocks = count_children(element, "tb");
    gpu->blocks = calloc((size_t)n_blocks + 1, sizeof(*gpu->blocks));
    if (gpu->blocks == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s: out of memory", algo->path);
    for (const xmlNode *at = element->children; at != NULL; at = at->next)
        if (is_named(at, "tb"))
            GYRE_TRY(read_block(algo, gpu, id, at, &gpu->blocks[gpu->n_blocks++]));
    return resolve_dependencies(algo, gpu);
}

static gyre_status read_collective(struct bench_msccl *algo, const xmlNode *element)
{
    static const struct {
        const char *word;
        enum gyre_collective coll;
    } words[] = {{"allreduce", GYRE_COLL_ALL_REDUCE},
                 {"allgather", GYRE_COLL_ALL_GATHER},
                 {"reducescatter", GYRE_COLL_REDUCE_SCATTER},
                 {"reduce_scatter", GYRE_COLL_REDUCE_SCATTER},
                 {"alltoall", GYRE_COLL_ALL_TO_ALL},
                 {"broadcast", GYRE_COLL_BROADCAST},
                 {"reduce", GYRE_COLL_REDUCE}};
    char word[32];
    get_text(element, "coll", word, sizeof(word));
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++)
        if (gyre_text_same(words[i].word, word)) {
            algo->coll = words[i].coll;
            return GYRE_SUCCESS;
        }
    return bench_msccl_fail(GYRE_ERROR_UNSUPPORTED, algo, (int)xmlGetLineNo(element),
                            "algo: coll is \"%s\"; expected allreduce, allgather, reducescatter, "
                            "alltoall, broadcast or reduce",
                            word);
}

/* A program's name has letters, digits and underscores, 15 at most. */
static void read_name(struct bench_msccl *algo, const xmlNode *element)
{
    get_text(element, "name", algo->name, sizeof(algo->name));
    for (char *at = algo->name; *at != '\0'; at++)
        if (!gyre_text_is_letter(*at) && (*at < '0' || *at > '9'))
            *at = '_';
    if (algo->name[0] == '\0')
        snprintf(algo->name, sizeof(algo->name), "msccl");
}

/* Input and output are one buffer if the algorithm works only in place. Then the letters of input
 * and output both name that buffer, and it is as long as the longer of the two. */
static void find_aliases(struct bench_msccl *algo, int out_of_place)
{
    int n_outputs = 0;
    for (int g = 0; g < algo->n_gpus; g++)
        n_outputs += algo->gpus[g].n_chunks_of[BENCH_MSCCL_OUTPUT];
    algo->is_aliased = out_of_place == 0 || n_outputs == 0;
}

static gyre_status read_algo(struct bench_msccl *algo, const xmlNode *element)
{
    int out_of_place = 1;
    if (element == NULL || !is_named(element, "algo"))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: the outermost element is not algo",
                         algo->path);
    algo->line = (int)xmlGetLineNo(element);
    read_name(algo, element);
    GYRE_TRY(read_collective(algo, element));
    const int gpus[] = {1, BENCH_MSCCL_MAX_GPUS};
    GYRE_TRY(get_number(algo, element, "ngpus", gpus, -1, &algo->n_gpus));
    GYRE_TRY(get_number(algo, element, "nchunksperloop", (const int[]){1, MAX_CHUNKS}, -1,
                        &algo->n_chunks));
    GYRE_TRY(get_number(algo, element, "root", (const int[]){0, algo->n_gpus - 1}, 0, &algo->root));
    GYRE_TRY(get_number(algo, element, "outofplace", (const int[]){0, 1}, 1, &out_of_place));
    algo->gpus = calloc((size_t)algo->n_gpus, sizeof(*algo->gpus));
    if (algo->gpus == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s: out of memory", algo->path);
    for (const xmlNode *at = element->children; at != NULL; at = at->next)
        if (is_named(at, "gpu"))
            GYRE_TRY(read_gpu(algo, at));
    long n_moves = 0;
    for (int g = 0; g < algo->n_gpus; g++) {
        if (algo->gpus[g].line == 0)
            return BAD(algo, element, "algo: ngpus is %d, but gpu %d is missing", algo->n_gpus, g);
        for (int b = 0; b < algo->gpus[g].n_blocks; b++)
            for (int s = 0; s < algo->gpus[g].blocks[b].n_steps; s++)
                n_moves += algo->gpus[g].blocks[b].steps[s].n_chunks;
    }
    if (n_moves > MAX_TOTAL_MOVES)
        return bench_msccl_fail(GYRE_ERROR_UNSUPPORTED, algo, algo->line,
                                "%ld steps of one chunk each; at most %d are translated", n_moves,
                                MAX_TOTAL_MOVES);
    find_aliases(algo, out_of_place);
    return GYRE_SUCCESS;
}

gyre_status bench_msccl_read(const char *path, struct bench_msccl *algo_out)
{
    struct bench_msccl algo = {.path = path};
    char *text = NULL;
    size_t n_bytes = 0;
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, &n_bytes));
    xmlParserCtxt *context = xmlNewParserCtxt();
    xmlDoc *doc = NULL;
    gyre_status status = GYRE_SUCCESS;
    /* Without NOENT and DTDLOAD nothing outside the bytes is read; without HUGE libxml2's own
     * limits on depth and expansion hold. */
    if (context != NULL)
        doc = xmlCtxtReadMemory(context, text, (int)n_bytes, NULL, NULL,
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                    XML_PARSE_BIG_LINES);
    const xmlError *error = context == NULL ? NULL : xmlCtxtGetLastError(context);
    if (doc == NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s, line %d: not well-formed XML: %.200s",
                           path, error != NULL ? error->line : 0,
                           error != NULL && error->message != NULL ? error->message : "");
    else
        status = read_algo(&algo, xmlDocGetRootElement(doc));
    xmlFreeDoc(doc);
    xmlFreeParserCtxt(context);
    free(text);
    if (status == GYRE_SUCCESS)
        *algo_out = algo;
    else
        bench_msccl_free(&algo);
    return status;
}

#else

gyre_status bench_msccl_read(const char *path, struct bench_msccl *algo_out)
{
    (void)algo_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s: this build reads no XML: install libxml2-dev and build again", path);
}

#endif

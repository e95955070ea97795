/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's topology XML, version 1, read into the graph:
 *
 *   <system><cpu numaid><pci busid> (nested: switches) <gpu><nvlink/></gpu> | <nic><net/></nic>
 *
 * The file may come from anywhere. It is read whole under a cap, parsed without network and without
 * entity substitution, refused if it carries a document type, and every number is range-checked.
 */
#include "core/topo/topo.h"

#ifdef GYRE_WITH_LIBXML2

#include "core/base/file.h"
#include "core/base/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libxml/parser.h>
#include <libxml/tree.h>

#define MAX_FILE_BYTES (4u << 20) /* NCCL's dump of an 8-GPU host is about 20 KiB */

struct reader {
    const char *name; /* of the file, for messages */
    struct gyre_topo *topo;
};

static gyre_status bad(const struct reader *reader, const xmlNode *element, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static gyre_status bad(const struct reader *reader, const xmlNode *element, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s:%ld: <%.32s>: %s", reader->name,
                     xmlGetLineNo(element), (const char *)element->name, text);
}

static bool is_named(const xmlNode *node, const char *name)
{
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

/* An attribute's text, "" if it is not there. Too long for its place is an error. */
static gyre_status get_text(const struct reader *reader, const xmlNode *element, const char *name,
                            char *text_out, size_t n_bytes)
{
    text_out[0] = '\0';
    xmlChar *value = xmlGetNoNsProp(element, (const xmlChar *)name);
    if (value == NULL)
        return GYRE_SUCCESS;
    gyre_status status = GYRE_SUCCESS;
    const size_t length = strlen((const char *)value);
    if (length >= n_bytes)
        status = bad(reader, element, "%s is %zu characters long, at most %zu are", name, length,
                     n_bytes - 1);
    else
        memcpy(text_out, value, length + 1);
    xmlFree(value);
    return status;
}

/* A number attribute in decimal, or hexadecimal after 0x; `fallback` if absent or empty. */
static gyre_status get_number(const struct reader *reader, const xmlNode *element, const char *name,
                              long long fallback, long long highest, long long *number_out)
{
    char text[32];
    GYRE_TRY(get_text(reader, element, name, text, sizeof(text)));
    *number_out = fallback;
    if (text[0] == '\0')
        return GYRE_SUCCESS;
    char *end = NULL;
    const bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    errno = 0;
    const long long number = strtoll(text, &end, is_hex ? 16 : 10);
    if (errno != 0 || end == text || *end != '\0' || number < -1 || number > highest)
        return bad(reader, element, "%s=\"%s\" is no number from -1 to %lld", name, text, highest);
    *number_out = number;
    return GYRE_SUCCESS;
}

static gyre_status get_int(const struct reader *reader, const xmlNode *element, const char *name,
                           int32_t fallback, int32_t *number_out)
{
    long long number;
    GYRE_TRY(get_number(reader, element, name, fallback, INT32_MAX, &number));
    *number_out = (int32_t)number;
    return GYRE_SUCCESS;
}

/* As get_int, for counts, rates and classes, which have no -1: it stands for "unknown" there. */
static gyre_status get_uint(const struct reader *reader, const xmlNode *element, const char *name,
                            uint32_t *number_out)
{
    long long number;
    GYRE_TRY(get_number(reader, element, name, 0, INT32_MAX, &number));
    *number_out = number < 0 ? 0 : (uint32_t)number;
    return GYRE_SUCCESS;
}

static gyre_status read_net(const struct reader *reader, const xmlNode *element, int32_t nic)
{
    struct gyre_topo_node net;
    char guid[32], rdma[8];
    gyre_topo_node_init(&net, GYRE_TOPO_NET, nic);
    GYRE_TRY(get_text(reader, element, "name", net.name, sizeof(net.name)));
    if (net.name[0] == '\0')
        return bad(reader, element, "it has no name");
    GYRE_TRY(get_text(reader, element, "netdev", net.netdev, sizeof(net.netdev)));
    GYRE_TRY(get_int(reader, element, "dev", -1, &net.ordinal));
    GYRE_TRY(get_int(reader, element, "port", 1, &net.port));
    GYRE_TRY(get_int(reader, element, "gdr", -1, &net.gdr));
    GYRE_TRY(get_uint(reader, element, "speed", &net.speed_mbit_per_s));
    GYRE_TRY(get_text(reader, element, "guid", guid, sizeof(guid)));
    GYRE_TRY(get_text(reader, element, "rdma", rdma, sizeof(rdma)));
    char *end = guid;
    errno = 0;
    net.guid = strtoull(guid, &end, guid[0] == '0' && guid[1] == 'x' ? 16 : 10);
    if (errno != 0 || *end != '\0')
        return bad(reader, element, "guid=\"%s\" is no number", guid);
    /* NCCL does not say whether a port has RDMA, but numbers the GUIDs of plain interfaces from 0;
     * a real one has its maker's id in the upper half. */
    net.is_rdma = rdma[0] != '\0' ? strcmp(rdma, "1") == 0 : net.guid >> 32 != 0;
    return gyre_topo_add_node(reader->topo, &net, NULL);
}

static gyre_status read_nic(const struct reader *reader, const xmlNode *element,
                            struct gyre_topo_node *nic)
{
    int32_t index;
    nic->kind = GYRE_TOPO_NIC;
    GYRE_TRY(gyre_topo_add_node(reader->topo, nic, &index));
    for (const xmlNode *at = element->children; at != NULL; at = at->next)
        if (is_named(at, "net"))
            GYRE_TRY(read_net(reader, at, index));
    return GYRE_SUCCESS;
}

static gyre_status read_gpu(const struct reader *reader, const xmlNode *element,
                            struct gyre_topo_node *gpu)
{
    gpu->kind = GYRE_TOPO_GPU;
    GYRE_TRY(get_int(reader, element, "dev", -1, &gpu->ordinal));
    GYRE_TRY(get_int(reader, element, "sm", 0, &gpu->arch_sm));
    GYRE_TRY(get_int(reader, element, "rank", -1, &gpu->rank));
    GYRE_TRY(get_int(reader, element, "gdr", -1, &gpu->gdr));
    return gyre_topo_add_node(reader->topo, gpu, NULL);
}

static const xmlNode *child_named(const xmlNode *element, const char *name)
{
    for (const xmlNode *at = element->children; at != NULL; at = at->next)
        if (is_named(at, name))
            return at;
    return NULL;
}

static gyre_status read_children(const struct reader *reader, const xmlNode *element,
                                 int32_t parent, int depth);

static gyre_status read_pci(const struct reader *reader, const xmlNode *element, int32_t parent,
                            int depth)
{
    struct gyre_topo_node node;
    char text[64];
    int32_t index;
    gyre_topo_node_init(&node, GYRE_TOPO_PCI, parent);
    GYRE_TRY(get_text(reader, element, "busid", text, sizeof(text)));
    if (gyre_topo_bus_id_parse(text, node.bus_id) != GYRE_SUCCESS)
        return bad(reader, element, "busid=\"%.40s\" is no PCI bus id", text);
    GYRE_TRY(get_uint(reader, element, "class", &node.pci_class));
    GYRE_TRY(get_uint(reader, element, "link_width", &node.link_width));
    GYRE_TRY(get_text(reader, element, "link_speed", text, sizeof(text)));
    const double gt_per_s =
        gyre_text_to_double(text, NULL); /* "16.0 GT/s PCIe"; "" and "Unknown" give 0 */
    if (gt_per_s > 0.0 && gt_per_s < 1000.0)
        node.link_mt_per_s = (uint32_t)(gt_per_s * 1000.0 + 0.5);
    const xmlNode *gpu = child_named(element, "gpu"), *nic = child_named(element, "nic");
    if (gpu != NULL && nic != NULL)
        return bad(reader, element, "one function is both a GPU and a NIC");
    if (gpu != NULL)
        return read_gpu(reader, gpu, &node);
    if (nic != NULL)
        return read_nic(reader, nic, &node);
    GYRE_TRY(gyre_topo_add_node(reader->topo, &node, &index));
    return read_children(reader, element, index, depth + 1);
}

static gyre_status read_children(const struct reader *reader, const xmlNode *element,
                                 int32_t parent, int depth)
{
    if (depth > GYRE_TOPO_MAX_DEPTH)
        return bad(reader, element, "PCI nodes nest deeper than %d", GYRE_TOPO_MAX_DEPTH);
    for (const xmlNode *at = element->children; at != NULL; at = at->next) {
        gyre_status status = GYRE_SUCCESS;
        if (is_named(at, "pci")) {
            status = read_pci(reader, at, parent, depth);
        } else if (is_named(at, "nic")) {
            struct gyre_topo_node nic;
            gyre_topo_node_init(&nic, GYRE_TOPO_NIC, parent);
            status = read_nic(reader, at, &nic);
        }
        GYRE_TRY(status);
    }
    return GYRE_SUCCESS;
}

static gyre_status read_cpu(const struct reader *reader, const xmlNode *element)
{
    struct gyre_topo_node cpu;
    int32_t index;
    gyre_topo_node_init(&cpu, GYRE_TOPO_CPU, -1);
    GYRE_TRY(get_int(reader, element, "numaid", 0, &cpu.numa_id));
    GYRE_TRY(get_int(reader, element, "familyid", 0, &cpu.family));
    GYRE_TRY(get_int(reader, element, "modelid", 0, &cpu.model));
    GYRE_TRY(get_text(reader, element, "arch", cpu.arch, sizeof(cpu.arch)));
    GYRE_TRY(get_text(reader, element, "vendor", cpu.vendor, sizeof(cpu.vendor)));
    GYRE_TRY(get_text(reader, element, "affinity", cpu.affinity, sizeof(cpu.affinity)));
    GYRE_TRY(gyre_topo_add_node(reader->topo, &cpu, &index));
    return read_children(reader, element, index, 1);
}

/* ---- links: after all nodes are there ------------------------------------------------------ */

/* Where an nvlink element leads: the switch (made on first use), a GPU, or -1 for one that is not
 * in the file, as when a container shows a part of the machine. */
static gyre_status find_target(const struct reader *reader, const xmlNode *element, int32_t *to_out)
{
    char target[64];
    uint32_t target_class;
    GYRE_TRY(get_uint(reader, element, "tclass", &target_class));
    GYRE_TRY(get_text(reader, element, "target", target, sizeof(target)));
    if (target_class == 0x068000) {
        struct gyre_topo_node node;
        gyre_topo_node_init(&node, GYRE_TOPO_NVSWITCH, -1);
        *to_out = gyre_topo_next(reader->topo, GYRE_TOPO_NVSWITCH, 0);
        return *to_out >= 0 ? GYRE_SUCCESS : gyre_topo_add_node(reader->topo, &node, to_out);
    }
    *to_out = gyre_topo_find_bus_id(reader->topo, target);
    if (*to_out >= 0 && reader->topo->nodes[*to_out].kind != GYRE_TOPO_GPU)
        *to_out = -1;
    return GYRE_SUCCESS;
}

static gyre_status read_link(const struct reader *reader, const xmlNode *element, int32_t gpu)
{
    struct gyre_topo_link link = {.kind = GYRE_TOPO_NVLINK, .from = gpu, .to = -1};
    if (is_named(element, "nvlink")) {
        GYRE_TRY(find_target(reader, element, &link.to));
    } else if (is_named(element, "c2c")) {
        uint32_t mb_per_s;
        link.kind = GYRE_TOPO_C2CLINK;
        for (link.to = gpu; reader->topo->nodes[link.to].parent >= 0;)
            link.to = reader->topo->nodes[link.to].parent;
        GYRE_TRY(get_uint(reader, element, "bw", &mb_per_s));
        link.bytes_per_ns = mb_per_s / 1000.0;
    } else {
        return GYRE_SUCCESS;
    }
    GYRE_TRY(get_uint(reader, element, "count", &link.n_lanes));
    if (link.n_lanes == 0 || link.n_lanes > 1024)
        return bad(reader, element, "count=\"%u\" is not from 1 to 1024", link.n_lanes);
    if (link.to < 0 || link.to == gpu)
        return GYRE_SUCCESS;
    link.bytes_per_ns *= link.n_lanes;
    return gyre_topo_add_link(reader->topo, &link);
}

static gyre_status read_links(const struct reader *reader, const xmlNode *element)
{
    for (const xmlNode *at = element->children; at != NULL; at = at->next) {
        if (!is_named(at, "pci"))
            continue;
        const xmlNode *gpu = child_named(at, "gpu");
        if (gpu == NULL) {
            GYRE_TRY(read_links(reader, at));
            continue;
        }
        char bus_id[64];
        GYRE_TRY(get_text(reader, at, "busid", bus_id, sizeof(bus_id)));
        const int32_t index = gyre_topo_find_bus_id(reader->topo, bus_id);
        for (const xmlNode *link = gpu->children; link != NULL; link = link->next)
            GYRE_TRY(read_link(reader, link, index));
    }
    return GYRE_SUCCESS;
}

static gyre_status read_system(const struct reader *reader, const xmlDoc *doc)
{
    const xmlNode *system = xmlDocGetRootElement((xmlDoc *)(uintptr_t)doc);
    int32_t version;
    if (system == NULL || !is_named(system, "system"))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s is no topology: it has no <system>",
                         reader->name);
    GYRE_TRY(get_int(reader, system, "version", 1, &version));
    if (version != 1)
        return bad(reader, system, "version is %d; only 1 is known", version);
    for (const xmlNode *at = system->children; at != NULL; at = at->next)
        if (is_named(at, "cpu"))
            GYRE_TRY(read_cpu(reader, at));
    if (reader->topo->n_nodes == 0)
        return bad(reader, system, "it has no <cpu>");
    for (const xmlNode *at = system->children; at != NULL; at = at->next)
        if (is_named(at, "cpu"))
            GYRE_TRY(read_links(reader, at));
    return GYRE_SUCCESS;
}

gyre_status gyre_topo_xml_parse(const char *name, const char *bytes, size_t n_bytes,
                                struct gyre_topo *topo_out)
{
    struct gyre_topo topo;
    const struct reader reader = {name, &topo};
    gyre_status status;
    if (n_bytes > MAX_FILE_BYTES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s is larger than %u bytes", name,
                         MAX_FILE_BYTES);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, xmlInitParser); /* ranks that are threads read their file side by side */
    xmlParserCtxt *context = xmlNewParserCtxt();
    if (context == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "XML parser for %s", name);
    gyre_topo_init(&topo);
    /* Without NOENT and DTDLOAD nothing outside the bytes is read; without HUGE libxml2's own
     * limits on depth and expansion hold. */
    xmlDoc *doc = xmlCtxtReadMemory(context, bytes, (int)n_bytes, NULL, NULL,
                                    XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
    const xmlError *error = xmlCtxtGetLastError(context);
    if (doc == NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s:%d: not well-formed XML: %.200s", name,
                           error != NULL ? error->line : 0,
                           error != NULL && error->message != NULL ? error->message : "");
    else if (doc->intSubset != NULL || doc->extSubset != NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                           "%s has a document type, which a topology never needs", name);
    else
        status = read_system(&reader, doc);
    xmlFreeDoc(doc);
    xmlFreeParserCtxt(context);
    if (status == GYRE_SUCCESS)
        *topo_out = topo;
    else
        gyre_topo_fini(&topo);
    return status;
}

gyre_status gyre_topo_xml_read(const char *path, struct gyre_topo *topo_out)
{
    char *bytes = NULL;
    size_t n_bytes = 0;
    gyre_status status = gyre_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "cannot read topology");
    status = gyre_topo_xml_parse(path, bytes, n_bytes, topo_out);
    free(bytes);
    return status;
}

#else

static gyre_status unsupported(const char *name)
{
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s: this build reads no topology files: install libxml2-dev and build again",
                     name);
}

gyre_status gyre_topo_xml_parse(const char *name, const char *bytes, size_t n_bytes,
                                struct gyre_topo *topo_out)
{
    (void)bytes;
    (void)n_bytes;
    (void)topo_out;
    return unsupported(name);
}

gyre_status gyre_topo_xml_read(const char *path, struct gyre_topo *topo_out)
{
    (void)topo_out;
    return unsupported(path);
}

#endif

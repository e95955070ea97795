/* SPDX-License-Identifier: Apache-2.0
 *
 * <system><cpu numaid><pci busid> (nested: switches) <gpu><nvlink/></gpu>, or <nic><net/></nic>
 *
 * The file is untrusted, so numbers are range-checked.
 */
#include "core/foundation/topo/topo.h"

#ifdef GYRE_WITH_LIBXML2
#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libxml/parser.h>
#include <libxml/tree.h>

#define MAX_FILE_BYTES (4u << 20) /* NCCL's of 8 GPUs has about 20 KiB */

/* a class's upper part (PCI Code and ID Assignment Specification) */
enum { PCI_NETWORK = 0x02, PCI_DISPLAY = 0x03, PCI_ACCELERATOR = 0x12 };

#define SKIPPED_TABLE(X)                                          \
    X(VERSION, "unknown version of the format")                   \
    X(HOST, "CPUs of other hosts than the first one")             \
    X(DEVICE, "devices that stand there twice")                   \
    X(NAMELESS, "network ports without a name")                   \
    X(SWITCH, "switches that nest too deeply (devices are kept)") \
    X(ELEMENT, "elements of unknown names")                       \
    X(LINK, "links to what is no GPU or switch in the file")      \
    X(TEXT, "attributes whose values are not understood")         \
    X(NAME, "ends of long names")

enum skipped {
#define SKIPPED_ENUM(id, words) SKIPPED_##id,
    SKIPPED_TABLE(SKIPPED_ENUM)
#undef SKIPPED_ENUM
        N_SKIPPED
};

struct reader {
    const char *name;
    struct gyre_topo *topo;
    uint32_t n_skipped[N_SKIPPED];
};

static bool is_named(const xmlNode *node, const char *name)
{
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

static void count_unknown(struct reader *reader, const xmlNode *node, const char *names)
{
    const size_t n_name = node->type == XML_ELEMENT_NODE ? strlen((const char *)node->name) : 0;
    for (const char *at = names; n_name > 0 && at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, (const char *)node->name, n_name) == 0 && strchr(" ", at[n_name]) != NULL)
            return;
    }
    reader->n_skipped[SKIPPED_ELEMENT] += n_name > 0;
}

static void get_text(struct reader *reader, xmlNode *element, const char *name, bool is_name,
                     char *text_out, size_t n_bytes)
{
    xmlChar *value = xmlGetNoNsProp(element, (const xmlChar *)name);
    text_out[0] = '\0';
    if (value == NULL)
        return;
    const bool is_long = strlen((const char *)value) >= n_bytes;
    if (is_name || !is_long)
        gyre_text_to_utf8((const char *)value, text_out, n_bytes);
    reader->n_skipped[is_name ? SKIPPED_NAME : SKIPPED_TEXT] += is_long;
    xmlFree(value);
}

/* Decimal, or hexadecimal after 0x; `fallback` = no number from -1 to INT32_MAX. */
static int32_t get_int(struct reader *reader, xmlNode *element, const char *name, int32_t fallback)
{
    char text[32], *end;
    get_text(reader, element, name, false, text, sizeof(text));
    const double number = gyre_text_to_double(text, &end);
    if (text[0] == '\0')
        return fallback;
    if (end != text && end[strspn(end, " ")] == '\0' && number >= -1 && number <= INT32_MAX)
        return (int32_t)number;
    reader->n_skipped[SKIPPED_TEXT]++;
    return fallback;
}

static uint32_t get_uint(struct reader *reader, xmlNode *element, const char *name)
{
    const int32_t number = get_int(reader, element, name, 0);
    return number < 0 ? 0 : (uint32_t)number;
}

static void get_bus_id(struct reader *reader, xmlNode *element, char *bus_id_out)
{
    char text[64];
    get_text(reader, element, "busid", false, text, sizeof(text));
    bus_id_out[0] = '\0';
    if (text[0] == '\0')
        return;
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (gyre_topo_bus_id_parse(text, bus_id_out) == GYRE_SUCCESS)
        return;
    gyre_set_cause(cause);
    reader->n_skipped[SKIPPED_TEXT]++;
}

static gyre_status add_node(const struct reader *reader, const xmlNode *element,
                            const struct gyre_topo_node *node, int32_t *index_out)
{
    const gyre_status status = gyre_topo_add_node(reader->topo, node, index_out);
    return status == GYRE_SUCCESS
               ? status
               : gyre_fail_context(status, "%s:%ld: <%.32s>", reader->name, xmlGetLineNo(element),
                                   (const char *)element->name);
}

static gyre_status read_nets(struct reader *reader, const xmlNode *element, int32_t nic)
{
    for (xmlNode *at = element->children; at != NULL; at = at->next) {
        count_unknown(reader, at, "net");
        if (is_named(at, "net")) {
            struct gyre_topo_node net;
            char rdma[8];
            gyre_topo_node_init(&net, GYRE_TOPO_NET, nic);
            get_text(reader, at, "name", true, net.name, sizeof(net.name));
            get_text(reader, at, "netdev", false, net.netdev, sizeof(net.netdev));
            get_text(reader, at, "rdma", false, rdma, sizeof(rdma));
            net.ordinal = get_int(reader, at, "dev", -1);
            net.port = get_int(reader, at, "port", 1);
            net.gdr = get_int(reader, at, "gdr", -1);
            net.speed_mbit_per_s = get_uint(reader, at, "speed");
            char text[32], *end;
            get_text(reader, at, "guid", false, text, sizeof(text));
            errno = 0;
            const uint64_t guid =
                strtoull(text, &end, text[0] == '0' && (text[1] | 32) == 'x' ? 16 : 10);
            const bool is_number = errno == 0 && *end == '\0';
            reader->n_skipped[SKIPPED_TEXT] += !is_number;
            net.guid = is_number ? guid : 0;
            /* NCCL numbers interfaces without RDMA from 0; a real GUID's upper half has its maker's
             * id. */
            net.is_rdma = rdma[0] != '\0' ? strcmp(rdma, "1") == 0 : net.guid >> 32 != 0;
            reader->n_skipped[SKIPPED_NAMELESS] += net.name[0] == '\0';
            GYRE_TRY(net.name[0] == '\0' ? GYRE_SUCCESS : add_node(reader, at, &net, NULL));
        }
    }
    return GYRE_SUCCESS;
}

/* Virtual machines' files list only functions; their classes say what they are. */
static enum gyre_topo_kind kind_of(const xmlNode *element, uint32_t pci_class)
{
    const uint32_t class = pci_class >> 16;
    bool has_nic = false, is_switch = false;
    for (const xmlNode *at = element->children; at != NULL; at = at->next) {
        if (is_named(at, "gpu"))
            return GYRE_TOPO_GPU;
        has_nic = has_nic || is_named(at, "nic");
        is_switch = is_switch || is_named(at, "pci");
    }
    if (has_nic || (class == PCI_NETWORK && !is_switch))
        return GYRE_TOPO_NIC;
    return (class == PCI_DISPLAY || class == PCI_ACCELERATOR) && !is_switch ? GYRE_TOPO_GPU
                                                                            : GYRE_TOPO_PCI;
}

static gyre_status read_children(struct reader *reader, const xmlNode *element, int32_t parent,
                                 int depth);

static gyre_status read_pci(struct reader *reader, xmlNode *element, int32_t parent, int depth)
{
    struct gyre_topo_node node;
    char text[64];
    int32_t nic = -1;
    bool is_read = false;
    gyre_topo_node_init(&node, GYRE_TOPO_PCI, parent);
    get_bus_id(reader, element, node.bus_id);
    node.pci_class = get_uint(reader, element, "class");
    node.link_width = get_uint(reader, element, "link_width");
    get_text(reader, element, "link_speed", false, text, sizeof(text));
    const double gt_per_s = gyre_text_to_double(text, NULL);
    if (gt_per_s > 0.0 && gt_per_s < 1000.0)
        node.link_mt_per_s = (uint32_t)(gt_per_s * 1000.0 + 0.5);
    const enum gyre_topo_kind kind = kind_of(element, node.pci_class);
    if (node.bus_id[0] != '\0' && gyre_topo_find_bus_id(reader->topo, node.bus_id) >= 0) {
        reader->n_skipped[SKIPPED_DEVICE] += kind != GYRE_TOPO_PCI;
        if (kind != GYRE_TOPO_PCI)
            return GYRE_SUCCESS;
        node.bus_id[0] = '\0';
    }
    for (xmlNode *at = element->children; at != NULL; at = at->next) {
        if (!is_named(at, "gpu"))
            continue;
        struct gyre_topo_node gpu = node;
        int32_t index;
        gpu.kind = GYRE_TOPO_GPU;
        gpu.ordinal = get_int(reader, at, "dev", -1);
        gpu.arch_sm = get_int(reader, at, "sm", 0);
        gpu.rank = get_int(reader, at, "rank", -1);
        gpu.gdr = get_int(reader, at, "gdr", -1);
        GYRE_TRY(add_node(reader, at, &gpu, &index));
        at->_private = (void *)(intptr_t)(index + 1);
        is_read = true;
    }
    node.kind = kind == GYRE_TOPO_GPU && is_read ? GYRE_TOPO_NIC : kind;
    if (node.kind != kind)
        node.bus_id[0] = '\0';
    for (xmlNode *at = element->children; at != NULL; at = at->next) {
        if (!is_named(at, "nic"))
            continue;
        if (nic < 0)
            GYRE_TRY(add_node(reader, at, &node, &nic));
        GYRE_TRY(read_nets(reader, at, nic));
        is_read = true;
    }
    if (kind == GYRE_TOPO_PCI && depth > GYRE_TOPO_MAX_DEPTH - 2) {
        reader->n_skipped[SKIPPED_SWITCH]++;
    } else if (!is_read) {
        int32_t index;
        if (kind == GYRE_TOPO_GPU)
            node.ordinal = gyre_topo_count(reader->topo, GYRE_TOPO_GPU);
        GYRE_TRY(add_node(reader, element, &node, &index));
        parent = kind == GYRE_TOPO_PCI ? index : parent;
    }
    return read_children(reader, element, parent, depth + 1);
}

static gyre_status read_children(struct reader *reader, const xmlNode *element, int32_t parent,
                                 int depth)
{
    const bool is_cpu = is_named(element, "cpu");
    for (xmlNode *at = element->children; at != NULL; at = at->next) {
        count_unknown(reader, at, is_cpu ? "pci nic" : "pci nic gpu pcilink");
        if (is_named(at, "pci")) {
            GYRE_TRY(read_pci(reader, at, parent, depth));
        } else if (is_named(at, "nic") && is_cpu) {
            struct gyre_topo_node nic;
            int32_t index;
            gyre_topo_node_init(&nic, GYRE_TOPO_NIC, parent);
            GYRE_TRY(add_node(reader, at, &nic, &index));
            GYRE_TRY(read_nets(reader, at, index));
        }
    }
    return GYRE_SUCCESS;
}

static gyre_status read_link(struct reader *reader, xmlNode *element, int32_t gpu)
{
    struct gyre_topo_link link = {.kind = GYRE_TOPO_NVLINK, .from = gpu, .to = -1};
    if (is_named(element, "nvlink") || is_named(element, "xgmi")) {
        /* The switch (made on first use), a GPU, or -1 = not in the file. */
        char target[64];
        get_text(reader, element, "target", false, target, sizeof(target));
        if (get_uint(reader, element, "tclass") == 0x068000) {
            struct gyre_topo_node node;
            gyre_topo_node_init(&node, GYRE_TOPO_NVSWITCH, -1);
            link.to = gyre_topo_next(reader->topo, GYRE_TOPO_NVSWITCH, 0);
            if (link.to < 0)
                GYRE_TRY(add_node(reader, element, &node, &link.to));
        } else {
            link.to = gyre_topo_find_bus_id(reader->topo, target);
            if (link.to >= 0 && reader->topo->nodes[link.to].kind != GYRE_TOPO_GPU)
                link.to = -1;
        }
        if (is_named(element, "xgmi")) {
            /* One link, one direction. "bw" is gyre's own; else as RCCL counts (src/graph/topo.h).
             */
            char gcn[16]; /* "gfx942", or "942" in version 1, where "910" is gfx90a */
            const uint32_t mb_per_s = get_uint(reader, element, "bw");
            get_text(reader, element->parent, "gcn", true, gcn, sizeof(gcn));
            const char *model = strncmp(gcn, "gfx", 3) == 0 ? gcn + 3 : gcn;
            if (mb_per_s > 0)
                link.bytes_per_ns = mb_per_s / 1000.0;
            else if (strncmp(model, "94", 2) == 0 || strncmp(model, "95", 2) == 0)
                link.bytes_per_ns = 48.0;
            else
                link.bytes_per_ns =
                    strcmp(model, "90a") == 0 || strcmp(model, "910") == 0 ? 36.0 : 24.0;
        }
    } else if (is_named(element, "c2c")) {
        link.kind = GYRE_TOPO_C2CLINK;
        for (link.to = gpu; reader->topo->nodes[link.to].parent >= 0;)
            link.to = reader->topo->nodes[link.to].parent;
        link.bytes_per_ns = get_uint(reader, element, "bw") / 1000.0;
    } else {
        return GYRE_SUCCESS;
    }
    const int32_t n_lanes = get_int(reader, element, "count", -1);
    if (n_lanes == 0 || link.to == gpu)
        return GYRE_SUCCESS;
    if (link.to < 0 || n_lanes < 0 || n_lanes > 1024) {
        reader->n_skipped[link.to < 0 ? SKIPPED_LINK : SKIPPED_TEXT]++;
        return GYRE_SUCCESS;
    }
    link.n_lanes = (uint32_t)n_lanes;
    link.bytes_per_ns *= link.n_lanes;
    const gyre_status status = gyre_topo_add_link(reader->topo, &link);
    return status == GYRE_SUCCESS
               ? status
               : gyre_fail_context(status, "%s:%ld", reader->name, xmlGetLineNo(element));
}

static gyre_status read_links(struct reader *reader, const xmlNode *element)
{
    for (xmlNode *at = element->children; at != NULL; at = at->next) {
        const int32_t gpu = (int32_t)(intptr_t)at->_private - 1;
        if (at->type != XML_ELEMENT_NODE)
            continue;
        for (xmlNode *link = at->children; gpu >= 0 && link != NULL; link = link->next) {
            count_unknown(reader, link, "nvlink xgmi c2c");
            GYRE_TRY(read_link(reader, link, gpu));
        }
        if (gpu < 0)
            GYRE_TRY(read_links(reader, at));
    }
    return GYRE_SUCCESS;
}

static gyre_status read_system(struct reader *reader, const xmlDoc *doc)
{
    xmlNode *system = xmlDocGetRootElement((xmlDoc *)(uintptr_t)doc);
    char first_host[32] = "", host[32];
    if (system == NULL || !is_named(system, "system"))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s is no topology: it has no <system>. NCCL_TOPO_DUMP_FILE makes one",
                         reader->name);
    const int32_t version = get_int(reader, system, "version", 1);
    reader->n_skipped[SKIPPED_VERSION] += version != 1 && version != 2;
    for (xmlNode *at = system->children; at != NULL; at = at->next) {
        count_unknown(reader, at, "cpu");
        if (!is_named(at, "cpu"))
            continue;
        get_text(reader, at, "host_hash", false, host, sizeof(host));
        if (reader->topo->n_nodes == 0)
            memcpy(first_host, host, sizeof(host));
        if (strcmp(first_host, host) == 0) {
            struct gyre_topo_node cpu;
            gyre_topo_node_init(&cpu, GYRE_TOPO_CPU, -1);
            cpu.numa_id = get_int(reader, at, "numaid", 0);
            cpu.family = get_int(reader, at, "familyid", 0);
            cpu.model = get_int(reader, at, "modelid", 0);
            get_text(reader, at, "arch", true, cpu.arch, sizeof(cpu.arch));
            get_text(reader, at, "vendor", true, cpu.vendor, sizeof(cpu.vendor));
            get_text(reader, at, "affinity", false, cpu.affinity, sizeof(cpu.affinity));
            int32_t index = gyre_topo_find_numa(reader->topo, cpu.numa_id);
            if (index < 0)
                GYRE_TRY(add_node(reader, at, &cpu, &index));
            GYRE_TRY(read_children(reader, at, index, 1));
        } else
            reader->n_skipped[SKIPPED_HOST]++;
    }
    if (reader->topo->n_nodes == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: <system> has no <cpu>", reader->name);
    GYRE_TRY(read_links(reader, system));
    static const char *const words[] = {
#define SKIPPED_WORDS(id, words) words,
        SKIPPED_TABLE(SKIPPED_WORDS)
#undef SKIPPED_WORDS
    };
    struct gyre_topo *topo = reader->topo;
    for (int i = 0; i < N_SKIPPED; i++)
        if (reader->n_skipped[i] > 0)
            gyre_text_append(topo->skipped, sizeof(topo->skipped), "%s%u %s",
                             topo->skipped[0] != '\0' ? ", " : "", reader->n_skipped[i], words[i]);
    if (topo->skipped[0] != '\0')
        GYRE_INFO(INIT, "topology %s: skipped %s", reader->name, topo->skipped);
    return GYRE_SUCCESS;
}

gyre_status gyre_topo_xml_parse(const char *name, const char *bytes, size_t n_bytes,
                                struct gyre_topo *topo_out)
{
    struct gyre_topo topo;
    struct reader reader = {.name = name, .topo = &topo};
    gyre_status status;
    if (n_bytes > MAX_FILE_BYTES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s is larger than %u bytes: keep the part of this host", name,
                         MAX_FILE_BYTES);
    if (n_bytes == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s is empty. NCCL_TOPO_DUMP_FILE makes a topology file", name);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, xmlInitParser);
    xmlParserCtxt *context = xmlNewParserCtxt();
    if (context == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "XML parser for %s", name);
    gyre_topo_init(&topo);
    /* Without NOENT and DTDLOAD nothing outside is read; without HUGE depth and expansion are
     * limited. */
    xmlDoc *doc = xmlCtxtReadMemory(context, bytes, (int)n_bytes, NULL, NULL,
                                    XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
    const xmlError *error = xmlCtxtGetLastError(context);
    if (doc == NULL)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s:%d: not well-formed XML: %.200s", name,
                           error != NULL ? error->line : 0,
                           error != NULL && error->message != NULL ? error->message : "");
    else if (doc->extSubset != NULL || (doc->intSubset != NULL && doc->intSubset->children != NULL))
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                           "%s declares a document type, which a topology never needs: take out "
                           "<!DOCTYPE ... [...]>",
                           name);
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
    GYRE_FREED char *bytes = NULL;
    size_t n_bytes = 0;
    const gyre_status status = gyre_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "cannot read topology");
    return gyre_topo_xml_parse(path, bytes, n_bytes, topo_out);
}

#else

gyre_status gyre_topo_xml_parse(const char *name, const char *bytes, size_t n_bytes,
                                struct gyre_topo *topo_out)
{
    (void)bytes, (void)n_bytes, (void)topo_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s: this build reads no topology files: install libxml2-dev and build again",
                     name);
}

gyre_status gyre_topo_xml_read(const char *path, struct gyre_topo *topo_out)
{
    return gyre_topo_xml_parse(path, NULL, 0, topo_out);
}

#endif

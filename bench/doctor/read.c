/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/machine.h"

#include "bench/doctor/trial.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_BYTES    ((size_t)64 << 20)
#define VENDOR_NVIDIA 0x10de
#define MOST_CPUS     4096
#define PROGRAM_BYTES ((size_t)64 << 10)
#define PROGRAM_NS    5000000000ULL

struct block {
    struct block *next;
    max_align_t bytes[];
};

/* Only so that a leak checker sees that nothing is lost. */
static struct block *blocks;

void *bench_keep(size_t n, size_t item_bytes)
{
    struct block *block = calloc(1, sizeof(*block) + (n == 0 ? 1 : n) * item_bytes);
    if (block == NULL) {
        fputs("gyre doctor: no memory\n", stderr);
        exit(3);
    }
    block->next = blocks;
    blocks = block;
    return block->bytes;
}

void *bench_grow(void *list, int n, size_t item_bytes)
{
    if ((n & (n - 1)) != 0)
        return list;
    void *more = bench_keep(n == 0 ? 1 : 2 * (size_t)n, item_bytes);
    return n == 0 ? more : memcpy(more, list, (size_t)n * item_bytes);
}

char *bench_text(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = bench_keep((size_t)n + 1, 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)n + 1, format, arguments);
    va_end(arguments);
    return text;
}

const char *bench_root = "";

static const char *below_root(const char *path)
{
    return bench_text("%s%s", bench_root, path);
}

static enum bench_read result_of(int error_number)
{
    switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EINVAL: /* sysfs has no value now */
    case ENODEV:
    case ENXIO:
    case ENODATA:
    case EOPNOTSUPP:
        return BENCH_READ_ABSENT;
    case EACCES:
    case EPERM:
        return BENCH_READ_DENIED;
    default:
        return BENCH_READ_BROKEN;
    }
}

enum bench_read bench_read_bytes(const char *path, void *bytes_out, size_t n_max, size_t *n_out)
{
    *n_out = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return result_of(errno);
    enum bench_read result = BENCH_READ_OK;
    while (*n_out < n_max) {
        const ssize_t n = read(fd, (char *)bytes_out + *n_out, n_max - *n_out);
        if (n < 0 && (errno == EINTR || errno == EPIPE))
            continue; /* EPIPE: /dev/kmsg overwrote a message, the next follows */
        if (n < 0 && errno != EAGAIN && *n_out == 0)
            result = result_of(errno);
        if (n <= 0)
            break;
        *n_out += (size_t)n;
    }
    close(fd);
    return result;
}

/* Trims blanks at the end. A text that is empty or has a NUL is broken. */
static enum bench_read finish_text(enum bench_read result, char *text, size_t n)
{
    text[n] = '\0';
    while (result == BENCH_READ_OK && n > 0 && gyre_text_is_space(text[n - 1]))
        text[--n] = '\0';
    if (result == BENCH_READ_OK && (n == 0 || strlen(text) != n))
        result = BENCH_READ_BROKEN;
    if (result != BENCH_READ_OK)
        text[0] = '\0';
    return result;
}

enum bench_read bench_read_text(const char *path, char *text_out, size_t text_bytes)
{
    size_t n = 0;
    const enum bench_read result = bench_read_bytes(below_root(path), text_out, text_bytes - 1, &n);
    return finish_text(result, text_out, n);
}

enum bench_read bench_read_all(const char *path, char **text_out)
{
    *text_out = NULL;
    for (size_t n_max = (size_t)1 << 20;; n_max *= 4) {
        size_t n = 0;
        char *bytes = malloc(n_max + 1);
        enum bench_read result = bytes == NULL
                                     ? BENCH_READ_BROKEN
                                     : bench_read_bytes(below_root(path), bytes, n_max, &n);
        if (n < n_max || n_max >= MOST_BYTES) {
            char *text = bench_keep(n + 1, 1);
            if (n > 0)
                memcpy(text, bytes, n);
            result = finish_text(result, text, n);
            *text_out = result == BENCH_READ_OK ? text : NULL;
        }
        free(bytes);
        if (n < n_max || n_max >= MOST_BYTES)
            return result;
    }
}

/* In the child. Programs of administrators are often not in PATH. */
static void execute(int output, const void *command)
{
    char *words[8] = {NULL}, *rest = strdup(command);
    for (int i = 0; i < 7 && rest != NULL; i++)
        words[i] = strsep(&rest, " ");
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(output, 1);
    dup2(null, 2);
    if (words[0] != NULL) {
        execvp(words[0], words);
        execv(bench_text("/usr/sbin/%s", words[0]), words);
    }
    _exit(127);
}

enum bench_read bench_read_program(const char *command, char **text_out)
{
    struct bench_child child;
    int status = -1;
    ssize_t n_read = 0;
    size_t n = 0;
    *text_out = NULL;
    if (bench_root[0] != '\0')
        return bench_read_all(bench_text("/programs/%.120s", command), text_out);
    if (bench_child_start(execute, command, &child) != GYRE_SUCCESS)
        return BENCH_READ_BROKEN;
    char *text = bench_keep(PROGRAM_BYTES, 1);
    const uint64_t end_ns = gyre_now_ns() + PROGRAM_NS;
    do {
        const uint64_t now_ns = gyre_now_ns();
        const int left_ms = now_ns < end_ns ? (int)((end_ns - now_ns) / 1000000) : 0;
        n_read = bench_child_read(&child, left_ms, text + n, PROGRAM_BYTES - 1 - n);
        n += n_read > 0 ? (size_t)n_read : 0;
    } while (n_read > 0);
    if (n_read < 0)
        kill(-child.pid, SIGKILL);
    close(child.fd);
    waitpid(child.pid, &status, 0);
    const enum bench_read result = WIFEXITED(status) && WEXITSTATUS(status) == 0
                                       ? finish_text(BENCH_READ_OK, text, n)
                                       : BENCH_READ_ABSENT;
    *text_out = result == BENCH_READ_OK ? text : NULL;
    return result;
}

bool bench_text_to_number(const char *text, int64_t *number_out)
{
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
    if (end == text || errno != 0)
        return false;
    while (gyre_text_is_space(*end))
        end++;
    *number_out = number;
    return *end == '\0';
}

enum bench_read bench_read_number(const char *path, int64_t *number_out)
{
    char text[64];
    const enum bench_read result = bench_read_text(path, text, sizeof(text));
    if (result != BENCH_READ_OK)
        return result;
    return bench_text_to_number(text, number_out) ? BENCH_READ_OK : BENCH_READ_BROKEN;
}

enum bench_read bench_read_link(const char *path, char *name_out, size_t name_bytes)
{
    char target[PATH_MAX];
    name_out[0] = '\0';
    const ssize_t n = readlink(below_root(path), target, sizeof(target) - 1);
    if (n <= 0)
        return result_of(errno);
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(name_out, name_bytes, "%s", slash == NULL ? target : slash + 1);
    return name_out[0] == '\0' ? BENCH_READ_BROKEN : BENCH_READ_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(a, b);
}

int bench_read_names(const char *path, char (**names_out)[BENCH_NAME_BYTES])
{
    char(*names)[BENCH_NAME_BYTES] = NULL;
    int n = 0;
    DIR *folder = opendir(below_root(path));
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= BENCH_NAME_BYTES)
            continue;
        names = bench_grow(names, n, sizeof(*names));
        snprintf(names[n++], sizeof(names[0]), "%.63s", entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    if (n > 0)
        qsort(names, (size_t)n, sizeof(*names), compare_names);
    *names_out = names;
    return n;
}

bool bench_exists(const char *path)
{
    return access(below_root(path), F_OK) == 0;
}

bool bench_can_open(const char *path)
{
    return access(below_root(path), R_OK | W_OK) == 0;
}

char *bench_next_line(char **rest)
{
    if (*rest == NULL || **rest == '\0')
        return NULL;
    return strsep(rest, "\n");
}

const char *bench_pci_path(const char *bus_id, const char *file)
{
    return bench_text("/sys/bus/pci/devices/%s/%s", bus_id, file);
}

static void read_pci(struct bench_machine *machine)
{
    char(*names)[BENCH_NAME_BYTES];
    const int n = bench_read_names("/sys/bus/pci/devices", &names);
    machine->pci = bench_keep((size_t)n, sizeof(*machine->pci));
    for (int i = 0; i < n; i++) {
        int64_t class = 0, vendor = 0;
        if (bench_read_number(bench_pci_path(names[i], "class"), &class) != BENCH_READ_OK ||
            bench_read_number(bench_pci_path(names[i], "vendor"), &vendor) != BENCH_READ_OK)
            continue;
        struct bench_pci *pci = &machine->pci[machine->n_pci++];
        memcpy(pci->bus_id, names[i], sizeof(pci->bus_id));
        pci->class = (uint32_t) class;
        pci->vendor = (uint32_t)vendor;
        pci->is_gpu = vendor == VENDOR_NVIDIA && class >> 16 == 0x03;
        pci->is_nic = bench_exists(bench_pci_path(names[i], "infiniband"));
        machine->has_gpu = machine->has_gpu || pci->is_gpu;
        machine->has_nic = machine->has_nic || pci->is_nic;
    }
}

/* A word of @visible is a GPU's number, or the beginning of its UUID. */
void bench_gpu_find_hidden(const char *visible, struct bench_machine *machine)
{
    int number = 0;
    for (int i = 0; visible != NULL && i < machine->n_pci; i++) {
        struct bench_pci *pci = &machine->pci[i];
        char own[16], uuid[64] = "", *text = NULL;
        if (!pci->is_gpu)
            continue;
        const char *path = bench_text("/proc/driver/nvidia/gpus/%s/information", pci->bus_id);
        (void)bench_read_all(path, &text);
        const char *line = text == NULL ? NULL : strstr(text, "GPU UUID:");
        if (line != NULL)
            (void)sscanf(line, "GPU UUID: %63s", uuid);
        snprintf(own, sizeof(own), "%d", number++);
        pci->is_hidden = true;
        for (const char *word = visible; *word != '\0'; word += *word == ',') {
            const size_t n = strcspn(word, ",");
            if ((strlen(own) == n && strncmp(word, own, n) == 0) || strncmp(word, "MIG-", 4) == 0 ||
                (strncmp(word, "GPU-", 4) == 0 && (uuid[0] == '\0' || strncmp(uuid, word, n) == 0)))
                pci->is_hidden = false;
            word += n;
        }
    }
}

bool bench_gpu_is_hidden(const struct bench_machine *machine, const char *bus_id)
{
    for (int i = 0; i < machine->n_pci; i++)
        if (gyre_text_same(machine->pci[i].bus_id, bus_id))
            return machine->pci[i].is_hidden;
    return false;
}

enum bench_read bench_pci_read_link(const char *bus_id, struct bench_pci_link *link_out)
{
    static const char *const files[] = {"current_link_width", "max_link_width",
                                        "current_link_speed", "max_link_speed"};
    double figures[4];
    for (int i = 0; i < 4; i++) {
        char text[64], *end = NULL;
        const enum bench_read result =
            bench_read_text(bench_pci_path(bus_id, files[i]), text, sizeof(text));
        if (result != BENCH_READ_OK || strncmp(text, "Unknown", 7) == 0)
            return result == BENCH_READ_OK ? BENCH_READ_ABSENT : result;
        figures[i] = gyre_text_to_double(text, &end);
        if (end == text || figures[i] < 0 || figures[i] > 1000)
            return BENCH_READ_BROKEN;
    }
    *link_out = (struct bench_pci_link){.width = (int)figures[0],
                                        .most_width = (int)figures[1],
                                        .gt_per_s = figures[2],
                                        .most_gt_per_s = figures[3]};
    return figures[0] == 0 || figures[1] > 32 ? BENCH_READ_ABSENT : BENCH_READ_OK;
}

/* PCI Express Base Specification: generations 1 and 2 send 10 bits a byte, 3 to 5 send 130 for 128,
 * 6 sends 242 bytes of 256. */
double bench_pci_gbit_per_s(int width, double gt_per_s)
{
    const double part = gt_per_s < 6 ? 0.8 : gt_per_s < 40 ? 128.0 / 130.0 : 242.0 / 256.0;
    return width * gt_per_s * part;
}

/* Returns the number of processors, or -1. */
static int read_cpus(const char *list, bool *set_out)
{
    int n = 0;
    memset(set_out, 0, MOST_CPUS * sizeof(*set_out));
    while (*list != '\0') {
        char *end = NULL;
        const long first = strtol(list, &end, 10);
        long last = first;
        if (end == list)
            return -1;
        if (*end == '-') {
            list = end + 1;
            last = strtol(list, &end, 10);
            if (end == list)
                return -1;
        }
        if (first < 0 || last < first || last >= MOST_CPUS || (*end != ',' && *end != '\0'))
            return -1;
        for (long cpu = first; cpu <= last; cpu++) {
            n += !set_out[cpu];
            set_out[cpu] = true;
        }
        list = end + (*end == ',');
    }
    return n;
}

int bench_cpus_count(const char *list)
{
    bool set[MOST_CPUS];
    return read_cpus(list, set);
}

int bench_cpus_overlap(const char *a, const char *b)
{
    bool first[MOST_CPUS], second[MOST_CPUS];
    if (read_cpus(a, first) < 0 || read_cpus(b, second) < 0)
        return -1;
    for (int cpu = 0; cpu < MOST_CPUS; cpu++)
        if (first[cpu] && second[cpu])
            return 1;
    return 0;
}

void bench_machine_read(const struct gyre_params *params, struct bench_machine *machine_out)
{
    *machine_out = (struct bench_machine){0};
    machine_out->has_gpu_driver = bench_exists("/proc/driver/nvidia/version");
    read_pci(machine_out);
    bench_net_read(params, machine_out);
    bench_rdma_read(machine_out);
}

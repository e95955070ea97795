/* SPDX-License-Identifier: Apache-2.0
 *
 * A part overwrites the foot, and a new foot follows. The old one stays in memory until then.
 */
#include "core/foundation/trace/trace_file.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES     256
#define MAX_FOOT_BYTES (1 << 24)
#define LOCK_NS        5000000000ULL
/* Each has GYRE_MAX_RANKS of the process numbers below 2^31. */
#define MAX_COMMUNICATORS ((1U << 31) / GYRE_MAX_RANKS)

struct content {
    long end;
    char *foot; /* NULL = a new file, or an earlier run's */
    size_t n_foot;
    uint32_t nth; /* process numbers from nth * GYRE_MAX_RANKS */
    bool is_in_foot;
};

static bool read_foot(FILE *file, struct content *content)
{
    char end[GYRE_TRACE_FOOT_END_BYTES + 1] = "";
    char *rest = NULL;
    if (fseek(file, -(long)GYRE_TRACE_FOOT_END_BYTES, SEEK_END) != 0 ||
        fread(end, 1, GYRE_TRACE_FOOT_END_BYTES, file) != GYRE_TRACE_FOOT_END_BYTES)
        return false;
    const unsigned long n_bytes = strtoul(end, &rest, 10);
    if (strcmp(rest, "\"}\n") != 0 || n_bytes > MAX_FOOT_BYTES ||
        fseek(file, -(long)n_bytes, SEEK_END) != 0)
        return false;
    content->end = ftell(file);
    content->n_foot = n_bytes;
    content->foot = malloc(n_bytes + 1);
    if (content->foot == NULL || fread(content->foot, 1, n_bytes, file) != n_bytes)
        return false;
    content->foot[n_bytes] = '\0';
    return true;
}

static void take_state(int fd, struct gyre_trace_file_state *state_out)
{
    char head[HEAD_BYTES];
    struct stat about;
    memset(state_out, 0, sizeof(*state_out));
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return;
    const ssize_t n = pread(fd, head, sizeof(head), 0);
    if (n < 0)
        return;
    *state_out =
        (struct gyre_trace_file_state){.exists = true,
                                       .inode = about.st_ino,
                                       .n_bytes = about.st_size,
                                       .written = about.st_mtim,
                                       .head_hash = gyre_hash(GYRE_HASH_INIT, head, (size_t)n)};
}

void gyre_trace_file_look(const char *path, struct gyre_trace_file_state *state_out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    memset(state_out, 0, sizeof(*state_out));
    if (fd < 0)
        return;
    take_state(fd, state_out);
    close(fd);
}

void gyre_trace_file_warn_missing_folder(const char *path, int rank)
{
    const char *end = strrchr(path, '/');
    struct stat about;
    if (end == NULL || end == path)
        return;
    GYRE_FREED char *folder = strndup(path, (size_t)(end - path));
    if (folder == NULL)
        return;
    const int error_number = stat(folder, &about) != 0 ? errno : 0;
    if (error_number != 0 || !S_ISDIR(about.st_mode))
        GYRE_WARN("GYRE_TRACE_FILE: rank %d will not be able to write %s, because its folder %s "
                  "cannot be used: %s. Make the folder before the communicator ends: mkdir -p %s",
                  rank, path, folder, gyre_text_error(error_number != 0 ? error_number : ENOTDIR),
                  folder);
}

/* An old trace unless this process wrote it, or another one changed it since this rank began. */
static bool can_continue(FILE *file, const struct gyre_trace_part *part, struct content *content)
{
    char head[HEAD_BYTES + 1], wanted[64];
    struct gyre_trace_file_state now;
    const size_t n = fread(head, 1, HEAD_BYTES, file);
    head[n] = '\0';
    if (strstr(head, "\"tool\":\"gyre\",\"source\":\"measured\"") == NULL ||
        !read_foot(file, content))
        return false;
    snprintf(wanted, sizeof(wanted), "\"process\":\"%016" PRIx64 "\"", part->process_id);
    if (strstr(head, wanted) != NULL)
        return true;
    take_state(fileno(file), &now);
    const struct gyre_trace_file_state *before = &part->before;
    return now.exists != before->exists || now.inode != before->inode ||
           now.n_bytes != before->n_bytes || now.written.tv_sec != before->written.tv_sec ||
           now.written.tv_nsec != before->written.tv_nsec || now.head_hash != before->head_hash;
}

/* "JOB:NTH JOB:NTH ...", hexadecimal JOB of 16 digits */
static const char *list_of(const struct content *content, size_t *n_bytes_out)
{
    static const char name[] = "\"communicators\":\"";
    const char *list = content->foot != NULL ? strstr(content->foot, name) : NULL;
    if (list == NULL) {
        *n_bytes_out = 0;
        return "";
    }
    list += sizeof(name) - 1;
    *n_bytes_out = strcspn(list, "\"");
    return list;
}

/* Those of the communicator's other ranks, or the first free ones from its number on. */
static gyre_status find_numbers(const struct gyre_trace_part *part, struct content *content)
{
    size_t n_left;
    const char *at = list_of(content, &n_left);
    GYRE_FREED uint8_t *has_nth = calloc(MAX_COMMUNICATORS / 8, 1);
    if (has_nth == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory");
    for (const char *end = at + n_left; at < end;) {
        char *rest = NULL;
        const uint64_t job = strtoull(at, &rest, 16);
        const unsigned long nth = *rest == ':' ? strtoul(rest + 1, &rest, 10) : 0;
        if (job == part->job) {
            content->nth = (uint32_t)(nth % MAX_COMMUNICATORS);
            content->is_in_foot = true;
        }
        has_nth[nth % MAX_COMMUNICATORS / 8] |= (uint8_t)(1U << nth % 8);
        at += strcspn(at, " \"");
        at += *at == ' ';
    }
    uint32_t nth = (uint32_t)((part->number > 0 ? part->number - 1 : 0) % MAX_COMMUNICATORS);
    for (uint32_t i = 0; i < MAX_COMMUNICATORS && (has_nth[nth / 8] >> nth % 8 & 1) != 0; i++)
        nth = (nth + 1) % MAX_COMMUNICATORS;
    if (!content->is_in_foot)
        content->nth = nth;
    return GYRE_SUCCESS;
}

static gyre_status write_part(FILE *file, const struct gyre_trace_part *part,
                              const struct content *content)
{
    char process[24], flows[24];
    GYRE_FREED uint8_t *has_track = calloc(GYRE_TRACE_N_TRACKS, 1);
    if (has_track == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory");
    snprintf(process, sizeof(process), "%016" PRIx64, part->process_id);
    snprintf(flows, sizeof(flows), "%08x", (unsigned)(part->job ^ part->job >> 32));
    struct gyre_trace_writer writer = {
        .file = file,
        .flows = flows,
        .pid = content->nth * GYRE_MAX_RANKS + part->rank,
        .rank = part->rank,
        .clock_offset_ns = part->clock_offset_ns,
        .is_continued = content->foot != NULL,
        .has_track = has_track,
    };
    if (content->foot == NULL)
        gyre_trace_write_head(file, "measured", process);
    part->write(part->context, &writer);
    size_t n_list;
    const char *list = list_of(content, &n_list);
    GYRE_FREED char *longer = malloc(n_list + 64);
    if (longer == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory");
    memcpy(longer, list, n_list);
    longer[n_list] = '\0';
    if (!content->is_in_foot)
        snprintf(longer + n_list, 64, "%s%016" PRIx64 ":%u", n_list > 0 ? " " : "", part->job,
                 content->nth);
    gyre_trace_write_foot(file, longer);
    if (fflush(file) != 0 || ferror(file) != 0)
        return gyre_fail_errno(errno, "write");
    if (ftruncate(fileno(file), ftell(file)) != 0)
        return gyre_fail_errno(errno, "ftruncate");
    return GYRE_SUCCESS;
}

/* Closing a stream after a failed write writes again, so it gets its own descriptor, and the file
 * is restored later. Both share one lock. */
static gyre_status add_locked(int fd, const struct gyre_trace_part *part)
{
    struct content content = {0};
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy >= 0 ? fdopen(copy, "r+") : NULL;
    if (file == NULL) {
        const int error = errno;
        if (copy >= 0)
            close(copy);
        return gyre_fail_errno(error, "fdopen");
    }
    if (!can_continue(file, part, &content)) {
        free(content.foot);
        content = (struct content){0};
    }
    gyre_status status = find_numbers(part, &content);
    if (status == GYRE_SUCCESS && fseek(file, content.end, SEEK_SET) != 0)
        status = gyre_fail_errno(errno, "fseek");
    if (status == GYRE_SUCCESS)
        status = write_part(file, part, &content);
    if (fclose(file) != 0 && status == GYRE_SUCCESS)
        status = gyre_fail_errno(errno, "close");
    /* The old foot's place needs no new room. */
    const size_t n_foot = content.foot != NULL ? content.n_foot : 0;
    if (status != GYRE_SUCCESS &&
        (n_foot == 0 || pwrite(fd, content.foot, n_foot, content.end) == (ssize_t)n_foot))
        (void)!ftruncate(fd, content.foot != NULL ? content.end + (long)n_foot : 0);
    free(content.foot);
    return status;
}

gyre_status gyre_trace_file_add(const struct gyre_trace_part *part)
{
    const int fd = gyre_descriptor_keep(
        open(part->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    struct stat about;
    if (fd < 0)
        return gyre_fail_errno(errno, "open");
    gyre_status status = GYRE_SUCCESS;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "it is not a regular file");
    const uint64_t deadline_ns = gyre_now_ns() + LOCK_NS;
    while (status == GYRE_SUCCESS && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            status = gyre_fail_errno(errno, "flock");
        else if (gyre_now_ns() > deadline_ns)
            status = gyre_fail(GYRE_ERROR_TIMEOUT, "another program keeps it locked");
        else
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (status == GYRE_SUCCESS)
        status = add_locked(fd, part);
    close(fd);
    return status;
}

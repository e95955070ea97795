/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded by LD_PRELOAD: calls of libgyre.so fail, and no others (the return address tells).
 * TEST_INJECT says which, as "CLASS FIRST COUNT":
 *
 *   memory      malloc, calloc, realloc, posix_memalign return no memory
 *   map         mmap, memfd_create and pthread_create fail with ENOMEM or EAGAIN
 *   descriptor  socket, accept4, eventfd, epoll_create1, open fail with EMFILE
 *   interrupt   each FIRST-th poll, epoll_wait and nanosleep returns EINTR; COUNT is not used
 *
 * The calls FIRST .. FIRST + COUNT - 1 of the class fail; FIRST = 0 only counts. Standard error
 * gets "injected CLASS N +OFFSET" at the first failure and "counted CLASS N" at the end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum call_class { CLASS_NONE, CLASS_MEMORY, CLASS_MAP, CLASS_DESCRIPTOR, CLASS_INTERRUPT };

static const char *const class_names[] = {"none", "memory", "map", "descriptor", "interrupt"};

static enum call_class injected_class; /* CLASS_NONE until the constructor has run */
static uint64_t first_failing, n_failing, n_counted;
static uintptr_t text_begin, text_end;

static int find_text(struct dl_phdr_info *info, size_t info_bytes, void *unused)
{
    (void)info_bytes;
    (void)unused;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, "libgyre.so") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0)
            continue;
        text_begin = info->dlpi_addr + segment->p_vaddr;
        text_end = text_begin + segment->p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void begin(void)
{
    char name[16] = "";
    unsigned long long first = 0, count = 0;
    const char *text = getenv("TEST_INJECT");
    if (text == NULL || sscanf(text, "%15s %llu %llu", name, &first, &count) != 3)
        return;
    dl_iterate_phdr(find_text, NULL);
    first_failing = first;
    n_failing = count;
    for (int i = CLASS_MEMORY; i <= CLASS_INTERRUPT; i++)
        if (strcmp(class_names[i], name) == 0)
            injected_class = (enum call_class)i;
}

__attribute__((destructor)) static void end(void)
{
    char line[80];
    const int n = snprintf(line, sizeof(line), "counted %s %llu\n", class_names[injected_class],
                           (unsigned long long)__atomic_load_n(&n_counted, __ATOMIC_RELAXED));
    if (injected_class != CLASS_NONE && write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}

static bool fails(enum call_class of_call, void *return_address)
{
    const uintptr_t caller = (uintptr_t)return_address;
    if (injected_class != of_call || caller < text_begin || caller >= text_end)
        return false;
    const uint64_t number = __atomic_add_fetch(&n_counted, 1, __ATOMIC_RELAXED);
    if (first_failing == 0)
        return false;
    if (of_call == CLASS_INTERRUPT)
        return number % first_failing == 0;
    if (number < first_failing || number - first_failing >= n_failing)
        return false;
    if (number == first_failing) {
        char line[100];
        const int n =
            snprintf(line, sizeof(line), "injected %s %llu +0x%llx\n", class_names[injected_class],
                     (unsigned long long)number, (unsigned long long)(caller - text_begin));
        if (write(STDERR_FILENO, line, (size_t)n) >= 0) {
        }
    }
    return true;
}

/* FAKE(result, name, parameters, arguments, class, value on failure, errno) */
#define FAKE(result, name, parameters, arguments, of_call, failure, error) \
    result name parameters                                                 \
    {                                                                      \
        static result(*real) parameters;                                   \
        if (fails(of_call, __builtin_return_address(0))) {                 \
            errno = error;                                                 \
            return failure;                                                \
        }                                                                  \
        if (real == NULL)                                                  \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                     \
        return real arguments;                                             \
    }

/* dlsym() may allocate. */
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_realloc(void *bytes, size_t n_bytes);
extern void *__libc_memalign(size_t alignment, size_t n_bytes);

#define OUT_OF_MEMORY() (fails(CLASS_MEMORY, __builtin_return_address(0)) && (errno = ENOMEM) != 0)

void *malloc(size_t n_bytes)
{
    return OUT_OF_MEMORY() ? NULL : __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t n_bytes)
{
    return OUT_OF_MEMORY() ? NULL : __libc_calloc(n, n_bytes);
}

void *realloc(void *bytes, size_t n_bytes)
{
    return OUT_OF_MEMORY() ? NULL : __libc_realloc(bytes, n_bytes);
}

int posix_memalign(void **bytes_out, size_t alignment, size_t n_bytes)
{
    if (OUT_OF_MEMORY())
        return ENOMEM;
    void *bytes = __libc_memalign(alignment, n_bytes);
    if (bytes == NULL)
        return ENOMEM;
    *bytes_out = bytes;
    return 0;
}

FAKE(void *, mmap, (void *at, size_t n, int access, int flags, int fd, off_t offset),
     (at, n, access, flags, fd, offset), CLASS_MAP, MAP_FAILED, ENOMEM)
FAKE(int, memfd_create, (const char *name, unsigned flags), (name, flags), CLASS_MAP, -1, ENOMEM)
FAKE(int, pthread_create,
     (pthread_t * thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
      void *argument),
     (thread_out, attributes, run, argument), CLASS_MAP, EAGAIN, EAGAIN)

FAKE(int, socket, (int domain, int type, int protocol), (domain, type, protocol), CLASS_DESCRIPTOR,
     -1, EMFILE)
FAKE(int, accept4, (int fd, __SOCKADDR_ARG address, socklen_t *n, int flags),
     (fd, address, n, flags), CLASS_DESCRIPTOR, -1, EMFILE)
FAKE(int, eventfd, (unsigned initial, int flags), (initial, flags), CLASS_DESCRIPTOR, -1, EMFILE)
FAKE(int, epoll_create1, (int flags), (flags), CLASS_DESCRIPTOR, -1, EMFILE)

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list args;
    va_start(args, flags);
    const unsigned mode = va_arg(args, unsigned);
    va_end(args);
    if (fails(CLASS_DESCRIPTOR, __builtin_return_address(0))) {
        errno = EMFILE;
        return -1;
    }
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "open");
    return real(path, flags, mode);
}

FAKE(int, poll, (struct pollfd * watched, nfds_t n, int wait_ms), (watched, n, wait_ms),
     CLASS_INTERRUPT, -1, EINTR)
FAKE(int, epoll_wait, (int fd, struct epoll_event *events_out, int n, int wait_ms),
     (fd, events_out, n, wait_ms), CLASS_INTERRUPT, -1, EINTR)
FAKE(int, nanosleep, (const struct timespec *wait, struct timespec *rest_out), (wait, rest_out),
     CLASS_INTERRUPT, -1, EINTR)

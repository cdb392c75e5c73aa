// Preloaded into a server: fails operations of one kind on the files below a directory, and counts
// the operations of every kind.
//
//   BUSLOAD_FAULT_DIRECTORY  absolute path of the directory
//   BUSLOAD_FAULT_REPORT     file of at least sizeof(struct report) bytes that gets the counts
//   BUSLOAD_FAULT            KIND NUMBER ERROR TIMES EFFECT, five numbers: the enums below; from 1
//                            on, 0 for none; an errno, 0 for a short write; TIMES 0 once, 1 always
//
// It sees calls of the C library, which Rust's standard library and rustix (with `use-libc`) make.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE, SYNC, RENAME, TRUNCATE, UNLINK, CREATE, KINDS };
enum effect { NONE, HALF, WHOLE };

struct report {
    _Atomic uint64_t counts[KINDS];
    _Atomic uint64_t failed;
    char path[1024]; // of the first operation that failed
};

static struct report *report;
static const char *directory;
static size_t directory_bytes;
static int fault_kind, fault_error, fault_always, fault_effect;
static uint64_t fault_number;

// The next definition of a function: that of the C library.
#define REAL(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(&name) real;                                                             \
        if (!real)                                                                                 \
            real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                     \
        real;                                                                                      \
    })

__attribute__((constructor)) static void begin(void) {
    const char *plan = getenv("BUSLOAD_FAULT"), *path = getenv("BUSLOAD_FAULT_REPORT");
    directory = getenv("BUSLOAD_FAULT_DIRECTORY");
    unsigned long number;
    if (!plan || !path || !directory ||
        sscanf(plan, "%d %lu %d %d %d", &fault_kind, &number, &fault_error, &fault_always,
               &fault_effect) != 5)
        return;
    fault_number = number;
    directory_bytes = strlen(directory);
    int file = REAL(open)(path, O_RDWR | O_CLOEXEC);
    void *mapped =
        mmap(NULL, sizeof(struct report), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED)
        abort();
    close(file);
    report = mapped;
}

static int fails(enum kind kind, const char *path) {
    if (!report || strncmp(path, directory, directory_bytes) != 0 ||
        (path[directory_bytes] != '/' && path[directory_bytes] != 0))
        return 0;
    uint64_t number = atomic_fetch_add(&report->counts[kind], 1) + 1;
    int here = fault_always ? fault_number <= number : fault_number == number;
    if ((int)kind != fault_kind || fault_number == 0 || !here)
        return 0;
    if (atomic_fetch_add(&report->failed, 1) == 0)
        strncpy(report->path, path, sizeof report->path - 1);
    return 1;
}

static int fails_on(enum kind kind, int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = report ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(kind, path);
}

static int failure(void) {
    errno = fault_error;
    return -1;
}

// Writes a part of what was to be written, and says what the fault wants said.
static ssize_t write_part(int file, const struct iovec *parts, int count, off_t offset, int at) {
    size_t left = 0;
    for (int i = 0; i < count; i++)
        left += parts[i].iov_len;
    left = fault_effect == NONE ? 0 : fault_effect == HALF ? (left + 1) / 2 : left;
    ssize_t done = 0;
    for (int i = 0; i < count && 0 < left; i++) {
        size_t bytes = parts[i].iov_len < left ? parts[i].iov_len : left;
        ssize_t wrote = at ? REAL(pwrite)(file, parts[i].iov_base, bytes, offset + done)
                           : REAL(write)(file, parts[i].iov_base, bytes);
        if (wrote < 0)
            return wrote;
        done += wrote;
        left -= (size_t)wrote;
    }
    return fault_error ? failure() : done;
}

ssize_t write(int file, const void *bytes, size_t count) {
    struct iovec part = {(void *)bytes, count};
    return fails_on(WRITE, file) ? write_part(file, &part, 1, 0, 0)
                                 : REAL(write)(file, bytes, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    return fails_on(WRITE, file) ? write_part(file, parts, count, 0, 0)
                                 : REAL(writev)(file, parts, count);
}

#define PWRITE(name, offset_type)                                                                  \
    ssize_t name(int file, const void *bytes, size_t count, offset_type offset) {                  \
        struct iovec part = {(void *)bytes, count};                                                \
        return fails_on(WRITE, file) ? write_part(file, &part, 1, offset, 1)                       \
                                     : REAL(name)(file, bytes, count, offset);                     \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PWRITEV(name, offset_type)                                                                 \
    ssize_t name(int file, const struct iovec *parts, int count, offset_type offset) {             \
        return fails_on(WRITE, file) ? write_part(file, parts, count, offset, 1)                   \
                                     : REAL(name)(file, parts, count, offset);                     \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

// An operation that happens whole or not at all.
#define ALL_OR_NOTHING(fault, call)                                                                \
    int is_failing = fault;                                                                        \
    int result = is_failing && fault_effect != WHOLE ? 0 : call;                                   \
    return is_failing ? failure() : result;

int fsync(int file) { ALL_OR_NOTHING(fails_on(SYNC, file), REAL(fsync)(file)) }
int fdatasync(int file) { ALL_OR_NOTHING(fails_on(SYNC, file), REAL(fdatasync)(file)) }

int rename(const char *from, const char *to) {
    ALL_OR_NOTHING(fails(RENAME, from), REAL(rename)(from, to))
}
int renameat(int old, const char *from, int new, const char *to) {
    ALL_OR_NOTHING(fails(RENAME, from), REAL(renameat)(old, from, new, to))
}

int truncate(const char *path, off_t length) {
    ALL_OR_NOTHING(fails(TRUNCATE, path), REAL(truncate)(path, length))
}
int ftruncate(int file, off_t length) {
    ALL_OR_NOTHING(fails_on(TRUNCATE, file), REAL(ftruncate)(file, length))
}
int ftruncate64(int file, off64_t length) {
    ALL_OR_NOTHING(fails_on(TRUNCATE, file), REAL(ftruncate64)(file, length))
}
int fallocate(int file, int mode, off_t offset, off_t length) {
    ALL_OR_NOTHING(fails_on(TRUNCATE, file), REAL(fallocate)(file, mode, offset, length))
}
int fallocate64(int file, int mode, off64_t offset, off64_t length) {
    ALL_OR_NOTHING(fails_on(TRUNCATE, file), REAL(fallocate64)(file, mode, offset, length))
}

int unlink(const char *path) { ALL_OR_NOTHING(fails(UNLINK, path), REAL(unlink)(path)) }
int unlinkat(int folder, const char *path, int flags) {
    ALL_OR_NOTHING(fails(UNLINK, path), REAL(unlinkat)(folder, path, flags))
}

// Opens a file; only the creation of one that is missing may fail.
#define MODE                                                                                       \
    mode_t mode = 0;                                                                               \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                                 \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, mode_t);                                                               \
        va_end(rest);                                                                              \
    }
#define CREATED(call)                                                                              \
    int is_failing =                                                                               \
        (flags & O_CREAT) && faccessat(AT_FDCWD, path, F_OK, 0) != 0 && fails(CREATE, path);       \
    return is_failing ? failure() : call;

int open(const char *path, int flags, ...) { MODE CREATED(REAL(open)(path, flags, mode)) }
int open64(const char *path, int flags, ...) { MODE CREATED(REAL(open64)(path, flags, mode)) }
int openat(int folder, const char *path, int flags, ...) {
    MODE CREATED(REAL(openat)(folder, path, flags, mode))
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE CREATED(REAL(openat64)(folder, path, flags, mode))
}

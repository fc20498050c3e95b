// Fails the system's calls as checks/faults/block.py says. Loaded with LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct block {
    char call[32];
    char match[128];
    long long countdown;
    int forever;
    int code;
    long long calls;
    long long hits;
};
static struct block *block;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULT_BLOCK");
    if (!path) return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *memory = (void *) syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (memory != MAP_FAILED) block = memory;
}

// Whether this call, on that path or descriptor, must fail. Sets errno.
static int strikes(const char *call, const char *path, int fd) {
    if (!block || strcmp(block->call, call)) return 0;
    if (block->match[0]) {
        char link[64], name[4096];
        if (!path) {
            if (fd < 0) return 0;
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            long length = syscall(SYS_readlinkat, AT_FDCWD, link, name, sizeof name - 1);
            if (length < 0) return 0;
            name[length] = 0;
            path = name;
        }
        if (!strstr(path, block->match)) return 0;
    }
    long long number = __atomic_add_fetch(&block->calls, 1, __ATOMIC_SEQ_CST);
    if (!block->countdown) return 0;
    if (number != block->countdown && !(block->forever && number > block->countdown)) return 0;
    __atomic_add_fetch(&block->hits, 1, __ATOMIC_SEQ_CST);
    errno = block->code;
    return 1;
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, name)

#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...) {                         \
        REAL(int, #name, const char *, int, ...);                        \
        va_list rest; va_start(rest, flags);                             \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        return strikes("open", path, -1) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                         \
    int name(int folder, const char *path, int flags, ...) {                 \
        REAL(int, #name, int, const char *, int, ...);                       \
        va_list rest; va_start(rest, flags);                                 \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        return strikes("open", path, -1) ? -1 : real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
#define FOPEN(name)                                                   \
    FILE *name(const char *path, const char *mode) {                  \
        REAL(FILE *, #name, const char *, const char *);              \
        return strikes("open", path, -1) ? NULL : real(path, mode);   \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define ON_FD(type, name, call, params, args, types)      \
    type name params {                                    \
        REAL(type, #name, types);                         \
        return strikes(call, NULL, fd) ? -1 : real args;  \
    }
#define COMMA ,
ON_FD(ssize_t, read, "read", (int fd, void *to, size_t size), (fd, to, size),
      int COMMA void * COMMA size_t)
ON_FD(ssize_t, pread, "read", (int fd, void *to, size_t size, off_t at), (fd, to, size, at),
      int COMMA void * COMMA size_t COMMA off_t)
ON_FD(ssize_t, pread64, "read", (int fd, void *to, size_t size, off64_t at), (fd, to, size, at),
      int COMMA void * COMMA size_t COMMA off64_t)
ON_FD(ssize_t, readv, "read", (int fd, const struct iovec *v, int n), (fd, v, n),
      int COMMA const struct iovec * COMMA int)
ON_FD(ssize_t, write, "write", (int fd, const void *from, size_t size), (fd, from, size),
      int COMMA const void * COMMA size_t)
ON_FD(ssize_t, writev, "write", (int fd, const struct iovec *v, int n), (fd, v, n),
      int COMMA const struct iovec * COMMA int)
ON_FD(int, fsync, "fsync", (int fd), (fd), int)
ON_FD(int, listen, "listen", (int fd, int n), (fd, n), int COMMA int)
ON_FD(int, bind, "bind", (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n),
      int COMMA const struct sockaddr * COMMA socklen_t)
ON_FD(int, connect, "connect", (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n),
      int COMMA const struct sockaddr * COMMA socklen_t)
ON_FD(int, accept, "accept", (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n),
      int COMMA struct sockaddr * COMMA socklen_t *)
ON_FD(int, accept4, "accept", (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f),
      int COMMA struct sockaddr * COMMA socklen_t * COMMA int)
ON_FD(ssize_t, send, "send", (int fd, const void *from, size_t size, int f), (fd, from, size, f),
      int COMMA const void * COMMA size_t COMMA int)
ON_FD(ssize_t, sendmsg, "send", (int fd, const struct msghdr *m, int f), (fd, m, f),
      int COMMA const struct msghdr * COMMA int)
ON_FD(ssize_t, recv, "recv", (int fd, void *to, size_t size, int f), (fd, to, size, f),
      int COMMA void * COMMA size_t COMMA int)
ON_FD(ssize_t, recvfrom, "recv",
      (int fd, void *to, size_t size, int f, struct sockaddr *a, socklen_t *n),
      (fd, to, size, f, a, n),
      int COMMA void * COMMA size_t COMMA int COMMA struct sockaddr * COMMA socklen_t *)

int socket(int family, int type, int protocol) {
    REAL(int, "socket", int, int, int);
    return strikes("socket", NULL, -1) ? -1 : real(family, type, protocol);
}
int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return strikes("rename", to, -1) ? -1 : real(from, to);
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return strikes("unlink", path, -1) ? -1 : real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    return strikes("mkdir", path, -1) ? -1 : real(path, mode);
}
int pipe2(int fds[2], int flags) {
    REAL(int, "pipe2", int *, int);
    return strikes("pipe", NULL, -1) ? -1 : real(fds, flags);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return strikes("thread", NULL, -1) ? block->code : real(thread, how, run, with);
}
#define MMAP(name, offset)                                                        \
    void *name(void *at, size_t size, int prot, int flags, int fd, offset from) { \
        REAL(void *, #name, void *, size_t, int, int, int, offset);               \
        return strikes("mmap", NULL, fd) ? MAP_FAILED : real(at, size, prot, flags, fd, from); \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

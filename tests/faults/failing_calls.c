/* Lets one call of a process fail: the library that tests/faults/failing_calls.py and failing_tools.py preload.
 *
 * FAILING_CALL   kind: allocation, thread, descriptor, fsync, write, rename or connect
 * FAILING_AT     number of the call that fails, from 1; 0: none
 * FAILING_ROW    that many calls fail, one after the other (1)
 * FAILING_COUNT  file that holds the number of calls so far (8 bytes)
 * FAILING_NAME   only processes of this program (name of the file without folder); without it all
 * FAILING_RANK   only processes with this value of PADDLE_TRAINER_ID; without it all
 *
 * Counted are calls between the begin and the end of main(). An allocation, thread or descriptor fails only where the
 * innermost function outside of the C and C++ run-time libraries is millrace's: gRPC, protobuf and other libraries end the
 * process when they get none. If it is another's, the next one of millrace fails. Writes and fsyncs count for files only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { NONE, ALLOCATION, THREAD, DESCRIPTOR, FSYNC, WRITE, RENAME, CONNECT };
static const char* const names[] = {"", "allocation", "thread", "descriptor", "fsync", "write", "rename", "connect"};

static enum kind wanted;
static int active; /* main() is running */
static long first, row = 1, failed;
static long own_count;
static long* count = &own_count;
static __thread int inside;

/* Whether the innermost function that counts is millrace's. */
static int is_ours(void) {
  void* frames[48];
  const int depth = backtrace(frames, 48);
  for (int i = 1; i < depth; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == NULL) return 0;
    const char* const slash = strrchr(info.dli_fname, '/');
    const char* const name = slash == NULL ? info.dli_fname : slash + 1;
    if (strncmp(name, "failing_calls", 13) == 0 || strncmp(name, "libstdc++", 9) == 0 ||
        strncmp(name, "libfmt", 6) == 0)
      continue;
    /* programs, and the libraries and modules of millrace */
    return (strncmp(name, "lib", 3) != 0 && strncmp(name, "ld-", 3) != 0) || strncmp(name, "libmillrace", 11) == 0;
  }
  return 0;
}

/* Counts a call; whether it must fail. */
static int fails(enum kind kind) {
  if (kind != wanted || !active || inside) return 0;
  const long own = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
  if (first == 0 || own < first || __atomic_load_n(&failed, __ATOMIC_SEQ_CST) >= row) return 0;
  inside = 1;
  int fail = kind >= FSYNC || is_ours();
  if (fail) fail = __atomic_add_fetch(&failed, 1, __ATOMIC_SEQ_CST) <= row;
  if (fail && getenv("FAILING_SHOW") != NULL) {
    void* frames[48];
    backtrace_symbols_fd(frames, backtrace(frames, 48), 2);
  }
  inside = 0;
  return fail;
}

static int is_file(int file) {
  struct stat facts;
  return fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(error, result) do { errno = (error); return (result); } while (0)

/* --- when it begins and ends ---------------------------------------------------------------------------------- */

typedef int (*main_type)(int, char**, char**);
static main_type real_main;

static int counted_main(int argc, char** argv, char** env) {
  const char* const call = getenv("FAILING_CALL");
  const char* const name = getenv("FAILING_NAME");
  const char* const rank = getenv("FAILING_RANK");
  const char* const own_rank = getenv("PADDLE_TRAINER_ID");
  const int is_meant = (name == NULL || strcmp(name, program_invocation_short_name) == 0) &&
                       (rank == NULL || (own_rank != NULL && strcmp(rank, own_rank) == 0));
  for (int i = 1; is_meant && call != NULL && i <= CONNECT; ++i)
    if (strcmp(call, names[i]) == 0) wanted = (enum kind)i;
  if (wanted == NONE) return real_main(argc, argv, env);
  void* frames[4];
  backtrace(frames, 4); /* loads what it needs */
  first = atol(getenv("FAILING_AT"));
  if (getenv("FAILING_ROW") != NULL) row = atol(getenv("FAILING_ROW"));
  const int file = open(getenv("FAILING_COUNT"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ftruncate(file, sizeof(long)) != 0) abort();
  count = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (count == MAP_FAILED) abort();
  close(file);
  active = 1;
  const int status = real_main(argc, argv, env);
  active = 0;
  return status;
}

int __libc_start_main(main_type main, int argc, char** argv, void (*init)(void), void (*fini)(void), void (*ld_fini)(void),
                      void* stack_end) {
  real_main = main;
  int (*next)(main_type, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  *(void**)&next = dlsym(RTLD_NEXT, "__libc_start_main");
  return next(counted_main, argc, argv, init, fini, ld_fini, stack_end);
}

/* --- the calls ------------------------------------------------------------------------------------------------ */

/* The program's own allocator if it has one. */
static struct {
  void* (*malloc)(size_t);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*memalign)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*make)(size_t); /* operator new */
  void* (*make_aligned)(size_t, size_t);
  void (*throw_bad_alloc)(void);
} next;

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
static __thread int resolving;

static void resolve(void) {
  if (next.posix_memalign != NULL || resolving) return;
  resolving = 1;
  *(void**)&next.malloc = dlsym(RTLD_NEXT, "malloc");
  *(void**)&next.calloc = dlsym(RTLD_NEXT, "calloc");
  *(void**)&next.realloc = dlsym(RTLD_NEXT, "realloc");
  *(void**)&next.memalign = dlsym(RTLD_NEXT, "memalign");
  *(void**)&next.make = dlsym(RTLD_NEXT, "_Znwm");
  *(void**)&next.make_aligned = dlsym(RTLD_NEXT, "_ZnwmSt11align_val_t");
  *(void**)&next.throw_bad_alloc = dlsym(RTLD_NEXT, "_ZSt17__throw_bad_allocv");
  *(void**)&next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
  resolving = 0;
}

void* malloc(size_t size) {
  if (fails(ALLOCATION)) FAIL(ENOMEM, NULL);
  resolve();
  return next.malloc == NULL ? __libc_malloc(size) : next.malloc(size);
}
void* calloc(size_t n, size_t size) {
  if (fails(ALLOCATION)) FAIL(ENOMEM, NULL);
  resolve();
  return next.calloc == NULL ? __libc_calloc(n, size) : next.calloc(n, size);
}
void* realloc(void* old, size_t size) { if (fails(ALLOCATION)) FAIL(ENOMEM, NULL); resolve(); return next.realloc(old, size); }
void* memalign(size_t to, size_t size) { if (fails(ALLOCATION)) FAIL(ENOMEM, NULL); resolve(); return next.memalign(to, size); }
void* aligned_alloc(size_t to, size_t size) { if (fails(ALLOCATION)) FAIL(ENOMEM, NULL); resolve(); return next.memalign(to, size); }
int posix_memalign(void** out, size_t to, size_t size) {
  if (fails(ALLOCATION)) return ENOMEM;
  resolve();
  return next.posix_memalign(out, to, size);
}
void* mmap(void* at, size_t size, int may, int flags, int file, off_t offset) {
  if (fails(ALLOCATION)) FAIL(ENOMEM, MAP_FAILED);
  return NEXT(mmap)(at, size, may, flags, file, offset);
}

/* The operators new of C++. What they call to get memory is not counted again. */
static void* made(size_t size, size_t to, int may_throw) {
  resolve();
  if (fails(ALLOCATION)) {
    if (may_throw) next.throw_bad_alloc();
    return NULL;
  }
  ++inside;
  void* const memory = to == 0 ? next.make(size) : next.make_aligned(size, to);
  --inside;
  return memory;
}
void* _Znwm(size_t size) { return made(size, 0, 1); }
void* _Znam(size_t size) { return made(size, 0, 1); }
void* _ZnwmSt11align_val_t(size_t size, size_t to) { return made(size, to, 1); }
void* _ZnamSt11align_val_t(size_t size, size_t to) { return made(size, to, 1); }
void* _ZnwmRKSt9nothrow_t(size_t size, const void* tag) { (void)tag; return made(size, 0, 0); }
void* _ZnamRKSt9nothrow_t(size_t size, const void* tag) { (void)tag; return made(size, 0, 0); }

int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*body)(void*), void* with) {
  if (fails(THREAD)) return EAGAIN;
  return NEXT(pthread_create)(thread, how, body, with);
}

int socket(int domain, int type, int protocol) { if (fails(DESCRIPTOR)) FAIL(EMFILE, -1); return NEXT(socket)(domain, type, protocol); }
int accept4(int file, struct sockaddr* from, socklen_t* size, int flags) {
  if (fails(DESCRIPTOR)) FAIL(EMFILE, -1);
  return NEXT(accept4)(file, from, size, flags);
}
int eventfd(unsigned value, int flags) { if (fails(DESCRIPTOR)) FAIL(EMFILE, -1); return NEXT(eventfd)(value, flags); }
int epoll_create1(int flags) { if (fails(DESCRIPTOR)) FAIL(EMFILE, -1); return NEXT(epoll_create1)(flags); }
int pipe2(int ends[2], int flags) { if (fails(DESCRIPTOR)) FAIL(EMFILE, -1); return NEXT(pipe2)(ends, flags); }
int shm_open(const char* name, int flags, mode_t mode) { if (fails(DESCRIPTOR)) FAIL(EMFILE, -1); return NEXT(shm_open)(name, flags, mode); }
int memfd_create(const char* name, unsigned flags) { if (fails(DESCRIPTOR)) FAIL(EMFILE, -1); return NEXT(memfd_create)(name, flags); }
FILE* fopen(const char* path, const char* how) { if (fails(DESCRIPTOR)) FAIL(EMFILE, NULL); return NEXT(fopen)(path, how); }
FILE* fopen64(const char* path, const char* how) { if (fails(DESCRIPTOR)) FAIL(EMFILE, NULL); return NEXT(fopen64)(path, how); }
#define OPEN(name, declared, given, flags)                      \
  int name declared {                                           \
    mode_t mode = 0;                                            \
    if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
      va_list rest;                                             \
      va_start(rest, flags);                                    \
      mode = va_arg(rest, mode_t);                              \
      va_end(rest);                                             \
    }                                                           \
    if (fails(DESCRIPTOR)) FAIL(EMFILE, -1);                    \
    return NEXT(name) given;                                    \
  }
OPEN(open, (const char* path, int flags, ...), (path, flags, mode), flags)
OPEN(open64, (const char* path, int flags, ...), (path, flags, mode), flags)
OPEN(openat, (int folder, const char* path, int flags, ...), (folder, path, flags, mode), flags)
OPEN(openat64, (int folder, const char* path, int flags, ...), (folder, path, flags, mode), flags)

int fsync(int file) { if (fails(FSYNC)) FAIL(EIO, -1); return NEXT(fsync)(file); }
int fdatasync(int file) { if (fails(FSYNC)) FAIL(EIO, -1); return NEXT(fdatasync)(file); }
ssize_t write(int file, const void* data, size_t size) {
  if (wanted == WRITE && is_file(file) && fails(WRITE)) FAIL(ENOSPC, -1);
  return NEXT(write)(file, data, size);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t at) {
  if (wanted == WRITE && is_file(file) && fails(WRITE)) FAIL(ENOSPC, -1);
  return NEXT(pwrite)(file, data, size, at);
}
ssize_t writev(int file, const struct iovec* parts, int parts_count) {
  if (wanted == WRITE && is_file(file) && fails(WRITE)) FAIL(ENOSPC, -1);
  return NEXT(writev)(file, parts, parts_count);
}
int rename(const char* from, const char* to) { if (fails(RENAME)) FAIL(EIO, -1); return NEXT(rename)(from, to); }
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  if (fails(RENAME)) FAIL(EIO, -1);
  return NEXT(renameat2)(a, from, b, to, flags);
}
int link(const char* from, const char* to) { if (fails(RENAME)) FAIL(EIO, -1); return NEXT(link)(from, to); }
int connect(int file, const struct sockaddr* to, socklen_t size) {
  if (to->sa_family != AF_UNIX && fails(CONNECT)) FAIL(ECONNREFUSED, -1);
  return NEXT(connect)(file, to, size);
}

// Loaded before the program's other libraries (LD_PRELOAD): refuses what it is told to refuse.
//
// Counted are the memory that stepwell's compiled module asks for, the memory of NumPy's arrays from a
// kilobyte on (by NumPy's own way of replacing its allocator: buffers inside of NumPy are its own affair),
// the threads that anybody starts, and what is done with files: opened to be made, written, synced, renamed.
// faults_arm(kind, nth, all) refuses the nth of that kind from now on, and
// with `all` every later one as well; faults_disarm() returns how many were asked for since.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
}

namespace {

enum Kind { none, module_memory, array_memory, thread_start, file_work };
constexpr size_t worth_counting = 1024;  // bytes of an array

std::atomic<int> armed{none};
std::atomic<long> asked{0}, refused_from{0};
std::atomic<bool> refuse_all{false};
const char *module_begin = nullptr, *module_end = nullptr;  // where the module lies in memory

bool refuses(Kind kind) {
    if (armed.load(std::memory_order_relaxed) != kind) return false;
    const long now = ++asked;
    return refuse_all ? now >= refused_from : now == refused_from;
}

bool refuses_memory(const void* caller) {
    const auto* at = static_cast<const char*>(caller);
    return armed.load(std::memory_order_relaxed) == module_memory && at >= module_begin && at < module_end &&
           refuses(module_memory);
}

bool refuses_array(size_t size) {
    return size >= worth_counting && refuses(array_memory);
}

// As NumPy has it in PyDataMem_Handler.
struct ArrayMemory {
    char name[127] = "faults";
    unsigned char version = 1;
    void* context = nullptr;
    void* (*take)(void*, size_t) = [](void*, size_t size) {
        return refuses_array(size) ? nullptr : __libc_malloc(size ? size : 1);
    };
    void* (*take_zeros)(void*, size_t, size_t) = [](void*, size_t count, size_t size) {
        return refuses_array(count * size) ? nullptr : __libc_calloc(count ? count : 1, size ? size : 1);
    };
    void* (*resize)(void*, void*, size_t) = [](void*, void* old, size_t size) {
        return refuses_array(size) ? nullptr : __libc_realloc(old, size ? size : 1);
    };
    void (*give_back)(void*, void*, size_t) = [](void*, void* old, size_t) { free(old); };
} array_allocator;

void* aligned(size_t size, size_t alignment) {
    void* found = nullptr;
    return posix_memalign(&found, alignment < sizeof(void*) ? sizeof(void*) : alignment, size ? size : 1)
               ? nullptr
               : found;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void faults_module(const char* begin, const char* end) {
    module_begin = begin;
    module_end = end;
}

void* faults_array_allocator() {
    return &array_allocator;
}

void faults_arm(int kind, long nth, int all) {
    asked = 0;
    refused_from = nth;
    refuse_all = all != 0;
    armed = kind;
}

long faults_disarm() {
    armed = none;
    return asked;
}

void* malloc(size_t size) {
    if (refuses_memory(CALLER)) return errno = ENOMEM, nullptr;
    return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
    if (refuses_memory(CALLER)) return errno = ENOMEM, nullptr;
    return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
    if (refuses_memory(CALLER)) return errno = ENOMEM, nullptr;
    return __libc_realloc(old, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
    if (refuses_memory(CALLER)) return errno = ENOMEM, nullptr;
    return aligned(size, alignment);
}

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
    using Function = void* (*)(void*, size_t, int, int, int, off_t);
    static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "mmap"));
    if (refuses_memory(CALLER)) return errno = ENOMEM, MAP_FAILED;
    return original(address, size, protection, flags, file, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
    using Function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
    if (refuses(thread_start)) return EAGAIN;
    return original(thread, attributes, start, argument);
}

#define ORIGINAL(name) static const auto original = reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void* data, size_t size) {
    ORIGINAL(write);
    if (file > 2 && refuses(file_work)) return errno = ENOSPC, -1;
    return original(file, data, size);
}

int fsync(int file) {
    ORIGINAL(fsync);
    if (refuses(file_work)) return errno = EIO, -1;
    return original(file);
}

int rename(const char* from, const char* to) {
    ORIGINAL(rename);
    if (refuses(file_work)) return errno = EIO, -1;
    return original(from, to);
}

int open64(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    using Function = int (*)(const char*, int, ...);
    static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "open64"));
    if ((flags & O_CREAT) && refuses(file_work)) return errno = EMFILE, -1;
    return original(path, flags, mode);
}

int open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}

}  // extern "C"

void* operator new(size_t size) {
    void* found = refuses_memory(CALLER) ? nullptr : __libc_malloc(size ? size : 1);
    if (!found) throw std::bad_alloc();
    return found;
}
void* operator new[](size_t size) {
    void* found = refuses_memory(CALLER) ? nullptr : __libc_malloc(size ? size : 1);
    if (!found) throw std::bad_alloc();
    return found;
}
void* operator new(size_t size, std::align_val_t alignment) {
    void* found = refuses_memory(CALLER) ? nullptr : aligned(size, size_t(alignment));
    if (!found) throw std::bad_alloc();
    return found;
}
void* operator new[](size_t size, std::align_val_t alignment) {
    void* found = refuses_memory(CALLER) ? nullptr : aligned(size, size_t(alignment));
    if (!found) throw std::bad_alloc();
    return found;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
    return refuses_memory(CALLER) ? nullptr : __libc_malloc(size ? size : 1);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
    return refuses_memory(CALLER) ? nullptr : __libc_malloc(size ? size : 1);
}
void operator delete(void* p) noexcept {
    free(p);
}
void operator delete[](void* p) noexcept {
    free(p);
}
void operator delete(void* p, size_t) noexcept {
    free(p);
}
void operator delete[](void* p, size_t) noexcept {
    free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
    free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
    free(p);
}
void operator delete[](void* p, size_t, std::align_val_t) noexcept {
    free(p);
}

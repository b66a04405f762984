/* Pool: memory for copies of large tensors, which is used again when nobody has the copy any more.

   What makes a copy dear is fresh memory, not the copying: at the first touch the system clears each page. So blocks
   are cut from slabs of several megabytes, on large pages where the system has them, and a block that comes back
   waits in the list of its size. A slab none of whose blocks is in use can be cut anew for other sizes.

   The pool holds at most `most` bytes; what is beyond that has memory of its own. Blocks come back in any thread,
   also in one that has nothing to do with Python. */

#include <stdint.h>
#include <stdlib.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define HAS_MMAP 1
#endif

enum { PAGE = 1 << 21, SMALL_PAGE = 1 << 12, SLAB = (1 << 24) + (1 << 16), SHARED = 1 << 22, SIZES = 64 };
enum { NOTES = 408, PATIENCE = 1000000 };
/* A block of more than SHARED bytes has a slab of its own. PATIENCE is in microseconds: the lock is held for far
   less, except where a process was forked while another thread had it. Then the child goes on without the pool. */

/* What is known of slabs and blocks lies in their first bytes, not in memory of the allocator's: small pieces between
   the large ones that a model takes and gives back keep these from being joined, and the model gets fresh pages. */
typedef struct Slab {
    struct Slab *next;
    struct Block *blocks; /* all that were cut from it */
    size_t bytes, cut;    /* its size, and how much of it is in use by this struct and in blocks */
    size_t in_use;        /* blocks that somebody has */
    char unused[24];
} Slab;

typedef struct Block {
    Slab *slab;
    struct Block *of_slab;        /* the next one that was cut from the slab */
    struct Block *next, **before; /* in the list of free blocks of this size; before is NULL while it is in use */
    size_t bytes;                 /* with this struct */
    char notes[NOTES];            /* for whoever has the block */
} Block;

static struct {
    PyThread_type_lock lock;
    Slab *slabs;
    Block *free[SIZES];
    size_t held, most;
} pool = {.most = (size_t)512 << 20};

static int pool_locked(void) {
    return pool.lock != NULL && PyThread_acquire_lock_timed(pool.lock, PATIENCE, 0) == PY_LOCK_ACQUIRED;
}

static void pool_unlocked(void) { PyThread_release_lock(pool.lock); }

/* The room of a block for so many bytes: one of eight sizes between a power of two and the next. */
static size_t block_size(size_t bytes) {
    size_t step = 1;
    while (step * 16 <= bytes) step *= 2;
    return (bytes + step - 1) / step * step;
}

/* The list that has the free blocks of a size, and perhaps those of others. */
static Block **free_of_size(size_t bytes) { return &pool.free[(uint32_t)(bytes / 64) * 2654435769u >> 26]; }

static void put_into_list(Block *block) {
    Block **first = free_of_size(block->bytes);
    block->next = *first;
    block->before = first;
    if (block->next) block->next->before = &block->next;
    *first = block;
}

static void take_from_list(Block *block) {
    *block->before = block->next;
    if (block->next) block->next->before = block->before;
    block->before = NULL;
}

/* Memory of so many bytes from the system; NULL where there is none. */
static char *mapped(size_t bytes) {
#ifdef HAS_MMAP
    /* One page more, so that it can begin where a large page does. */
    char *start = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t skipped = -(uintptr_t)start & (PAGE - 1);
    if (skipped) munmap(start, skipped);
    munmap(start + skipped + bytes, PAGE - skipped);
#ifdef MADV_HUGEPAGE
    madvise(start + skipped, bytes, MADV_HUGEPAGE); /* where that is refused, there are small pages */
#endif
    return start + skipped;
#else
    return malloc(bytes);
#endif
}

static void unmapped(char *memory, size_t bytes) {
#ifdef HAS_MMAP
    munmap(memory, bytes);
#else
    (void)bytes;
    free(memory);
#endif
}

/* Forgets the blocks of a slab none of which is in use. */
static void cut_anew(Slab *slab) {
    for (Block *block = slab->blocks, *next; block; block = next) {
        next = block->of_slab;
        take_from_list(block);
    }
    slab->blocks = NULL;
    slab->cut = sizeof(Slab);
}

/* Gives slabs back to the system that nobody uses, until no more than `most` bytes are held. */
static void give_back(size_t most) {
    for (Slab **at = &pool.slabs; *at && pool.held > most;) {
        Slab *slab = *at;
        if (slab->in_use) {
            at = &slab->next;
            continue;
        }
        cut_anew(slab);
        *at = slab->next;
        pool.held -= slab->bytes;
        unmapped((char *)slab, slab->bytes);
    }
}

static Slab *new_slab(size_t bytes) {
    if (bytes > pool.most) return NULL;
    if (pool.held + bytes > pool.most) give_back(pool.most - bytes);
    Slab *slab = pool.held + bytes > pool.most ? NULL : (Slab *)mapped(bytes);
    if (slab == NULL) return NULL;
    *slab = (Slab){.next = pool.slabs, .bytes = bytes, .cut = sizeof(Slab)};
    pool.slabs = slab;
    pool.held += bytes;
    return slab;
}

/* A slab with room for one more block: one that is in use, one that nobody uses, which is cut anew, or a new one. */
static Slab *slab_with_room(size_t bytes) {
    size_t own = (sizeof(Slab) + bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    size_t whole = bytes > SHARED + sizeof(Block) ? own : SLAB;
    Slab *unused = NULL;
    for (Slab *slab = pool.slabs; slab; slab = slab->next) {
        if (slab->bytes != whole) continue;
        if (slab->in_use && slab->bytes - slab->cut >= bytes) return slab;
        if (!slab->in_use) unused = slab;
    }
    if (unused == NULL) return new_slab(whole);
    cut_anew(unused);
    return unused;
}

/* A block of at least so many bytes; NULL where the pool has no more. */
static Block *block_taken(size_t bytes) {
    bytes = sizeof(Block) + block_size(bytes);
    if (!pool_locked()) return NULL;
    Block *block = *free_of_size(bytes);
    while (block && block->bytes != bytes) block = block->next;
    if (block) {
        take_from_list(block);
    } else {
        Slab *slab = slab_with_room(bytes);
        if (slab) {
            block = (Block *)((char *)slab + slab->cut);
            block->slab = slab, block->of_slab = slab->blocks, block->before = NULL, block->bytes = bytes;
            slab->blocks = block;
            slab->cut += bytes;
        }
    }
    if (block) block->slab->in_use++;
    pool_unlocked();
    return block;
}

/* Where the values of a block lie. */
static char *values_of(Block *block) { return (char *)(block + 1); }

static void block_returned(Block *block) {
    if (!pool_locked()) return;
    block->slab->in_use--;
    put_into_list(block);
    pool_unlocked();
}

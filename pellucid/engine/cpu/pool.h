/* Threads that run one function together, and the barrier between its phases.
 *
 * A step of a small model has hundreds of phases of some microseconds, so a thread that waits spins; after a
 * while it gives the core away, and between two steps it sleeps.
 */
#ifndef PELLUCID_POOL_H
#define PELLUCID_POOL_H

#include <stdatomic.h>

#define MOST_THREADS 64
#define BARRIER_SPINS 3000

typedef void (*job)(void *argument, int thread);

/* Returns how many threads, at most `wanted`, can run jobs now: 1 where another caller holds the pool. */
int pool_begin(int wanted);
/* Runs a job on that many threads, of which the caller is one. */
void pool_run(job run, void *argument, int count);
/* Frees the pool, which `pool_begin` gave if it returned more than 1. */
void pool_end(int count);

typedef struct {
  atomic_int arrived, phase, sleepers;
  int count;
} barrier;

/* Sleeps until the phase is over: beside other programs, the thread that is waited for needs the core. */
void barrier_sleep(barrier *b, int phase);
void barrier_wake(void);

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static inline void barrier_wait(barrier *b) {
  if (b->count == 1) return;
  int phase = atomic_load_explicit(&b->phase, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) == b->count - 1) {
    atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
    atomic_store(&b->phase, phase + 1);
    if (atomic_load(&b->sleepers)) barrier_wake();
    return;
  }
  for (int spins = 0; atomic_load_explicit(&b->phase, memory_order_acquire) == phase; spins++) {
    if (spins < BARRIER_SPINS) relax();
    else barrier_sleep(b, phase);
  }
}
#endif

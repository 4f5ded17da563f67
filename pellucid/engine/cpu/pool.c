#include "pool.h"

#include <pthread.h>
#include <stdint.h>

enum { SPINS = 20000 };

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER, asleep = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER, passed = PTHREAD_COND_INITIALIZER;
static atomic_int given[MOST_THREADS], finished, caller_sleeps;
static int started = 1; /* the caller is thread 0 */
static job current;
static void *current_argument;

static void *work(void *number) {
  int self = (int)(intptr_t)number;
  for (int done = 0;; done++) {
    for (int spins = 0; atomic_load_explicit(&given[self], memory_order_acquire) == done; spins++) {
      if (spins < SPINS) { relax(); continue; }
      pthread_mutex_lock(&asleep);
      while (atomic_load(&given[self]) == done) pthread_cond_wait(&woken, &asleep);
      pthread_mutex_unlock(&asleep);
    }
    current(current_argument, self);
    atomic_fetch_add(&finished, 1);
    if (atomic_load(&caller_sleeps)) barrier_wake();
  }
  return 0;
}

static void forget_threads(void) { /* a forked child has none of them */
  pthread_mutex_init(&in_use, 0);
  pthread_mutex_init(&asleep, 0);
  pthread_cond_init(&woken, 0);
  pthread_cond_init(&passed, 0);
  for (int i = 0; i < MOST_THREADS; i++) atomic_store(&given[i], 0);
  started = 1;
}

int pool_begin(int wanted) {
  static int registered = 0;
  if (wanted > MOST_THREADS) wanted = MOST_THREADS;
  if (wanted <= 1 || pthread_mutex_trylock(&in_use)) return 1;
  if (!registered) registered = !pthread_atfork(0, 0, forget_threads);
  for (pthread_t thread; started < wanted; started++) {
    if (pthread_create(&thread, 0, work, (void *)(intptr_t)started)) break;
    pthread_detach(thread);
  }
  int count = started < wanted ? started : wanted;
  if (count == 1) pthread_mutex_unlock(&in_use);
  return count;
}

void barrier_sleep(barrier *b, int phase) {
  pthread_mutex_lock(&asleep);
  atomic_fetch_add(&b->sleepers, 1); /* before the phase is read again, so that no wake-up is lost */
  while (atomic_load(&b->phase) == phase) pthread_cond_wait(&passed, &asleep);
  atomic_fetch_sub(&b->sleepers, 1);
  pthread_mutex_unlock(&asleep);
}

void barrier_wake(void) {
  pthread_mutex_lock(&asleep);
  pthread_cond_broadcast(&passed);
  pthread_mutex_unlock(&asleep);
}

void pool_run(job run, void *argument, int count) {
  if (count == 1) { run(argument, 0); return; }
  current = run;
  current_argument = argument;
  atomic_store(&finished, 0);
  pthread_mutex_lock(&asleep);
  for (int i = 1; i < count; i++) atomic_fetch_add_explicit(&given[i], 1, memory_order_release);
  pthread_cond_broadcast(&woken);
  pthread_mutex_unlock(&asleep);
  run(argument, 0);
  for (int spins = 0; atomic_load_explicit(&finished, memory_order_acquire) < count - 1; spins++) {
    if (spins < BARRIER_SPINS) { relax(); continue; }
    pthread_mutex_lock(&asleep);
    atomic_store(&caller_sleeps, 1);
    while (atomic_load(&finished) < count - 1) pthread_cond_wait(&passed, &asleep);
    atomic_store(&caller_sleeps, 0);
    pthread_mutex_unlock(&asleep);
  }
}

void pool_end(int count) {
  if (count > 1) pthread_mutex_unlock(&in_use);
}

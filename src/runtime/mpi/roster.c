#include "runtime/mpi/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_RANKS (1 << 20)

/* A rank of this host. Others' entries stay 0. */
struct entry {
  _Atomic uint64_t pids; /* the namespace that its pid is of */
  _Atomic int32_t pid;   /* 0: it has not come */
  _Atomic int32_t has_left;
};

static struct entry *entries; /* [n], or NULL */
static int n, n_here, me = -1;
static char path[512];

/* -1 where it is none. */
static int number_of(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  if (!text) return -1;
  long number = strtol(text, &end, 10);
  return end != text && *end == '\0' && number >= 0 && number <= MOST_RANKS ? (int)number : -1;
}

static uint64_t pid_namespace(void) {
  struct stat it;
  return stat("/proc/self/ns/pid", &it) == 0 ? (uint64_t)it.st_ino : 1;
}

static void map_entries(void) {
  size_t bytes = (size_t)n * sizeof *entries;
  int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  void *it = MAP_FAILED;
  if (ftruncate(fd, (off_t)bytes) == 0)
    it = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  (void)close(fd);
  if (it != MAP_FAILED) entries = it;
}

void copse_roster_join(void) {
  const char *folder = getenv("PMIX_SERVER_TMPDIR"), *job = getenv("PMIX_NAMESPACE");
  me = number_of("PMIX_RANK");
  n = number_of("OMPI_COMM_WORLD_SIZE");
  n_here = number_of("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!folder || !job || me < 0 || me >= n) return;
  int length = snprintf(path, sizeof path, "%s/copse.%s", folder, job);
  if (length < 0 || (size_t)length >= sizeof path) return;
  map_entries();
  if (!entries) return;
  atomic_store(&entries[me].pids, pid_namespace());
  atomic_store(&entries[me].pid, (int32_t)getpid());
  (void)atexit(copse_roster_leave);
}

void copse_roster_is_complete(void) {
  if (entries) (void)unlink(path);
}

void copse_roster_leave(void) {
  if (entries) atomic_store(&entries[me].has_left, 1);
}

int copse_roster_rank(void) { return me; }

/* ---- telling ------------------------------------------------------------------------------ */

size_t copse_roster_add(char *text, size_t size, size_t used, const char *more) {
  while (*more && used + 1 < size) text[used++] = *more++;
  text[used] = '\0';
  return used;
}

size_t copse_roster_add_number(char *text, size_t size, size_t used, unsigned long number) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  return copse_roster_add(text, size, used, digits + at);
}

static bool is_missing(int rank) { return atomic_load(&entries[rank].pid) == 0; }

static bool is_dead(int rank) {
  const struct entry *it = &entries[rank];
  int32_t pid = atomic_load(&it->pid);
  if (pid == 0 || atomic_load(&it->has_left)) return false;
  if (atomic_load(&it->pids) != atomic_load(&entries[me].pids)) return false;
  return kill(pid, 0) != 0 && errno == ESRCH;
}

/* "rank 3 <has>" or "ranks 3, 5 <have>". */
static size_t list(char *text, size_t size, bool (*is_one)(int), const char *has,
                   const char *have) {
  int found = 0;
  size_t used = 0;
  for (int r = 0; r < n; r++) found += is_one(r);
  if (found == 0) return 0;
  used = copse_roster_add(text, size, used, found > 1 ? "ranks " : "rank ");
  for (int r = 0, told = 0; r < n && told < found; r++) {
    if (!is_one(r)) continue;
    if (told++ > 0) used = copse_roster_add(text, size, used, ", ");
    used = copse_roster_add_number(text, size, used, (unsigned long)r);
  }
  return copse_roster_add(text, size, used, found > 1 ? have : has);
}

size_t copse_roster_tell(char *text, size_t size) {
  int missing = 0;
  text[0] = '\0';
  if (!entries) return 0;
  size_t used = list(text, size, is_dead, " has died", " have died");
  if (used > 0) return used;
  if (n_here == n) return list(text, size, is_missing, " has not started", " have not started");
  /* which of the others are of this host nobody says */
  for (int r = 0; r < n; r++) missing += is_missing(r);
  missing -= n - n_here;
  if (n_here < 0 || missing <= 0) return 0;
  used = copse_roster_add_number(text, size, used, (unsigned long)missing);
  used = copse_roster_add(text, size, used, " of the ");
  used = copse_roster_add_number(text, size, used, (unsigned long)n_here);
  return copse_roster_add(text, size, used, " processes of this host did not start");
}

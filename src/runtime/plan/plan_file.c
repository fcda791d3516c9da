/* The plan's file format: tables of fixed-width little-endian fields and a checksum. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "runtime/plan/plan.h"

static const char magic[8] = {'C', 'O', 'P', 'S', 'E', 'P', 'L', 'N'};

/* A record as the widths of its fields, which have no padding between them in memory
 * either; the file has the same fields in little-endian order. */
struct format {
  size_t record_bytes;
  const char *widths;
};

#define CHECKSUM_FIELDS "11111111111111111111111111111111" /* 32 bytes */
static const struct format header_format = {sizeof(struct copse_plan_header),
                                            "11111111"
                                            "448444444"
                                            "88884444444444" CHECKSUM_FIELDS};
static const struct format rank_format = {sizeof(struct copse_plan_rank), "44"};
static const struct format worker_format = {sizeof(struct copse_plan_worker), "444"};
static const struct format op_format = {sizeof(struct copse_plan_op), "11111111444"};
static const struct format operand_format = {sizeof(struct copse_plan_operand), "444"};
static const struct format piece_format = {sizeof(struct copse_plan_piece), "888844"};
static const struct format region_format = {sizeof(struct copse_plan_region), "444"};
static const struct format channel_format = {sizeof(struct copse_plan_channel), "44"};
static const struct format extent_format = {sizeof(struct copse_plan_extent), "88"};

_Static_assert(sizeof(struct copse_plan_header) == 152, "the file's header");
_Static_assert(sizeof(struct copse_plan_rank) == 8, "the file's rank");
_Static_assert(sizeof(struct copse_plan_worker) == 12, "the file's worker");
_Static_assert(sizeof(struct copse_plan_op) == 20, "the file's operation");
_Static_assert(sizeof(struct copse_plan_operand) == 12, "the file's operand");
_Static_assert(sizeof(struct copse_plan_piece) == 40, "the file's piece");
_Static_assert(sizeof(struct copse_plan_region) == 12, "the file's region");
_Static_assert(sizeof(struct copse_plan_channel) == 8, "the file's channel");
_Static_assert(sizeof(struct copse_plan_extent) == 16, "the file's extent");

/* Turns fields of this machine's byte order into little-endian ones and back (the same
 * exchange); on little-endian machines a copy. */
static void copy_records(const struct format *format, size_t n, void *to, const void *from) {
  if (n == 0) return;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  memcpy(to, from, n * format->record_bytes);
#else
  unsigned char *dst = to;
  const unsigned char *src = from;
  for (size_t i = 0; i < n; i++)
    for (const char *field = format->widths; *field; field++) {
      int width = *field - '0';
      for (int b = 0; b < width; b++) dst[b] = src[width - 1 - b];
      dst += width;
      src += width;
    }
#endif
}

#define N_TABLES 8
struct table {
  const struct format *format;
  size_t n;
  const void *const *records; /* where the plan points to them */
};

static void list_tables(const struct copse_plan *plan, struct table tables[N_TABLES]) {
  const struct copse_plan_header *h = &plan->header;
  const struct table list[N_TABLES] = {
      {&rank_format, h->n_ranks, (const void *const *)&plan->ranks},
      {&worker_format, h->n_workers, (const void *const *)&plan->workers},
      {&op_format, h->n_ops, (const void *const *)&plan->ops},
      {&operand_format, h->n_operands, (const void *const *)&plan->operands},
      {&piece_format, h->n_pieces, (const void *const *)&plan->pieces},
      {&region_format, h->n_regions, (const void *const *)&plan->regions},
      {&channel_format, h->n_channels, (const void *const *)&plan->channels},
      {&extent_format, h->n_extents, (const void *const *)&plan->extents}};
  memcpy(tables, list, sizeof list);
}

/* Bytes of a file with these counts. No overflow: nine counts below 2^32, times at most
 * 40 bytes each. */
static uint64_t file_bytes(const struct copse_plan *plan) {
  struct table tables[N_TABLES];
  list_tables(plan, tables);
  uint64_t bytes = sizeof(struct copse_plan_header) + COPSE_SHA256_BYTES;
  for (int t = 0; t < N_TABLES; t++)
    bytes += (uint64_t)tables[t].n * tables[t].format->record_bytes;
  return bytes + plan->header.name_bytes;
}

copse_status copse_plan_encode(const struct copse_plan *plan, char **bytes, size_t *size,
                               struct copse_err *err) {
  char *out = NULL;
  copse_status status;
  *bytes = NULL;
  *size = 0;
  COPSE_TRY(copse_plan_validate(plan, "plan", err));
  uint64_t total = file_bytes(plan);
  if (total > COPSE_FILE_MAX_BYTES)
    return copse_fail(err, COPSE_UNSUPPORTED, "a plan of %llu bytes: larger than 1 GiB",
                      (unsigned long long)total);
  COPSE_TRY(copse_calloc((size_t)total, 1, &out, err));
  struct copse_plan_header header = plan->header;
  memcpy(header.magic, magic, sizeof magic);
  header.version = COPSE_PLAN_VERSION;
  header.header_bytes = sizeof header;
  header.file_bytes = total;
  char *at = out;
  copy_records(&header_format, 1, at, &header);
  at += sizeof header;
  struct table tables[N_TABLES];
  list_tables(plan, tables);
  for (int t = 0; t < N_TABLES; t++) {
    copy_records(tables[t].format, tables[t].n, at, *tables[t].records);
    at += tables[t].n * tables[t].format->record_bytes;
  }
  memcpy(at, plan->name, header.name_bytes);
  at += header.name_bytes;
  copse_sha256(out, (size_t)(at - out), (uint8_t *)at);
  *bytes = out;
  *size = (size_t)total;
out:
  return status;
}

/* The checks that come before any use of a count. */
static copse_status check_frame(const char *label, const char *bytes, size_t size,
                                struct copse_plan *plan, struct copse_err *err) {
  struct copse_plan_header *header = &plan->header;
  size_t smallest = sizeof *header + COPSE_SHA256_BYTES;
  size_t seen = size < sizeof magic ? size : sizeof magic;
  if (size == 0) return copse_fail_at(err, COPSE_BAD_INPUT, label, 0, "is empty, not a plan");
  if (memcmp(bytes, magic, seen) != 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "is not a copse plan (a plan starts with COPSEPLN)");
  if (size < smallest)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0, "the plan is cut off: %zu bytes", size);
  copy_records(&header_format, 1, header, bytes);
  if (header->version != COPSE_PLAN_VERSION)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "a plan of version %u; this copse reads version %u", header->version,
                         COPSE_PLAN_VERSION);
  if (header->header_bytes != sizeof *header)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0, "a header of %u bytes, must be %zu",
                         header->header_bytes, sizeof *header);
  if (header->file_bytes != size || file_bytes(plan) != size)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "the plan has %zu bytes, its header says %llu and its tables make %llu",
                         size, (unsigned long long)header->file_bytes,
                         (unsigned long long)file_bytes(plan));
  uint8_t digest[COPSE_SHA256_BYTES];
  copse_sha256(bytes, size - sizeof digest, digest);
  if (memcmp(digest, bytes + size - sizeof digest, sizeof digest) != 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "the plan's checksum is wrong: the file is damaged");
  return COPSE_OK;
}

/* A decoded plan and its memory. */
struct owned_plan {
  struct copse_plan plan;
  struct copse_arena arena;
};

/* Copies the tables, which also aligns them. The sizes add up to the file's: checked. */
static copse_status copy_tables(struct owned_plan *owned, const char *bytes,
                                struct copse_err *err) {
  struct copse_plan *plan = &owned->plan;
  struct table tables[N_TABLES];
  list_tables(plan, tables);
  const char *at = bytes + sizeof plan->header;
  for (int t = 0; t < N_TABLES; t++) {
    size_t record = tables[t].format->record_bytes;
    void *records = copse_arena_alloc(&owned->arena, tables[t].n, record);
    if (!records) return copse_fail_nomem(err);
    copy_records(tables[t].format, tables[t].n, records, at);
    *(const void **)tables[t].records = records;
    at += tables[t].n * record;
  }
  char *name = copse_arena_alloc(&owned->arena, (size_t)plan->header.name_bytes + 1, 1);
  if (!name) return copse_fail_nomem(err);
  memcpy(name, at, plan->header.name_bytes);
  plan->name = name;
  return COPSE_OK;
}

copse_status copse_plan_decode(const char *label, const char *bytes, size_t size,
                               struct copse_plan **out, struct copse_err *err) {
  struct owned_plan *owned = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *owned, &owned, err));
  COPSE_TRY(check_frame(label, bytes, size, &owned->plan, err));
  COPSE_TRY(copy_tables(owned, bytes, err));
  COPSE_TRY(copse_plan_validate(&owned->plan, label, err));
  *out = &owned->plan;
  return COPSE_OK;
out:
  if (owned) copse_plan_release(&owned->plan);
  return status;
}

copse_status copse_plan_open(const char *path, struct copse_plan **out, struct copse_err *err) {
  char *bytes = NULL;
  size_t size;
  *out = NULL;
  copse_status status = copse_file_read(path, &bytes, &size, err);
  if (status == COPSE_OK) status = copse_plan_decode(copse_file_label(path), bytes, size, out, err);
  free(bytes);
  return status;
}

/* The plan is the first member of its owner. */
void copse_plan_release(struct copse_plan *plan) {
  struct owned_plan *owned = (struct owned_plan *)plan;
  if (!owned) return;
  copse_arena_free(&owned->arena);
  free(owned);
}

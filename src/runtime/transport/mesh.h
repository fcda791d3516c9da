/*
 * Inside src/runtime: the processes of a job, one rank each, joined by a wire (copse/wire.h).
 * The mesh keeps messages in order, keeps launches apart, and keeps time, so that what runs on it
 * never hangs:
 *
 *   who differs    Whoever sends to a rank in a launch first says what launch it is in: number,
 *                  plan, call. The receiver holds what belongs to a later one and refuses what
 *                  belongs to another call.
 *   who is gone    A rank that has stood still for a while asks all others how they are. After the
 *                  time limit it follows who waits for whom to a rank that doesn't answer, and
 *                  names it; where all answer and none moves, it's a standstill.
 *   who knows      The first reason is told to all; every rank ends with it.
 *
 * One thread at a time. Progress is made in copse_mesh_step alone.
 */
#ifndef COPSE_RUNTIME_TRANSPORT_MESH_H
#define COPSE_RUNTIME_TRANSPORT_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "copse/wire.h"

struct copse_mesh;

#define COPSE_MESH_NOBODY UINT32_MAX
/* Tags below are the mesh's own. */
#define COPSE_MESH_FIRST_TAG 8u
#define COPSE_MESH_DIGEST_BYTES 32

/* Checks that all run this version. Takes the wire over, also when it fails. timeout 0: 600 s. */
copse_status copse_mesh_new(const copse_wire *wire, double timeout_seconds, struct copse_mesh **out,
                            struct copse_err *err) COPSE_CHECKED;
void copse_mesh_free(struct copse_mesh *mesh);

uint32_t copse_mesh_rank(const struct copse_mesh *mesh);
uint32_t copse_mesh_size(const struct copse_mesh *mesh);
unsigned copse_mesh_most_tag(const struct copse_mesh *mesh);
void copse_mesh_set_timeout(struct copse_mesh *mesh, double seconds);
/* Why it is of no use any more, or COPSE_OK. */
copse_status copse_mesh_tell(const struct copse_mesh *mesh, struct copse_err *err);
/* From any thread: what runs ends with COPSE_ABORTED at its next step. */
void copse_mesh_abort(struct copse_mesh *mesh);
/* Breaks it and tells all others. The first reason stays; returns its status. */
copse_status copse_mesh_fail(struct copse_mesh *mesh, const struct copse_err *why);

/* copse_bootstrap's all_gather; `mesh` is the context. */
copse_status copse_mesh_all_gather(void *mesh, const void *mine, void *all, size_t bytes);

/* ---- a launch --------------------------------------------------------------------------- */

/* What must be the same at all who take part. Compared as bytes: no holes. */
struct copse_mesh_call {
  uint64_t launch; /* the mesh's */
  uint8_t plan[COPSE_MESH_DIGEST_BYTES];
  uint64_t count;
  uint32_t type, redop;
  uint64_t pair_counts; /* a digest of them; 0: full blocks */
};

/* Whoever runs the launch. */
struct copse_mesh_reader {
  void *context;
  /* Memory for a message's n bytes. */
  copse_status (*place)(void *context, uint32_t from, unsigned tag, size_t n, void **bytes,
                        struct copse_err *err);
  /* It is there, and so is all that its sender sent before. */
  void (*arrived)(void *context, uint32_t from, unsigned tag);
  /* The rank that this one waits for, or COPSE_MESH_NOBODY; where and why, if text isn't NULL. */
  uint32_t (*waits_for)(void *context, char *text, size_t size);
};

copse_status copse_mesh_begin(struct copse_mesh *mesh, const struct copse_mesh_call *call,
                              const struct copse_mesh_reader *reader,
                              struct copse_err *err) COPSE_CHECKED;
/* When nothing is left to do and copse_mesh_is_sent, or after an error. COPSE_REFUTED where
 * somebody is still sending. */
copse_status copse_mesh_end(struct copse_mesh *mesh, struct copse_err *err);

/* Bytes on their way to one or more ranks. */
struct copse_parcel;
/* NULL: so much is on its way that it should wait, or the mesh is broken. */
struct copse_parcel *copse_mesh_new_parcel(struct copse_mesh *mesh, size_t n);
unsigned char *copse_parcel_bytes(struct copse_parcel *parcel);
void copse_mesh_send(struct copse_mesh *mesh, uint32_t to, unsigned tag,
                     struct copse_parcel *parcel);
/* Who made it is done with it. */
void copse_mesh_drop(struct copse_mesh *mesh, struct copse_parcel *parcel);
bool copse_mesh_is_sent(const struct copse_mesh *mesh);
/* The rank that the oldest unfinished message is for, or COPSE_MESH_NOBODY. */
uint32_t copse_mesh_sends_to(const struct copse_mesh *mesh);

/* Progress. `moved`: whether the caller has got on since the last step. */
copse_status copse_mesh_step(struct copse_mesh *mesh, bool moved,
                             struct copse_err *err) COPSE_CHECKED;

#endif

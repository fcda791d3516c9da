/* What the mesh's files share. */
#ifndef COPSE_RUNTIME_TRANSPORT_MESH_INTERNAL_H
#define COPSE_RUNTIME_TRANSPORT_MESH_INTERNAL_H

#include <stdatomic.h>

#include "runtime/transport/mesh.h"

/* Messages of the mesh itself. All but BEGIN overtake those of launches. */
enum copse_mesh_tag {
  COPSE_MESH_PING,   /* are you there? */
  COPSE_MESH_PONG,   /* struct copse_mesh_pong */
  COPSE_MESH_ABORT,  /* struct copse_mesh_reason */
  COPSE_MESH_GATHER, /* one rank's part of an all_gather */
  COPSE_MESH_BEGIN   /* struct copse_mesh_call: what comes next belongs to this launch */
};

struct copse_mesh_pong {
  uint64_t moves; /* grows whenever the rank gets on */
  uint32_t waits_for;
  uint32_t launch; /* its last, modulo 2^32 */
};

struct copse_mesh_reason {
  uint32_t status, zero;
  char text[sizeof((struct copse_err *)0)->text];
};

/* A message that has come in. */
struct copse_letter {
  unsigned tag;
  size_t n;
  void *message; /* the wire's, until it is being received */
  void *request; /* the wire's, until it is there */
  bool started;
  unsigned char *own; /* the mesh's own messages: their bytes */
  struct copse_letter *next;
};

struct copse_letters {
  struct copse_letter *head, **tail;
};

struct copse_parcel {
  uint32_t refs;
  size_t n, capacity;
  struct copse_parcel *next; /* among those that are free */
  unsigned char bytes[];
};

/* A message that goes out. */
struct copse_outgoing {
  struct copse_parcel *parcel;
  void *request;
  bool counts; /* its end is progress */
  struct copse_outgoing *next;
};

struct copse_peer {
  struct copse_letters launches;           /* BEGIN, and what belongs to launches */
  struct copse_letters control;            /* the mesh's own */
  struct copse_letters gathered;           /* parts of all_gathers, complete */
  struct copse_outgoing *sent, **sent_end; /* in order */
  struct copse_mesh_call call;             /* of the launch that it is in, as far as told */
  struct copse_mesh_call next_call;        /* being received */
  uint64_t announced;                      /* the launch that it was told about */
  double heard;                            /* when something came from it */
  double moved;                            /* when it was known to have got on */
  struct copse_mesh_pong pong;             /* its last */
};

struct copse_mesh {
  copse_wire wire;
  uint32_t n, me;
  struct copse_peer *peers; /* [n] */
  uint32_t n_outgoing;
  size_t bytes_outgoing;
  struct copse_parcel *free_parcels;
  struct copse_mesh_call call;            /* of the last launch */
  const struct copse_mesh_reader *reader; /* of the present one, or NULL */
  uint32_t gather_waits_for;
  double timeout;
  _Atomic bool aborted;
  struct copse_err broken;
  /* keeping time */
  uint64_t moves;
  uint32_t idle;     /* steps since the last */
  double last_move;  /* when */
  double last_asked; /* when others were asked how they are */
};

/* Keeps the reason and tells nobody. Returns the first one's status. */
copse_status copse_mesh_break(struct copse_mesh *mesh, const struct copse_err *why);
/* After one of the wire's functions has failed; `what` is "sending to" and the like. */
copse_status copse_mesh_wire_failed(struct copse_mesh *mesh, const char *what, uint32_t rank,
                                    copse_status status);
copse_status copse_mesh_out_of_memory(struct copse_mesh *mesh);

/* Sends a message of the mesh's own. */
void copse_mesh_send_own(struct copse_mesh *mesh, uint32_t to, unsigned tag, const void *bytes,
                         size_t n);
/* Whether something got on. Errors are in mesh->broken. */
bool copse_mesh_push_out(struct copse_mesh *mesh);
bool copse_mesh_take_in(struct copse_mesh *mesh);
/* Against the call that the peer has told of. */
void copse_mesh_compare_calls(struct copse_mesh *mesh, uint32_t from);
/* A peer that sends to a rank which has left the launch. */
void copse_mesh_refuse_late(struct copse_mesh *mesh, uint32_t from);
void copse_mesh_free_letters(struct copse_letters *letters);

/* Keeping time: after every step. */
void copse_mesh_watch(struct copse_mesh *mesh, bool moved);
void copse_mesh_heard_pong(struct copse_mesh *mesh, uint32_t from,
                           const struct copse_mesh_pong *pong);
uint32_t copse_mesh_waits_for(const struct copse_mesh *mesh, char *text, size_t size);

#endif

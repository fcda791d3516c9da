/*
 * The numbers that steer what is found of a topology: how long symmetries are searched for, and
 * routes of equal length. None decides whether a result is right: an automorphism is checked, and a
 * route is a path. "Not measured": nothing is on record.
 */
#pragma once

/* ---- symmetries (symmetry/search.c) ---- */

/* Work in arcs looked at, for generators and again for other automorphisms: this many rounds over
 * all arcs, within bounds; turns by number get a part of it. Not measured. */
#define MOST_ROUNDS 256
#define LEAST_WORK 200000
#define MOST_WORK 100000000
#define PART_FOR_TURNS 4
/* First images of different kinds that are tried for one generator, and other choices after each.
 * Not measured. */
#define MOST_KINDS 32
#define MOST_CHOICES 8
/* Ranks looked at to tell whether all are moved as far. Not measured. */
#define SAMPLE 32
/* Automorphisms that only join orbits, and ranks that seem alike but are not shown to be. Not
 * measured. */
#define MOST_OTHERS 64
#define MOST_UNSHOWN 16

/* Links looked at for the nearest node: all beyond them count as equally far. Not measured. */
#define MOST_LOOKED_AT (1 << 15)
/* A walk looks at so many links in the time in which refinement looks at one. */
#define LOOKS_PER_WORK 16

/* ---- symmetries that keep sets (symmetry/symmetry.c) ---- */

/* Images that are tried, and of them those that fail: of ranks that look alike and are not few more
 * will be. Not measured. */
#define MOST_IMAGES_TRIED 100
#define MOST_IMAGES_FAILED 24

/* ---- routes (route.c) ---- */

/* The first pass goes pair by pair, the others route each pair anew among all the rest. Not
 * measured. */
#define ROUTE_PASSES 4
/* Equally good routes that a pair's messages of a plan are spread over: hosts of today have up to
 * four NICs for a GPU. */
#define ROUTE_WAYS 4
#define SPREAD_PASSES 2

/* ---- balanced relays (modify.c) ---- */

/* Rounds of lowering links until each relay has as much in as out; after so many it is refused. */
#define BALANCE_PASSES 64

/*
 * Inside the readers only: the keys of schedule JSON, "copse-schedule/1", a table for each of its
 * objects: what a value must be, and what messages say of it. docs/schemas/schedule.json says the
 * same.
 */
#pragma once

#include "base/json.h"

static const struct copse_json_key rotation_keys[] = {
    {"order", COPSE_JSON_NEEDED | COPSE_JSON_COUNT,
     "after how many times each node is itself again, such as 4"},
    {"nodes", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {"images", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "the ids that they are mapped to"},
    {0}};

static const struct copse_json_key symmetry_keys[] = {
    {"nodes", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {"absent", COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {"generators", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "permutations, such as [{\"order\": 2, \"images\": [\"gpu1\", \"gpu0\"]}]"},
    {0}};

static const struct copse_json_key generator_keys[] = {
    {"order", COPSE_JSON_NEEDED | COPSE_JSON_COUNT,
     "after how many times each node is itself again, such as 4"},
    {"images", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "the ids that \"nodes\" are mapped to"},
    {0}};

static const struct copse_json_key path_keys[] = {
    {"path", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "the ids of its nodes, such as [\"gpu0\", \"switch\", \"gpu1\"]"},
    {"weight", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE,
     "the fraction of M that it carries, such as \"1/256\""},
    {0}};

static const struct copse_json_key flow_keys[] = {
    {"src", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "the rank that sends, from 0"},
    {"dst", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "the rank that receives, from 0"},
    {"paths", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "such as [{\"path\": [\"gpu0\", \"gpu1\"], \"weight\": \"1/4\"}]"},
    {0}};

static const struct copse_json_key cut_keys[] = {
    {"phase", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"broadcast\" or \"reduce\""},
    {"weight", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE,
     "its part of the certificate, such as \"1/2\""},
    {"cut", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {0}};

static const struct copse_json_key potential_keys[] = {
    {"node", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "the id of a node"},
    {"value", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "its potential, such as \"-1/2\""},
    {0}};

static const struct copse_json_key in_network_keys[] = {
    {"multicast", COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {"aggregation", COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {0}};

static const struct copse_json_key topology_keys[] = {
    {"name", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "the name of the topology"},
    {"sha256", COPSE_JSON_STRING, "of the canonical topology JSON, 64 hexadecimal digits"},
    {0}};

static const struct copse_json_key bound_keys[] = {
    {"time_per_GB", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "seconds per GB, such as \"1/600\""},
    {"cut", COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {"kind", COPSE_JSON_STRING, "\"cut\", \"phases\" or \"forests\""},
    {"reduce_cut", COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {"lengths", COPSE_JSON_OBJECT, "of links, such as {\"gpu0>gpu1\": 1}"},
    {"cuts", COPSE_JSON_ARRAY,
     "such as [{\"phase\": \"reduce\", \"weight\": \"1/2\", \"cut\": [\"gpu0\"]}]"},
    {"potentials", COPSE_JSON_ARRAY, "such as [{\"node\": \"gpu0\", \"value\": \"1/2\"}]"},
    {0}};

static const struct copse_json_key routes_keys[] = {
    {"time_per_GB", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "seconds per GB, such as \"1/600\""},
    {"lengths", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT, "of links, such as {\"gpu0>gpu1\": 1}"},
    {0}};

static const struct copse_json_key part_keys[] = {
    {"us", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "a time in us, such as \"5/2\""},
    {"nodes", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
    {0}};

static const struct copse_json_key bound_at_keys[] = {
    {"bytes", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "of a message, such as 65536"},
    {"alpha_us", COPSE_JSON_NEEDED | COPSE_JSON_NOT_NEGATIVE,
     "us of a hop from rank to rank, such as 2"},
    {"us", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE, "the bound in us, such as \"21/4\""},
    {"kind", COPSE_JSON_NEEDED | COPSE_JSON_STRING,
     "\"cut\", \"volume\", \"rounds\", \"nested\" or \"lengths\""},
    {"rank", COPSE_JSON_INDEX, "the rank whose share arrives last"},
    {"reversed", COPSE_JSON_BOOL, "true where that share leaves last"},
    {"parts", COPSE_JSON_ARRAY, "such as [{\"nodes\": [\"gpu0\"]}]"},
    {"times", COPSE_JSON_ARRAY, "such as [{\"us\": \"5/2\", \"nodes\": [\"gpu0\"]}]"},
    {"part_ranks", COPSE_JSON_COUNT, "each part has as many ranks or more, such as 8"},
    {"later", COPSE_JSON_ARRAY, "lists as \"times\", of messages that count otherwise"},
    {0}};

static const struct copse_json_key edge_keys[] = {
    {"src", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "the rank that sends, from 0"},
    {"dst", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "the rank that receives, from 0"},
    {"path", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "the ids of its nodes, such as [\"gpu0\", \"switch\", \"gpu1\"]"},
    {0}};

static const struct copse_json_key change_keys[] = {
    {"tree", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "the number of a tree of the list, from 0"},
    {"image", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "the number of its image, from 0"},
    {"weight", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE,
     "the fraction of M that goes this way, such as \"1/16\""},
    {"edges", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "numbers of \"edges\", or such as [{\"src\": 0, \"dst\": 1, \"path\": [\"gpu0\", \"gpu1\"]}]"},
    {0}};

static const struct copse_json_key tree_keys[] = {
    {"root", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "a rank, from 0"},
    {"phase", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"broadcast\" or \"reduce\""},
    {"weight", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE,
     "the fraction of M that the tree carries, such as \"1/16\""},
    {"piece", COPSE_JSON_INDEX, "of the message, from 0"},
    {"stage", COPSE_JSON_INDEX, "from 1"},
    {"edges", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "such as [{\"src\": 0, \"dst\": 1, \"path\": [\"gpu0\", \"gpu1\"]}]"},
    {0}};

static const struct copse_json_key objective_keys[] = {
    {"bytes", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "of a message, such as 65536"},
    {"chunks", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "how many the message is cut into, such as 4"},
    {"fifo", COPSE_JSON_COUNT, "slots of a plan's buffers, such as 4"},
    {"alpha_us", COPSE_JSON_NOT_NEGATIVE, "us of a hop from rank to rank, such as 2"},
    {"alpha_occupies", COPSE_JSON_BOOL, "whether latencies keep links busy"},
    {"far_first", COPSE_JSON_BOOL, "whether links serve first what has the most hops to go"},
    {0}};

/* Of the whole: of a schedule of trees, or of an alltoall's flows. */
enum { TREES = 1, FLOWS = 2 };
static const struct copse_json_key schedule_keys[] = {
    {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-schedule/1\""},
    {"collective", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "such as \"allgather\""},
    {"root", COPSE_JSON_INDEX | COPSE_JSON_OF(TREES),
     "the rank that broadcasts or reduces, from 0"},
    {"topology", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
     "such as {\"name\": \"a100-x2\", \"sha256\": \"..\"}"},
    {"ranks", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
     "the ids of the ranks in order, such as [\"gpu0\", \"gpu1\"]"},
    {"k", COPSE_JSON_INDEX | COPSE_JSON_OF(TREES), "trees per rank"},
    {"time_per_GB", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "seconds per GB, such as \"1/600\""},
    {"algbw_GBps", COPSE_JSON_ANY, "GB/s, the inverse of time_per_GB"},
    {"bound", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
     "such as {\"time_per_GB\": \"1/600\", \"cut\": [\"gpu0\"]}"},
    {"others", COPSE_JSON_STRING, "\"relay\" or \"exclude\""},
    {"bound_at", COPSE_JSON_OBJECT, "the bound for one message size"},
    {"objective", COPSE_JSON_OBJECT, "the message size that it was made for"},
    {"trees", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY | COPSE_JSON_OF(TREES),
     "such as [{\"root\": 0, \"phase\": \"broadcast\", \"weight\": \"1/2\", \"edges\": []}]"},
    {"flows", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY | COPSE_JSON_OF(FLOWS),
     "such as [{\"src\": 0, \"dst\": 1, \"paths\": []}]"},
    {"demand", COPSE_JSON_ARRAY | COPSE_JSON_OF(FLOWS), "bytes from each rank to each"},
    {"forward", COPSE_JSON_BOOL | COPSE_JSON_OF(FLOWS), "false where GPUs pass nothing on"},
    {"rotation", COPSE_JSON_OBJECT | COPSE_JSON_OF(FLOWS), "a permutation of nodes (compact form)"},
    {"symmetry", COPSE_JSON_OBJECT | COPSE_JSON_OF(TREES), "permutations of nodes (compact form)"},
    {"edges", COPSE_JSON_ARRAY | COPSE_JSON_OF(TREES), "of changes, which have their numbers"},
    {"changes", COPSE_JSON_ARRAY | COPSE_JSON_OF(TREES),
     "what single images have instead (compact form)"},
    {"in_network", COPSE_JSON_OBJECT | COPSE_JSON_OF(TREES),
     "such as {\"multicast\": [\"nvswitch\"]}"},
    {"routes", COPSE_JSON_OBJECT | COPSE_JSON_OF(TREES),
     "the bound of trees on the fabric's own routes"},
    {0}};

/*
 * Machines with one fault each, planted in the files that copse audit is given: the fault must be its
 * first finding, with its numbers and what mends it.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>

#include "base/text.h"
#include "nccl_files.h"
#include "support/command.h"

#define MACHINES "schedules/nccl/"
#define A100 MACHINES "dgx-a100-8nic.topo.xml"
#define H100 MACHINES "dgx-h100-8nic.topo.xml"
#define OWN "tests/data/nccl/"
#define MIB (INT64_C(1) << 20)

/* ---- files ----------------------------------------------------------------------------------- */

/* Bus ids of a machine's eight GPUs, "0000:12:00", in the order of its file. */
static char buses[8][16];

static void read_buses(const char *topology) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  int n = 0;
  ASSERT_OK(copse_file_read(topology, &text, &size, &err), &err);
  for (const char *p = text; n < 8 && (p = strstr(p, "<pci busid=\"")) != NULL; p += 12) {
    const char *end = strchr(p, '>'), *gpu = strstr(p, "class=\"0x03");
    if (gpu && gpu < end) snprintf(buses[n++], sizeof buses[0], "%.10s", p + 12);
  }
  ck_assert_int_eq(n, 8);
  free(text);
}

/* A file's text with one word in place of another, all over. */
static void write_changed(const char *name, const char *path, const char *from, const char *to) {
  struct copse_text out = {0};
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  ASSERT_OK(copse_file_read(path, &text, &size, &err), &err);
  const char *rest = text;
  for (const char *at; (at = strstr(rest, from)) != NULL; rest = at + strlen(from))
    copse_text_add(&out, "%.*s%s", (int)(at - rest), rest, to);
  copse_text_add(&out, "%s", rest);
  copse_test_write(name, out.data);
  copse_text_free(&out);
  free(text);
}

/* Rings and trees of n channels over g GPUs; channel c begins at GPU c, and ends at GPU c + turned. With NICs
 * it comes in and goes out by those of these numbers. */
static void write_graph(const char *name, int n, int g, double speed, const char *types,
                        int turned, bool nics) {
  struct copse_text out = {0};
  copse_text_add(&out, "<graphs version=\"1\">\n");
  for (int id = 0; id < 2; id++) {
    copse_text_add(&out,
                   "<graph id=\"%d\" pattern=\"%d\" crossnic=\"%d\" nchannels=\"%d\" speedintra=\"%g\" "
                   "speedinter=\"%g\" latencyinter=\"0\" %s samechannels=\"0\">\n",
                   id, id == 0 ? 4 : 1, turned != 0, n, speed, speed, types);
    for (int c = 0; c < n; c++) {
      copse_text_add(&out, "<channel>\n");
      if (nics) copse_text_add(&out, "<net dev=\"%#x\"/>\n", c % g);
      copse_text_add(&out, "<gpu dev=\"%#x\"/>\n", c % g);
      for (int i = 0; i < g; i++)
        if (i != c % g && i != (c + turned) % g) copse_text_add(&out, "<gpu dev=\"%#x\"/>\n", i);
      if (turned) copse_text_add(&out, "<gpu dev=\"%#x\"/>\n", (c + turned) % g);
      if (nics) copse_text_add(&out, "<net dev=\"%#x\"/>\n", (c + turned) % g);
      copse_text_add(&out, "</channel>\n");
    }
    copse_text_add(&out, "</graph>\n");
  }
  copse_text_add(&out, "</graphs>\n");
  copse_test_write(name, out.data);
  copse_text_free(&out);
}

/* What nccl-tests print of sizes that double, with these bus bandwidths, at so many hosts of eight. */
static void write_tests(int hosts, int64_t bytes, const double *busbw, int n, int wrong) {
  struct copse_text out = {0};
  int ranks = 8 * hosts;
  copse_text_add(&out, "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007\n# Collective "
                       "test starting: all_reduce_perf\n# Using devices\n");
  for (int r = 0; r < ranks; r++)
    copse_text_add(&out, "#  Rank %2d Group  0 Pid  5 on node-%c device  %d [%s] GPU\n", r, 'a' + r / 8,
                   r % 8, buses[r % 8]);
  copse_text_add(&out, "#       size         count      type   redop    root     time   algbw   busbw  "
                       "#wrong     time   algbw   busbw  #wrong \n");
  for (int i = 0; i < n; i++, bytes *= 2) {
    double algbw = busbw[i] / (2.0 * (ranks - 1) / ranks), us = (double)bytes / algbw / 1000;
    copse_text_add(&out,
                   "%12" PRId64 "  %12" PRId64 "     float     sum      -1  %7.2f  %6.2f  %6.2f  %6d  "
                   "%7.2f  %6.2f  %6.2f  %6d\n",
                   bytes, bytes / 4, us, algbw, busbw[i], wrong, us, algbw, busbw[i], 0);
  }
  copse_text_add(&out, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n");
  copse_test_write("tests.txt", out.data);
  copse_text_free(&out);
}

static void write_flat_tests(int hosts, double busbw) {
  const double rows[] = {0.97 * busbw, 0.99 * busbw, busbw};
  write_tests(hosts, 256 * MIB, rows, 3, 0);
}

static void add_rank(struct copse_text *out, int r, int ranks, const char *comm, const char *when) {
  char bus[16];
  snprintf(bus, sizeof bus, "%c%c000", buses[r % 8][5], buses[r % 8][6]);
  copse_text_add(out,
                 "node-%c:5:%d [%d] NCCL INFO ncclCommInitRank comm %s%02d rank %d nranks %d cudaDev %d "
                 "nvmlDev %d busId %s commId %s - Init %s\n",
                 'a' + r / 8, 10 + r, r % 8, comm, r, r, ranks, r % 8, r % 8, bus, comm, when);
}

/* A job's log: `more` first; rings that come in by GPU c of each host and leave by the other GPU of that
 * switch, over NIC c, of so many; `last`. */
struct job {
  int hosts, channels;
  const char *via; /* in hosts */
  int nics;
  const char *net, *suffix; /* between them: "IB", "/GDRDMA" */
  const char *more, *last;
};

/* Host after host; the ring starts at rank 0. */
static int order_ranks(const struct job *job, int channel, int order[16]) {
  int in = job->hosts > 1 ? channel % job->nics : 0, n = 0, zero = 0, turned[16];
  for (int h = 0; h < job->hosts; h++) {
    order[n++] = 8 * h + in;
    for (int g = 0; g < 8; g++)
      if (g / 2 != in / 2) order[n++] = 8 * h + g;
    order[n++] = 8 * h + (in ^ 1);
  }
  while (order[zero] != 0) zero++;
  for (int i = 0; i < n; i++) turned[i] = order[(zero + i) % n];
  memcpy(order, turned, (size_t)n * sizeof *order);
  return n;
}

static void add_edge(struct copse_text *out, const struct job *job, int channel, int a, int b) {
  bool inside = a / 8 == b / 8, shm = inside && strncmp(job->via, "SHM", 3) == 0;
  for (int end = 0; end < (inside ? 1 : 2); end++) {
    int r = end ? b : a;
    copse_text_add(out, "node-%c:5:%d [%d] NCCL INFO Channel %02d%s : %d[%d] -> %d[%d] %svia ", 'a' + r / 8,
                   10 + r, r % 8, channel, shm ? "" : "/0", a, a % 8, b, b % 8,
                   inside ? "" : end ? "[receive] " : "[send] ");
    if (inside)
      copse_text_add(out, "%s\n", job->via);
    else
      copse_text_add(out, "NET/%s/%d%s\n", job->net, channel % job->nics, job->suffix);
  }
}

static void write_log(const struct job *job) {
  struct copse_text out = {0};
  int ranks = 8 * job->hosts, order[16];
  copse_text_add(&out, "%s", job->more ? job->more : "");
  for (int r = 0; r < ranks; r++) add_rank(&out, r, ranks, "0x51", "START");
  for (int c = 0; c < job->channels; c++) {
    int n = order_ranks(job, c, order);
    copse_text_add(&out, "node-a:5:10 [0] NCCL INFO Channel %02d/%02d :", c, job->channels);
    for (int i = 0; i < n; i++) copse_text_add(&out, " %d", order[i]);
    copse_text_add(&out, "\n");
    for (int i = 0; i < n; i++) add_edge(&out, job, c, order[i], order[(i + 1) % n]);
  }
  for (int r = 0; r < ranks; r++) add_rank(&out, r, ranks, "0x51", "COMPLETE");
  copse_text_add(&out, "%s", job->last ? job->last : "");
  copse_test_write("job.log", out.data);
  copse_text_free(&out);
}

/* What nvbandwidth prints of the eight GPUs: GB/s of each pair, and of the one from GPU 2 to 3. */
static void write_nvbandwidth(double pair, double slow) {
  struct copse_text out = {0};
  copse_text_add(&out, "nvbandwidth Version: v0.8\n\nnode-a\n");
  for (int i = 0; i < 8; i++) copse_text_add(&out, "Device %d: GPU (0000%s)\n", i, buses[i]);
  copse_text_add(&out, "\nRunning device_to_device_memcpy_write_ce.\nmemcpy CE GPU(row) <- GPU(column) "
                       "bandwidth (GB/s)\n      0 1 2 3 4 5 6 7\n");
  for (int i = 0; i < 8; i++) {
    copse_text_add(&out, " %d ", i);
    for (int k = 0; k < 8; k++)
      if (i == k)
        copse_text_add(&out, "      N/A");
      else
        copse_text_add(&out, " %9.2f", i == 3 && k == 2 ? slow : pair);
    copse_text_add(&out, "\n");
  }
  copse_text_add(&out, "\nSUM device_to_device_memcpy_write_ce 1\n");
  copse_test_write("nvbandwidth.txt", out.data);
  copse_text_free(&out);
}

/* ---- faults ---------------------------------------------------------------------------------- */

#define NVL "typeintra=\"NVL\" typeinter=\"PIX\""
#define SETTING(name, value) \
  "node-a:5:10 [0] NCCL INFO " name " set by environment to " value ".\n"

/* Twelve channels of 20 GB/s: what NCCL takes of eight A100 at an NVSwitch. */
static void a100(double measured, const struct job *job) {
  read_buses(A100);
  write_graph("graph.xml", 12, 8, 20, NVL, 0, false);
  write_flat_tests(1, measured);
  if (job) write_log(job);
}

static void on_two_hosts(double measured, const struct job *job) {
  read_buses(A100);
  write_flat_tests(2, measured);
  write_log(job);
}

static void nic_left_out(void) { write_graph("graph.xml", 7, 8, 48, NVL, 0, true); }

/* Four rails of two hosts, whose switches have 5 GB/s to a spine. */
static void crossed_rails(void) {
  struct copse_text nodes = {0}, links = {0}, all = {0};
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < 4; i++) {
      copse_text_add(&nodes, "{\"id\": \"h%d.g%d\", \"type\": \"gpu\"}, {\"id\": \"h%d.n%d\", \"type\": \"nic\"}, ",
                     h, i, h, i);
      copse_text_add(&links,
                     "{\"src\": \"h%d.g%d\", \"dst\": \"h%d.n%d\", \"bandwidth\": 25}, {\"src\": \"h%d.n%d\", "
                     "\"dst\": \"r%d\", \"bandwidth\": 25}, {\"src\": \"h%d.g%d\", \"dst\": \"h%d.s\", "
                     "\"bandwidth\": 300}, ",
                     h, i, h, i, h, i, i, h, i, h);
    }
  for (int i = 0; i < 4; i++) {
    copse_text_add(&nodes, "{\"id\": \"r%d\", \"type\": \"switch\"}, ", i);
    copse_text_add(&links, "{\"src\": \"r%d\", \"dst\": \"spine\", \"bandwidth\": 5}%s", i, i < 3 ? ", " : "");
  }
  copse_text_add(&all,
                 "{\"format\": \"copse-topology/1\", \"name\": \"rails\", \"nodes\": [%s{\"id\": \"spine\", "
                 "\"type\": \"switch\"}, {\"id\": \"h0.s\", \"type\": \"nvswitch\"}, {\"id\": \"h1.s\", "
                 "\"type\": \"nvswitch\"}], \"links\": [%s]}",
                 nodes.data, links.data);
  copse_test_write("rails.json", all.data);
  write_graph("graph.xml", 4, 4, 25, NVL, 1, true);
  copse_text_free(&nodes);
  copse_text_free(&links);
  copse_text_free(&all);
}

static void nvlinks_left_out(void) { write_graph("graph.xml", 4, 8, 20, NVL, 0, false); }
static void nothing(void) {}
static void few_channels(void) {
  a100(38, &(struct job){1, 2, "P2P/CUMEM", .more = SETTING("NCCL_MAX_NCHANNELS", "2")});
}
static void fast_sockets(void) {
  read_buses(OWN "turin-8-sm100.topo.xml");
  write_flat_tests(1, 37.6);
  write_log(&(struct job){1, 16, "SHM/direct/direct", .more = ""});
}
static void slow_pair(void) {
  a100(95, NULL);
  write_nvbandwidth(232, 90);
}
static void slow_links(void) {
  a100(110, NULL);
  write_nvbandwidth(112, 112);
}
static void bad_range(void) {
  static const double rows[] = {60, 90, 35, 140, 200, 215, 232};
  a100(0, &(struct job){1, 24, "P2P/CUMEM",
                        .last = "node-a:5:10 [0] NCCL INFO AllReduce: 2097152 Bytes -> Algo RING proto "
                                "LL128 channel{Lo..Hi}={0..23}\nnode-a:5:10 [0] NCCL INFO AllReduce: 4194304 "
                                "Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..23}\n"});
  write_tests(1, MIB, rows, 7, 0);
}
static void other_group(void) {
  struct copse_text other = {0};
  read_buses(A100);
  for (int r = 0; r < 4; r++) add_rank(&other, r, 4, "0x77", "COMPLETE");
  a100(120, &(struct job){1, 24, "P2P/CUMEM", .last = other.data});
  copse_text_free(&other);
}
static void no_gpudirect(void) {
  on_two_hosts(90, &(struct job){2, 8, "P2P/CUMEM", 8, "IB", "", .more = ""});
}
static void sockets(void) { on_two_hosts(4, &(struct job){2, 8, "P2P/CUMEM", 1, "Socket", "", .more = ""}); }
static void half_of_the_nics(void) {
  on_two_hosts(90, &(struct job){2, 8, "P2P/CUMEM", 4, "IB", "/GDRDMA",
                                 .more = SETTING("NCCL_IB_HCA", "mlx5_0,mlx5_1,mlx5_2,mlx5_3")});
}
static void no_peer_access(void) {
  a100(20, &(struct job){1, 24, "SHM/direct/direct", .more = SETTING("NCCL_P2P_DISABLE", "1")});
}
static void no_nvls(void) {
  read_buses(H100);
  write_graph("graph.xml", 12, 8, 30, NVL, 0, false);
  write_flat_tests(1, 355);
  write_log(&(struct job){1, 24, "P2P/CUMEM", .more = SETTING("NCCL_NVLS_ENABLE", "0")});
}
static void misread_speed(void) {
  write_changed("topo.xml", A100, "16.0 GT/s PCIe", "16.0 GT/s");
  write_graph("graph.xml", 8, 8, 12, NVL, 0, true);
}
static void misread_cpu(void) {
  write_changed("topo.xml", H100, "x86_64", "aarch64");
  write_graph("graph.xml", 12, 8, 30, NVL, 0, false);
}
static void low_steps(void) { write_graph("graph.xml", 12, 8, 10, NVL, 0, false); }
static void wrong_results(void) {
  static const double rows[] = {228, 230};
  a100(230, NULL);
  write_tests(1, 512 * MIB, rows, 2, 3);
}

static const struct {
  const char *name;
  void (*plant)(void);
  const char *files, *what, *evidence, *mend;
} faults[] = {
    {"a NIC is left out", nic_left_out, H100 " %/graph.xml --hosts 4", "NICs without work",
     "4 of 32 NICs carry nothing in NCCL's rings: h0.net@mlx5_7", "channels on every NIC"},
    {"rails are crossed", crossed_rails, "%/rails.json %/graph.xml", "rings cross rails",
     "of them between unlike NICs", "NCCL_CROSS_NIC=0"},
    {"rings leave NVLinks out", nvlinks_left_out, MACHINES "dgx1-v100.topo.xml %/graph.xml",
     "share NVLinks", "such as gpu@0000:", "rings that use all of them"},
    {"the search's last resort", nothing, OWN "turin-8-sm100.topo.xml " OWN "turin-8-sm100.1.graph.xml",
     "last resort: 1 channel of 0.1 GB/s over SYS", "no speed below 18 GB/s", "copse tune"},
    {"two channels", few_channels, A100 " %/graph.xml %/tests.txt %/job.log", "few channels",
     "2 channels, 19 GB/s", "NCCL_MIN_NCHANNELS=8"},
    {"sockets are faster", fast_sockets, OWN "turin-8-sm100.topo.xml %/tests.txt %/job.log",
     "faster than NCCL guesses", "37.6 GB/s were measured", "nvbandwidth -j"},
    {"a slow pair", slow_pair, A100 " %/graph.xml %/tests.txt %/nvbandwidth.txt", "slow pairs",
     "90 GB/s where its like have 232", "nvidia-smi nvlink -e"},
    {"all links slow", slow_links, A100 " %/graph.xml %/tests.txt %/nvbandwidth.txt", "all alike",
     "have 112 GB/s or less", "--profile"},
    {"a bad range", bad_range, A100 " %/graph.xml %/tests.txt %/job.log",
     "bad choice for messages of 4 MiB", "the log has RING LL128 and TREE LL", "tuner.csv"},
    {"another group", other_group, A100 " %/graph.xml %/tests.txt %/job.log", "other groups of ranks",
     "the largest has 4; 120 GB/s were measured, 120 less", "measure one alone"},
    {"no GPUDirect RDMA", no_gpudirect, A100 " %/tests.txt %/job.log", "go through host memory",
     "are without GDRDMA", "nvidia-peermem"},
    {"TCP", sockets, A100 " %/tests.txt %/job.log", "the network is TCP sockets", "are NET/Socket",
     "IB verbs"},
    {"NCCL_IB_HCA", half_of_the_nics, A100 " %/tests.txt %/job.log", "NICs without work",
     "8 of 16 NICs", "NCCL_IB_HCA"},
    {"no peer access", no_peer_access, A100 " %/graph.xml %/tests.txt %/job.log",
     "talk through host memory", "are SHM between GPUs", "NCCL_P2P_DISABLE"},
    {"NVLS is off", no_nvls, H100 " %/graph.xml %/tests.txt %/job.log", "settings bind",
     "NCCL_NVLS_ENABLE=0", "measure without them"},
    {"a speed misread", misread_speed, "%/topo.xml %/graph.xml --hosts 4",
     "reads a file otherwise than it is meant", "NCCL takes it for Gen3", "copse tune"},
    {"a CPU misread", misread_cpu, "%/topo.xml %/graph.xml",
     "reads a file otherwise than it is meant", "aarch64", "copse tune"},
    {"steps of speed", low_steps, A100 " %/graph.xml", "rated below what its links allow",
     "12 channels x 10 GB/s", "true speeds"},
    {"wrong results", wrong_results, A100 " %/graph.xml %/tests.txt", "results are wrong",
     "6 wrong elements in 2 of 2 rows", "fewer GPUs"},
    {"NICs at the other socket", nothing,
     OWN "pcie-8-2s-skl.topo.xml " OWN "pcie-8-2s-skl.2.graph.xml --hosts 2", "across the CPU",
     "2 of 16 ends", "beside their NICs"},
    {"trees beat rings", nothing, OWN "pcie-8-2s-skl.topo.xml " OWN "pcie-8-2s-skl.1.graph.xml",
     "trees do better", "carries 1.75 GB", "NCCL_ALGO=allreduce:^ring"},
};

/* The first finding is the fault. */
START_TEST(a_planted_fault_is_named_first) {
  faults[_i].plant();
  ck_assert_msg(copse_test_command("@ audit --json %s", faults[_i].files) == 0, "%s: %s", faults[_i].name,
                copse_test_result.err);
  cJSON *json = cJSON_Parse(copse_test_result.out);
  const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "findings"), 0);
  ck_assert_msg(first != NULL, "%s: %s", faults[_i].name, copse_test_result.out);
  const char *const words[] = {faults[_i].what, faults[_i].evidence, faults[_i].mend};
  static const char *const members[] = {"what", "evidence", "mend"};
  for (int k = 0; k < 3; k++) {
    const char *said = cJSON_GetObjectItem(first, members[k])->valuestring;
    ck_assert_msg(strstr(said, words[k]) != NULL, "%s: its %s is \"%s\", not \"%s\"", faults[_i].name, members[k],
                  said, words[k]);
  }
  cJSON_Delete(json);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("audit/causes");
  TCase *cases = tcase_create("faults");
  (void)copse_test_folder();
  tcase_set_timeout(cases, 60);
  tcase_add_loop_test(cases, a_planted_fault_is_named_first, 0, (int)(sizeof faults / sizeof *faults));
  suite_add_tcase(suite, cases);
  return copse_test_run(suite);
}

#include "support/sim_fabric.h"

#include <string.h>

#include "base/text.h"
#include "support/support.h"

struct copse_topology *copse_test_sim_parse(const char *json) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  ASSERT_OK(copse_topology_parse("test.json", json, strlen(json), NULL, &topology, &err), &err);
  return topology;
}

static struct copse_topology *parse_text(struct copse_text *text) {
  ck_assert(!text->failed);
  struct copse_topology *topology = copse_test_sim_parse(text->data);
  copse_text_free(text);
  return topology;
}

struct copse_topology *copse_test_sim_mesh(int n_ranks) {
  struct copse_text t = {0};
  copse_text_add(&t, "{\"format\":\"copse-topology/1\",\"name\":\"mesh\",\"nodes\":[");
  for (int i = 0; i < n_ranks; i++)
    copse_text_add(&t, "%s{\"id\":\"g%d\",\"type\":\"gpu\"}", i > 0 ? "," : "", i);
  copse_text_add(&t, "],\"links\":[");
  for (int i = 0, n = 0; i < n_ranks; i++)
    for (int j = i + 1; j < n_ranks; j++)
      copse_text_add(&t, "%s{\"src\":\"g%d\",\"dst\":\"g%d\",\"bandwidth\":10}", n++ > 0 ? "," : "",
                     i, j);
  copse_text_add(&t, "]}");
  return parse_text(&t);
}

struct copse_topology *copse_test_sim_hosts(int hosts, int gpus, bool rails) {
  struct copse_text t = {0};
  copse_text_add(&t, "{\"format\":\"copse-topology/1\",\"name\":\"hosts\",\"nodes\":[");
  for (int h = 0; h < hosts; h++) {
    for (int g = 0; g < gpus; g++)
      copse_text_add(&t, "{\"id\":\"h%d.g%d\",\"type\":\"gpu\"},", h, g);
    copse_text_add(&t, "{\"id\":\"h%d.s\",\"type\":\"nvswitch\"},", h);
  }
  for (int r = 0; r < (rails ? gpus : 1); r++)
    copse_text_add(&t, "%s{\"id\":\"rail%d\",\"type\":\"switch\"}", r > 0 ? "," : "", r);
  copse_text_add(&t, "],\"links\":[");
  for (int h = 0, n = 0; h < hosts; h++) {
    for (int g = 0; g < gpus; g++) {
      copse_text_add(&t, "%s{\"src\":\"h%d.g%d\",\"dst\":\"h%d.s\",\"bandwidth\":300}",
                     n++ > 0 ? "," : "", h, g, h);
      copse_text_add(&t, ",{\"src\":\"h%d.g%d\",\"dst\":\"rail%d\",\"bandwidth\":25}", h, g,
                     rails ? g : 0);
    }
  }
  copse_text_add(&t, "]}");
  return parse_text(&t);
}

# What Open MPI does with large messages over a power of two of ranks, as a schedule for `copse
# simulate`: recursive doubling for an allgather, Rabenseifner's algorithm (recursive halving, then
# doubling) for an allreduce. A root's data doubles its ranks with each step, near ones first; the
# allreduce's shares are reduced the same ways back, far ones last. (Seen in the bytes that 4.1.4
# puts on each link.) Needs collective, ranks (2:2:2:2, of hosts joined by "switch") and sha256.
# Nothing reads the schedule's own time and bound.
function turn(rank, bit) { return int(rank / bit) % 2 ? rank - bit : rank + bit }
function edge(src, dst,    way) {
  way = host[src] == host[dst] ? "" : "\"h" host[src] ".nic\", \"switch\", \"h" host[dst] ".nic\", "
  return sprintf("{\"src\": %d, \"dst\": %d, \"path\": [\"%s\", %s\"%s\"]}", src, dst, id[src], way, id[dst])
}
function tree(root, phase, far_first,    m, i, bit, step, it, have, edges) {
  have[0] = root
  m = 1
  for (step = 1; step < n; step *= 2) {
    bit = far_first ? n / 2 / step : step
    for (i = 0; i < m; i++) {
      have[m + i] = turn(have[i], bit)
      it = phase == "reduce" ? edge(have[m + i], have[i]) : edge(have[i], have[m + i])
      edges = m + i == 1 ? it : phase == "reduce" ? it ", " edges : edges ", " it
    }
    m *= 2
  }
  return sprintf("{\"root\": %d, \"phase\": \"%s\", \"weight\": \"1/%d\", \"edges\": [%s]}", root, phase, n, edges)
}
BEGIN {
  hosts = split(ranks, per_host, ":")
  n = 0
  for (i = 1; i <= hosts; i++)
    for (k = 0; k < per_host[i]; k++) {
      host[n] = i - 1
      id[n] = "h" i - 1 ".gpu" k
      names = names (n ? ", " : "") "\"" id[n++] "\""
    }
  for (bit = 1; bit < n; bit *= 2);
  if (bit != n) exit 1
  both = collective == "allreduce"
  printf "{\"format\": \"copse-schedule/1\", \"collective\": \"%s\", \"topology\": {\"name\": \"hosts\", \"sha256\": \"%s\"},\n", collective, sha256
  printf " \"ranks\": [%s], \"k\": 1, \"time_per_GB\": \"1\", \"algbw_GBps\": 1,\n", names
  printf " \"bound\": {\"time_per_GB\": \"1\", \"cut\": [\"%s\"]}, \"trees\": [\n", id[0]
  for (i = 0; i < n; i++)
    printf "%s%s%s", i ? ",\n" : "", both ? tree(i, "reduce", 1) ",\n" : "", tree(i, "broadcast", both)
  print "]}"
}

{"format": "copse-schedule/1", "collective": "allreduce",
 "topology": {"name": "t", "sha256": "6b4c2a72b60b14fbdda27e7df31bee804e838af65b3bccaabfc913c214d87849"},
 "ranks": ["g0","g1"], "k": 1,
 "time_per_GB": "1/2", "algbw_GBps": 2,
 "bound": {"time_per_GB": "1/2", "cut": ["g0","s0"]},
 "trees": [
  {"root": 0, "phase": "reduce", "weight": "1/2", "edges": [
   {"src": 1, "dst": 0, "path": ["g1","s0","g0"]}]},
  {"root": 1, "phase": "reduce", "weight": "1/2", "edges": [
   {"src": 0, "dst": 1, "path": ["g0","s0","g1"]}]},
  {"root": 0, "phase": "broadcast", "weight": "1/2", "edges": [
   {"src": 0, "dst": 1, "path": ["g0","s0","g1"]}]},
  {"root": 1, "phase": "broadcast", "weight": "1/2", "edges": [
   {"src": 1, "dst": 0, "path": ["g1","s0","g0"]}]}
 ]}

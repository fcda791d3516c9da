# What Open MPI does with large messages over a power of two of ranks, step by step, as an MSCCL
# algorithm for `copse simulate` (and `copse check`, which proves it): recursive doubling for an
# allgather; Rabenseifner's algorithm for an allreduce, recursive halving and then doubling. Near
# ranks come first in the halving and in an allgather, last on an allreduce's way back. (Seen in the
# bytes that 4.1.4 puts on each link, and in its sources: coll_base_allgather.c,
# coll_base_allreduce.c.) In each step a rank exchanges one message with one partner, and goes on
# when both are through. Messages as long as these set out when the receiver is there and has said so:
# an empty message, back. Needs collective and n, the number of ranks.
function partner(rank, bit) { return int(rank / bit) % 2 ? rank - bit : rank + bit }
function step(tb, type, first, count, after) {
  lines[tb] = lines[tb] sprintf("<step s=\"%d\" type=\"%s\" srcbuf=\"o\" srcoff=\"%d\" dstbuf=\"o\" " \
    "dstoff=\"%d\" cnt=\"%d\" depid=\"%d\" deps=\"%d\" hasdep=\"1\"/>\n", steps[tb]++, type, first, first, count,
    after, after < 0 ? -1 : steps[after] - 1)
}
# With each partner one block sends and one receives, both at once, when all of the step before has
# come, which was block `last`'s.
function exchange(i, out, in_type, in_, count,    sender, receiver) {
  sender = 2 * i
  receiver = 2 * i + 1
  step(sender, "s", out, 0, last)
  step(receiver, "r", in_, 0, last == receiver ? -1 : last)
  step(sender, "s", out, count, receiver)
  step(receiver, in_type, in_, count, -1)
  last = receiver
}
function halve(rank,    bit, i, size, mine, other) {
  mine = 0
  size = n
  for (bit = 1; bit < n; bit *= 2) {
    size /= 2
    other = mine
    if (int(rank / bit) % 2) mine += size; else other += size
    exchange(i++, other, "rrc", mine, size)
    first[bit] = mine
    theirs[bit] = other
  }
}
function double_back(rank,    bit, i, size) {
  i = partners
  size = 1
  for (bit = n / 2; bit >= 1; bit /= 2) {
    exchange(--i, first[bit], "r", theirs[bit], size)
    size *= 2
  }
}
function double_up(rank,    bit, i, mine) {
  for (bit = 1; bit < n; bit *= 2) {
    mine = rank - rank % bit
    exchange(i++, mine, "r", partner(mine, bit), bit)
  }
}
BEGIN {
  for (bit = 1; bit < n; bit *= 2) partners++
  if (bit != n || n < 2) exit 1
  reduces = collective == "allreduce"
  printf "<algo name=\"Open MPI\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"%d\" ngpus=\"%d\" coll=\"%s\" " \
    "inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">\n", n, n, collective
  for (rank = 0; rank < n; rank++) {
    printf "<gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"0\">\n", rank, reduces ? n : 1, n
    for (tb = 0; tb < 2 * partners; tb++) { lines[tb] = ""; steps[tb] = 0 }
    last = -1
    if (reduces) { halve(rank); double_back(rank) } else double_up(rank)
    for (tb = 0; tb < 2 * partners; tb++) {
      peer = partner(rank, 2 ^ int(tb / 2))
      printf "<tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"0\">\n%s</tb>\n", tb, tb % 2 ? -1 : peer, tb % 2 ? peer : -1, lines[tb]
    }
    print "</gpu>"
  }
  print "</algo>"
}

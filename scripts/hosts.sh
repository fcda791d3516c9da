# To be sourced: network namespaces as hosts h0, h1, ... with addresses 10.77.0.1, ..., each joined to a switch by a
# link of rate[h] Mbit/s, both ways (an array; hosts: how many). Fails where they can't be made.
# shellcheck shell=bash
# shellcheck disable=SC2154
limit() {  # NAMESPACE DEVICE MBIT
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3mbit" burst 128kb latency 20ms
}
make_hosts() {
  ip netns add switch && ip -n switch link add bridge type bridge && ip -n switch link set bridge up || return 1
  for ((h = 0; h < hosts; h++)); do
    ip netns add h$h &&
      ip link add eth0 mtu 9000 netns h$h type veth peer name port$h mtu 9000 netns switch &&
      ip -n h$h addr add 10.77.0.$((h + 1))/24 dev eth0 &&
      ip -n h$h link set lo up && ip -n h$h link set eth0 up &&
      ip -n switch link set port$h master bridge up &&
      limit h$h eth0 "${rate[h]}" && limit switch port$h "${rate[h]}" || return 1
  done
}

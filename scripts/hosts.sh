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

# The same hosts with, besides, a cable between every two of them: device to<g> of host h<h>, of cable Mbit/s both ways.
# A host's address for its jobs, 10.78.0.<h+1>, is on device data0; it is reached by the cable between the two, and where
# that has no carrier by the switch.
make_cables() {
  make_hosts || return 1
  for ((h = 0; h < hosts; h++)); do
    ip netns exec h$h sysctl -qw net.ipv4.conf.all.ignore_routes_with_linkdown=1 net.ipv4.conf.default.ignore_routes_with_linkdown=1 &&
      ip -n h$h link add data0 type bridge && ip -n h$h addr add 10.78.0.$((h + 1))/32 dev data0 && ip -n h$h link set data0 up || return 1
    for ((g = 0; g < h; g++)); do
      ip link add to$g mtu 9000 netns h$h type veth peer name to$h mtu 9000 netns h$g &&
        ip -n h$h link set to$g up && ip -n h$g link set to$h up &&
        limit h$h to$g "$cable" && limit h$g to$h "$cable" && ways h$h $g to$g && ways h$g $h to$h || return 1
    done
  done
}
# To host number g of host $1: by device $3, else by the switch.
ways() {
  local own=${1#h}
  ip -n "$1" route add 10.78.0.$(($2 + 1)) dev "$3" src 10.78.0.$((own + 1)) metric 10 &&
    ip -n "$1" route add 10.78.0.$(($2 + 1)) via 10.77.0.$(($2 + 1)) dev eth0 src 10.78.0.$((own + 1)) metric 100
}

#include "store/options.h"

#include "store/shared_index.h"

namespace levada::store {

void describe(OptionTable& table, Options& options) {
  table.begin_room("store");
  table
      .add("arena_bytes", &options.arena_bytes,
           "memory for captured objects, taken at start where captures are enabled; unset: 1 GiB of host memory, while "
           "on a "
           "device it must be given")
      .range(1 << 16, 1ull << 46);
  table.add("arena_objects", &options.arena_objects, "the most objects at a time").range(1, kMaxIndexEntries);
  table.add("arena_device", &options.arena_device,
            "where captured objects lie: host, cuda or cuda:N (consumers map it by nvlink://), cpu (a GPU's twin)");
  table.add("arena_fabric", &options.arena_fabric,
            "how a GPU's arena is shared: auto, never (a file descriptor) or required (a fabric handle or no start)");
  table.add("store_tcp_url", &options.store_tcp_url, "where clients reach the store, tcp://host:port; port 0 is any");
  table.add("store_ucx_url", &options.store_ucx_url,
            "where clients reach the store by UCX (RDMA, else TCP), ucx://host:port; port 0 is any; needs libucx-dev");
  table.add("store_shm_url", &options.store_shm_url,
            "where clients on this machine map the store, shm:///path/of/socket; nvlink:///path for a device's arena");
  table.add(
      "store_control_url", &options.store_control_url,
      "where consumers free objects by lines of JSON, tcp://host:port; auto: at tcp://127.0.0.1:0 for an arena on a "
      "device and nowhere for one in host memory; off");
  table.add("store_control_plain", &options.store_control_plain,
            "where there is a capture token, take frees from peers that don't show it too, as SpecForge's don't");
  table
      .add(
          "store_orphan_grace_s", &options.store_orphan_grace_s,
          "seconds after which a run's objects are removed when the last consumer that greeted the control channel for "
          "it has gone; 0: never")
      .range(0, 1e6);
}

}  // namespace levada::store

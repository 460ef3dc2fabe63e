// What: options of the store: how large the arena is and where it can be reached.
// Owner: cli fills it from flags and recipe; defaults are written here and nowhere else.
// Thread: immutable after start.
// Invariant: the token is no option: secrets come from the environment.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace levada::store {

struct Options {
  std::int64_t arena_bytes = std::int64_t{1} << 30;
  std::int64_t arena_objects = 65536;
  std::string arena_device = "host";  // "host"; "cuda" or "cuda:N": memory of that GPU; "cpu": its twin
  std::string arena_fabric = "auto";  // of a GPU's arena: "auto", "never", "required"
  std::string store_tcp_url;          // empty: not over TCP
  std::string store_ucx_url;          // empty: not over UCX
  std::string store_shm_url;          // empty: not for mapping
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::store

// What: options of the store: how large the arena is and where it can be reached.
// Owner: cli fills it from flags and recipe; defaults are written here and nowhere else.
// Thread: immutable after start.
// Invariant: the token is no option: secrets come from the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace levada::store {

inline constexpr std::int64_t kHostArenaBytes = std::int64_t{1} << 30;

struct Options {
  std::optional<std::int64_t> arena_bytes;  // unset: kHostArenaBytes in host memory; a device's arena must be told
  std::int64_t arena_objects = 65536;
  std::string arena_device = "host";  // "host"; "cuda" or "cuda:N": memory of that GPU; "cpu": its twin
  std::string arena_fabric = "auto";  // of a GPU's arena: "auto", "never", "required"
  std::string store_tcp_url;          // empty: not over TCP
  std::string store_ucx_url;          // empty: not over UCX
  std::string store_shm_url;          // empty: not for mapping
  // Where consumers free objects: "auto" (a device's arena at tcp://127.0.0.1:0, host memory nowhere), "off", or tcp://.
  std::string store_control_url = "auto";
  bool store_control_plain = false;  // with a token: frees of peers that say no hello all the same
  std::int64_t store_orphan_grace_s = 0;
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::store

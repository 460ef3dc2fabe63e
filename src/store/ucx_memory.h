// What: UcxExport and UcxReader, reads of another process's memory through UCX: RDMA or TCP.
// Owner: the export belongs to the StoreServer, a reader to the UcxStore of one connection.
// Thread: UcxExport has its own; calls of one UcxReader must not overlap.
// Invariant: only who knows the description's secret is answered, and only with bytes of the exported memory. After a failed
// read nothing writes to its destination any more. UCX's protocol is not hardened: its sockets belong on an inner network.
// The bytes go by rendezvous, so that over RDMA no processor copies them.
// ucx_missing.cc stands in for ucx_memory.cc where UCX is not installed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace levada::store {

enum class UcxMemoryType : std::uint8_t { kHost, kCuda };

// False in a build without UCX, where create() and open() say so.
bool ucx_is_built_in();

class UcxExport {
 public:
  // Registers `bytes`, which outlive the export. `host` is where clients come in: of a loopback address only the loopback
  // device is used. kFailedPrecondition without UCX, or if this UCX can't register memory of that type.
  static Result<std::unique_ptr<UcxExport>> create(std::span<const std::byte> bytes, UcxMemoryType type,
                                                   std::string_view host);
  virtual ~UcxExport() = default;
  // What a reader needs to be told: at most 64 KiB.
  virtual const std::string& description() const = 0;
};

class UcxReader {
 public:
  // `description` comes from a peer; kDataLoss if it is none.
  static Result<std::unique_ptr<UcxReader>> open(std::string_view description, std::string_view host);
  virtual ~UcxReader() = default;
  // Fills `to` from `address` of the other process. kUnavailable if the peer is gone or `deadline_us` passes;
  // kDataLoss if the bytes are outside what was exported.
  virtual Status read(std::uint64_t address, std::span<std::byte> to, std::int64_t deadline_us, const Clock& clock) = 0;
  // What UCX chose, as it names it: "posix/memory cma/memory", "tcp/eth0". Known after the first read.
  virtual std::string transports() const = 0;
};

}  // namespace levada::store

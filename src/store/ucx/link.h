// What: Link, a client's end: asks for the bytes of its leases and brings those of its tickets.
// Owner: UcxStore, by open_ucx_link().
// Thread: one at a time; UCX progresses only inside a call.
// Invariant: one call at a time has a buffer lent to UCX. A call that ends before UCX gave the buffer back takes UCX's worker
// down, after which UCX touches it no more, and the link is broken.
#pragma once

#include <optional>

#include "store/ucx/context.h"
#include "store/ucx/messages.h"

namespace levada::store::ucx {

class Link final : public UcxLink {
 public:
  static Result<std::unique_ptr<UcxLink>> open(const UcxAddress& address, const UcxSecret& secret, const GoOn& go_on);
  ~Link() override { take_down(); }
  Status read(std::uint64_t lease, std::span<std::byte> to, const GoOn& go_on) override;
  Result<ObjectInfo> write(std::uint64_t ticket, std::span<const std::byte> from, const GoOn& go_on) override;
  bool broken() const override { return context_ == nullptr || lost_; }
  std::string transports() const override { return transports_; }

 private:
  // What UCX and the port have said about the call under way.
  struct Call {
    std::uint64_t number = 0;  // 0: none
    std::span<std::byte> to;   // of a read
    bool receiving = false;    // UCX fills `to`
    bool sending = false;      // UCX reads what a write brings, or the wish
    std::optional<Result<ObjectInfo>> answer;
  };

  explicit Link(const UcxSecret& secret) : secret_(secret) {}
  Status connect(const UcxAddress& address, const GoOn& go_on);
  Result<ObjectInfo> call(unsigned id, std::uint64_t grant, std::span<const std::byte> data, bool by_rendezvous,
                          const GoOn& go_on);
  ucs_status_t on_bytes(const Answer& head, void* data, std::size_t bytes, bool by_rendezvous);
  void on_answer(const Answer& head, std::string_view text);
  void take_down();

  const UcxSecret secret_;
  std::unique_ptr<Context> context_;
  ucp_ep_h peer_ = nullptr;
  bool lost_ = false;
  ucs_status_t why_lost_ = UCS_OK;
  std::string transports_;
  std::uint64_t numbers_ = 0;
  Wish wish_{};
  Call call_;
};

}  // namespace levada::store::ucx

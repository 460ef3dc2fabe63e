// What: Port, the server's end: listens, sends what a lease is for, receives what a ticket has a place for.
// Owner: StoreServer, by open_ucx_port().
// Thread: its own, which alone touches UCX.
// Invariant: an endpoint that fails, or whose transfer its desk gives up, is closed with all that is under way on it, and
// every transfer's hold or place goes back to the desk.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "base/thread.h"
#include "store/ucx/context.h"
#include "store/ucx/messages.h"

namespace levada::store::ucx {

class Port final : public UcxPort {
 public:
  static Result<std::unique_ptr<UcxPort>> open(const UcxPortOptions& options, UcxDesk& desk);
  ~Port() override;
  std::uint16_t port() const override { return port_; }
  const UcxSecret& secret() const override { return secret_; }

 private:
  struct Transfer {
    enum class Kind { kSend, kReceive, kAnswer };
    Port& port;
    Kind kind;
    ucp_ep_h peer;
    std::uint64_t grant;  // kSend: the lease, kReceive: the ticket
    Answer answer;
    std::string text = {};          // kAnswer: of a failure
    UcxDesk::Reading reading = {};  // kSend
    int sweeps_unwanted = 0;
  };

  Port(UcxDesk& desk, const UcxPortOptions& options)
      : desk_(desk), clock_(options.clock), most_peers_(options.most_peers) {}
  Status start(const UcxPortOptions& options);
  Status register_memory(std::span<std::byte> memory);
  Status listen(const UcxAddress& address);
  void run();
  void fail(ucp_ep_h peer);
  void close_failed();
  void sweep();

  void on_connection(ucp_conn_request_h request);
  void on_read(const Wish& wish, ucp_ep_h peer);
  ucs_status_t on_write(const Wish& wish, ucp_ep_h peer, void* data, std::size_t bytes, bool by_rendezvous);
  ucs_status_t receive(std::unique_ptr<Transfer> transfer, void* rendezvous, std::span<std::byte> place);
  void send(std::unique_ptr<Transfer> transfer, unsigned id, std::span<const std::byte> bytes, bool by_rendezvous);
  void finish(Transfer* transfer, ucs_status_t status);
  void finish_write(const Transfer& transfer, const Status& arrived);
  void answer(ucp_ep_h peer, std::uint64_t number, const Result<ObjectInfo>& result);
  bool admits(const Wish& wish, const ucp_am_recv_param_t& param) const;
  void note_transports(ucp_ep_h peer);

  UcxDesk& desk_;
  const Clock& clock_;
  const std::size_t most_peers_;
  std::unique_ptr<Context> context_;
  ucp_mem_h memory_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  std::uint16_t port_ = 0;
  UcxSecret secret_{};

  // The thread's.
  std::map<ucp_ep_h, bool> peers_;  // true: its transports are known
  std::vector<ucp_ep_h> failed_;    // to be closed
  std::map<Transfer*, std::unique_ptr<Transfer>> transfers_;
  std::int64_t swept_us_ = 0;

  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace levada::store::ucx

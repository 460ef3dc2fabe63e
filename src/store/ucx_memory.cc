#include "store/ucx_memory.h"

#include <poll.h>
#include <sys/random.h>
#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include "base/secret.h"
#include "base/thread.h"

namespace levada::store {
namespace {

constexpr std::uint32_t kDescriptionMagic = 0x3158554C;  // "LUX1"
constexpr int kReaderTurnMs = 5, kServerTurnMs = 1000;
constexpr unsigned kRequestId = 1, kBytesId = 2;  // of the two active messages
constexpr int kMostSends = 1024;                  // under way at a time; what comes beyond is left unanswered

struct DescriptionHead {
  std::uint32_t magic, zero;
  std::uint64_t base, bytes;
  std::array<std::uint64_t, 2> secret;  // whoever shows it has shown the store's token
};

// A reader's only message. Its answer is the bytes, with `number` as header.
struct ReadRequest {
  std::array<std::uint64_t, 2> secret;
  std::uint64_t number, address, bytes;
};

bool inside(const DescriptionHead& memory, std::uint64_t address, std::uint64_t bytes) {
  return bytes <= memory.bytes && address >= memory.base && address - memory.base <= memory.bytes - bytes;
}

Status failed(const char* what, ucs_status_t status) {
  return unavailable(std::string("UCX: ") + what + ": " + ucs_status_string(status));
}

bool is_loopback(std::string_view host) { return host.starts_with("127.") || host == "localhost" || host == "::1"; }

// A context with one worker.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> create(std::string_view host) {
    std::unique_ptr<Worker> made(new Worker);
    ucp_config_t* config = nullptr;
    if (const ucs_status_t read = ucp_config_read(nullptr, nullptr, &config); read != UCS_OK)
      return failed("reading its configuration", read);
    if (is_loopback(host)) ucp_config_modify(config, "NET_DEVICES", "lo");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;  // without RMA UCX serves no other address
    const ucs_status_t status = ucp_init(&params, config, &made->context_);
    ucp_config_release(config);
    if (status != UCS_OK) return failed("starting", status);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    if (const ucs_status_t opened = ucp_worker_create(made->context_, &worker, &made->worker_); opened != UCS_OK)
      return failed("creating a worker", opened);
    if (const ucs_status_t got = ucp_worker_get_efd(made->worker_, &made->event_); got != UCS_OK)
      return failed("a descriptor to wait at", got);
    return made;
  }
  ~Worker() {
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
  }
  // Both sides speak in active messages with a header.
  Status on_message(unsigned id, ucp_am_recv_callback_t callback, void* self) const {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = callback;
    handler.arg = self;
    const ucs_status_t set = ucp_worker_set_am_recv_handler(worker_, &handler);
    return set == UCS_OK ? Status() : failed("setting a handler", set);
  }
  // Progress, or a short sleep until there may be some.
  void turn(int most_ms) const {
    if (ucp_worker_progress(worker_) != 0 || ucp_worker_arm(worker_) != UCS_OK) return;
    pollfd event{event_, POLLIN, 0};
    ::poll(&event, 1, most_ms);
  }
  ucp_context_h context() const { return context_; }
  ucp_worker_h get() const { return worker_; }

 private:
  Worker() = default;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_ = -1;
};

class Export final : public UcxExport {
 public:
  explicit Export(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}
  ~Export() override {
    stopping_.store(true);
    ucp_worker_signal(worker_->get());
    thread_.join();
    if (memory_ != nullptr) ucp_mem_unmap(worker_->context(), memory_);
  }
  Status start(std::span<const std::byte> bytes, UcxMemoryType type) {
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT |
                     UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    map.address = const_cast<std::byte*>(bytes.data());
    map.length = bytes.size();
    map.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ;
    map.memory_type = type == UcxMemoryType::kCuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
    ucp_context_attr_t able{};
    able.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    ucp_context_query(worker_->context(), &able);
    if ((able.memory_types & (1ull << map.memory_type)) == 0)
      return {StatusCode::kFailedPrecondition, "this UCX can't register memory of a GPU", "store_ucx_url"};
    if (const ucs_status_t mapped = ucp_mem_map(worker_->context(), &map, &memory_); mapped != UCS_OK)
      return failed("registering the arena", mapped);
    LEVADA_RETURN_IF_ERROR(worker_->on_message(kRequestId, &Export::on_request, this));
    LEVADA_RETURN_IF_ERROR(describe(bytes));
    thread_ = Thread("ucx", [this] {
      while (!stopping_.load()) worker_->turn(kServerTurnMs);
    });
    return {};
  }
  const std::string& description() const override { return description_; }

 private:
  Status describe(std::span<const std::byte> bytes) {
    head_ = {kDescriptionMagic, 0, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(), {}};
    if (::getrandom(head_.secret.data(), sizeof head_.secret, 0) != sizeof head_.secret)
      return unavailable("the system gives no random numbers");
    description_.assign(reinterpret_cast<const char*>(&head_), sizeof head_);
    ucp_address_t* address = nullptr;
    std::size_t address_bytes = 0;
    if (const ucs_status_t got = ucp_worker_get_address(worker_->get(), &address, &address_bytes); got != UCS_OK)
      return failed("the worker's address", got);
    description_.append(reinterpret_cast<const char*>(address), address_bytes);
    ucp_worker_release_address(worker_->get(), address);
    return {};
  }
  // One answer under way; its header has to stay until it is sent.
  struct Send {
    Export* owner;
    std::uint64_t number;
  };
  static ucs_status_t on_request(void* self, const void* header, std::size_t header_bytes, void*, std::size_t,
                                 const ucp_am_recv_param_t* param) {
    auto& owner = *static_cast<Export*>(self);
    ReadRequest request;
    if (header_bytes != sizeof request || (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
    std::memcpy(&request, header, sizeof request);
    const auto text = [](const auto& secret) {
      return std::string_view(reinterpret_cast<const char*>(secret.data()), sizeof secret);
    };
    if (!equal_in_constant_time(text(request.secret), text(owner.head_.secret))) return UCS_OK;
    if (!inside(owner.head_, request.address, request.bytes) || owner.sends_ >= kMostSends) return UCS_OK;
    owner.send(param->reply_ep, request);
    return UCS_OK;
  }
  void send(ucp_ep_h to, const ReadRequest& request) {
    auto* const under_way = new Send{this, request.number};
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_RNDV;  // the reader fetches the bytes as soon as it has a place for them
    params.user_data = under_way;
    params.cb.send = [](void* done, ucs_status_t, void* user) {  // a reader that has gone is nobody's failure
      finish(static_cast<Send*>(user));
      ucp_request_free(done);
    };
    ++sends_;
    const void* const bytes = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(request.address));
    void* const started =
        ucp_am_send_nbx(to, kBytesId, &under_way->number, sizeof under_way->number, bytes, request.bytes, &params);
    if (started == nullptr || UCS_PTR_IS_ERR(started)) finish(under_way);
  }
  static void finish(Send* under_way) {
    --under_way->owner->sends_;
    delete under_way;
  }

  std::unique_ptr<Worker> worker_;
  ucp_mem_h memory_ = nullptr;
  DescriptionHead head_{};
  std::string description_;
  int sends_ = 0;  // the thread's
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

class Reader final : public UcxReader {
 public:
  explicit Reader(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}
  ~Reader() override { close(); }
  Status connect(std::string_view description) {
    if (description.size() <= sizeof head_) return data_loss("the store describes its memory in too few bytes");
    std::memcpy(&head_, description.data(), sizeof head_);
    if (head_.magic != kDescriptionMagic) return data_loss("the store's description of its memory is damaged");
    const std::string address(description.substr(sizeof head_));
    LEVADA_RETURN_IF_ERROR(worker_->on_message(kBytesId, &Reader::on_bytes, this));
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* self, ucp_ep_h, ucs_status_t) { static_cast<Reader*>(self)->broken_ = true; }, this};
    if (const ucs_status_t made = ucp_ep_create(worker_->get(), &params, &peer_); made != UCS_OK)
      return failed("connecting to the store's memory", made);
    return {};
  }
  Status read(std::uint64_t address, std::span<std::byte> to, std::int64_t deadline_us, const Clock& clock) override {
    if (to.empty()) return {};
    if (!inside(head_, address, to.size())) return data_loss("the store names bytes outside its memory");
    if (broken_ || peer_ == nullptr) return unavailable("UCX: the store's memory can't be reached any more");
    const ReadRequest request{head_.secret, ++number_, address, to.size()};
    wanted_ = to;
    state_ = UCS_INPROGRESS;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
    void* const asked = ucp_am_send_nbx(peer_, kRequestId, &request, sizeof request, nullptr, 0, &params);
    if (UCS_PTR_IS_ERR(asked)) return failed("asking for bytes", UCS_PTR_STATUS(asked));
    while (state_ == UCS_INPROGRESS && !broken_ && clock.now_us() <= deadline_us) worker_->turn(kReaderTurnMs);
    wanted_ = {};
    const ucs_status_t status = state_ == UCS_INPROGRESS ? UCS_ERR_TIMED_OUT : state_;
    // Ending the connection ends the transfer; the destination stays ours until that is certain.
    if (status != UCS_OK) close();
    while (asked != nullptr && ucp_request_check_status(asked) == UCS_INPROGRESS) worker_->turn(kReaderTurnMs);
    if (asked != nullptr) ucp_request_free(asked);
    while (receiving_) worker_->turn(kReaderTurnMs);
    return status == UCS_OK ? Status() : failed("reading", status);
  }
  std::string transports() const override {
    char* text = nullptr;
    std::size_t bytes = 0;
    std::FILE* const file = ::open_memstream(&text, &bytes);
    if (file == nullptr) return "unknown";
    if (peer_ != nullptr) ucp_ep_print_info(peer_, file);
    std::fclose(file);
    std::istringstream words(std::string(text, bytes));
    std::free(text);
    std::set<std::string> names;  // of words like "4:cma/memory.0"
    for (std::string word; words >> word;) {
      const std::size_t colon = word.find(':'), slash = word.find('/');
      if (colon != word.npos && slash != word.npos && colon < slash && slash + 1 < word.size() &&
          word.find_first_not_of("0123456789") == colon)
        names.insert(word.substr(colon + 1, word.find('.') - colon - 1));
    }
    std::string line;
    for (const std::string& name : names) line += (line.empty() ? "" : " ") + name;
    return line.empty() ? "unknown" : line;
  }

 private:
  static ucs_status_t on_bytes(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                               const ucp_am_recv_param_t* param) {
    auto& reader = *static_cast<Reader*>(self);
    std::uint64_t number = 0;
    if (header_bytes == sizeof number) std::memcpy(&number, header, sizeof number);
    // What nobody waits for, or waits for no more, is thrown away.
    if (number != reader.number_ || reader.receiving_ || reader.wanted_.empty() || bytes != reader.wanted_.size())
      return UCS_OK;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      std::memcpy(reader.wanted_.data(), data, bytes);
      reader.state_ = UCS_OK;
      return UCS_OK;
    }
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.user_data = self;
    params.cb.recv_am = [](void* done, ucs_status_t status, std::size_t, void* user) {
      auto& owner = *static_cast<Reader*>(user);
      owner.state_ = status;
      owner.receiving_ = false;
      ucp_request_free(done);
    };
    reader.receiving_ = true;
    void* const started = ucp_am_recv_data_nbx(reader.worker_->get(), data, reader.wanted_.data(), bytes, &params);
    if (UCS_PTR_IS_ERR(started)) {
      reader.receiving_ = false;
      reader.state_ = UCS_PTR_STATUS(started);
    }
    return UCS_INPROGRESS;
  }
  void close() {
    if (peer_ == nullptr) return;
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(std::exchange(peer_, nullptr), &force);
    if (request == nullptr || UCS_PTR_IS_ERR(request)) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) worker_->turn(kReaderTurnMs);
    ucp_request_free(request);
  }

  std::unique_ptr<Worker> worker_;
  DescriptionHead head_{};
  ucp_ep_h peer_ = nullptr;
  bool broken_ = false;
  std::uint64_t number_ = 0;     // of the last read
  std::span<std::byte> wanted_;  // empty: nobody waits
  bool receiving_ = false;       // UCX is filling wanted_
  ucs_status_t state_ = UCS_OK;  // of the read
};

}  // namespace

bool ucx_is_built_in() { return true; }

Result<std::unique_ptr<UcxExport>> UcxExport::create(std::span<const std::byte> bytes, UcxMemoryType type,
                                                     std::string_view host) {
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::create(host));
  auto made = std::make_unique<Export>(std::move(worker));
  LEVADA_RETURN_IF_ERROR(made->start(bytes, type));
  return std::unique_ptr<UcxExport>(std::move(made));
}

Result<std::unique_ptr<UcxReader>> UcxReader::open(std::string_view description, std::string_view host) {
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::create(host));
  auto made = std::make_unique<Reader>(std::move(worker));
  LEVADA_RETURN_IF_ERROR(made->connect(description));
  return std::unique_ptr<UcxReader>(std::move(made));
}

}  // namespace levada::store

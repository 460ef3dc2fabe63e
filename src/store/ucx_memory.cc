#include "store/ucx_memory.h"

#include <poll.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include "base/thread.h"

namespace levada::store {
namespace {

constexpr std::uint32_t kDescriptionMagic = 0x3158554C;  // "LUX1"
constexpr int kReaderTurnMs = 5, kServerTurnMs = 1000;

struct DescriptionHead {
  std::uint32_t magic, key_bytes;
  std::uint64_t base, bytes;
};

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
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
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
    LEVADA_RETURN_IF_ERROR(describe(bytes));
    thread_ = Thread("ucx", [this] {
      while (!stopping_.load()) worker_->turn(kServerTurnMs);
    });
    return {};
  }
  const std::string& description() const override { return description_; }

 private:
  Status describe(std::span<const std::byte> bytes) {
    void* key = nullptr;
    std::size_t key_bytes = 0;
    if (const ucs_status_t packed = ucp_rkey_pack(worker_->context(), memory_, &key, &key_bytes); packed != UCS_OK)
      return failed("packing the arena's key", packed);
    const DescriptionHead head{kDescriptionMagic, static_cast<std::uint32_t>(key_bytes),
                               reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size()};
    description_.assign(reinterpret_cast<const char*>(&head), sizeof head);
    description_.append(static_cast<const char*>(key), key_bytes);
    ucp_rkey_buffer_release(key);
    ucp_address_t* address = nullptr;
    std::size_t address_bytes = 0;
    if (const ucs_status_t got = ucp_worker_get_address(worker_->get(), &address, &address_bytes); got != UCS_OK)
      return failed("the worker's address", got);
    description_.append(reinterpret_cast<const char*>(address), address_bytes);
    ucp_worker_release_address(worker_->get(), address);
    return {};
  }

  std::unique_ptr<Worker> worker_;
  ucp_mem_h memory_ = nullptr;
  std::string description_;
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

class Reader final : public UcxReader {
 public:
  explicit Reader(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}
  ~Reader() override {
    if (key_ != nullptr) ucp_rkey_destroy(key_);
    close();
  }
  Status connect(std::string_view description) {
    if (description.size() < sizeof head_) return data_loss("the store describes its memory in too few bytes");
    std::memcpy(&head_, description.data(), sizeof head_);
    description.remove_prefix(sizeof head_);
    if (head_.magic != kDescriptionMagic || head_.key_bytes == 0 || head_.key_bytes >= description.size())
      return data_loss("the store's description of its memory is damaged");
    const std::string address(description.substr(head_.key_bytes));
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* self, ucp_ep_h, ucs_status_t) { static_cast<Reader*>(self)->broken_ = true; }, this};
    if (const ucs_status_t made = ucp_ep_create(worker_->get(), &params, &peer_); made != UCS_OK)
      return failed("connecting to the store's memory", made);
    if (const ucs_status_t got = ucp_ep_rkey_unpack(peer_, description.data(), &key_); got != UCS_OK)
      return failed("the key of the store's memory", got);
    return {};
  }
  Status read(std::uint64_t address, std::span<std::byte> to, std::int64_t deadline_us, const Clock& clock) override {
    if (to.empty()) return {};
    if (to.size() > head_.bytes || address < head_.base || address - head_.base > head_.bytes - to.size())
      return data_loss("the store names bytes outside its memory");
    if (broken_ || peer_ == nullptr) return unavailable("UCX: the store's memory can't be reached any more");
    ucp_request_param_t params{};
    void* const request = ucp_get_nbx(peer_, to.data(), to.size(), address, key_, &params);
    if (UCS_PTR_IS_ERR(request)) return failed("reading", UCS_PTR_STATUS(request));
    if (request == nullptr) return {};
    bool late = false;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      worker_->turn(kReaderTurnMs);
      if (!late && !broken_ && clock.now_us() <= deadline_us) continue;
      // Ending the connection ends the read; the destination stays ours until that is certain.
      late = true;
      close();
      break;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS) worker_->turn(kReaderTurnMs);
    const ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    if (status == UCS_OK && !late) return {};
    close();
    return failed("reading", status == UCS_OK ? UCS_ERR_TIMED_OUT : status);
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
  ucp_rkey_h key_ = nullptr;
  bool broken_ = false;
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

#include "store/ucx/context.h"

#include <poll.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>

#include "base/log.h"

namespace levada::store::ucx {
namespace {

// How soon a peer that has gone without a word is noticed, where the transport doesn't tell by itself.
constexpr const char* kKeepaliveInterval = "2s";

ucs_log_func_rc_t to_our_log(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list arguments) {
  if (level > UCS_LOG_LEVEL_ERROR) return UCS_LOG_FUNC_RC_STOP;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  LEVADA_LOG_WARNING("UCX: ", std::string_view(line));
  return UCS_LOG_FUNC_RC_STOP;
}

// What UCX does to a whole process, undone once.
void tame() {
  static std::once_flag once;
  std::call_once(once, [] {
    ucs_global_opts_set_value("ERROR_SIGNALS", "");
    ucs_global_opts_set_value("HANDLE_ERRORS", "none");
    ucs_log_push_handler(to_our_log);
  });
}

}  // namespace

Status failed(const char* what, ucs_status_t status) {
  return unavailable(std::string("UCX: ") + what + ": " + ucs_status_string(status));
}

Result<std::unique_ptr<Context>> Context::create(bool loopback_only) {
  tame();
  std::unique_ptr<Context> made(new Context);
  ucp_config_t* config = nullptr;
  if (const ucs_status_t read = ucp_config_read(nullptr, nullptr, &config); read != UCS_OK)
    return failed("reading its configuration", read);
  if (loopback_only) ucp_config_modify(config, "NET_DEVICES", "lo");
  ucp_config_modify(config, "KEEPALIVE_INTERVAL", kKeepaliveInterval);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  // Active messages alone: what UCX 1.13 makes of remote memory access over TCP takes any address from anybody.
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  const ucs_status_t status = ucp_init(&params, config, &made->context_);
  ucp_config_release(config);
  if (status != UCS_OK) return failed("starting", status);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const ucs_status_t opened = ucp_worker_create(made->context_, &worker, &made->worker_); opened != UCS_OK)
    return failed("creating a worker", opened);
  if (const ucs_status_t got = ucp_worker_get_efd(made->worker_, &made->event_); got != UCS_OK)
    return failed("a descriptor to wait at", got);
  return made;
}

Context::~Context() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Status Context::on_message(unsigned id, ucp_am_recv_callback_t callback, void* self) const {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = id;
  handler.cb = callback;
  handler.arg = self;
  const ucs_status_t set = ucp_worker_set_am_recv_handler(worker_, &handler);
  return set == UCS_OK ? Status() : failed("setting a handler", set);
}

void Context::turn(int most_ms) const {
  if (ucp_worker_progress(worker_) != 0 || ucp_worker_arm(worker_) != UCS_OK) return;
  pollfd event{event_, POLLIN, 0};
  ::poll(&event, 1, most_ms);
}

void Context::close(ucp_ep_h endpoint) const {
  ucp_request_param_t force{};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  force.cb.send = [](void* done, ucs_status_t, void*) { ucp_request_free(done); };
  ucp_ep_close_nbx(endpoint, &force);
}

std::string transports_of(ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* const file = ::open_memstream(&text, &bytes);
  if (file == nullptr) return "unknown";
  ucp_ep_print_info(endpoint, file);
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

}  // namespace levada::store::ucx

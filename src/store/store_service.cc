#include "store/store_service.h"

#include <charconv>

#include "base/log.h"
#include "store/start_check.h"

namespace levada::store {
namespace {

// Null for host memory.
Result<std::unique_ptr<device::Device>> open_arena_device(const std::string& name) {
  if (name == "host") return std::unique_ptr<device::Device>();
  if (name == "cpu") return device::open_device(device::DeviceKind::kCpu);
  int index = 0;
  const auto [end, error] =
      std::from_chars(name.data() + std::min<std::size_t>(5, name.size()), name.data() + name.size(), index);
  const bool numbered =
      name.starts_with("cuda:") && error == std::errc() && end == name.data() + name.size() && index >= 0;
  if (name != "cuda" && !numbered)
    return invalid_argument("host, cpu, cuda or cuda:N, got '" + name + "'", "arena_device");
  return device::open_device(device::DeviceKind::kCuda, numbered ? index : 0);
}

Result<device::FabricUse> fabric_use(const std::string& name) {
  if (name == "auto") return device::FabricUse::kIfPermitted;
  if (name == "never") return device::FabricUse::kNever;
  if (name == "required") return device::FabricUse::kRequired;
  return invalid_argument("auto, never or required, got '" + name + "'", "arena_fabric");
}

Result<std::uint64_t> arena_bytes(const Options& options) {
  if (options.arena_bytes && *options.arena_bytes > 0) return static_cast<std::uint64_t>(*options.arena_bytes);
  if (!options.arena_bytes && options.arena_device == "host") return static_cast<std::uint64_t>(kHostArenaBytes);
  return invalid_argument("an arena on " + options.arena_device + " needs its size: --arena-bytes, above 0",
                          "arena_bytes");
}

}  // namespace

Result<std::unique_ptr<StoreService>> StoreService::start(const Options& options, const std::string& token,
                                                          const Clock& clock, Metrics& metrics, KeysOfRun keys_of_run) {
  ArenaOptions memory;
  LEVADA_ASSIGN_OR_RETURN(memory.bytes, arena_bytes(options));
  memory.max_objects = static_cast<std::uint32_t>(options.arena_objects);
  LEVADA_ASSIGN_OR_RETURN(memory.fabric, fabric_use(options.arena_fabric));
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device, open_arena_device(options.arena_device));
  memory.device = device.get();
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, Arena::create(memory, clock));
  if (device != nullptr) LEVADA_RETURN_IF_ERROR(check_importable(*arena));
  std::unique_ptr<StoreService> service(new StoreService(std::move(device), std::move(arena), metrics));
  LEVADA_RETURN_IF_ERROR(service->listen(options, token, std::move(keys_of_run)));
  if (service->device_ != nullptr) {
    LEVADA_LOG_INFO("publication into ", memory.bytes >> 20, " MiB of ", service->device_->name(), ", shared by ",
                    service->share_kind(), ", read back in this process");
  }
  if (service->control_) LEVADA_LOG_INFO("consumers free objects at ", service->control());
  service->update_metrics();
  return service;
}

Status StoreService::listen(const Options& options, const std::string& token, KeysOfRun keys_of_run) {
  if (!options.store_tcp_url.empty() || !options.store_ucx_url.empty() || !options.store_shm_url.empty()) {
    ServerOptions server;
    server.tcp_url = options.store_tcp_url;
    server.ucx_url = options.store_ucx_url;
    server.shm_url = options.store_shm_url;
    server.token = token;
    LEVADA_ASSIGN_OR_RETURN(server_, StoreServer::start(*arena_, server));
  }
  const bool automatic = options.store_control_url == "auto";
  if (options.store_control_url == "off" || (automatic && device_ == nullptr)) return {};
  ControlOptions control;
  control.url = automatic ? "tcp://127.0.0.1:0" : options.store_control_url;
  control.terms.token = token;
  control.terms.plain = options.store_control_plain;
  if (options.store_orphan_grace_s > 0 && keys_of_run) {
    control.orphan_us = options.store_orphan_grace_s * 1'000'000;
    control.keys_of_run = std::move(keys_of_run);
  }
  LEVADA_ASSIGN_OR_RETURN(control_, ControlServer::start(*arena_, std::move(control)));
  return {};
}

std::string StoreService::share_kind() const {
  return device_ == nullptr ? "" : std::string(device::to_string(arena_->device_memory().share_kind()));
}

void StoreService::set(const char* name, const char* help, std::uint64_t value) {
  metrics_.gauge(std::string("levada:store_") + name, help).set(static_cast<double>(value));
}

void StoreService::update_metrics() {
  const ArenaStats stats = arena_->stats();
  set("capacity_bytes", "Memory for objects.", stats.capacity_bytes);
  set("used_bytes", "Memory of objects, in whole blocks.", stats.used_bytes);
  set("peak_used_bytes", "The most that was ever used.", stats.peak_used_bytes);
  set("free_bytes", "Memory that nobody uses.", stats.free_bytes);
  set("largest_free_bytes", "The longest free piece.", stats.largest_free_bytes);
  set("objects", "Readable objects.", stats.objects);
  set("writing", "Objects being written.", stats.writing);
  set("lingering_bytes", "Memory of removed objects that somebody still reads.", stats.lingering_bytes);
  set("views", "Views in this process and objects on their way to clients.", stats.views);
  set("leases", "Leases of clients.", stats.leases);
  set("readers", "Clients that map the memory.", stats.readers);
  set("allocs", "Reservations so far.", stats.allocs);
  set("frees", "Objects freed so far.", stats.frees);
  set("free_unknown", "Removals of absent objects so far.", stats.free_unknown);
  set("clashes", "Reservations of a live key so far.", stats.clashes);
  set("waits", "Reservations that had to wait so far.", stats.waits);
  set("wait_ms", "What they waited, together.", stats.wait_us / 1000);
  set("wait_timeouts", "Reservations that waited in vain so far.", stats.wait_timeouts);
  set("publish_bytes", "Bytes made readable so far.", stats.sealed_bytes);
  set("publish_ms", "What it took from copies to names, together.", stats.publish_us / 1000);
  set("copy_errors", "Copies that a device failed.", stats.copy_errors);
  update_server_metrics();
}

void StoreService::update_server_metrics() {
  if (device_ != nullptr) {
    metrics_.gauge("levada:store_share_kind", "1: by this other processes map the memory.", {{"kind", share_kind()}})
        .set(1);
  }
  if (control_ != nullptr) {
    const ControlStats& control = control_->stats();
    set("control_connections", "Peers of the control channel.", control.accepted.load() - control.closed.load());
    set("control_bad_line", "Peers dropped for a line that is no list of keys.", control.bad_lines.load());
    set("control_bad_token", "Peers dropped for their token.", control.bad_tokens.load());
    set("control_timeouts", "Peers dropped for being slow.", control.timeouts.load());
    set("control_refused", "Peers turned away because there were too many.", control.refused_full.load());
    set("control_freed", "Objects that peers freed so far.", control.freed.load());
    set("orphans", "Objects removed because their run's consumers had gone.", control.orphans.load());
  }
  if (server_ == nullptr) return;
  const StoreServerStats& server = server_->stats();
  set("connections", "Clients connected.", server.accepted.load() - server.closed.load());
  set("connections_refused", "Clients turned away because there were too many.", server.refused_full.load());
  set("bad_frames", "Connections ended for what they sent.", server.bad_frames.load());
  set("bad_tokens", "Connections ended for their token.", server.bad_tokens.load());
  set("connection_timeouts", "Connections ended for being slow.", server.timeouts.load());
  set("received_bytes", "Bytes of objects from clients.", server.received_bytes.load());
  set("sent_bytes", "Bytes of objects to clients.", server.sent_bytes.load());
}

}  // namespace levada::store

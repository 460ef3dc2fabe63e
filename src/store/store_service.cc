#include "store/store_service.h"

#include <charconv>

#include "base/check.h"
#include "base/log.h"

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

}  // namespace

Result<std::unique_ptr<StoreService>> StoreService::start(const Options& options, const std::string& token,
                                                          const Clock& clock, Metrics& metrics) {
  LEVADA_CHECK(options.arena_bytes > 0, "a store without memory");
  ArenaOptions memory;
  memory.bytes = static_cast<std::uint64_t>(options.arena_bytes);
  memory.max_objects = static_cast<std::uint32_t>(options.arena_objects);
  LEVADA_ASSIGN_OR_RETURN(memory.fabric, fabric_use(options.arena_fabric));
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device, open_arena_device(options.arena_device));
  memory.device = device.get();
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, Arena::create(memory, clock));
  if (device != nullptr) {
    LEVADA_LOG_INFO("captured objects lie in ", options.arena_bytes >> 20, " MiB of ", device->name(), ", shared by ",
                    device::to_string(arena->device_memory().share_kind()));
  }
  std::unique_ptr<StoreService> service(new StoreService(std::move(device), std::move(arena), metrics));
  if (!options.store_tcp_url.empty() || !options.store_ucx_url.empty() || !options.store_shm_url.empty()) {
    ServerOptions server;
    server.tcp_url = options.store_tcp_url;
    server.ucx_url = options.store_ucx_url;
    server.shm_url = options.store_shm_url;
    server.token = token;
    LEVADA_ASSIGN_OR_RETURN(service->server_, StoreServer::start(*service->arena_, server));
  }
  service->update_metrics();
  return service;
}

void StoreService::update_metrics() {
  const auto set = [&](const char* name, const char* help, std::uint64_t value) {
    metrics_.gauge(std::string("levada:store_") + name, help).set(static_cast<double>(value));
  };
  const ArenaStats stats = arena_->stats();
  set("capacity_bytes", "Memory for objects.", stats.capacity_bytes);
  set("used_bytes", "Memory of objects, in whole blocks.", stats.used_bytes);
  set("peak_used_bytes", "The most that was ever used.", stats.peak_used_bytes);
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
  set("wait_us", "What they waited, together.", stats.wait_us);
  set("wait_timeouts", "Reservations that waited in vain so far.", stats.wait_timeouts);
  set("publish_bytes", "Bytes made readable so far.", stats.sealed_bytes);
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

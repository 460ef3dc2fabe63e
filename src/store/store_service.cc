#include "store/store_service.h"

#include "base/check.h"

namespace levada::store {

Result<std::unique_ptr<StoreService>> StoreService::start(const Options& options, const std::string& token,
                                                          const Clock& clock, Metrics& metrics) {
  LEVADA_CHECK(options.arena_bytes > 0, "a store without memory");
  ArenaOptions memory;
  memory.bytes = static_cast<std::uint64_t>(options.arena_bytes);
  memory.max_objects = static_cast<std::uint32_t>(options.arena_objects);
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, Arena::create(memory, clock));
  std::unique_ptr<StoreService> service(new StoreService(std::move(arena), metrics));
  if (!options.store_tcp_url.empty() || !options.store_shm_url.empty() || !options.store_ucx_url.empty()) {
    ServerOptions server;
    server.tcp_url = options.store_tcp_url;
    server.shm_url = options.store_shm_url;
    server.ucx_url = options.store_ucx_url;
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

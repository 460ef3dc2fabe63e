#include "producer/store_choice.h"

namespace levada::producer {

Result<std::string> choose_store(const StoreUrls& urls, StoreChoice choice) {
  if (choice == StoreChoice::kAuto) choice = urls.shm.empty() ? StoreChoice::kTcp : StoreChoice::kShm;
  const bool takes_shm = choice == StoreChoice::kShm, takes_ucx = choice == StoreChoice::kUcx;
  const std::string& url = takes_shm ? urls.shm : takes_ucx ? urls.ucx : urls.tcp;
  if (!url.empty()) return url;
  const std::string name = takes_shm ? "shm" : takes_ucx ? "ucx" : "tcp";
  return Status(StatusCode::kFailedPrecondition, "the server offers no " + name + " store", "store_transport");
}

}  // namespace levada::producer

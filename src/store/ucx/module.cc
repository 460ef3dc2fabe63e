#include "base/interface_id.h"
#include "store/ucx/link.h"
#include "store/ucx/port.h"

using namespace levada;

extern "C" {

[[gnu::visibility("default")]] const char* levada_module_interface_id() { return interface_id(); }

[[gnu::visibility("default")]] void levada_open_ucx_port(const store::UcxPortOptions& options, store::UcxDesk& desk,
                                                         Result<std::unique_ptr<store::UcxPort>>* result) {
  *result = store::ucx::Port::open(options, desk);
}

[[gnu::visibility("default")]] void levada_open_ucx_link(const store::UcxAddress& address,
                                                         const store::UcxSecret& secret,
                                                         const store::UcxLink::GoOn& go_on,
                                                         Result<std::unique_ptr<store::UcxLink>>* result) {
  *result = store::ucx::Link::open(address, secret, go_on);
}

}  // extern "C"

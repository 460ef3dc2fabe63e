#include "store/ucx_module.h"

#include <dlfcn.h>
#include <netinet/in.h>

#include <csignal>
#include <filesystem>

#include "device/module.h"

namespace levada::store {
namespace {

constexpr const char* kModule = "liblevada_ucx.so";

// UCX takes signals when it is loaded: SIGHUP to be debugged, and those of crashes. They stay the process's.
void* load(const std::filesystem::path& path) {
  constexpr int kSignals[] = {SIGHUP, SIGILL, SIGSEGV, SIGBUS, SIGFPE};
  struct sigaction before[std::size(kSignals)];
  for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], nullptr, &before[i]);
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
  return module;
}

Result<void*> module_symbol(const char* name) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / kModule;
  if (!std::filesystem::exists(path, error)) path = std::filesystem::path(LEVADA_UCX_BUILD_DIR) / kModule;
  if (!std::filesystem::exists(path, error)) {
    return Status(StatusCode::kFailedPrecondition,
                  std::string("ucx:// is not available: ") + kModule +
                      " was not built; install libucx-dev, build again and keep it beside the executable",
                  "store_ucx_url");
  }
  // Never closed: UCX keeps a thread and handlers of its own.
  void* const module = load(path);
  if (module == nullptr) {
    return Status(StatusCode::kFailedPrecondition, std::string("ucx:// is not available: ") + dlerror(),
                  "store_ucx_url");
  }
  return device::symbol_of(module, path.string(), name);
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    if (text.find(word) != text.npos) return true;
  return false;
}

}  // namespace

bool UcxAddress::is_loopback() const {
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return address.ss_family == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

std::uint16_t UcxAddress::port() const {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void UcxAddress::set_port(std::uint16_t port) {
  in_port_t& place = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                                   : reinterpret_cast<sockaddr_in&>(address).sin_port;
  place = htons(port);
}

bool ucx_is_there() { return module_symbol(kOpenUcxPort).ok(); }

Result<std::unique_ptr<UcxPort>> open_ucx_port(const UcxPortOptions& options, UcxDesk& desk) {
  LEVADA_ASSIGN_OR_RETURN(void* const open, module_symbol(kOpenUcxPort));
  Result<std::unique_ptr<UcxPort>> result = unavailable("the module gave no answer");
  reinterpret_cast<OpenUcxPort*>(open)(options, desk, &result);
  return result;
}

Result<std::unique_ptr<UcxLink>> open_ucx_link(const UcxAddress& address, const UcxSecret& secret,
                                               const UcxLink::GoOn& go_on) {
  LEVADA_ASSIGN_OR_RETURN(void* const open, module_symbol(kOpenUcxLink));
  Result<std::unique_ptr<UcxLink>> result = unavailable("the module gave no answer");
  reinterpret_cast<OpenUcxLink*>(open)(address, secret, go_on, &result);
  return result;
}

bool falls_back_to_tcp(std::string_view transports) {
  return has_any(transports, {"tcp/"}) && !has_any(transports, {"rc_", "dc_", "ud_", "cma/", "posix/", "sysv/",
                                                                "xpmem/", "knem/", "self/", "cuda_ipc/"});
}

}  // namespace levada::store

#include "store/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

namespace levada::store {
namespace {

Fd spare_descriptor() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Acceptor::Acceptor() : spare_(spare_descriptor()) {}

Fd Acceptor::accept(const Fd& listener, bool& turned_away) {
  Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  turned_away = !socket.valid() && (errno == EMFILE || errno == ENFILE);
  if (turned_away) {
    // The caller would wait and the loop spin: give the spare descriptor up, to take the caller in and let it go.
    spare_.reset();
    socket.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    socket.reset();
    spare_ = spare_descriptor();
  }
  return socket;
}

}  // namespace levada::store

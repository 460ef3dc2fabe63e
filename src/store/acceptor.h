// What: Acceptor, accept() of one listening thread that doesn't spin when the process has no descriptors left.
// Owner: a server's thread.
// Thread: one.
// Invariant: it keeps one spare descriptor, with which a caller that can't be served is taken in and let go.
// Sockets come out non-blocking.
#pragma once

#include "base/fd.h"

namespace levada::store {

class Acceptor {
 public:
  Acceptor();
  // Not valid if nobody waits. `turned_away` tells that somebody was let go for want of descriptors.
  Fd accept(const Fd& listener, bool& turned_away);

 private:
  Fd spare_;
};

}  // namespace levada::store

// What: open_listener(), a listening socket or the sentence that says why there is none and what to do.
// Owner: the caller owns the acceptor.
// Thread: start-up.
// Invariant: a failure names address, port and remedy.
// Address forms: IPv4, IPv6 or a name that resolves here; port 0 takes any free one.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/status.h"
#include "http/server.h"

namespace levada::http {

// kInvalidArgument for a host that does not resolve, kUnavailable when it cannot be listened on.
Result<boost::asio::ip::tcp::acceptor> open_listener(boost::asio::io_context& io, const ServerOptions& options);

}  // namespace levada::http

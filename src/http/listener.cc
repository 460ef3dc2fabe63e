#include "http/listener.h"

#include <string>

namespace levada::http {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

Status cannot_listen(const ServerOptions& options, const error_code& error) {
  const std::string port = std::to_string(options.port);
  const std::string what = "cannot listen on " + options.host + " port " + port + ": ";
  if (error == asio::error::address_in_use)
    return unavailable(what + "the port is taken; stop the program that uses it or choose another with --port");
  if (error == asio::error::access_denied)
    return unavailable(what + "permission denied; ports below 1024 need privileges, choose a higher one with --port");
  if (error == boost::system::errc::address_not_available)
    return unavailable(what + "this machine has no such address; use --host 127.0.0.1 or 0.0.0.0");
  return unavailable(what + error.message());
}

}  // namespace

Result<tcp::acceptor> open_listener(asio::io_context& io, const ServerOptions& options) {
  error_code error;
  const auto found =
      tcp::resolver(io).resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    return invalid_argument("the address \"" + options.host + "\" does not resolve (" + error.message() +
                            "); use --host 127.0.0.1 or 0.0.0.0");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot_listen(options, error);
  return acceptor;
}

}  // namespace levada::http

// What: RouteTable, which handler answers a request, or what is said when none does; and to which web pages (CORS).
// Owner: the Server.
// Thread: add() before the server runs, then the I/O thread.
// Invariant: look_up() is pure; counters are labelled by the table alone, so that a client cannot make new series.
// A browser sends simple requests of any page unasked and only withholds the answer, so a route for our own pages
// refuses others by itself (403) instead of leaving it to the browser.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/metrics.h"
#include "http/server.h"
#include "http/site.h"

namespace levada::http {

class RouteTable {
 public:
  // `allow_origin` as in ServerOptions.
  RouteTable(const std::string& allow_origin, Metrics& metrics);

  // The contract stands at Server::route().
  void add(std::string method, std::string path, Handler handler, Origins origins);
  RouteAnswer look_up(const Request& request) const;
  // As Server::routes().
  std::vector<std::string> names() const;
  // The header line that lets pages of other origins read a response; empty if none may.
  std::string_view cors_line() const { return cors_line_; }

 private:
  struct Route {
    Handler handler;
    Origins origins;
    Counter* requests;
  };
  using Methods = std::map<std::string, Route>;

  Counter& request_counter(const std::string& method, const std::string& path);
  RouteAnswer method_missing(const std::string& method, const Methods& methods) const;

  const std::string cors_line_;
  Metrics& metrics_;
  Counter& other_requests_;
  std::unordered_map<std::string, Methods> routes_;  // by path
};

// The request says that it was made by a web page this server did not send. Only browsers say so.
bool is_from_another_origin(const Request& request);

}  // namespace levada::http

// What: requests, replies and errors of the registry as JSON, generated from the structs' own field lists.
// Owner: free functions.
// Thread: any.
// Invariant: parse(write(x)) == x for every request and reply. What does not parse is kBadRequest naming the field.
// Format: docs/formats/registry.md. Fields that are not known are ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fanout/error.h"
#include "fanout/messages.h"
#include "registry/ref_json.h"

namespace levada::registry {

struct Operation {
  std::string_view name;  // "acquire"
  fanout::Role role;
};
// Every operation, in the order of fanout::Request's alternatives.
const std::vector<Operation>& operations();

std::string_view operation_of(const fanout::Request& request);
// How long its caller is ready to wait; 0 for those that never wait.
std::int64_t wait_ms_of(const fanout::Request& request);

std::string request_json(const fanout::Request& request, const RefContext& context);
// kBadRequest for a body that is not `operation`'s; kUnknownConsumer (404) if there is no such operation.
fanout::Outcome<fanout::Request> parse_request(std::string_view operation, std::string_view body);

std::string reply_json(const fanout::Reply& reply, const RefContext& context);
// The reply that `request` has.
fanout::Outcome<fanout::Reply> parse_reply(const fanout::Request& request, std::string_view body);

// {"error":{"code","message","retryable"}}
std::string error_json(const fanout::Error& error);
// Of any body with an HTTP error status; one that is not in this form gives kUnavailable.
fanout::Error parse_error(int http_status, std::string_view body);

}  // namespace levada::registry

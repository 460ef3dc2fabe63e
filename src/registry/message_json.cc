#include "registry/message_json.h"

#include <concepts>
#include <nlohmann/json.hpp>

#include "registry/json_value.h"
#include "registry/ref_value.h"

namespace levada::registry {

namespace {

using fanout::Error;
using fanout::ErrorCode;
using fanout::NamedEnum;
using fanout::Outcome;
using OutJson = nlohmann::ordered_json;

constexpr std::size_t kMaxListed = 65'536;

// --- writing ---------------------------------------------------------------------------------------------------------

template <class T>
class Writer {
 public:
  Writer(const T& value, const RefContext& context, OutJson& out) : value_(value), context_(context), out_(out) {}

  template <class M>
  void operator()(std::string_view name, M T::*member) {
    out_[std::string(name)] = put(value_.*member);
  }
  template <class M>
  void optional(std::string_view name, M T::*member) {
    (*this)(name, member);
  }
  template <class M>
  void flat(M T::*member) {
    M::fields(Writer<M>(value_.*member, context_, out_));
  }

 private:
  OutJson put(const std::string& value) { return value; }
  OutJson put(std::integral auto value) { return value; }
  template <NamedEnum E>
  OutJson put(E value) {
    return std::string(to_string(value));
  }
  OutJson put(const std::vector<std::string>& values) { return values; }
  OutJson put(const std::vector<std::int64_t>& values) { return values; }
  OutJson put(const std::map<std::string, std::int64_t>& values) {
    OutJson object = OutJson::object();
    for (const auto& [key, value] : values) object[key] = value;
    return object;
  }
  template <class S>
  OutJson put(const std::vector<S>& values) {
    OutJson list = OutJson::array();
    for (const S& value : values) {
      OutJson object = OutJson::object();
      S::fields(Writer<S>(value, context_, object));
      list.push_back(std::move(object));
    }
    return list;
  }
  OutJson put(const fanout::RefPtr& ref) {
    if (ref == nullptr) return nullptr;
    return OutJson::parse(ref_json(*ref, context_), nullptr, false);
  }

  const T& value_;
  const RefContext& context_;
  OutJson& out_;
};

template <class T>
std::string write(const T& value, const RefContext& context) {
  OutJson out = OutJson::object();
  T::fields(Writer<T>(value, context, out));
  return out.dump(-1, ' ', false, OutJson::error_handler_t::replace);
}

// --- reading ---------------------------------------------------------------------------------------------------------

template <class T>
class Reader {
 public:
  Reader(Json object, T& value, Status& status) : object_(object), value_(value), status_(status) {}

  template <class M>
  void operator()(std::string_view name, M T::*member) {
    read(name, member, true);
  }
  template <class M>
  void optional(std::string_view name, M T::*member) {
    read(name, member, false);
  }
  template <class M>
  void flat(M T::*member) {
    M::fields(Reader<M>(object_, value_.*member, status_));
  }

 private:
  template <class M>
  void read(std::string_view name, M T::*member, bool is_required) {
    if (!status_.ok()) return;
    const auto found = json_member(object_, name);
    if (!found) {
      if (is_required) status_ = invalid_argument("is missing", std::string(name));
      return;
    }
    status_ = get(*found, name, value_.*member);
  }

  static Status get(Json json, std::string_view name, std::string& out) {
    LEVADA_ASSIGN_OR_RETURN(const auto text, json_as<std::string_view>(json, name, "a string"));
    if (text.find('\0') != std::string_view::npos) {
      return invalid_argument("must not hold a NUL character", std::string(name));  // PostgreSQL has no such text
    }
    out = std::string(text);
    return {};
  }
  static Status get(Json json, std::string_view name, std::int64_t& out) {
    LEVADA_ASSIGN_OR_RETURN(out, json_as<std::int64_t>(json, name, "an integer below 2^63"));
    return {};
  }
  static Status get(Json json, std::string_view name, std::uint64_t& out) {
    LEVADA_ASSIGN_OR_RETURN(out, json_as<std::uint64_t>(json, name, "an integer from 0 to 2^64 - 1"));
    return {};
  }
  static Status get(Json json, std::string_view name, bool& out) {
    LEVADA_ASSIGN_OR_RETURN(out, json_as<bool>(json, name, "true or false"));
    return {};
  }
  template <NamedEnum E>
  static Status get(Json json, std::string_view name, E& out) {
    LEVADA_ASSIGN_OR_RETURN(const auto text, json_as<std::string_view>(json, name, "a string"));
    const auto known = fanout::named<E>(text);
    if (!known) return invalid_argument("must not be \"" + std::string(text.substr(0, 64)) + "\"", std::string(name));
    out = *known;
    return {};
  }
  static Status get(Json json, std::string_view name, std::map<std::string, std::int64_t>& out) {
    LEVADA_ASSIGN_OR_RETURN(const auto object, json_as<simdjson::dom::object>(json, name, "an object"));
    if (object.size() > kMaxListed) return invalid_argument("has too many members", std::string(name));
    for (const auto [key, value] : object) {
      LEVADA_ASSIGN_OR_RETURN(out[std::string(key)], json_as<std::int64_t>(value, name, "an object of integers"));
    }
    return {};
  }
  template <class S>
  static Status get(Json json, std::string_view name, std::vector<S>& out) {
    LEVADA_ASSIGN_OR_RETURN(const auto list, json_as<simdjson::dom::array>(json, name, "a list"));
    if (list.size() > kMaxListed) return invalid_argument("has too many elements", std::string(name));
    for (const Json element : list) {
      S value;
      if constexpr (std::same_as<S, std::string> || std::integral<S>) {
        LEVADA_RETURN_IF_ERROR(get(element, name, value));
      } else {
        if (!element.is_object()) return invalid_argument("must be a list of objects", std::string(name));
        Status status;
        S::fields(Reader<S>(element, value, status));
        if (!status.ok()) return Status(status.code(), status.message(), std::string(name) + "[]." + status.field());
      }
      out.push_back(std::move(value));
    }
    return {};
  }
  static Status get(Json json, std::string_view name, fanout::RefPtr& out) {
    auto ref = parse_ref_value(json);
    if (!ref.ok()) {
      return invalid_argument(ref.status().message(), std::string(name) + "." + ref.status().field());
    }
    out = std::make_shared<const core::SampleRef>(std::move(*ref));
    return {};
  }

  Json object_;
  T& value_;
  Status& status_;
};

Error bad_request(const Status& status) {
  return {ErrorCode::kBadRequest, status.field().empty() ? status.message() : status.field() + ": " + status.message()};
}

template <class T>
Outcome<T> parse(std::string_view body) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(body);
  auto root = parse_json_object(parser, padded);
  if (!root.ok()) return bad_request(root.status());
  T value;
  Status status;
  T::fields(Reader<T>(*root, value, status));
  if (!status.ok()) return bad_request(status);
  return value;
}

// --- the list of operations ------------------------------------------------------------------------------------------

// Calls visitor.template operator()<R>() for every alternative of fanout::Request.
template <class Visitor, std::size_t... I>
void for_each_request(Visitor visitor, std::index_sequence<I...>) {
  (visitor.template operator()<std::variant_alternative_t<I, fanout::Request>>(), ...);
}

template <class Visitor>
void for_each_request(Visitor visitor) {
  for_each_request(visitor, std::make_index_sequence<std::variant_size_v<fanout::Request>>());
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for_each_request([&]<class R>() { list.push_back({R::kOp, R::kRole}); });
    return list;
  }();
  return all;
}

std::string_view operation_of(const fanout::Request& request) { return operations()[request.index()].name; }

std::int64_t wait_ms_of(const fanout::Request& request) {
  return std::visit(
      [](const auto& typed) -> std::int64_t {
        if constexpr (requires { typed.wait_ms; }) {
          return typed.wait_ms;
        } else {
          return 0;
        }
      },
      request);
}

std::string request_json(const fanout::Request& request, const RefContext& context) {
  return std::visit([&](const auto& typed) { return write(typed, context); }, request);
}

Outcome<fanout::Request> parse_request(std::string_view operation, std::string_view body) {
  std::optional<Outcome<fanout::Request>> outcome;
  for_each_request([&]<class R>() {
    if (R::kOp != operation) return;
    auto request = parse<R>(body);
    outcome = request.ok() ? Outcome<fanout::Request>(fanout::Request(std::move(*request)))
                           : Outcome<fanout::Request>(request.error());
  });
  if (outcome) return std::move(*outcome);
  return Error{ErrorCode::kUnknownConsumer, "no such operation"};
}

std::string reply_json(const fanout::Reply& reply, const RefContext& context) {
  return std::visit([&](const auto& typed) { return write(typed, context); }, reply);
}

Outcome<fanout::Reply> parse_reply(const fanout::Request& request, std::string_view body) {
  return std::visit(
      [&]<class R>(const R&) -> Outcome<fanout::Reply> {
        auto reply = parse<typename R::Reply>(body);
        if (!reply.ok()) return reply.error();
        return fanout::Reply(std::move(*reply));
      },
      request);
}

std::string error_json(const Error& error) {
  OutJson out;
  out["error"] = {{"code", std::string(to_string(error.code))},
                  {"message", error.message},
                  {"retryable", is_retryable(error.code)}};
  return out.dump(-1, ' ', false, OutJson::error_handler_t::replace);
}

Error parse_error(int http_status, std::string_view body) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(body);
  const Error unknown{ErrorCode::kUnavailable, "the registry answered HTTP " + std::to_string(http_status)};
  const auto root = parse_json_object(parser, padded);
  if (!root.ok()) return unknown;
  const auto error = json_member(*root, "error");
  if (!error || !error->is_object()) return unknown;
  const auto code = json_required<std::string_view>(*error, "code", "a string");
  const auto message = json_required<std::string_view>(*error, "message", "a string");
  if (!code.ok() || !message.ok()) return unknown;
  const auto known = fanout::error_code_named(*code);
  if (!known) return unknown;
  return {*known, std::string(*message)};
}

}  // namespace levada::registry

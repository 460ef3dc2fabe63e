#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/overloaded.h"

namespace levada {
namespace {

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stopped_at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped_at != end) return std::nullopt;
  return number;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

template <class Number>
std::string print_number(Number number) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, number);
  return std::string(buffer, result.ptr);
}

// Bounds are doubles even for whole numbers; "65536" reads better than "6.5536e+04".
std::string print_bound(double bound) {
  const bool whole = std::abs(bound) < 9e18 && std::floor(bound) == bound;
  return whole ? print_number(static_cast<std::int64_t>(bound)) : print_number(bound);
}

// Edits to turn one word into the other; swapping two neighbours counts as one.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = above[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({changed, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

// " (did you mean X?)" for the nearest candidate, nothing when all are far. Long input is not compared: the cost is
// its length times the candidates'.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& candidates) {
  if (given.size() > 100) return {};
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(2, given.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(given, candidate);
    if (distance < least) {
      least = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? std::string() : " (did you mean " + *nearest + "?)";
}

// Whether section `path` lies within `room`: "a.b" within "a", everything named within "".
bool is_inside(std::string_view path, std::string_view room) {
  if (room.empty()) return !path.empty();
  return path.size() > room.size() && path.starts_with(room) && path[room.size()] == '.';
}

// "b" of "a.b.c" within "a". REQUIRES: is_inside.
std::string first_part_after(std::string_view path, std::string_view room) {
  const std::string_view rest = path.substr(room.empty() ? 0 : room.size() + 1);
  return std::string(rest.substr(0, rest.find('.')));
}

std::string print_list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (&item == &items.front() ? "" : ", ") + item;
  return text + "]";
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string shown(text.substr(0, kShown));
  if (text.size() > kShown) shown += "...";
  return shown;
}

}  // namespace

OptionTable::Option& OptionTable::Option::flag_alias(std::string flag) {
  flags_.push_back(flag_of(flag));
  return *this;
}

OptionTable::Option& OptionTable::Option::several_words() {
  several_words_ = true;
  return *this;
}

OptionTable::Option& OptionTable::Option::range(double min, double max) {
  const bool numeric = !is_text() && !is_switch_ && !is_list();
  LEVADA_CHECK(numeric && min <= max, "range() is for numbers, lower end first");
  range_ = {min, max};
  return *this;
}

OptionTable::Option& OptionTable::Option::choices(std::vector<std::string> words) {
  LEVADA_CHECK(is_text(), "choices() is for strings");
  choices_ = std::move(words);
  return *this;
}

std::string OptionTable::Option::value() const {
  return std::visit(Overloaded{[](const std::string* text) { return *text; },
                               [](const bool* flag) { return std::string(*flag ? "true" : "false"); },
                               [](const std::optional<std::string>* text) { return text->value_or("null"); },
                               [](const std::vector<std::string>* items) { return print_list(*items); },
                               []<class Number>(const std::optional<Number>* number) {
                                 return number->has_value() ? print_number(**number) : std::string("null");
                               },
                               [](const auto* number) { return print_number(*number); }},
                    target_);
}

std::string OptionTable::Option::allowed() const {
  if (is_switch_) return "true or false";
  if (!choices_.empty()) {
    std::string words = "one of ";
    for (const std::string& word : choices_) words += (&word == &choices_.front() ? "" : ", ") + word;
    return words;
  }
  if (is_list()) return "a list";
  if (is_text()) return takes_null() ? "a text, or null" : "a text that is not empty";
  const bool fraction =
      std::holds_alternative<double*>(target_) || std::holds_alternative<std::optional<double>*>(target_);
  std::string text = fraction ? "a number" : "a whole number";
  if (range_) text += " from " + print_bound(range_->first) + " to " + print_bound(range_->second);
  if (takes_null()) text += ", or null";
  return text;
}

Status OptionTable::Option::set(std::string_view text) const {
  // An empty shell variable must not turn an option off that was asked for.
  if (text.empty() && refuses_empty()) {
    return invalid_argument(named() + " must not be empty: leave it out" + (value().empty() ? "" : " for the default"));
  }
  const auto in_range = [&](auto number) {
    const double value = static_cast<double>(number);
    return std::isfinite(value) && (!range_ || (range_->first <= value && value <= range_->second));
  };
  const auto set_number = [&](auto* target, auto parsed) {
    if (!parsed || !in_range(*parsed)) return false;
    *target = *parsed;
    return true;
  };
  const bool accepted =
      std::visit(Overloaded{[&](std::string* target) {
                              const auto known = std::find(choices_.begin(), choices_.end(), text);
                              if (!choices_.empty() && known == choices_.end()) return false;
                              target->assign(text);
                              return true;
                            },
                            [&](std::optional<std::string>* target) {
                              target->reset();
                              if (text != "null" && !text.empty()) target->emplace(text);
                              return true;
                            },
                            [](std::vector<std::string>*) { return false; },
                            [&](bool* target) { return set_number(target, parse_bool(text)); },
                            [&]<class Number>(std::optional<Number>* target) {
                              if (text != "null") return set_number(target, parse_number<Number>(text));
                              target->reset();
                              return true;
                            },
                            [&](std::int64_t* target) { return set_number(target, parse_number<std::int64_t>(text)); },
                            [&](double* target) { return set_number(target, parse_number<double>(text)); }},
                 target_);
  if (accepted) return Status::ok_status();
  return invalid_argument(named() + " must be " + allowed() + ", got \"" + shortened(text) + "\"" +
                          did_you_mean(text, choices_));
}

Status OptionTable::Option::set_list(std::vector<std::string> items) const {
  if (!is_list()) return invalid_argument(named() + " must be " + allowed() + ", got a list");
  *std::get<std::vector<std::string>*>(target_) = std::move(items);
  return {};
}

std::string OptionTable::Option::named() const { return path() + (flags_.empty() ? "" : " (" + flags_.front() + ")"); }

void OptionTable::begin_room(std::string room) {
  room_ = std::move(room);
  flags_ = true;
}

void OptionTable::begin_section(std::string path) {
  room_ = std::move(path);
  flags_ = false;
}

OptionTable::Option& OptionTable::add_option(std::string name, std::string help, Option::Target target) {
  LEVADA_CHECK(find(room_, name) == nullptr, "an option was added twice");
  LEVADA_CHECK(!flags_ || find_flag(flag_of(name)) == nullptr, "two options claim the same flag");
  Option& option = options_.emplace_back();
  option.room_ = room_;
  if (flags_) option.flags_ = {flag_of(name)};
  option.name_ = std::move(name);
  option.help_ = std::move(help);
  option.target_ = target;
  option.is_switch_ = std::holds_alternative<bool*>(target);
  return option;
}

OptionTable::Option& OptionTable::add(std::string name, std::string* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, std::int64_t* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, double* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, bool* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, std::optional<std::int64_t>* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, std::optional<double>* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, std::optional<std::string>* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}
OptionTable::Option& OptionTable::add(std::string name, std::vector<std::string>* target, std::string help) {
  return add_option(std::move(name), std::move(help), target);
}

const OptionTable::Option* OptionTable::find_flag(std::string_view flag) const {
  for (const Option& option : options_)
    if (std::find(option.flags_.begin(), option.flags_.end(), flag) != option.flags_.end()) return &option;
  return nullptr;
}

const OptionTable::Option* OptionTable::find(std::string_view room, std::string_view name) const {
  for (const Option& option : options_)
    if (option.room_ == room && option.name_ == name) return &option;
  return nullptr;
}

Status OptionTable::set(std::string_view room, std::string_view name, std::string_view value) const {
  const Option* option = find(room, name);
  return option == nullptr ? unknown_name(room, name) : option->set(value);
}

bool OptionTable::has_room(std::string_view room) const {
  return std::any_of(options_.begin(), options_.end(),
                     [&](const Option& option) { return option.room_ == room || is_inside(option.room_, room); });
}

Status OptionTable::unknown_name(std::string_view room, std::string_view name,
                                 const std::vector<std::string>& more) const {
  std::vector<std::string> rooms, names = more, elsewhere;
  for (const Option& option : options_) {
    rooms.push_back(option.room_);
    if (option.room_ == room) names.push_back(option.name_);
    if (is_inside(option.room_, room)) names.push_back(first_part_after(option.room_, room));
    if (option.name_ == name) elsewhere.push_back(option.path());
  }
  const std::string given = room.empty() ? shortened(name) : shortened(room) + "." + shortened(name);
  // The right name in the wrong section is the likeliest slip: say where it belongs.
  if (!elsewhere.empty()) return invalid_argument("unknown option " + given + " (did you mean " + elsewhere[0] + "?)");
  if (names.empty()) return invalid_argument("unknown section " + shortened(room) + did_you_mean(room, rooms));
  return invalid_argument("unknown option " + given + did_you_mean(name, names));
}

Status OptionTable::unknown_flag(std::string_view flag) const {
  std::vector<std::string> flags;
  for (const Option& option : options_) flags.insert(flags.end(), option.flags_.begin(), option.flags_.end());
  return invalid_argument("unknown flag " + shortened(flag) + did_you_mean(flag, flags));
}

}  // namespace levada

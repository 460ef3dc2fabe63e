#include "up/flywheel_history.h"

#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/durable_file.h"

namespace levada::up {
namespace {

using Json = nlohmann::json;

double number(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// "3.19 ± 0.29, 3040 tok/s"
std::string measured(const Json& value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f ± %.2f, %.0f tok/s", number(value, "accept_length"), number(value, "ci95"),
                number(value, "tokens_per_s"));
  return text;
}

bool is_round(const Json& line) {
  return line.is_object() && line.contains("round") && line["round"].is_number() && line.contains("drafts") &&
         line["drafts"].is_object();
}

std::string round_line(const Json& line) {
  char head[64];
  std::snprintf(head, sizeof head, "  round %-4.0f %9.0f samples", number(line, "round"), number(line, "samples_seen"));
  std::string text = head;
  for (const auto& [name, draft] : line["drafts"].items()) text += "  " + name + " " + measured(draft);
  if (line.contains("before")) text += "  before " + measured(line["before"]);
  if (line.contains("ngram")) text += "  n-grams " + measured(line["ngram"]);
  const bool promoted = line.contains("promoted") && line["promoted"].is_string();
  return text + (promoted ? "  promoted " + line["promoted"].get<std::string>() : "  none promoted") + "\n";
}

}  // namespace

std::string history_text(std::istream& lines, std::size_t most) {
  std::deque<std::string> newest;
  for (std::string line; std::getline(lines, line);) {
    const Json round = Json::parse(line, nullptr, false);
    if (!is_round(round)) continue;
    newest.push_back(round_line(round));
    if (newest.size() > most) newest.pop_front();
  }
  if (newest.empty()) return {};
  std::string text = "tokens a step in service, on prompts held out:\n";
  for (const std::string& line : newest) text += line;
  return text;
}

Status shorten_history(const std::filesystem::path& file, std::uintmax_t most_bytes) {
  std::error_code none;
  const std::uintmax_t bytes = std::filesystem::file_size(file, none);
  if (none || bytes <= most_bytes) return {};
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(bytes / 2));
  std::string text;
  std::getline(in, text);  // the rest of a line that goes
  text.assign(std::istreambuf_iterator<char>(in), {});
  const std::string_view whole = text;
  return replace_file(file, std::span(&whole, 1));
}

}  // namespace levada::up

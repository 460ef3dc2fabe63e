// `levada draft load|unload|list|rollback`: the drafts of a running server, over its HTTP API.
#include <cstdio>
#include <filesystem>

#include "cli/command.h"
#include "recipe/command_line.h"
#include "up/draft_client.h"

namespace levada::cli {
namespace {

struct Options {
  std::string url = "http://127.0.0.1:30000";
  std::string api_key;
  std::string name;
  bool json = false;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("draft");
  table.add("url", &options.url, "the server");
  table.add("api_key", &options.api_key, "its administrator's key, if it has one");
  table.add("name", &options.name, "load: what the draft is called; default: its folder's name");
  table.add("json", &options.json, "print the server's answer as it is");
}

constexpr const char* kUsage = "usage: levada draft load DIR [--name NAME] | unload | list | rollback  [--url URL]\n";

Result<up::ServedDrafts> ask(const std::vector<std::string>& words, const Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const http::HttpUrl url, http::parse_http_url(options.url));
  up::DraftClient client(url, options.api_key);
  const std::string verb = words.empty() ? "" : words[0];
  // The server may run in another folder.
  if (verb == "load" && words.size() == 2)
    return client.load(std::filesystem::absolute(words[1]).string(), options.name);
  if (words.size() == 1) {
    if (verb == "list") return client.list();
    if (verb == "unload") return client.unload();
    if (verb == "rollback") return client.roll_back();
  }
  return invalid_argument("give one of: load DIR, unload, list, rollback");
}

void print_draft(const char* role, const std::optional<up::ServedDraft>& draft) {
  if (!draft) return void(std::printf("%-9s none\n", role));
  std::printf("%-9s %s (version %lld, block %lld, %lld layers, %.1f MiB) from %s\n", role, draft->name.c_str(),
              static_cast<long long>(draft->version), static_cast<long long>(draft->block_size),
              static_cast<long long>(draft->layers), static_cast<double>(draft->bytes) / (1 << 20),
              draft->path.c_str());
  if (!draft->accept_length) return void(std::printf("          no steps yet\n"));
  std::printf("          %.3f tokens a step over %lld steps; %lld of %lld drafts accepted\n", *draft->accept_length,
              static_cast<long long>(draft->steps), static_cast<long long>(draft->accepted),
              static_cast<long long>(draft->drafts));
}

}  // namespace

int draft_command(Words words) {
  Options options;
  OptionTable table;
  describe(table, options);
  const auto line = recipe::parse_command_line(words, table, recipe::Overrides::kCollect);
  if (!line.ok()) return report(line.status());
  if (line->help) {
    std::printf("%s%s", kUsage, recipe::print_help(table).c_str());
    return kExitOk;
  }
  const auto served = ask(line->positionals, options);
  if (!served.ok()) return report(served.status());
  if (options.json) {
    std::printf("%s\n", served->json.c_str());
  } else {
    print_draft("serving", served->serving);
    print_draft("previous", served->previous);
  }
  return kExitOk;
}

}  // namespace levada::cli

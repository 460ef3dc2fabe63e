#include "bench/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "base/thread.h"
#include "http/client.h"
#include "http/url.h"

namespace levada::bench {

namespace {

using Json = nlohmann::ordered_json;
using Instant = std::chrono::steady_clock::time_point;

constexpr std::chrono::minutes kPatience{10};
constexpr double kPercents[] = {50, 90, 95, 99};

double ms_between(Instant from, Instant to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

std::string words(std::mt19937_64& random, std::int64_t count) {
  constexpr const char* kWords[] = {"the",    "sea",    "is",      "blue",  "and",   "deep", "while",
                                    "small",  "boats",  "drift",   "under", "an",    "old",  "stone",
                                    "bridge", "every",  "morning", "light", "falls", "over", "green",
                                    "hills",  "people", "walk",    "home",  "with",  "bread"};
  std::string text;
  for (std::int64_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : " ") + std::string(kWords[random() % std::size(kWords)]);
  return text;
}

std::string body_of(const LoadOptions& options, const std::string& prompt) {
  Json body = {{"model", options.model}, {"max_tokens", options.output_tokens},
               {"temperature", 0},       {"ignore_eos", true},
               {"stream", true},         {"stream_options", {{"include_usage", true}}}};
  if (options.endpoint == "chat") {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
  } else {
    body["prompt"] = prompt;
  }
  return body.dump();
}

// Takes a stream's bytes as they come.
class StreamReader {
 public:
  StreamReader(Instant sent, Exchange& exchange) : sent_(sent), exchange_(exchange) {}

  bool take(std::string_view piece) {
    held_ += piece;
    const Instant now = std::chrono::steady_clock::now();
    for (std::size_t end; (end = held_.find('\n')) != std::string::npos; held_.erase(0, end + 1)) {
      take_line(std::string_view(held_).substr(0, end), now);
    }
    return true;
  }
  bool done() const { return done_; }
  // What came of it if it was no stream.
  const std::string& other() const { return other_; }

 private:
  void take_line(std::string_view line, Instant now) {
    constexpr std::string_view kData = "data: ";
    if (!line.starts_with(kData)) {
      other_ += line;
      return;
    }
    line.remove_prefix(kData.size());
    if (line.starts_with("[DONE]")) {
      done_ = true;
      return;
    }
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object()) return;
    if (event.contains("error")) other_ += event["error"].dump();
    if (has_text(event)) note_text(now);
    const auto usage = event.find("usage");
    if (usage == event.end() || !usage->is_object()) return;
    exchange_.prompt_tokens = usage->value("prompt_tokens", std::int64_t{0});
    exchange_.output_tokens = usage->value("completion_tokens", std::int64_t{0});
  }

  static bool has_text(const Json& event) {
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return false;
    const Json& choice = choices->front();
    const Json& holder = choice.contains("delta") ? choice["delta"] : choice;
    for (const char* name : {"content", "reasoning_content", "text"}) {
      const auto text = holder.find(name);
      if (text != holder.end() && text->is_string() && !text->get_ref<const std::string&>().empty()) return true;
    }
    return false;
  }

  void note_text(Instant now) {
    if (exchange_.first_ms == 0) {
      exchange_.first_ms = ms_between(sent_, now);
    } else {
      exchange_.gaps_ms.push_back(ms_between(last_, now));
    }
    last_ = now;
  }

  const Instant sent_;
  Exchange& exchange_;
  Instant last_{};
  std::string held_, other_;
  bool done_ = false;
};

Exchange exchange(http::Client& client, const LoadOptions& options, const std::string& body) {
  Exchange result;
  const Instant sent = std::chrono::steady_clock::now();
  StreamReader reader(sent, result);
  http::ClientRequest request{.method = "POST",
                              .target = options.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions",
                              .body = body,
                              .headers = {{"Content-Type", "application/json"}},
                              .timeout = kPatience,
                              .on_body = [&](std::string_view piece) { return reader.take(piece); }};
  if (!options.api_key.empty()) request.headers["Authorization"] = "Bearer " + options.api_key;
  const auto response = client.request(request);
  result.end_ms = ms_between(sent, std::chrono::steady_clock::now());
  if (!response.ok()) {
    result.failure = response.status().message();
  } else if (response->status != 200) {
    result.failure = "HTTP " + std::to_string(response->status) + " " + reader.other().substr(0, 200);
  } else if (!reader.done() || result.first_ms == 0) {
    result.failure = reader.other().empty() ? "the stream ended without text or [DONE]" : reader.other().substr(0, 200);
  }
  return result;
}

// When each request may be sent, in seconds from the start.
std::vector<double> arrivals(const LoadOptions& options) {
  std::vector<double> times(static_cast<std::size_t>(options.requests), 0);
  if (options.request_rate <= 0) return times;
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed) + 1);
  std::exponential_distribution<double> gap(options.request_rate);
  double at = 0;
  for (double& time : times) time = at += gap(random);
  return times;
}

Json summary(const std::vector<double>& sorted) {
  if (sorted.empty()) return nullptr;
  Json json = {{"mean", std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size())}};
  for (const double percent : kPercents)
    json["p" + std::to_string(static_cast<int>(percent))] = percentile(sorted, percent);
  json["max"] = sorted.back();
  return json;
}

struct Totals {
  std::int64_t completed = 0, prompt_tokens = 0, output_tokens = 0;
  std::map<std::string, std::int64_t> failures;
};

Totals totals(const LoadResult& result) {
  Totals totals;
  for (const Exchange& exchange : result.exchanges) {
    if (!exchange.failure.empty()) {
      ++totals.failures[exchange.failure];
      continue;
    }
    ++totals.completed;
    totals.prompt_tokens += exchange.prompt_tokens;
    totals.output_tokens += exchange.output_tokens;
  }
  return totals;
}

}  // namespace

void describe(OptionTable& table, LoadOptions& options) {
  table.begin_room("load");
  table.add("url", &options.url, "serving: the server to load, http://host:port");
  table.add("load_model", &options.model, "serving: the model's name in requests");
  table.add("endpoint", &options.endpoint, "serving: chat or completions");
  table.add("dataset", &options.dataset, "serving: random or shared-prefix");
  table.add("requests", &options.requests, "serving: how many").range(1, 1'000'000);
  table.add("request_rate", &options.request_rate, "serving: arrivals per second; 0: all at once").range(0, 1e6);
  table.add("concurrency", &options.concurrency, "serving: requests under way at most").range(1, 1024);
  table.add("input_words", &options.input_words, "serving: words of a prompt").range(1, 1'000'000);
  table.add("output_tokens", &options.output_tokens, "serving: tokens of an answer").range(1, 1'000'000);
  table.add("groups", &options.groups, "serving: prefixes of shared-prefix").range(1, 100'000);
  table.add("prefix_words", &options.prefix_words, "serving: words of a shared prefix").range(1, 1'000'000);
  table.add("load_seed", &options.seed, "serving: of prompts and arrivals");
  table.add("png", &options.png, "serving: file for a picture of the percentiles");
}

std::vector<std::string> make_prompts(const LoadOptions& options) {
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed));
  std::vector<std::string> prefixes;
  if (options.dataset == "shared-prefix") {
    for (std::int64_t i = 0; i < options.groups; ++i) prefixes.push_back(words(random, options.prefix_words) + " ");
  }
  std::vector<std::string> prompts;
  for (std::int64_t i = 0; i < options.requests; ++i) {
    const std::string prefix = prefixes.empty() ? "" : prefixes[static_cast<std::size_t>(i) % prefixes.size()];
    prompts.push_back(prefix + words(random, options.input_words));
  }
  return prompts;
}

Result<LoadResult> run_load(const LoadOptions& options) {
  LEVADA_ASSIGN_OR_RETURN(const http::HttpUrl url, http::parse_http_url(options.url));
  if (options.endpoint != "chat" && options.endpoint != "completions") {
    return invalid_argument("must be chat or completions, got '" + options.endpoint + "'", "endpoint");
  }
  if (options.dataset != "random" && options.dataset != "shared-prefix") {
    return invalid_argument("must be random or shared-prefix, got '" + options.dataset + "'", "dataset");
  }
  const std::vector<std::string> prompts = make_prompts(options);
  const std::vector<double> times = arrivals(options);
  LoadResult result;
  result.exchanges.resize(prompts.size());
  std::atomic<std::size_t> next{0};
  const Instant start = std::chrono::steady_clock::now();
  const auto work = [&] {
    http::Client client(url.host, url.port);
    for (std::size_t i; (i = next++) < prompts.size();) {
      std::this_thread::sleep_until(
          start + std::chrono::duration_cast<Instant::duration>(std::chrono::duration<double>(times[i])));
      result.exchanges[i] = exchange(client, options, body_of(options, prompts[i]));
    }
  };
  {
    std::vector<Thread> threads;
    for (std::int64_t i = 0; i < std::min(options.concurrency, options.requests); ++i)
      threads.emplace_back("load", work);
    for (Thread& thread : threads) thread.join();
  }
  result.seconds = ms_between(start, std::chrono::steady_clock::now()) / 1e3;
  return result;
}

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1];
}

std::map<std::string, std::vector<double>> latencies(const LoadResult& result) {
  std::map<std::string, std::vector<double>> series{{"e2e", {}}, {"itl", {}}, {"tpot", {}}, {"ttft", {}}};
  for (const Exchange& exchange : result.exchanges) {
    if (!exchange.failure.empty()) continue;
    series["ttft"].push_back(exchange.first_ms);
    series["e2e"].push_back(exchange.end_ms);
    series["itl"].insert(series["itl"].end(), exchange.gaps_ms.begin(), exchange.gaps_ms.end());
    if (exchange.output_tokens > 1) {
      series["tpot"].push_back((exchange.end_ms - exchange.first_ms) / static_cast<double>(exchange.output_tokens - 1));
    }
  }
  for (auto& [name, samples] : series) std::sort(samples.begin(), samples.end());
  return series;
}

std::string load_json(const LoadOptions& options, const LoadResult& result) {
  const Totals sums = totals(result);
  const auto rate = [&](std::int64_t count) { return static_cast<double>(count) / result.seconds; };
  Json json = {{"bench", "serving"},
               {"url", options.url},
               {"endpoint", options.endpoint},
               {"dataset", options.dataset},
               {"requests", options.requests},
               {"request_rate", options.request_rate},
               {"concurrency", options.concurrency},
               {"seed", options.seed},
               {"duration_s", result.seconds},
               {"completed", sums.completed},
               {"failed", options.requests - sums.completed},
               {"failures", sums.failures},
               {"prompt_tokens", sums.prompt_tokens},
               {"output_tokens", sums.output_tokens},
               {"requests_per_s", rate(sums.completed)},
               {"prompt_tokens_per_s", rate(sums.prompt_tokens)},
               {"output_tokens_per_s", rate(sums.output_tokens)}};
  for (const auto& [name, samples] : latencies(result)) json[name + "_ms"] = summary(samples);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string load_table(const LoadResult& result) {
  const Totals sums = totals(result);
  char line[160];
  std::snprintf(
      line, sizeof line, "%lld requests in %.2f s, %zu failed; %.2f requests/s, %.1f prompt and %.1f output tokens/s\n",
      static_cast<long long>(sums.completed), result.seconds,
      result.exchanges.size() - static_cast<std::size_t>(sums.completed),
      static_cast<double>(sums.completed) / result.seconds, static_cast<double>(sums.prompt_tokens) / result.seconds,
      static_cast<double>(sums.output_tokens) / result.seconds);
  std::string table = line;
  for (const auto& [name, samples] : latencies(result)) {
    std::snprintf(line, sizeof line, "  %-5s ms  p50 %9.2f  p90 %9.2f  p95 %9.2f  p99 %9.2f  n %zu\n", name.c_str(),
                  percentile(samples, 50), percentile(samples, 90), percentile(samples, 95), percentile(samples, 99),
                  samples.size());
    table += line;
  }
  for (const auto& [failure, count] : sums.failures) table += "  " + std::to_string(count) + " x " + failure + "\n";
  return table;
}

}  // namespace levada::bench

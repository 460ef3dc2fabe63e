// Each line says what works here, or what doesn't and the remedy. Nothing is changed and nothing is downloaded.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "cli/command.h"
#include "cli/model_locator.h"
#include "device/device.h"
#include "engine/options.h"
#include "http/server.h"
#include "kernels/ops.h"
#include "recipe/command_line.h"

namespace levada::cli {
namespace {

void say(bool good, const char* what, const std::string& detail) {
  std::printf("%s %-10s %s\n", good ? "ok  " : "MISS", what, detail.c_str());
}

std::string gib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

void examine_device(device::DeviceKind kind, const char* what) {
  const Result<std::unique_ptr<device::Device>> opened = device::open_device(kind);
  if (!opened.ok()) return say(false, what, opened.status().message());
  const device::Device& found = **opened;
  say(true, what, found.name() + ", " + gib(found.free_bytes()) + " free of " + gib(found.total_bytes()));
}

void examine_kernels() {
  kernels::ThreadPool pool(1);
  std::string names;
  for (const char* name : {"avx512_bf16", "avx512", "avx2", "ref"}) {
    if (kernels::make_cpu_ops(pool, name) != nullptr) names += std::string(names.empty() ? "" : ", ") + name;
  }
  const bool tuned = names != "ref";
  say(tuned, "kernels", tuned ? names + " (the first is used)" : "only the plain ones: no AVX2, expect slow answers");
}

void examine_model() {
  const Result<std::filesystem::path> path = locate_model("smollm2");
  say(path.ok(), "smollm2", path.ok() ? path->string() : path.status().message());
}

void examine_port(std::int64_t port) {
  Metrics metrics;
  http::ServerOptions options;
  options.port = static_cast<std::uint16_t>(port);
  const auto listening = http::Server::listen(options, metrics);
  say(listening.ok(), "port", listening.ok() ? std::to_string(port) + " is free" : listening.status().message());
}

}  // namespace

int doctor_command(Words words) {
  std::int64_t port = 30000;
  OptionTable table;
  table.begin_room("doctor");
  table.add("port", &port, "the port to try").range(1, 65535);
  const Result<recipe::CommandLine> line = recipe::parse_command_line(words, table);
  if (!line.ok()) return report(line.status());
  if (line->help) {
    std::printf("usage: levada doctor [flags]\n%s", recipe::print_help(table).c_str());
    return kExitOk;
  }
  std::printf("levada %s (%s)\n", version(), commit());
  say(true, "cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN)));
  examine_device(device::DeviceKind::kCpu, "cpu");
  examine_kernels();
  examine_device(device::DeviceKind::kCuda, "cuda");
  examine_model();
  examine_port(port);
  return kExitOk;
}

}  // namespace levada::cli

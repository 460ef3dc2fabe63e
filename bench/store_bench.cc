#include "bench/store_bench.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "store/arena.h"
#include "store/open_store.h"
#include "store/store_server.h"
#include "store/stream_copy.h"
#include "store/ucx_module.h"

namespace levada::bench {
namespace {

using Bytes = std::span<std::byte>;
constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;

struct Size {
  const char* name;
  std::size_t bytes;
  int samples;
};
constexpr Size kSizes[] = {{"4k", 4 * kKiB, 2000}, {"1m", kMiB, 200}, {"16m", 16 * kMiB, 24}, {"128m", 128 * kMiB, 7}};

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Memory that is resident before anything is measured.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_(
            static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
            bytes) {
    LEVADA_CHECK(bytes_.data() != MAP_FAILED, "no memory for the bench");
    ::madvise(bytes_.data(), bytes, MADV_HUGEPAGE);
    std::memset(bytes_.data(), 0x5a, bytes);
  }
  ~Buffer() { ::munmap(bytes_.data(), bytes_.size()); }
  Bytes first(std::size_t bytes) const { return bytes_.first(bytes); }

 private:
  Bytes bytes_;
};

bool send_all(int socket, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const long sent = ::send(socket, at, std::min(bytes, kMiB), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const long got = ::recv(socket, at, std::min(bytes, kMiB), 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// The limit: an object over a plain TCP connection, blocking calls, one byte back when all of it has arrived.
class RawTcp {
 public:
  RawTcp() : sink_(128 * kMiB) {
    Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    LEVADA_CHECK(
        ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 && ::listen(listener.get(), 1) == 0,
        "no loopback port for the bench");
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    near_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    LEVADA_CHECK(::connect(near_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0, "loopback refused us");
    far_.reset(::accept(listener.get(), nullptr, nullptr));
    for (int socket : {near_.get(), far_.get()}) {
      const int on = 1, buffer = 4 << 20;  // the peers' own measurement has these
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
      ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    }
    thread_ = Thread("bench-raw", [this] { answer(); });
  }
  ~RawTcp() {
    ::shutdown(near_.get(), SHUT_RDWR);
    thread_.join();
  }

  void send(Bytes object) {
    const std::uint64_t bytes = object.size();
    char done;
    LEVADA_CHECK(send_all(near_.get(), &bytes, sizeof bytes) && send_all(near_.get(), object.data(), bytes) &&
                     receive_all(near_.get(), &done, 1),
                 "the raw connection broke");
  }

 private:
  void answer() {
    for (std::uint64_t bytes; receive_all(far_.get(), &bytes, sizeof bytes);) {
      const char done = 1;
      if (!receive_all(far_.get(), sink_.first(bytes).data(), bytes) || !send_all(far_.get(), &done, 1)) return;
    }
  }

  Buffer sink_;
  Fd near_, far_;
  Thread thread_;
};

// Timings of one case, turned into a latency for small objects and into a rate for large ones.
class Samples {
 public:
  template <class Body>
  void time(Body body, bool counted) {
    const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), start = seconds_of(CLOCK_MONOTONIC);
    body();
    if (!counted) return;
    seconds_.push_back(seconds_of(CLOCK_MONOTONIC) - start);
    cpu_seconds_.push_back(seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  }
  void report(const std::string& name, std::size_t bytes, bool with_cpu, std::vector<Case>& out) const {
    std::vector<double> values;
    if (bytes < kMiB) {
      for (double s : seconds_) values.push_back(s * 1e6);
      out.push_back(summarize_us(name, std::move(values)));
      return;
    }
    for (double s : seconds_) values.push_back(static_cast<double>(bytes) / s * 1e-9);
    out.push_back(summarize_rates(name, std::move(values), "GB/s"));
    if (!with_cpu) return;
    double cpu = 0;
    for (double s : cpu_seconds_) cpu += s;
    const double per_gb = cpu / (static_cast<double>(bytes * cpu_seconds_.size()) * 1e-9);
    out.push_back({name + "_cpu", per_gb, per_gb, "s/GB", static_cast<std::int64_t>(cpu_seconds_.size())});
  }

 private:
  std::vector<double> seconds_, cpu_seconds_;
};

// An arena with its server, clients, and the sockets' limit.
struct Subject {
  SystemClock clock;
  std::filesystem::path folder;
  std::unique_ptr<store::Arena> arena;
  std::unique_ptr<store::StoreServer> server;
  std::unique_ptr<store::ObjectStore> tcp, shm, ucx;  // ucx: null where levada was built without it

  ~Subject() {
    tcp.reset();
    shm.reset();
    ucx.reset();
    server.reset();
    std::error_code ignored;
    if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  }
};

Status open(Subject& subject, std::uint64_t arena_bytes) {
  std::string folder = (std::filesystem::temp_directory_path() / "levada-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return unavailable("no temporary folder for the bench");
  subject.folder = folder;
  LEVADA_ASSIGN_OR_RETURN(subject.arena,
                          store::Arena::create({.bytes = arena_bytes, .max_objects = 4096}, subject.clock));
  store::ServerOptions options;
  options.tcp_url = "tcp://127.0.0.1:0";
  options.shm_url = "shm://" + folder + "/store.sock";
  if (store::ucx_is_there()) options.ucx_url = "ucx://127.0.0.1:0";
  options.token = "bench";
  LEVADA_ASSIGN_OR_RETURN(subject.server, store::StoreServer::start(*subject.arena, options));
  LEVADA_ASSIGN_OR_RETURN(subject.tcp, store::open_store(subject.server->tcp_url(), options.token, {}, subject.clock));
  LEVADA_ASSIGN_OR_RETURN(subject.shm, store::open_store(subject.server->shm_url(), options.token, {}, subject.clock));
  if (!options.ucx_url.empty()) {
    LEVADA_ASSIGN_OR_RETURN(subject.ucx,
                            store::open_store(subject.server->ucx_url(), options.token, {}, subject.clock));
  }
  return {};
}

void check(const Status& status) { LEVADA_CHECK(status.ok(), status.to_string().c_str()); }

// Runs of one way of moving bytes, then of the other, and again: streams as they are in use, and still a slow minute of
// the machine meets both. The first of each run warms up.
void measure_tcp(Subject& subject, RawTcp& raw, const Buffer& buffer, const Size& size, int turns,
                 std::vector<Case>& out) {
  constexpr int kRuns = 3;
  Samples limit, put, get, ucx_put, ucx_get;
  const Bytes object = buffer.first(size.bytes);
  const auto put_and_get = [&](store::ObjectStore& store, Samples& puts, Samples& gets) {
    for (int turn = -1; turn < (turns + kRuns - 1) / kRuns; ++turn) {
      puts.time([&] { check(store.put_from("k", object)); }, turn >= 0);
      gets.time([&] { check(store.get_into("k", object).status()); }, turn >= 0);
      check(store.remove("k").status());
    }
  };
  for (int run = 0; run < kRuns; ++run) {
    for (int turn = -1; turn < (turns + kRuns - 1) / kRuns; ++turn) {
      limit.time([&] { raw.send(object); }, turn >= 0);
    }
    put_and_get(*subject.tcp, put, get);
    if (subject.ucx != nullptr) put_and_get(*subject.ucx, ucx_put, ucx_get);
  }
  for (auto [samples, name] : {std::pair(&limit, "raw_tcp_"), {&put, "tcp_put_"}, {&get, "tcp_get_"}})
    samples->report(std::string(name) + size.name, size.bytes, true, out);
  if (subject.ucx == nullptr) return;
  for (auto [samples, name] : {std::pair(&ucx_put, "ucx_put_"), {&ucx_get, "ucx_get_"}})
    samples->report(std::string(name) + size.name, size.bytes, true, out);
}

// The limit is a streaming copy into the very pool; the puts are the capture process's own.
void measure_shm(Subject& subject, Bytes pool, const Buffer& buffer, const Size& size, int turns,
                 std::vector<Case>& out) {
  Samples limit, put, hashed;
  const Bytes object = buffer.first(size.bytes);
  for (int turn = -1; turn < turns; ++turn) {
    limit.time([&] { store::stream_copy(pool.first(size.bytes), object); }, turn >= 0);
    put.time([&] { check(subject.arena->put_from("k", object, {.checksum = 1})); }, turn >= 0);
    subject.arena->remove("k");
    hashed.time([&] { check(subject.arena->put_from("k", object)); }, turn >= 0);
    subject.arena->remove("k");
  }
  for (auto [samples, name] : {std::pair(&limit, "memcpy_nt_"), {&put, "shm_put_"}, {&hashed, "shm_put_hashed_"}})
    samples->report(std::string(name) + size.name, size.bytes, false, out);
}

// Look-up to view and back, among a thousand objects, in groups, because one is shorter than reading the clock twice.
void measure_handoff(Subject& subject, const Buffer& buffer, int turns, std::vector<Case>& out) {
  constexpr int kObjects = 1000, kGroup = 100;
  const auto key = [](int i) { return "store/run:" + std::to_string(i) + "/g1/hidden_states"; };
  std::vector<std::string> keys;
  for (int i = 0; i < kObjects; ++i) {
    keys.push_back(key(i));
    check(subject.arena->put_from(keys.back(), buffer.first(4 * kKiB)));
  }
  std::vector<double> samples;
  for (int turn = 0; turn < turns; ++turn) {
    const double start = seconds_of(CLOCK_MONOTONIC);
    for (int i = 0; i < kGroup; ++i) {
      const auto view = subject.shm->view(keys[static_cast<std::size_t>((turn * kGroup + i * 7) % kObjects)]);
      check(view.status());
      keep(view->bytes()[0]);
    }
    samples.push_back((seconds_of(CLOCK_MONOTONIC) - start) * 1e6 / kGroup);
  }
  out.push_back(summarize_us("shm_handoff", std::move(samples)));
  subject.arena->remove_prefix("store/");
}

}  // namespace

Result<std::vector<Case>> run_store_bench(double scale) {
  const bool whole = scale >= 0.1;
  const std::size_t largest = whole ? 128 * kMiB : kMiB;
  Subject subject;
  LEVADA_RETURN_IF_ERROR(open(subject, 4 * largest));
  const Buffer buffer(largest);
  LEVADA_ASSIGN_OR_RETURN(MemoryFile pool, MemoryFile::create("levada-bench", largest));
  LEVADA_RETURN_IF_ERROR(pool.prefault(0, largest));
  RawTcp raw;
  std::vector<Case> cases;
  for (const Size& size : kSizes) {
    if (size.bytes > largest) continue;
    const int turns = std::max(3, static_cast<int>(size.samples * scale));
    measure_tcp(subject, raw, buffer, size, turns, cases);
    measure_shm(subject, pool.bytes(), buffer, size, turns, cases);
  }
  measure_handoff(subject, buffer, std::max(3, static_cast<int>(1000 * scale)), cases);
  return cases;
}

}  // namespace levada::bench

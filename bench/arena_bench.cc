#include "bench/arena_bench.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "store/batch_writer.h"
#include "store/open_store.h"
#include "store/store_server.h"

namespace levada::bench {
namespace {

constexpr std::size_t kSmallBytes = 64 * 1024, kBatch = 32;
constexpr std::int64_t kWaitUs = 60'000'000;
constexpr std::uint64_t kSources = 8;  // large samples that differ; published one after the other without a pause

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string key_of(std::uint64_t number) { return "bench/run:" + std::to_string(number) + "/g1/hidden_states"; }

void fill_sample(std::span<std::byte> bytes, std::uint64_t number) {
  auto* words = reinterpret_cast<std::uint64_t*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / 8; ++i)
    words[i] = (i + 1) * 0x9E3779B97F4A7C15 + number * 0x0101010101010101;
}

// What the producer tells its consumer, and what it hears back.
struct Order {
  enum class Kind : int { kOpen, kRead, kReadAndFree, kFreeAll, kBatch, kEnd } kind = Kind::kEnd;
  std::uint64_t first = 0, count = 0, bytes = 0;
  char url[256] = {};
};
struct Answer {
  bool ok = false;
  double fetch_us = 0, get_us = 0;  // measured on the way, and without
};

bool send(int to, const void* data, std::size_t bytes) { return ::write(to, data, bytes) == static_cast<long>(bytes); }
bool receive(int from, void* data, std::size_t bytes) {
  for (std::size_t got = 0; got < bytes;) {
    const long some = ::read(from, static_cast<char*>(data) + got, bytes - got);
    if (some <= 0) return false;
    got += static_cast<std::size_t>(some);
  }
  return true;
}

class Consumer {
 public:
  Consumer(const ArenaBench& options, int orders, int answers)
      : options_(options), orders_(orders), answers_(answers) {}

  Status run() {
    LEVADA_ASSIGN_OR_RETURN(device_, device::open_device(options_.device));
    const std::size_t room = std::max(options_.sample_bytes, kSmallBytes * kBatch);
    LEVADA_ASSIGN_OR_RETURN(to_, device_->allocate(room));
    LEVADA_ASSIGN_OR_RETURN(host_, device_->allocate_pinned(room));
    LEVADA_ASSIGN_OR_RETURN(expected_, device_->allocate_pinned(room));
    LEVADA_ASSIGN_OR_RETURN(stream_, device_->make_stream());
    for (Order order; receive(orders_, &order, sizeof order) && order.kind != Order::Kind::kEnd;) {
      std::vector<Answer> answers(std::max<std::uint64_t>(order.count, 1));
      LEVADA_RETURN_IF_ERROR(obey(order, answers));
      for (Answer& answer : answers) {
        answer.ok = true;
        if (!send(answers_, &answer, sizeof answer)) return {};
      }
    }
    return {};
  }

 private:
  Status obey(const Order& order, std::span<Answer> answers) {
    switch (order.kind) {
      case Order::Kind::kOpen: {
        store_.reset();
        LEVADA_ASSIGN_OR_RETURN(store_, store::open_store(order.url, "", {.device = device_.get()}, clock_));
        return {};
      }
      case Order::Kind::kRead:
      case Order::Kind::kReadAndFree: {
        LEVADA_RETURN_IF_ERROR(read(order, answers));
        return order.kind == Order::Kind::kRead ? Status() : store_->remove(key_of(order.first)).status();
      }
      case Order::Kind::kFreeAll: return store_->remove_prefix("bench/").status();
      case Order::Kind::kBatch: return batch(order);
      case Order::Kind::kEnd: return {};
    }
    return {};
  }
  std::span<std::byte> destination(std::size_t at, std::size_t bytes) const {
    return {static_cast<std::byte*>(to_->data()) + at, bytes};
  }
  // Each sort of read on its own, one after the other: a GPU that was idle takes its time to wake.
  Status read(const Order& order, std::span<Answer> answers) {
    const std::span<std::byte> to = destination(0, order.bytes);
    for (std::uint64_t i = 0; i < order.count; ++i) {
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(store_->get_into(key_of(order.first + i), to).status());
      answers[i].get_us = now_us() - start;
    }
    for (std::uint64_t i = 0; i < order.count; ++i) {
      const std::string key = key_of(order.first + i);
      store::ObjectStore::Fetch fetch{key, to};
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(store_->fetch(std::span(&fetch, 1)));
      answers[i].fetch_us = now_us() - start;
      LEVADA_ASSIGN_OR_RETURN(const auto info, store_->is_exist(key));
      if (!info || info->checksum != fetch.checksum) return data_loss("the checksum of " + key + " differs");
    }
    for (std::uint64_t i = 0; i < order.count; ++i) {
      LEVADA_RETURN_IF_ERROR(store_->get_into(key_of(order.first + i), to).status());
      LEVADA_RETURN_IF_ERROR(compare(0, order.bytes, (order.first + i) % kSources));
    }
    return {};
  }
  Status compare(std::size_t at, std::size_t bytes, std::uint64_t number) {
    LEVADA_RETURN_IF_ERROR(stream_->copy(host_->data(), destination(at, bytes).data(), bytes));
    LEVADA_RETURN_IF_ERROR(stream_->synchronize());
    fill_sample({static_cast<std::byte*>(expected_->data()), bytes}, number);
    if (std::memcmp(host_->data(), expected_->data(), bytes) == 0) return {};
    return data_loss("sample " + std::to_string(number) + " arrived with other bytes");
  }
  Status batch(const Order& order) {
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < order.count; ++i) names.push_back(key_of(order.first + i));
    std::vector<store::ObjectStore::Fetch> fetches;
    for (std::size_t i = 0; i < names.size(); ++i)
      fetches.push_back({names[i], destination(i * order.bytes, order.bytes)});
    LEVADA_RETURN_IF_ERROR(store_->fetch(fetches));
    return store_->remove_all(std::vector<std::string_view>(names.begin(), names.end())).status();
  }

  const ArenaBench& options_;
  const int orders_, answers_;
  SystemClock clock_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::DeviceBuffer> to_, host_, expected_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<store::ObjectStore> store_;
};

class Producer {
 public:
  Producer(const ArenaBench& options, int orders, int answers, std::vector<Case>& cases)
      : options_(options), orders_(orders), answers_(answers), cases_(cases) {
    char folder[] = "/tmp/levada-arena-XXXXXX";
    folder_ = ::mkdtemp(folder) == nullptr ? "" : folder;
  }
  ~Producer() {
    end_arena();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Status run() {
    if (folder_.empty()) return unavailable("no folder for the socket in /tmp");
    LEVADA_ASSIGN_OR_RETURN(device_, device::open_device(options_.device));
    LEVADA_ASSIGN_OR_RETURN(stream_, device_->make_stream());
    const std::size_t room = std::max(options_.sample_bytes, kSmallBytes * kBatch);
    LEVADA_ASSIGN_OR_RETURN(from_, device_->allocate(std::max(kSources * options_.sample_bytes, kSmallBytes * kBatch)));
    LEVADA_ASSIGN_OR_RETURN(to_, device_->allocate(room));
    LEVADA_ASSIGN_OR_RETURN(host_, device_->allocate_pinned(room));
    LEVADA_RETURN_IF_ERROR(measure_copies());
    LEVADA_RETURN_IF_ERROR(begin_arena(options_.large_arena));
    LEVADA_RETURN_IF_ERROR(large_samples("", /*frees_each=*/false));
    LEVADA_RETURN_IF_ERROR(publish_in_parts());
    LEVADA_RETURN_IF_ERROR(measure_copies_of_parts());
    LEVADA_RETURN_IF_ERROR(publish_batches());
    LEVADA_RETURN_IF_ERROR(small_samples());
    LEVADA_RETURN_IF_ERROR(begin_arena(options_.small_arena));
    return large_samples("_small_arena", /*frees_each=*/true);
  }

 private:
  double rate(std::size_t bytes, double us) const { return static_cast<double>(bytes) / us / 1000; }

  Status measure_copies() {
    std::vector<double> rates;
    for (int i = 0; i < 30; ++i) {
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(stream_->copy(to_->data(), from_->data(), options_.sample_bytes));
      LEVADA_RETURN_IF_ERROR(stream_->synchronize());
      if (i >= 5) rates.push_back(rate(options_.sample_bytes, now_us() - start));
    }
    cases_.push_back(summarize_rates("device_copy", std::move(rates), "GB/s"));
    return {};
  }
  void end_arena() {
    writer_.reset();
    server_.reset();
    arena_.reset();
  }
  Status begin_arena(std::size_t bytes) {
    end_arena();
    LEVADA_ASSIGN_OR_RETURN(arena_, store::Arena::create({.bytes = bytes, .device = device_.get()}, clock_));
    store::ServerOptions server;
    server.shm_url = "nvlink://" + folder_ + "/arena.sock";
    LEVADA_ASSIGN_OR_RETURN(server_, store::StoreServer::start(*arena_, server));
    LEVADA_ASSIGN_OR_RETURN(writer_, store::BatchWriter::create(*arena_));
    Order open{.kind = Order::Kind::kOpen};
    std::strncpy(open.url, server_->shm_url().c_str(), sizeof open.url - 1);
    LEVADA_RETURN_IF_ERROR(tell(open));
    return answer().status();
  }
  Status tell(const Order& order) {
    return send(orders_, &order, sizeof order) ? Status() : unavailable("the consumer is gone");
  }
  Result<Answer> answer() {
    Answer answer;
    if (!receive(answers_, &answer, sizeof answer) || !answer.ok) return unavailable("the consumer failed; see above");
    return answer;
  }
  Status check_free() {
    const store::ArenaStats stats = arena_->stats();
    arena_->check_invariants();
    if (stats.used_bytes == 0 && stats.largest_free_bytes == stats.capacity_bytes) return {};
    return internal_error("the arena is not free at the end: " + std::to_string(stats.used_bytes) +
                          " bytes are in use");
  }
  Status upload(std::uint64_t number, std::size_t at, std::size_t bytes) {
    fill_sample({static_cast<std::byte*>(host_->data()), bytes}, number);
    LEVADA_RETURN_IF_ERROR(stream_->copy(static_cast<std::byte*>(from_->data()) + at, host_->data(), bytes));
    return stream_->synchronize();
  }

  // With `frees_each` each is read and freed while the next are published: a small arena fills up and is waited for.
  Status large_samples(const std::string& suffix, bool frees_each) {
    const auto count = static_cast<std::uint64_t>(options_.samples);
    for (std::uint64_t i = 0; i < kSources; ++i)
      LEVADA_RETURN_IF_ERROR(upload(i, i * options_.sample_bytes, options_.sample_bytes));
    std::vector<double> publish, get, fetch;
    for (std::uint64_t i = 0; i < count; ++i) {
      const store::BatchWriter::Item item{key_of(i), {source(i), options_.sample_bytes}};
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(writer_->publish(std::span(&item, 1), nullptr, clock_.now_us() + kWaitUs).status());
      publish.push_back(rate(options_.sample_bytes, now_us() - start));
      if (frees_each) LEVADA_RETURN_IF_ERROR(tell({Order::Kind::kReadAndFree, i, 1, options_.sample_bytes}));
    }
    if (!frees_each) LEVADA_RETURN_IF_ERROR(tell({Order::Kind::kRead, 0, count, options_.sample_bytes}));
    for (std::uint64_t i = 0; i < count; ++i) {
      LEVADA_ASSIGN_OR_RETURN(const Answer heard, answer());
      get.push_back(rate(options_.sample_bytes, heard.get_us));
      fetch.push_back(rate(options_.sample_bytes, heard.fetch_us));
    }
    if (!frees_each) {
      LEVADA_RETURN_IF_ERROR(tell({Order::Kind::kFreeAll}));
      LEVADA_RETURN_IF_ERROR(answer().status());
    }
    cases_.push_back(summarize_rates("publish" + suffix, std::move(publish), "GB/s"));
    cases_.push_back(summarize_rates("get" + suffix, std::move(get), "GB/s"));
    cases_.push_back(summarize_rates("get_checked" + suffix, std::move(fetch), "GB/s"));
    cases_.push_back({"waits" + suffix, static_cast<double>(arena_->stats().waits), 0, "n", options_.samples});
    return check_free();
  }

  const std::byte* source(std::uint64_t number) const {
    return static_cast<const std::byte*>(from_->data()) + number % kSources * options_.sample_bytes;
  }
  Result<store::Slot> place(std::uint64_t number) {
    return arena_->reserve(key_of(number), options_.sample_bytes, clock_.now_us() + kWaitUs);
  }
  // What one publication consists of, by BatchWriter's own calls in its order.
  Status publish_in_parts() {
    LEVADA_ASSIGN_OR_RETURN(const auto copier, store::BatchCopier::create(*device_));
    std::vector<double> place_us, enqueue_us, device_us, name_us;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(options_.samples); ++i) {
      const double begun = now_us();
      LEVADA_ASSIGN_OR_RETURN(store::Slot slot, place(i));
      const double placed = now_us();
      const store::Transfer transfer{source(i), slot.bytes().data(), options_.sample_bytes};
      copier->begin_measured(std::span(&transfer, 1));
      const double enqueued = now_us();
      LEVADA_ASSIGN_OR_RETURN(const auto checksums, copier->end_measured(std::span(&transfer, 1)));
      const double copied = now_us();
      LEVADA_RETURN_IF_ERROR(slot.seal(checksums.front()).status());
      name_us.push_back(now_us() - copied);
      device_us.push_back(copied - enqueued);
      enqueue_us.push_back(enqueued - placed);
      place_us.push_back(placed - begun);
    }
    arena_->remove_prefix("bench/");
    cases_.push_back(summarize_us("publish_place", std::move(place_us)));
    cases_.push_back(summarize_us("publish_enqueue", std::move(enqueue_us)));
    cases_.push_back(summarize_us("publish_device", std::move(device_us)));
    cases_.push_back(summarize_us("publish_name", std::move(name_us)));
    return check_free();
  }
  // Copies without checksums as publication makes them, from one of the sources to another place each time; and the kernel
  // with checksums on one pair of memories, as the device's copy is measured.
  Status measure_copies_of_parts() {
    LEVADA_ASSIGN_OR_RETURN(const auto copier, store::BatchCopier::create(*device_));
    std::vector<store::Slot> held;
    std::vector<double> spread, alone;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(options_.samples); ++i) {
      LEVADA_ASSIGN_OR_RETURN(store::Slot slot, place(i));
      held.push_back(std::move(slot));
      const store::Transfer transfer{source(i), held.back().bytes().data(), options_.sample_bytes};
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(copier->copy(std::span(&transfer, 1)));
      spread.push_back(rate(options_.sample_bytes, now_us() - start));
    }
    held.clear();
    for (int i = 0; i < options_.samples; ++i) {
      const store::Transfer transfer{source(0), static_cast<std::byte*>(to_->data()), options_.sample_bytes};
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(copier->copy_measured(std::span(&transfer, 1)).status());
      alone.push_back(rate(options_.sample_bytes, now_us() - start));
    }
    cases_.push_back(summarize_rates("device_copy_spread", std::move(spread), "GB/s"));
    cases_.push_back(summarize_rates("copy_measured_alone", std::move(alone), "GB/s"));
    return check_free();
  }
  // As many samples at once as there are sources.
  Status publish_batches() {
    std::vector<double> publish;
    for (int round = 0; round < 16; ++round) {
      std::vector<store::BatchWriter::Item> items;
      for (std::uint64_t i = 0; i < kSources; ++i)
        items.push_back({key_of(i), {source(i), options_.sample_bytes}, /*replace=*/true});
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(writer_->publish(items, nullptr, clock_.now_us() + kWaitUs).status());
      publish.push_back(rate(kSources * options_.sample_bytes, now_us() - start));
    }
    arena_->remove_prefix("bench/");
    cases_.push_back(summarize_rates("publish_of_8", std::move(publish), "GB/s"));
    return check_free();
  }

  Status small_samples() {
    for (std::size_t i = 0; i < kBatch; ++i) LEVADA_RETURN_IF_ERROR(upload(i, i * kSmallBytes, kSmallBytes));
    std::vector<double> publish, whole;
    for (int round = 0; round < options_.small_rounds; ++round) {
      const auto first = static_cast<std::uint64_t>(1'000 + round) * kBatch;
      std::vector<store::BatchWriter::Item> items;
      for (std::size_t i = 0; i < kBatch; ++i)
        items.push_back({key_of(first + i), {static_cast<std::byte*>(from_->data()) + i * kSmallBytes, kSmallBytes}});
      const double start = now_us();
      LEVADA_RETURN_IF_ERROR(writer_->publish(items, nullptr, clock_.now_us() + kWaitUs).status());
      publish.push_back((now_us() - start) / kBatch);
      LEVADA_RETURN_IF_ERROR(tell({Order::Kind::kBatch, first, kBatch, kSmallBytes}));
      for (std::size_t i = 0; i < kBatch; ++i) LEVADA_RETURN_IF_ERROR(answer().status());
      whole.push_back((now_us() - start) / kBatch);
    }
    cases_.push_back(summarize_us("publish_64k_of_32", std::move(publish)));
    cases_.push_back(summarize_us("publish_get_free_64k_of_32", std::move(whole)));
    return check_free();
  }

  const ArenaBench& options_;
  const int orders_, answers_;
  std::vector<Case>& cases_;
  std::string folder_;
  SystemClock clock_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::DeviceBuffer> from_, to_, host_;
  std::unique_ptr<store::Arena> arena_;
  std::unique_ptr<store::StoreServer> server_;
  std::unique_ptr<store::BatchWriter> writer_;
};

}  // namespace

Result<std::vector<Case>> run_arena_bench(const ArenaBench& options) {
  int orders[2], answers[2];
  if (::pipe(orders) != 0 || ::pipe(answers) != 0) return unavailable("no pipes for two processes");
  Fd read_orders(orders[0]), write_orders(orders[1]), read_answers(answers[0]), write_answers(answers[1]);
  const pid_t child = ::fork();
  if (child < 0) return unavailable("no second process");
  if (child == 0) {
    write_orders.reset();
    read_answers.reset();
    const Status done = Consumer(options, read_orders.get(), write_answers.get()).run();
    if (!done.ok()) std::fprintf(stderr, "consumer: %s\n", done.to_string().c_str());
    ::_exit(done.ok() ? 0 : 1);
  }
  read_orders.reset();
  write_answers.reset();
  std::vector<Case> cases;
  const Status done = Producer(options, write_orders.get(), read_answers.get(), cases).run();
  write_orders.reset();
  ::waitpid(child, nullptr, 0);
  if (!done.ok()) return done;
  return cases;
}

}  // namespace levada::bench

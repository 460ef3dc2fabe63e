#include "train/dealt_source.h"

#include <cstring>

#include "base/check.h"

namespace levada::train {
namespace {

constexpr std::size_t kAlignment = 8;

// Before each sample's arrays: how long they are. Arrays follow in this order, each padded to kAlignment.
struct Lengths {
  std::uint64_t epoch = 0, id = 0, tokens = 0, features = 0;
};

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A step's part for one rank as pieces of memory, most of them the samples' own.
class Deal {
 public:
  explicit Deal(std::span<const Sample> samples) : lengths_(samples.size()) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Sample& sample = samples[i];
      LEVADA_CHECK(sample.hidden_states_f32.empty() && sample.anchor_uniforms.empty(), "captured samples are dealt");
      lengths_[i] = {sample.epoch, sample.sample_id.size(), sample.input_ids.size(), sample.hidden_states.size()};
      add(std::as_bytes(std::span(&lengths_[i], 1)));
      add(std::as_bytes(std::span(sample.sample_id)));
      add(std::as_bytes(sample.input_ids));
      add(std::as_bytes(sample.loss_mask));
      add(std::as_bytes(sample.hidden_states));
    }
  }
  const std::vector<std::span<const std::byte>>& pieces() const { return pieces_; }

 private:
  void add(std::span<const std::byte> bytes) {
    static constexpr std::byte kNothing[kAlignment] = {};
    pieces_.push_back(bytes);
    pieces_.push_back(std::span(kNothing).first(padded(bytes.size()) - bytes.size()));
  }

  std::vector<Lengths> lengths_;
  std::vector<std::span<const std::byte>> pieces_;
};

// Reads a Deal back. What it returns lies in `bytes`.
class Hand {
 public:
  explicit Hand(std::span<const std::byte> bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  Sample next() {
    Lengths lengths;
    std::memcpy(&lengths, cut(sizeof lengths).data(), sizeof lengths);
    Sample sample;
    sample.epoch = static_cast<std::uint32_t>(lengths.epoch);
    sample.sample_id.assign(reinterpret_cast<const char*>(cut(lengths.id).data()), lengths.id);
    sample.input_ids = array<std::int64_t>(lengths.tokens);
    sample.loss_mask = array<std::int64_t>(lengths.tokens);
    sample.hidden_states = array<std::uint16_t>(lengths.features);
    return sample;
  }

 private:
  std::span<const std::byte> cut(std::size_t bytes) {
    LEVADA_CHECK(padded(bytes) <= left_.size(), "rank 0 deals whole samples");
    const std::span<const std::byte> first = left_.first(bytes);
    left_ = left_.subspan(padded(bytes));
    return first;
  }
  template <class T>
  std::span<const T> array(std::size_t count) {
    return {reinterpret_cast<const T*>(cut(count * sizeof(T)).data()), count};
  }

  std::span<const std::byte> left_;
};

}  // namespace

Result<std::vector<Sample>> DealtSource::next(std::int64_t count) {
  LEVADA_ASSIGN_OR_RETURN(std::vector<Sample> all, whole_.next(count * ranks_.world()));
  if (all.empty()) return all;
  const auto part = static_cast<std::size_t>(count);
  for (std::int64_t rank = 1; rank < ranks_.world(); ++rank) {
    const std::span<const Sample> share = std::span(all).subspan(static_cast<std::size_t>(rank) * part, part);
    LEVADA_RETURN_IF_ERROR(ranks_.give(rank, Deal(share).pieces()));
  }
  all.resize(part);
  return all;
}

Result<std::vector<Sample>> TakenSource::next(std::int64_t count) {
  std::vector<Sample> samples;
  LEVADA_ASSIGN_OR_RETURN(auto taken, ranks_.take());
  if (!taken) return samples;
  taken_ = std::move(*taken);
  for (Hand hand(taken_); !hand.empty();) samples.push_back(hand.next());
  LEVADA_CHECK(static_cast<std::int64_t>(samples.size()) == count, "rank 0 deals a step at a time");
  return samples;
}

}  // namespace levada::train

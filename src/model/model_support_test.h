// What: what the model tests share: plans over random pages, runs of them, and the golden vectors.
// Owner: the test.
// Thread: one.
// Invariant: pages a sequence doesn't own are poisoned with NaN before every run, so a kernel that reads one is seen.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "files/tensor_source.h"
#include "model/model.h"
#include "support/vectors.h"

namespace levada::model {

// Made by independent references (tests/vectors/README.md). A copied binary finds them from the repository's root.
using levada::test::vectors;

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
  std::span<const float> row(std::int64_t r) const {
    return std::span(values).subspan(static_cast<std::size_t>(r * columns), static_cast<std::size_t>(columns));
  }
};

class Golden {
 public:
  explicit Golden(const std::string& architecture)
      : source_(std::move(files::open_safetensors(vectors() / "tiny" / architecture / "golden.safetensors")).value()) {}
  Matrix matrix(const std::string& name) const {
    const files::TensorInfo& info = *source_->find(name);
    Matrix m{info.shape[0], info.shape.size() > 1 ? info.shape[1] : 1, {}};
    m.values.resize(static_cast<std::size_t>(info.elements()));
    files::decode_to_f32(info, 0, info.elements(), m.values.data());
    return m;
  }
  std::vector<core::Token> ids(const std::string& name) const {
    const Matrix m = matrix(name);
    return {m.values.begin(), m.values.end()};
  }

 private:
  std::unique_ptr<files::TensorSource> source_;
};

// A request's tokens and pages, and how much of it is computed.
struct Sequence {
  std::vector<core::Token> tokens;
  std::vector<std::int32_t> pages;
  std::int32_t computed = 0;
};

class PlanBuilder {
 public:
  // The next `count` tokens of the sequence; a sample for its last row, or for every row.
  PlanBuilder& add(Sequence& sequence, std::int32_t count, bool sample_all = false) {
    core::PlanSlice slice;
    slice.range = {core::RequestId{plan_.slices.size()}, sequence.computed, count};
    slice.first_row = static_cast<std::int32_t>(plan_.tokens.size());
    slice.block_table_first = static_cast<std::int32_t>(plan_.block_tables.size());
    slice.block_table_pages = static_cast<std::int32_t>(sequence.pages.size());
    plan_.block_tables.insert(plan_.block_tables.end(), sequence.pages.begin(), sequence.pages.end());
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t position = sequence.computed + i;
      plan_.tokens.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
      plan_.positions.push_back(position);
      if (sample_all || i == count - 1) sample(slice, i, position);
    }
    plan_.slices.push_back(slice);
    sequence.computed += count;
    return *this;
  }
  core::StepPlan& plan() { return plan_; }

 private:
  void sample(core::PlanSlice& slice, std::int32_t i, std::int32_t position) {
    core::SampleRow row;
    row.row = slice.first_row + i;
    row.position = position + 1;
    row.temperature = 0;
    slice.sample_row = static_cast<std::int32_t>(plan_.samples.size());
    plan_.samples.push_back(row);
  }
  core::StepPlan plan_;
};

// A model with a pool whose pages are handed out in random order.
class Bench {
 public:
  static constexpr std::int32_t kPages = 256;

  Bench(const std::filesystem::path& path, const ModelOptions& options, device::Device& device, unsigned seed = 1)
      : model(std::move(load_model(path, options, device)).value()),
        pool(std::move(model->make_kv_pool(kPages)).value()) {
    for (std::int32_t page = 0; page < kPages; ++page) free_.push_back(page);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
    for (std::int32_t page : free_) pool->poison(page);
  }
  // Pages for tokens.size() + more tokens.
  Sequence sequence(std::vector<core::Token> tokens, std::int32_t more = 0) {
    Sequence s{std::move(tokens), {}, 0};
    for (auto n = model->kv_layout().pages_for(static_cast<std::int64_t>(s.tokens.size()) + more); n > 0; --n) {
      s.pages.push_back(free_.back());
      free_.pop_back();
    }
    return s;
  }
  void give_back(const Sequence& s) { free_.insert(free_.end(), s.pages.rbegin(), s.pages.rend()); }
  // Runs a plan; the logits of its samples, hidden states of every layer through `seen`.
  Matrix run(const core::StepPlan& plan, const std::function<void(int, device::TensorView)>& seen = {}) {
    auto forward = std::move(model->begin(plan, *pool)).value();
    for (int l = 0; l < model->info().num_layers; ++l) {
      const Status status = forward->layer(l);
      if (!status.ok()) ADD_FAILURE() << status.to_string();
      if (seen) seen(l, forward->hidden());
    }
    std::vector<std::int32_t> rows;
    for (const core::SampleRow& sample : plan.samples) rows.push_back(sample.row);
    const device::TensorView logits = std::move(forward->logits(rows)).value();
    const auto* values = logits.as<float>();
    return {logits.shape[0], logits.shape[1], {values, values + logits.elements()}};
  }
  Matrix run(PlanBuilder&& builder) { return run(builder.plan()); }
  // Greedy continuation of a sequence that isn't computed yet.
  std::vector<core::Token> greedy(Sequence sequence, int count) {
    std::vector<core::Token> out;
    for (int i = 0; i < count; ++i) {
      const auto missing = static_cast<std::int32_t>(sequence.tokens.size()) - sequence.computed;
      PlanBuilder builder;
      builder.add(sequence, missing);
      const core::StepPlan& plan = builder.plan();
      auto forward = std::move(model->begin(plan, *pool)).value();
      EXPECT_TRUE(forward->all_layers().ok());
      const auto chosen = std::move(forward->sample()).value()->wait();
      out.push_back(chosen.value().sampled.front());
      sequence.tokens.push_back(out.back());
    }
    return out;
  }

  std::unique_ptr<Model> model;
  std::unique_ptr<KvPool> pool;

 private:
  std::vector<std::int32_t> free_;
};

inline ModelOptions in_float32(std::int32_t page_size = 16) {
  ModelOptions options;
  options.dtype = "float32";
  options.page_size_tokens = page_size;
  options.threads = 2;
  return options;
}

inline float largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN stays
  }
  return largest;
}

}  // namespace levada::model

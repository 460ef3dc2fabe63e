// What: what the DFlash tests share: golden files with their base, a draft built from one, and comparisons.
// Owner: the test.
// Thread: one.
// Invariant: goldens come from tests/vectors/make_dflash.py, never from us; a tensor left out of a file is its base's.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "files/tensor_source.h"
#include "nn/dflash_draft.h"
#include "nn/draft_objective.h"
#include "nn/tensor.h"
#include "support/vectors.h"

namespace levada::nn::test {

// The goldens are tiny: waking a second thread for them takes longer than they do.
struct OneThread {
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before); }
  int before = at::get_num_threads();
};

inline std::filesystem::path dflash_vectors() { return levada::test::vectors() / "dflash"; }

// Name -> tensor of one case; floats as float32, everything else as int64.
class Golden {
 public:
  explicit Golden(const std::string& name) : source_(open(name)) {
    const std::map<std::string, std::string> bases{
        {"sliding", "full"},     {"bias_nodecay", "full"}, {"dpace", "full"},      {"dpace_conf", "full"},
        {"dpace_value", "full"}, {"full_bf16", "full"},    {"optim_bf16", "optim"}};
    if (const auto base = bases.find(name); base != bases.end()) base_ = open(base->second);
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  at::Tensor tensor(const std::string& name) const {
    const files::TensorInfo* info = find(name);
    if (info == nullptr) throw std::runtime_error("golden has no " + name);
    at::Tensor wide = at::empty(info->shape, at::TensorOptions().dtype(integral(*info) ? at::kLong : at::kFloat));
    if (!integral(*info)) {
      files::decode_to_f32(*info, 0, info->elements(), wide.data_ptr<float>());
      return wide;
    }
    auto* out = wide.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < info->elements(); ++i) {
      const auto* bytes = info->bytes.data();
      if (info->encoding == files::Encoding::kU8) {
        out[i] = static_cast<std::int64_t>(bytes[i]);
      } else {
        std::memcpy(out + i, bytes + i * 8, 8);
      }
    }
    return wide;
  }
  std::int64_t integer(const std::string& name) const { return tensor(name).item<std::int64_t>(); }
  double number(const std::string& name) const { return tensor(name).to(at::kDouble).item<double>(); }

 private:
  static std::unique_ptr<files::TensorSource> open(const std::string& name) {
    return std::move(files::open_safetensors(dflash_vectors() / (name + ".safetensors"))).value();
  }
  static bool integral(const files::TensorInfo& info) {
    return info.encoding == files::Encoding::kI64 || info.encoding == files::Encoding::kU8;
  }
  const files::TensorInfo* find(const std::string& name) const {
    const files::TensorInfo* own = source_->find(name);
    return own != nullptr || base_ == nullptr ? own : base_->find(name);
  }
  std::unique_ptr<files::TensorSource> source_, base_;
};

inline DraftGeometry geometry_of(const Golden& golden) {
  DraftGeometry g;
  g.hidden = golden.integer("cfg.hidden");
  g.intermediate = golden.integer("cfg.inter");
  g.layers = golden.integer("cfg.layers");
  g.heads = golden.integer("cfg.nh");
  g.kv_heads = golden.integer("cfg.nkv");
  g.head_dim = golden.integer("cfg.hd");
  g.features = golden.tensor("cfg.target_layer_ids").numel() * g.hidden;
  g.eps = static_cast<float>(golden.number("cfg.eps"));
  g.rope_theta = golden.number("cfg.theta");
  const at::Tensor sliding = golden.tensor("cfg.sliding_flags");
  for (std::int64_t i = 0; i < g.layers; ++i) {
    g.windows.push_back(sliding[i].item<std::int64_t>() != 0 ? golden.integer("cfg.window") : 0);
  }
  g.attention_bias = golden.has("w.layers.0.self_attn.q_proj.bias");
  return g;
}

// The flat buffer of golden tensors prefix + name.
inline at::Tensor flat_of(const DraftGeometry& geometry, const Golden& golden, const std::string& prefix,
                          at::ScalarType type) {
  const at::Tensor flat = at::empty({draft_parameters(geometry)}, at::TensorOptions().dtype(type));
  for (const NamedSlice& slice : draft_slices(geometry)) {
    const at::Tensor value = golden.tensor(prefix + slice.name);
    EXPECT_EQ(value.sizes(), at::IntArrayRef(slice.shape)) << slice.name;
    flat.narrow(0, slice.first, slice.count).copy_(value.flatten());
  }
  return flat;
}

inline double largest(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().to(at::kDouble).item<double>(); }
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return largest(a.to(at::kFloat).sub(b.to(at::kFloat)));
}

// Calls compare(name, ours, golden) for every tensor of a flat buffer.
inline void each_tensor(const DraftGeometry& geometry, const at::Tensor& flat, const Golden& golden,
                        const std::string& prefix,
                        const std::function<void(const std::string&, const at::Tensor&, const at::Tensor&)>& compare) {
  for (const NamedSlice& slice : draft_slices(geometry)) {
    compare(slice.name, flat.narrow(0, slice.first, slice.count).view(slice.shape), golden.tensor(prefix + slice.name));
  }
}

// Samples of a padded golden batch with the anchors it picked.
struct GoldenBatch {
  std::vector<std::vector<std::int64_t>> ids, masks;
  std::vector<DraftSequence> sequences;
  at::Tensor features;  // [keys, features]: what each sample's blocks can see
  DraftLabels labels;
  DraftBatch batch;
};

inline std::vector<std::int64_t> row(const at::Tensor& matrix, std::int64_t r) {
  const at::Tensor line = matrix[r].to(at::kLong).contiguous();
  return {line.data_ptr<std::int64_t>(), line.data_ptr<std::int64_t>() + line.numel()};
}

// `anchors` [B, N], `keep` [B, N] say which blocks exist.
inline GoldenBatch make_batch(const DraftGeometry& geometry, const at::Tensor& ids, const at::Tensor& features,
                              const at::Tensor& mask, const at::Tensor& anchors, const at::Tensor& keep,
                              std::int64_t block, std::int64_t mask_token, at::ScalarType type) {
  GoldenBatch out;
  std::vector<at::Tensor> seen;
  for (std::int64_t b = 0; b < ids.size(0); ++b) {
    out.ids.push_back(row(ids, b));
    out.masks.push_back(row(mask, b));
  }
  for (std::int64_t b = 0; b < ids.size(0); ++b) {
    const auto at = static_cast<std::size_t>(b);
    DraftSequence sequence;
    sequence.input_ids = out.ids[at];
    const std::vector<std::int64_t> all = row(anchors, b), kept = row(keep, b);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (kept[j] != 0) sequence.anchors.push_back(all[j]);
    }
    const DraftLabels labels = make_draft_labels(sequence, out.masks[at], block);
    out.labels.labels.insert(out.labels.labels.end(), labels.labels.begin(), labels.labels.end());
    out.labels.mask.insert(out.labels.mask.end(), labels.mask.begin(), labels.mask.end());
    seen.push_back(features[b].narrow(0, 0, sequence.context()));
    out.sequences.push_back(std::move(sequence));
  }
  std::int64_t keys = 0;
  for (const at::Tensor& part : seen) keys += part.size(0);
  out.features = at::empty({keys, features.size(2)}, at::TensorOptions().dtype(type));
  keys = 0;
  for (const at::Tensor& part : seen) {
    out.features.narrow(0, keys, part.size(0)).copy_(part);
    keys += part.size(0);
  }
  out.batch = make_draft_batch(geometry, out.sequences, block, mask_token, at::kCPU);
  return out;
}

}  // namespace levada::nn::test

// The tiny checkpoints rewritten as GGUF (float32, the converter's names and row order) give the same goldens.
#include "files/gguf.h"
#include "model/config.h"
#include "model/model_support_test.h"

namespace levada::model {
namespace {

// Writes the container: little endian, version 3, data aligned to 32 bytes.
class GgufWriter {
 public:
  void text(const std::string& key, const std::string& value) { field(key, 8).string(value); }
  void integer(const std::string& key, std::uint32_t value) { field(key, 4).number(value); }
  void real(const std::string& key, float value) { field(key, 6).number(value); }
  void tensor(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    tensor(name, shape, 0, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  // Bytes of ggml's type number `type`.
  void tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t type,
              const std::string& bytes) {
    string_to(infos_, name);
    number_to(infos_, static_cast<std::uint32_t>(shape.size()));
    for (auto it = shape.rbegin(); it != shape.rend(); ++it) number_to(infos_, static_cast<std::uint64_t>(*it));
    number_to(infos_, type);
    number_to(infos_, static_cast<std::uint64_t>(data_.size()));
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensors_;
  }
  void write(const std::filesystem::path& file) const {
    std::string out = "GGUF";
    number_to(out, std::uint32_t{3});
    number_to(out, tensors_);
    number_to(out, fields_);
    out += metadata_ + infos_;
    out.resize((out.size() + 31) / 32 * 32);
    std::ofstream(file, std::ios::binary) << out << data_;
  }

 private:
  GgufWriter& field(const std::string& key, std::uint32_t type) {
    string(key);
    number(type);
    ++fields_;
    return *this;
  }
  template <class T>
  static void number_to(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void string_to(std::string& out, const std::string& text) {
    number_to(out, static_cast<std::uint64_t>(text.size()));
    out += text;
  }
  template <class T>
  void number(T value) {
    number_to(metadata_, value);
  }
  void string(const std::string& text) { string_to(metadata_, text); }
  std::string metadata_, infos_, data_;
  std::uint64_t fields_ = 0, tensors_ = 0;
};

const std::vector<std::pair<std::string, std::string>> kNames = {{"self_attn.q_proj", "attn_q"},
                                                                 {"self_attn.k_proj", "attn_k"},
                                                                 {"self_attn.v_proj", "attn_v"},
                                                                 {"self_attn.o_proj", "attn_output"},
                                                                 {"self_attn.q_norm", "attn_q_norm"},
                                                                 {"self_attn.k_norm", "attn_k_norm"},
                                                                 {"mlp.gate_proj", "ffn_gate"},
                                                                 {"mlp.up_proj", "ffn_up"},
                                                                 {"mlp.down_proj", "ffn_down"},
                                                                 {"input_layernorm", "attn_norm"},
                                                                 {"post_attention_layernorm", "ffn_norm"},
                                                                 {"model.layers.", "blk."},
                                                                 {"model.embed_tokens", "token_embd"},
                                                                 {"model.norm", "output_norm"},
                                                                 {"lm_head", "output"}};

std::string gguf_name(std::string name) {
  for (const auto& [from, to] : kNames) {
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

// The converter's order for llama: row (head, pair, half) takes the model's row (head, half, pair).
std::vector<float> paired(const std::vector<float>& values, std::int64_t columns, std::int64_t d) {
  std::vector<float> out(values.size());
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / columns;
  for (std::int64_t head = 0; head < rows / d; ++head) {
    for (std::int64_t half = 0; half < 2; ++half) {
      for (std::int64_t pair = 0; pair < d / 2; ++pair) {
        const std::int64_t from = head * d + half * d / 2 + pair, to = head * d + pair * 2 + half;
        std::copy_n(values.begin() + from * columns, columns, out.begin() + to * columns);
      }
    }
  }
  return out;
}

// Q8_0 blocks of `values`, which become what the blocks mean.
std::string quantised(std::vector<float>& values) {
  std::string blocks;
  for (std::size_t at = 0; at < values.size(); at += 32) {
    float largest = 0;
    for (std::size_t i = at; i < at + 32; ++i) largest = std::max(largest, std::abs(values[i]));
    const auto d = static_cast<_Float16>(largest / 120);
    blocks.append(reinterpret_cast<const char*>(&d), sizeof d);
    for (std::size_t i = at; i < at + 32; ++i) {
      const auto quant = static_cast<std::int8_t>(std::lround(values[i] / static_cast<float>(d)));
      blocks += static_cast<char>(quant);
      values[i] = static_cast<float>(d) * static_cast<float>(quant);
    }
  }
  return blocks;
}

std::string halves(std::vector<float>& values) {
  const std::vector<_Float16> narrow(values.begin(), values.end());
  values.assign(narrow.begin(), narrow.end());
  return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof narrow[0]};
}

class GgufCheckpoint : public testing::TestWithParam<std::string> {
 protected:
  ~GgufCheckpoint() override { std::filesystem::remove(file); }

  // Everything but the fields a test adds or leaves out.
  GgufWriter describe() {
    const std::string architecture = GetParam();
    config = read_hf_config(vectors() / "tiny" / architecture).value();
    GgufWriter writer;
    const auto set = [&](const std::string& key, std::int64_t value) {
      writer.integer(architecture + "." + key, static_cast<std::uint32_t>(value));
    };
    writer.text("general.architecture", architecture);
    set("embedding_length", config.hidden);
    set("block_count", config.layers);
    set("attention.head_count", config.heads);
    set("attention.head_count_kv", config.kv_heads);
    set("attention.key_length", config.head_dim);
    set("attention.value_length", config.head_dim);
    set("feed_forward_length", config.intermediate);
    set("context_length", config.context);
    writer.real(architecture + ".attention.layer_norm_rms_epsilon", config.norm_eps);
    writer.real(architecture + ".rope.freq_base", static_cast<float>(config.rope.theta));
    writer.integer("tokenizer.ggml.eos_token_id", 2);
    return writer;
  }
  void add_tensors(GgufWriter& writer) {
    auto source = std::move(files::open_safetensors_folder(vectors() / "tiny" / GetParam())).value();
    for (const files::TensorInfo& info : source->tensors()) {
      std::vector<float> values(static_cast<std::size_t>(info.elements()));
      files::decode_to_f32(info, 0, info.elements(), values.data());
      const bool rotated = info.name.ends_with("q_proj.weight") || info.name.ends_with("k_proj.weight");
      if (GetParam() == "llama" && rotated) values = paired(values, info.shape[1], config.head_dim);
      writer.tensor(gguf_name(info.name), info.shape, values);
    }
  }
  Status load_status(GgufWriter& writer) {
    writer.write(file);
    return load_model(file, in_float32(), *device).status();
  }

  ModelConfig config;
  std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / ("levada_" + std::to_string(::getpid()) + ".gguf");
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

TEST_P(GgufCheckpoint, LogitsAndGreedyIdsAreTheSafetensorsOnes) {
  GgufWriter writer = describe();
  add_tensors(writer);
  writer.write(file);
  Bench bench(file, in_float32(), *device);
  const Golden golden(GetParam());
  Sequence sequence = bench.sequence(golden.ids("p200.ids"));
  const Matrix logits = bench.run(PlanBuilder().add(sequence, 200, true).plan());
  EXPECT_LE(largest_difference(logits.values, golden.matrix("p200.logits").values), 1e-3f);
  EXPECT_EQ(bench.greedy(bench.sequence(golden.ids("p37.ids"), 16), 16), golden.ids("p37.greedy"));
  EXPECT_EQ(bench.model->info().eos_token_ids, std::vector<core::Token>{2});
}

TEST_P(GgufCheckpoint, AutoMeansBfloat) {
  GgufWriter writer = describe();
  add_tensors(writer);
  writer.write(file);
  EXPECT_EQ(load_model(file, {}, *device).value()->info().weight_dtype, DType::kBF16);
}

TEST_P(GgufCheckpoint, WhatIsNotImplementedIsRefusedByName) {
  const std::pair<const char*, std::uint32_t> fields[] = {
      {"expert_count", 8}, {"attention.sliding_window", 128}, {"rope.dimension_count", 2}};
  for (const auto& [key, value] : fields) {
    GgufWriter writer = describe();
    add_tensors(writer);
    writer.integer(GetParam() + "." + key, value);
    EXPECT_NE(load_status(writer).message().find(": " + GetParam() + "." + key + ": "), std::string::npos);
  }
  GgufWriter writer = describe();
  add_tensors(writer);
  writer.text(GetParam() + ".rope.scaling.type", "longrope");
  EXPECT_NE(load_status(writer).message().find(": " + GetParam() + ".rope.scaling.type" + ": "), std::string::npos);
}

TEST_P(GgufCheckpoint, AMissingTensorIsNamedAndAMissingFieldToo) {
  GgufWriter without_tensors = describe();
  EXPECT_NE(load_status(without_tensors).message().find("token_embd.weight"), std::string::npos);
  GgufWriter without_fields;
  without_fields.text("general.architecture", GetParam());
  EXPECT_NE(load_status(without_fields).message().find(": " + GetParam() + ".embedding_length" + ": "),
            std::string::npos);
  GgufWriter other;
  other.text("general.architecture", "rwkv");
  EXPECT_NE(load_status(other).message().find("supported are llama and qwen3"), std::string::npos);
}

// In files of mixed precision a fused map's matrices differ in form.
class MixedGguf : public GgufCheckpoint {
 protected:
  // q, gate and down quantised, k and o halves, v and up float32; or the same numbers, all float32.
  Matrix logits(bool mixed, std::string* backend = nullptr) {
    GgufWriter writer = describe();
    auto source = std::move(files::open_safetensors_folder(vectors() / "tiny" / GetParam())).value();
    for (const files::TensorInfo& info : source->tensors()) {
      std::vector<float> values(static_cast<std::size_t>(info.elements()));
      files::decode_to_f32(info, 0, info.elements(), values.data());
      const std::string name = gguf_name(info.name);
      const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
      std::uint32_t type = 0;
      std::string bytes;
      if (is("attn_q.") || is("ffn_gate.") || is("ffn_down.")) {
        type = 8;
        bytes = quantised(values);
      } else if (is("attn_k.") || is("attn_output.")) {
        type = 1;
        bytes = halves(values);
      }
      if (mixed && type != 0) {
        writer.tensor(name, info.shape, type, bytes);
      } else {
        writer.tensor(name, info.shape, values);
      }
    }
    writer.write(file);
    ModelOptions options = in_float32();
    options.dtype = "auto";
    options.kv_cache_dtype = "float32";
    Bench bench(file, mixed ? options : in_float32(), *device);
    if (backend != nullptr) *backend = bench.model->backend();
    Sequence sequence = bench.sequence({5, 17, 300, 2, 2, 81, 9});
    return bench.run(PlanBuilder().add(sequence, 7, true).plan());
  }
};

TEST_P(MixedGguf, EveryMatrixOfAMapIsComputedWithAsTheFileHasIt) {
  std::string backend;
  const Matrix mixed = logits(true, &backend), wide = logits(false);
  EXPECT_LT(largest_difference(mixed.values, wide.values), 1e-3f);
  EXPECT_GT(largest_difference(mixed.row(0), mixed.row(6)), 0.1f) << "the weights have some effect";
  EXPECT_NE(backend.find("weights Q8_0 F16 as stored by "), std::string::npos) << backend;
  EXPECT_EQ(backend.find("converted"), std::string::npos) << backend;
}

INSTANTIATE_TEST_SUITE_P(Families, MixedGguf, testing::Values("qwen3"), [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Families, GgufCheckpoint, testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levada::model

// What: Fp8Folder, a random qwen3 checkpoint with float8 matrices in blocks of 128 x 128, and the same weights as float32.
// Owner: the test; both folders go with it.
// Thread: one.
// Invariant: every number of plain() is the product, in float32, of what float8() holds: element times its block's scale.
// Test code only. Format: Hugging Face's "fp8" (weight, weight_scale_inv).
#pragma once

#include <cmath>
#include <cstring>

#include "model/model_support_test.h"
#include "model/stored_tensors_test.h"
#include "support/temporary_folder.h"

namespace levada::model {

class Fp8Folder {
 public:
  // 4 heads of 64 over 2, hidden 256: whole blocks everywhere, but for `intermediate` where it is no multiple of 128.
  explicit Fp8Folder(std::int64_t intermediate = 384) {
    config_ = nlohmann::json::parse(std::ifstream(vectors() / "tiny/qwen3/config.json"));
    config_.update(
        {{"hidden_size", 256}, {"head_dim", 64}, {"num_hidden_layers", 2}, {"intermediate_size", intermediate}});
    add_floats("model.embed_tokens.weight", {384, 256}, 1);
    add_floats("lm_head.weight", {384, 256}, 1.0f / 16);
    add_floats("model.norm.weight", {256}, 0.1f, 1);
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      add_floats(layer + "input_layernorm.weight", {256}, 0.1f, 1);
      add_floats(layer + "post_attention_layernorm.weight", {256}, 0.1f, 1);
      add_floats(layer + "self_attn.q_norm.weight", {64}, 0.1f, 1);
      add_floats(layer + "self_attn.k_norm.weight", {64}, 0.1f, 1);
      add_float8(layer + "self_attn.q_proj.weight", 256, 256);
      add_float8(layer + "self_attn.k_proj.weight", 128, 256);
      add_float8(layer + "self_attn.v_proj.weight", 128, 256);
      add_float8(layer + "self_attn.o_proj.weight", 256, 256);
      add_float8(layer + "mlp.gate_proj.weight", intermediate, 256);
      add_float8(layer + "mlp.up_proj.weight", intermediate, 256);
      add_float8(layer + "mlp.down_proj.weight", 256, intermediate);
    }
    write(float8_.path(), tensors8_, true);
    write_plain();
  }
  const std::filesystem::path& float8() const { return float8_.path(); }
  const std::filesystem::path& plain() const { return plain_.path(); }

  // To break the float8 folder: tensors by name, written anew.
  std::map<std::string, StoredTensor>& tensors() { return tensors8_; }
  std::map<std::string, StoredTensor>& plain_tensors() { return plain_tensors_; }
  // Of both, but for the quantization_config that write_again() adds.
  nlohmann::json& config() { return config_; }
  void write_plain() const { write(plain_.path(), plain_tensors_, false); }
  void add_plain(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    plain_tensors_[name] = {"F32", shape, bytes_of_floats(values)};
  }
  // The plain model with keys and values so many times as large, and the same logits.
  void enlarge_kv(float factor) {
    for (auto& [name, tensor] : plain_tensors_) {
      const bool larger = name.ends_with("k_norm.weight") || name.ends_with("v_proj.weight");
      const bool smaller = name.ends_with("q_norm.weight") || name.ends_with("o_proj.weight");
      if (!larger && !smaller) continue;
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      for (float& value : values) value = larger ? value * factor : value / factor;
      tensor.bytes = bytes_of_floats(values);
    }
    write_plain();
  }
  void write_again(bool with_quantization = true) { write(float8_.path(), tensors8_, with_quantization); }

 private:
  static std::string bytes_of_floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  // e4m3: sign, four bits of exponent with bias 7, three of fraction; no infinities.
  static float meaning(std::uint8_t bits) {
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                     : std::ldexp(1 + static_cast<float>(fraction) / 8, exponent - 7);
    return bits & 0x80 ? -size : size;
  }
  void add_floats(const std::string& name, const std::vector<std::int64_t>& shape, float deviation, float mean = 0) {
    std::normal_distribution<float> normal(mean, deviation);
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(bits_);
    tensors8_[name] = plain_tensors_[name] = {"F32", shape, bytes_of_floats(values)};
  }
  void add_float8(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const std::int64_t across = (columns + 127) / 128, down = (rows + 127) / 128;
    std::vector<float> scales(static_cast<std::size_t>(down * across)), plain(static_cast<std::size_t>(rows * columns));
    for (float& scale : scales) scale = std::ldexp(1 + static_cast<float>(bits_() % 128) / 128, -11);
    std::string numbers(plain.size(), '\0');
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      auto number = static_cast<std::uint8_t>(bits_());
      if ((number & 0x7f) == 0x7f) number = 0;  // NaN
      numbers[static_cast<std::size_t>(i)] = static_cast<char>(number);
      plain[static_cast<std::size_t>(i)] =
          meaning(number) * scales[static_cast<std::size_t>(i / columns / 128 * across + i % columns / 128)];
    }
    tensors8_[name] = {"F8_E4M3", {rows, columns}, numbers};
    tensors8_[name + "_scale_inv"] = {"F32", {down, across}, bytes_of_floats(scales)};
    plain_tensors_[name] = {"F32", {rows, columns}, bytes_of_floats(plain)};
  }
  void write(const std::filesystem::path& folder, const std::map<std::string, StoredTensor>& tensors,
             bool quantized) const {
    nlohmann::json config = config_;
    if (quantized) {
      config["quantization_config"] = {
          {"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}};
    }
    std::ofstream(folder / "config.json") << config.dump();
    write_safetensors(folder / "model.safetensors", tensors);
  }

  std::mt19937 bits_{11};
  nlohmann::json config_;
  std::map<std::string, StoredTensor> tensors8_, plain_tensors_;
  test::TemporaryFolder float8_, plain_;
};

}  // namespace levada::model

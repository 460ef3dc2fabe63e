// Weights that stay as a GGUF file stores them: the values behind the kernels' layout, and a model computed with them.
#include "files/gguf.h"
#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "model/model_support_test.h"
#include "model/stored_tensors_test.h"
#include "support/temporary_folder.h"

namespace levada::model {
namespace {

using kernels::QuantFormat;

std::vector<float> reference_values(const std::string& name) {
  std::ifstream in(vectors() / "gguf_quants" / (name + ".f32"), std::ios::binary);
  std::vector<float> values(1024);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// The file and the values are the PyPI package gguf's (tests/vectors/gguf_quants).
TEST(StoredWeights, MeanWhatTheReferenceSaysBitForBit) {
  const auto file = files::GgufFile::open(vectors() / "gguf_quants/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  kernels::ThreadPool pool(1);
  const auto ops = kernels::make_cpu_ops(pool);
  for (const QuantFormat format :
       {QuantFormat::kQ8_0, QuantFormat::kQ4_0, QuantFormat::kQ4_1, QuantFormat::kQ4_K, QuantFormat::kQ6_K}) {
    const std::string name(to_string(format));
    const files::TensorInfo& info = *(*file)->find(name);
    kernels::QuantMatrix matrix(format, 2, 512);
    for (std::int64_t row = 0; row < 2; ++row) matrix.set_row(row, info.bytes.data() + row * matrix.row_bytes());
    std::vector<float> got(1024);
    const std::vector<std::int32_t> ids = {0, 1};
    ops->embed(matrix, ids, device::TensorView::of(got.data(), DType::kF32, {2, 512}));
    EXPECT_EQ(got, reference_values(name)) << name;
  }
}

// The tiny llama with the matrices of q and down as halves, those of k, v and gate as bfloat16, and the same numbers in
// float32 throughout.
class NarrowLlama : public testing::Test {
 protected:
  NarrowLlama() {
    const auto source = std::move(files::open_safetensors_folder(vectors() / "tiny/llama")).value();
    std::map<std::string, StoredTensor> mixed, wide;
    for (const files::TensorInfo& info : source->tensors()) {
      std::vector<float> values(static_cast<std::size_t>(info.elements()));
      files::decode_to_f32(info, 0, info.elements(), values.data());
      mixed[info.name] = narrowed(info, values);
      wide[info.name] = {"F32", info.shape, bytes_of_all(values)};
    }
    write(mixed_.path(), mixed);
    write(wide_.path(), wide);
  }
  Matrix logits(Bench& bench) {
    Sequence sequence = bench.sequence({5, 17, 300, 2, 2, 81, 9});
    return bench.run(PlanBuilder().add(sequence, 7, true).plan());
  }
  Bench open(const test::TemporaryFolder& folder, const std::string& dtype) {
    ModelOptions options = in_float32();
    options.dtype = dtype;
    options.kv_cache_dtype = "float32";
    return Bench(folder.path(), options, *device);
  }
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  test::TemporaryFolder mixed_, wide_;

 private:
  template <class T>
  static std::string bytes_of_all(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  // The tensor for the mixed folder; `values` become what it means.
  static StoredTensor narrowed(const files::TensorInfo& info, std::vector<float>& values) {
    const auto named = [&](std::initializer_list<const char*> parts) {
      return std::any_of(parts.begin(), parts.end(),
                         [&](const char* part) { return info.name.find(part) != std::string::npos; });
    };
    if (named({"q_proj", "down_proj"})) {
      std::vector<_Float16> halves(values.begin(), values.end());
      values.assign(halves.begin(), halves.end());
      return {"F16", info.shape, bytes_of_all(halves)};
    }
    if (named({"k_proj", "v_proj", "gate_proj"})) {
      std::vector<kernels::Bf16> narrow;
      for (float& x : values) x = kernels::to_float(narrow.emplace_back(kernels::to_bf16(x)));
      return {"BF16", info.shape, bytes_of_all(narrow)};
    }
    return {"F32", info.shape, bytes_of_all(values)};
  }
  static void write(const std::filesystem::path& folder, const std::map<std::string, StoredTensor>& tensors) {
    write_safetensors(folder / "model.safetensors", tensors);
    std::filesystem::copy(vectors() / "tiny/llama/config.json", folder / "config.json");
  }
};

// Of `got`, root mean square relative to `want`.
double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    errors += std::pow(static_cast<double>(got[i]) - want[i], 2);
    squares += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(errors / squares);
}

// A CPU that multiplies bfloat16 itself rounds what meets such a weight, each number by at most a 512th.
TEST_F(NarrowLlama, AMapOfSeveralTypesGivesBitForBitWhatTheSameNumbersInFloat32Give) {
  Bench mixed = open(mixed_, "auto"), widened = open(mixed_, "float32"), wide = open(wide_, "auto");
  const Matrix want = logits(wide), got = logits(mixed);
  EXPECT_EQ(logits(widened).values, want.values);
  if (mixed.model->backend().find("bf16") == std::string::npos) {
    EXPECT_EQ(got.values, want.values);
  } else {
    EXPECT_LT(relative_error(got.values, want.values), 0.01);
  }
  EXPECT_NE(mixed.model->backend().find("weights F16 as stored"), std::string::npos) << mixed.model->backend();
  EXPECT_EQ(mixed.model->backend().find("converted"), std::string::npos) << mixed.model->backend();
}

TEST_F(NarrowLlama, TheBackendNamesWhatIsConverted) {
  const std::string narrow = open(mixed_, "bfloat16").model->backend();
  EXPECT_NE(narrow.find("weights converted: F32 to bfloat16, F16 to bfloat16"), std::string::npos) << narrow;
  const std::string wide = open(mixed_, "float32").model->backend();
  EXPECT_NE(wide.find("weights converted: F16 to float32, BF16 to float32"), std::string::npos) << wide;
}

// Of logits, root mean square relative to theirs.
constexpr double kStoredError = 5e-4;

class StoredSmolLm2 : public testing::Test {
 protected:
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  Bench open(const std::string& dtype) {
    ModelOptions options;
    options.dtype = dtype;
    options.kv_cache_dtype = "float32";
    options.threads = 2;
    return Bench(LEVADA_SMOLLM2_GGUF, options, *device);
  }
  const std::vector<core::Token> tokens{504, 3575, 282,  4649, 314, 260,  1343, 30, 198,
                                        198, 788,  1576, 45,   253, 2083, 28,   339};
};

TEST_F(StoredSmolLm2, TheBackendNamesTheFormsThatAreComputedWith) {
  EXPECT_NE(open("auto").model->backend().find("weights Q8_0 Q4_1 as stored by "), std::string::npos)
      << open("auto").model->backend();
  EXPECT_EQ(open("bfloat16").model->backend().find("as stored"), std::string::npos);
}

// Weights rounded to bfloat16, and activations where the CPU multiplies bfloat16 itself.
TEST_F(StoredSmolLm2, BfloatLogitsDifferFromFloat32sByLessThanAHundredth) {
  Bench narrow = open("bfloat16"), wide = open("float32");
  Sequence a = narrow.sequence(tokens), b = wide.sequence(tokens);
  const auto count = static_cast<std::int32_t>(tokens.size());
  const Matrix got = narrow.run(PlanBuilder().add(a, count, true).plan());
  const Matrix want = wide.run(PlanBuilder().add(b, count, true).plan());
  const double error = relative_error(got.values, want.values);
  RecordProperty("error", std::to_string(error));
  EXPECT_LT(error, 0.01);
}

// Rounding activations is all that differs.
TEST_F(StoredSmolLm2, LogitsDifferFromFloat32sByLessThanATwoThousandthOfTheirSize) {
  Bench stored = open("auto"), wide = open("float32");
  Sequence a = stored.sequence(tokens), b = wide.sequence(tokens);
  const auto count = static_cast<std::int32_t>(tokens.size());
  const Matrix got = stored.run(PlanBuilder().add(a, count, true).plan());
  const Matrix want = wide.run(PlanBuilder().add(b, count, true).plan());
  const double error = relative_error(got.values, want.values);
  EXPECT_LT(error, kStoredError);
  EXPECT_GT(error, 0);  // else the weights were converted after all
}

TEST_F(StoredSmolLm2, ChunkedEqualsWholeBitForBit) {
  Bench bench = open("auto");
  Sequence whole = bench.sequence(tokens), chunked = bench.sequence(tokens);
  const Matrix want = bench.run(PlanBuilder().add(whole, static_cast<std::int32_t>(tokens.size()), true).plan());
  std::vector<float> got;
  for (const std::int32_t count : {1, 2, 9, 5}) {
    const Matrix part = bench.run(PlanBuilder().add(chunked, count, true).plan());
    got.insert(got.end(), part.values.begin(), part.values.end());
  }
  EXPECT_EQ(got, want.values);
}

}  // namespace
}  // namespace levada::model

// Captures on a GPU: rows that go from layer to arena in device memory are those that go through the host, bit for bit.
// Fails where there is no GPU.
#include <cstring>
#include <future>
#include <limits>

#include "capture/publisher.h"
#include "capture/row_copy.h"
#include "engine/layer_loop.h"
#include "model/model_support_test.h"

namespace levada::engine {
namespace {

using model::Bench;
using model::PlanBuilder;
using model::Sequence;

device::Device& gpu() {
  static const std::unique_ptr<device::Device> device = device::open_device(device::DeviceKind::kCuda).value();
  return *device;
}

// A publisher over an arena of its own, in host memory or on the GPU.
class Side {
 public:
  Side(device::Device* place, const core::ModelInfo& info)
      : info_(info),
        arena_(std::move(store::Arena::create({.bytes = 8 << 20, .device = place}, clock_)).value()),
        publisher_(*arena_,
                   {.limits = {.store_id = "run", .layers = info.num_layers, .hidden_size = info.hidden_size},
                    .space_wait_us = 1'000'000},
                   metrics_) {}
  capture::Publisher& sink() { return publisher_; }
  // Every layer from last to first, and the final norm, both in `dtype`.
  core::CaptureId open(const std::string& name, std::int32_t tokens, DType dtype) {
    capture::SampleSpec spec{.store_id = "run", .sample_id = "run:" + name};
    spec.features = {{"aux", {}, dtype}, {"last", {capture::kFinalNorm}, dtype}};
    for (std::int32_t layer = info_.num_layers - 1; layer >= 0; --layer) spec.features[0].states.push_back(layer);
    std::promise<Result<capture::Publisher::Opened>> opened;
    publisher_.open(spec, tokens, [&](auto result) { opened.set_value(std::move(result)); });
    return std::get<core::CaptureId>(opened.get_future().get().value());
  }
  void seal(core::CaptureId id) {
    std::promise<Result<capture::Published>> sealed;
    publisher_.seal(id, [&](auto result) { sealed.set_value(std::move(result)); });
    const auto published = sealed.get_future().get();
    ASSERT_TRUE(published.ok()) << published.status().to_string();
  }
  std::vector<std::byte> object(const std::string& name, const std::string& tensor) {
    const store::ObjectView view = arena_->view("run/run:" + name + "/g1/" + tensor).value();
    std::vector<std::byte> bytes(view.bytes().size());
    EXPECT_TRUE(arena_->read(view, bytes).ok());
    return bytes;
  }

 private:
  const core::ModelInfo info_;
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<store::Arena> arena_;
  capture::Publisher publisher_;
};

struct Case {
  std::string architecture, compute;
  DType features;
};

class CudaCapture : public testing::TestWithParam<Case> {
 protected:
  // Two prompts in two steps with chunks of both, the second step beginning with the shorter one: the long one as
  // "long", the short one as "short".
  void capture(Side& side) {
    const model::Golden golden(GetParam().architecture);
    Sequence longer = bench_.sequence(golden.ids("p200.ids")), shorter = bench_.sequence(golden.ids("p37.ids"));
    const core::CaptureId a = side.open("long", 200, GetParam().features);
    const core::CaptureId b = side.open("short", 37, GetParam().features);
    PlanBuilder first, second;
    run(side, first.add(longer, 120).add(shorter, 30).plan(), {a, b});
    run(side, second.add(shorter, 7).add(longer, 80).plan(), {b, a});
    side.seal(a);
    side.seal(b);
    bench_.give_back(longer);
    bench_.give_back(shorter);
  }
  Bench bench_{model::vectors() / "tiny" / GetParam().architecture, options(), gpu()};

 private:
  static model::ModelOptions options() {
    model::ModelOptions options = model::in_float32(4);
    options.dtype = GetParam().compute;
    return options;
  }
  void run(Side& side, core::StepPlan& plan, const std::vector<core::CaptureId>& captures) {
    const std::int32_t layers = bench_.model->info().num_layers;
    for (std::int32_t layer = 0; layer < layers; ++layer) plan.capture_layers.push_back(layer);
    for (std::size_t i = 0; i < captures.size(); ++i) {
      plan.captures.push_back({.slice = static_cast<std::int32_t>(i),
                               .id = captures[i],
                               .layers_first = 0,
                               .layers_count = layers,
                               .final_norm = true});
    }
    core::StepResult result;
    const auto tokens = run_layers(*bench_.model, *bench_.pool, nullptr, plan, &side.sink(), result);
    ASSERT_TRUE(tokens.ok()) << tokens.status().to_string();
    ASSERT_TRUE((*tokens)->wait().ok());
  }
};

TEST_P(CudaCapture, RowsLeftOnTheDeviceAreThoseThatCameThroughTheHostBitForBit) {
  Side host(nullptr, bench_.model->info()), device(&gpu(), bench_.model->info());
  ASSERT_FALSE(host.sink().takes_rows_of(bench_.model->device()));
  ASSERT_TRUE(device.sink().takes_rows_of(bench_.model->device()));
  capture(host);
  capture(device);
  for (const std::string name : {"long", "short"}) {
    for (const std::string tensor : {"aux", "last"}) {
      const std::vector<std::byte> expected = host.object(name, tensor);
      EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [](std::byte b) { return b != std::byte{0}; }));
      EXPECT_TRUE(device.object(name, tensor) == expected) << name << " " << tensor;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaCapture,
                         testing::Values(Case{"llama", "bfloat16", DType::kBF16},
                                         Case{"qwen3", "bfloat16", DType::kBF16},
                                         Case{"llama", "bfloat16", DType::kF32}, Case{"llama", "float32", DType::kBF16},
                                         Case{"qwen3", "float32", DType::kF16}, Case{"qwen3", "float16", DType::kF32}),
                         [](const auto& info) {
                           return info.param.architecture + "_" + info.param.compute + "_as_" +
                                  std::string(to_string(info.param.features));
                         });

std::vector<std::byte> numbers(DType dtype, std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  std::vector<std::byte> bytes(values.size() * bytes_of(dtype));
  capture::copy_rows_now({values.data(), bytes.data(), DType::kF32, dtype, 1, count, count, count});
  return bytes;
}

// Copies on the GPU, their inputs, and what their outputs are to be.
struct Copies {
  std::vector<capture::RowCopy> there;
  std::vector<std::vector<std::byte>> inputs, expected;
  std::vector<std::unique_ptr<device::DeviceBuffer>> buffers, outputs;
};

TEST(CudaRowCopy, AnyShapesConvertAsOnTheProcessorAndTouchNothingBeside) {
  std::mt19937 random(7);
  const auto stream = gpu().make_stream().value();
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 60; ++round) {
    Copies c;
    DType from_dtype = dtypes[below(3)], to_dtype = dtypes[below(3)];
    const std::int64_t width = round % 3 == 0 ? 8 * (1 + below(200)) : 1 + below(700);
    for (std::int64_t n = 1 + below(round % 10 == 0 ? 150 : 6); n > 0; --n) {
      if (below(20) == 0) to_dtype = dtypes[below(3)];
      const std::int64_t rows = 1 + below(40), offset = round % 4 == 0 ? below(8) : 8;
      const std::int64_t from_stride = width + (round % 2 == 0 ? 0 : below(9)), to_stride = width + 8 * below(4);
      const std::size_t to_bytes = static_cast<std::size_t>(offset + rows * to_stride + 8) * bytes_of(to_dtype);
      const std::size_t first = static_cast<std::size_t>(offset) * bytes_of(to_dtype);
      const auto& from = c.inputs.emplace_back(numbers(from_dtype, rows * from_stride, random));
      auto& expected = c.expected.emplace_back(to_bytes, std::byte{0xA5});
      const auto& input = c.buffers.emplace_back(gpu().allocate(from.size()).value());
      const auto& output = c.outputs.emplace_back(gpu().allocate(to_bytes).value());
      ASSERT_TRUE(stream->copy(input->data(), from.data(), from.size()).ok());
      ASSERT_TRUE(stream->fill(output->data(), 0xA5, to_bytes).ok());
      capture::RowCopy copy{from.data(), expected.data() + first, from_dtype, to_dtype, rows, width, from_stride,
                            to_stride};
      capture::copy_rows_now(copy);
      copy.from = input->data();
      copy.to = static_cast<std::byte*>(output->data()) + first;
      c.there.push_back(copy);
    }
    ASSERT_TRUE(capture::copy_rows(c.there, device::DeviceKind::kCuda, *stream).ok());
    for (std::size_t i = 0; i < c.there.size(); ++i) {
      std::vector<std::byte> actual(c.expected[i].size());
      ASSERT_TRUE(stream->copy(actual.data(), c.outputs[i]->data(), actual.size()).ok());
      ASSERT_TRUE(stream->synchronize().ok());
      const capture::RowCopy& copy = c.there[i];
      EXPECT_TRUE(actual == c.expected[i])
          << "copy " << i << " of " << c.there.size() << ": " << to_string(copy.from_dtype) << " to "
          << to_string(copy.to_dtype) << ", " << copy.rows << " rows of " << width << ", strides " << copy.from_stride
          << " and " << copy.to_stride;
    }
  }
}

}  // namespace
}  // namespace levada::engine

// Captures of real tiny models, against transformers' float32 hidden states and against each other: a prompt's captured
// rows are the same bits whether it runs alone or in a mixed batch, whole or in chunks, with its prefix cached or not.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <map>

#include "base/thread.h"
#include "capture/publisher.h"
#include "engine/worker.h"
#include "files/tensor_source.h"
#include "model/model.h"
#include "sched/scheduler.h"

namespace levada {
namespace {

constexpr float kTolerance = 1e-3f;  // tests/vectors/README.md

struct Golden {
  explicit Golden(const std::string& model)
      : source(
            std::move(files::open_safetensors(LEVADA_SOURCE_DIR "/tests/vectors/tiny/" + model + "/golden.safetensors"))
                .value()) {}
  std::vector<float> values(const std::string& name) const {
    const files::TensorInfo& info = *source->find(name);
    std::vector<float> out(static_cast<std::size_t>(info.elements()));
    files::decode_to_f32(info, 0, info.elements(), out.data());
    return out;
  }
  std::vector<core::Token> ids(const std::string& name) const {
    const std::vector<float> numbers = values(name);
    return {numbers.begin(), numbers.end()};
  }
  std::unique_ptr<files::TensorSource> source;
};

// Hands every finish to whoever waits for it.
class Finishes final : public core::OutputSink {
 public:
  std::future<core::Finish> of(core::RequestId id) {
    std::lock_guard lock(mutex_);
    return promises_[id].get_future();
  }
  void on_outputs(std::vector<core::OutputDelta> deltas) override {
    std::lock_guard lock(mutex_);
    for (core::OutputDelta& delta : deltas) {
      if (delta.finish) promises_[delta.request].set_value(*delta.finish);
    }
  }

 private:
  std::mutex mutex_;
  std::map<core::RequestId, std::promise<core::Finish>> promises_;
};

// A model, and whether the arena is on a device, which then takes the rows where they are computed.
class CaptureScenario : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  void start(std::int64_t chunk_tokens) {
    model::ModelOptions options;
    options.dtype = "float32";
    options.page_size_tokens = 4;
    options.threads = 2;
    auto model =
        model::load_model(LEVADA_SOURCE_DIR "/tests/vectors/tiny/" + std::get<0>(GetParam()), options, *device).value();
    info = model->info();
    constexpr std::int32_t kPages = 1024;
    auto pool = model->make_kv_pool(kPages).value();
    publisher.reset();
    arena = std::move(store::Arena::create(
                          {.bytes = 8 << 20, .device = std::get<1>(GetParam()) ? device.get() : nullptr}, clock))
                .value();
    publisher = std::make_unique<capture::Publisher>(
        *arena,
        capture::Publisher::Options{{.store_id = "run", .layers = info.num_layers, .hidden_size = info.hidden_size},
                                    1'000'000},
        metrics);
    const sched::Limits limits{info.context_length_tokens, kPages, info.vocab_size, info.eos_token_ids};
    const core::KvLayout layout = model->kv_layout();
    sched::Options sched;
    sched.chunked_prefill_size = chunk_tokens;
    worker = std::make_unique<engine::Worker>(std::move(model), std::move(pool), publisher.get());
    scheduler = std::make_unique<sched::Scheduler>(sched, limits, layout, *worker, finishes, nullptr, clock, metrics);
    thread = Thread("sched", [this] { scheduler->run(); });
  }
  void TearDown() override {
    scheduler->stop();
    thread.join();
  }

  // Submits a request; with a name its rows of every layer and the final norm are captured.
  std::future<core::Finish> submit(std::vector<core::Token> prompt, std::int32_t max_new,
                                   std::optional<core::CaptureRequest> capture = {}) {
    core::Request request;
    request.id = core::RequestId{++last_request};
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new;
    request.sampling.ignore_eos = true;
    request.capture = std::move(capture);
    std::future<core::Finish> finish = finishes.of(request.id);
    EXPECT_TRUE(scheduler->submit(std::move(request)).ok());
    return finish;
  }

  core::CaptureRequest open(const std::string& task, std::size_t tokens) {
    capture::SampleSpec spec{.store_id = "run", .sample_id = "run:" + task};
    core::CaptureRequest capture;
    for (std::int32_t layer = info.num_layers - 1; layer >= 0; --layer) {  // not the ascending order
      if (spec.features.empty()) spec.features.push_back({"aux", {}, DType::kF32});
      spec.features[0].states.push_back(layer);
      capture.layers.insert(capture.layers.begin(), layer);
    }
    spec.features.push_back({"last", {capture::kFinalNorm}, DType::kF32});
    capture.final_norm = true;
    std::promise<Result<capture::Publisher::Opened>> opened;
    publisher->open(spec, static_cast<std::int32_t>(tokens), [&](auto result) { opened.set_value(result); });
    capture.id = std::get<core::CaptureId>(opened.get_future().get().value());
    return capture;
  }
  void seal(core::CaptureId id) {
    std::promise<Result<capture::Published>> sealed;
    publisher->seal(id, [&](auto result) { sealed.set_value(result); });
    const auto published = sealed.get_future().get();
    ASSERT_TRUE(published.ok()) << published.status().to_string();
  }
  std::vector<float> object(const std::string& task, const std::string& name) {
    const store::ObjectView view = std::move(arena->view("run/run:" + task + "/g1/" + name)).value();
    std::vector<float> values(view.bytes().size() / sizeof(float));
    std::memcpy(values.data(), view.bytes().data(), view.bytes().size());
    return values;
  }
  // The golden's rows are the last ones of the prompt.
  void expect_golden(const std::string& task, const std::string& prompt) {
    const auto hidden = static_cast<std::size_t>(info.hidden_size), layers = static_cast<std::size_t>(info.num_layers);
    const std::vector<float> aux = object(task, "aux"), last = object(task, "last");
    const std::size_t tokens = golden.ids(prompt + ".ids").size();
    ASSERT_EQ(aux.size(), tokens * hidden * layers);
    ASSERT_EQ(last.size(), tokens * hidden);
    const auto compare = [&](const std::string& name, const std::vector<float>& values, std::size_t width,
                             std::size_t offset) {
      const std::vector<float> expected = golden.values(prompt + "." + name);
      const std::size_t rows = expected.size() / hidden;
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t column = 0; column < hidden; ++column) {
          ASSERT_NEAR(values[(tokens - rows + row) * width + offset + column], expected[row * hidden + column],
                      kTolerance)
              << task << " " << name << " row " << row;
        }
      }
    };
    for (std::size_t layer = 0; layer < layers; ++layer) {
      compare("hidden." + std::to_string(layer), aux, layers * hidden, (layers - 1 - layer) * hidden);
    }
    compare("final_norm", last, hidden, 0);
  }

  SystemClock clock;
  Metrics metrics;
  Golden golden{std::get<0>(GetParam())};
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  core::ModelInfo info;
  Finishes finishes;
  std::unique_ptr<store::Arena> arena;
  std::unique_ptr<capture::Publisher> publisher;
  std::unique_ptr<engine::Worker> worker;
  std::unique_ptr<sched::Scheduler> scheduler;
  Thread thread;
  std::uint64_t last_request = 0;
};

TEST_P(CaptureScenario, ColdWarmChunkedAndMixedCapturesAreTheReferencesHiddenStates) {  // B02, B23
  start(48);
  const std::vector<core::Token> long_prompt = golden.ids("p200.ids"), short_prompt = golden.ids("p37.ids");
  // Cold: nothing is cached. 200 tokens are five chunks.
  const core::CaptureRequest cold = open("cold", 200);
  submit(long_prompt, 1, cold).get();
  seal(cold.id);
  // Warm: plain traffic has cached the whole prompt.
  submit(long_prompt, 20).get();
  const core::CaptureRequest warm = open("warm", 200);
  submit(long_prompt, 1, warm).get();
  seal(warm.id);
  // Mixed: two captures and plain answers share the steps.
  const core::CaptureRequest mixed = open("mixed", 200), brief = open("brief", 37);
  std::vector<std::future<core::Finish>> all;
  all.push_back(submit(short_prompt, 60));
  all.push_back(submit(long_prompt, 1, mixed));
  all.push_back(submit(golden.ids("p1.ids"), 60));
  all.push_back(submit(short_prompt, 1, brief));
  for (auto& finish : all) finish.get();
  seal(mixed.id);
  seal(brief.id);

  for (const std::string task : {"cold", "warm", "mixed"}) expect_golden(task, "p200");
  expect_golden("brief", "p37");
  for (const std::string name : {"aux", "last"}) {
    EXPECT_EQ(object("warm", name), object("cold", name));
    EXPECT_EQ(object("mixed", name), object("cold", name));
  }
}

TEST_P(CaptureScenario, ChunkedEqualsWhole) {
  start(-1);
  const std::vector<core::Token> prompt = golden.ids("p200.ids");
  const core::CaptureRequest whole = open("whole", 200);
  submit(prompt, 1, whole).get();
  seal(whole.id);
  const std::vector<float> expected = object("whole", "aux");
  scheduler->stop();
  thread.join();
  scheduler.reset();
  worker.reset();
  start(16);
  const core::CaptureRequest chunked = open("chunked", 200);
  submit(prompt, 1, chunked).get();
  seal(chunked.id);
  EXPECT_EQ(object("chunked", "aux"), expected);
}

INSTANTIATE_TEST_SUITE_P(Families, CaptureScenario,
                         testing::Combine(testing::Values("llama", "qwen3"), testing::Bool()), [](const auto& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) ? "_device" : "_host");
                         });

}  // namespace
}  // namespace levada

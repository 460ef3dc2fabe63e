// Checkpoints that are damaged, incomplete or don't fit: one clear Status, never a crash (law 11).
#include <bit>

#include "model/model_support_test.h"
#include "model/stored_tensors_test.h"

namespace levada::model {
namespace {

using nlohmann::json;

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The tiny llama in a folder of its own, taken apart so that a test can break it.
class Damaged : public testing::Test {
 protected:
  Damaged() {
    std::filesystem::create_directories(folder);
    for (const char* name : {"config.json", "generation_config.json"}) {
      std::filesystem::copy_file(vectors() / "tiny/llama" / name, folder / name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    const std::string file = read_file(vectors() / "tiny/llama/model.safetensors");
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), 8);
    const json header = json::parse(file.substr(8, header_bytes));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const auto first = entry["data_offsets"][0].get<std::size_t>(), end = entry["data_offsets"][1].get<std::size_t>();
      tensors[name] = {entry["dtype"], entry["shape"].get<std::vector<std::int64_t>>(),
                       file.substr(8 + header_bytes + first, end - first)};
    }
  }
  ~Damaged() override { std::filesystem::remove_all(folder); }

  void write() { write_safetensors(folder / "model.safetensors", tensors); }
  void set_config(const json& changes) {
    json config = json::parse(read_file(folder / "config.json"));
    config.update(changes);
    std::ofstream(folder / "config.json") << config.dump();
  }
  Result<std::unique_ptr<Model>> load(const ModelOptions& options = in_float32()) {
    return load_model(folder, options, *device);
  }
  void expect_failure(StatusCode code, const std::vector<std::string>& words) {
    const Status status = load().status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    for (const std::string& word : words) {
      EXPECT_NE(status.message().find(word), std::string::npos) << word << " in " << status.to_string();
    }
  }

  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("levada_damaged_" + std::to_string(::getpid()));
  std::map<std::string, StoredTensor> tensors;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  const std::string kDown = "model.layers.1.mlp.down_proj.weight";
};

TEST_F(Damaged, TheWholeCheckpointLoads) {
  write();
  EXPECT_TRUE(load().ok()) << load().status().to_string();
}

TEST_F(Damaged, AMissingTensorIsNamed) {
  tensors.erase(kDown);
  write();
  expect_failure(StatusCode::kDataLoss, {kDown, "is missing"});
}

TEST_F(Damaged, AnUnknownTensorIsNamed) {
  tensors["model.layers.3.mlp.down_proj.weight"] = tensors[kDown];
  write();
  expect_failure(StatusCode::kDataLoss, {"unknown tensor model.layers.3.mlp.down_proj.weight"});
}

TEST_F(Damaged, AWrongShapeIsNamedWithExpectedAndFound) {
  tensors[kDown].shape = {160, 72};
  write();
  expect_failure(StatusCode::kDataLoss, {kDown, "has shape [160, 72]", "demands [72, 160]"});
}

TEST_F(Damaged, AWrongDtypeIsNamed) {
  tensors[kDown].dtype = "I32";
  write();
  expect_failure(StatusCode::kDataLoss, {kDown, "is stored as"});
}

TEST_F(Damaged, ATruncatedFileIsDamagedWhereverItEnds) {
  write();
  const std::string whole = read_file(folder / "model.safetensors");
  for (std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{500}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(folder / "model.safetensors", std::ios::binary) << whole.substr(0, length);
    EXPECT_EQ(load().status().code(), StatusCode::kDataLoss) << length << ": " << load().status().to_string();
  }
}

TEST_F(Damaged, FlippedHeaderBytesNeverCrash) {
  write();
  const std::string whole = read_file(folder / "model.safetensors");
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string broken = whole;
    for (int flips = 0; flips < 3; ++flips) broken[random() % 2900] = static_cast<char>(random());
    std::ofstream(folder / "model.safetensors", std::ios::binary) << broken;
    (void)load();  // either answer is right: a flip may hit a byte of a name that then is missing, or harmless space
  }
}

TEST_F(Damaged, AConfigThatDisagreesWithTheTensorsIsNamed) {
  write();
  set_config({{"intermediate_size", 161}});
  expect_failure(StatusCode::kDataLoss, {"mlp.gate_proj.weight", "[161, 72]"});
}

TEST_F(Damaged, NoHeadsAtAllIsRefused) {
  write();
  set_config({{"num_attention_heads", 0}});
  expect_failure(StatusCode::kInvalidArgument, {"config.json"});
}

TEST_F(Damaged, ThereIsNoSuchModel) {
  EXPECT_EQ(load_model(folder / "nothing.gguf", {}, *device).status().code(), StatusCode::kNotFound);
  std::ofstream(folder / "text.gguf") << "not a model";
  EXPECT_EQ(load_model(folder / "text.gguf", {}, *device).status().code(), StatusCode::kDataLoss);
}

TEST_F(Damaged, OptionsOutOfRangeAreRefusedByName) {
  write();
  ModelOptions options;
  options.dtype = "int4";
  EXPECT_EQ(load(options).status().field(), "dtype");
  options = {};
  options.kv_cache_dtype = "fp8";
  EXPECT_EQ(load(options).status().field(), "kv_cache_dtype");
  options = {};
  for (const std::int32_t context : {-1, 1, 513}) {
    options.context_length_tokens = context;
    EXPECT_EQ(load(options).status().field(), "context_length");
    EXPECT_EQ(load(options).status().message(),
              "must be 0 (the checkpoint's 512) or from 2 to that, got " + std::to_string(context));
  }
  options = {};
  options.page_size_tokens = 0;
  EXPECT_EQ(load(options).status().field(), "page_size");
}

// A device with no memory left.
class FullDevice final : public device::Device {
 public:
  FullDevice(device::Device& real, std::int64_t free, device::DeviceKind kind = device::DeviceKind::kCpu)
      : real_(real), free_(free), kind_(kind) {}
  device::DeviceKind kind() const override { return kind_; }
  int index() const override { return 0; }
  std::string name() const override { return "full"; }
  std::int64_t total_bytes() const override { return real_.total_bytes(); }
  std::int64_t free_bytes() const override { return free_; }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate(std::size_t bytes) override { return real_.allocate(bytes); }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate_pinned(std::size_t bytes) override {
    return real_.allocate_pinned(bytes);
  }
  Result<std::unique_ptr<device::Stream>> make_stream() override { return real_.make_stream(); }
  Result<std::unique_ptr<device::Event>> make_event() override { return real_.make_event(); }

 private:
  device::Device& real_;
  std::int64_t free_;
  device::DeviceKind kind_;
};

TEST_F(Damaged, RoomForEagleDraftsIsRefusedOnCuda) {
  write();
  FullDevice cuda(*device, 1 << 20, device::DeviceKind::kCuda);
  ModelOptions options;
  options.draft_room = {1, 16, 96, 1000, 8, DraftKind::kEagle3};
  const Status refused = load_model(folder, options, cuda).status();
  EXPECT_EQ(refused.field(), "draft_room");
  EXPECT_NE(refused.message().find("EAGLE-3 drafts are served on the CPU alone"), std::string::npos)
      << refused.message();
}

TEST_F(Damaged, TooLittleMemoryIsRefusedWithBothNumbers) {
  write();
  FullDevice full(*device, 1000);
  const Status weights = load_model(folder, in_float32(), full).status();
  EXPECT_EQ(weights.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(weights.message().find("1000 bytes are available"), std::string::npos) << weights.message();
  FullDevice enough(*device, 1 << 20);
  auto model = std::move(load_model(folder, in_float32(), enough)).value();
  const Status pool = model->make_kv_pool(1 << 20).status();
  EXPECT_EQ(pool.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(pool.message().find("1048576 bytes are available"), std::string::npos) << pool.message();
}

TEST_F(Damaged, APlanOutOfRangeIsRefusedAndTheNextRuns) {
  write();
  Bench bench(folder, in_float32(), *device);
  const auto refused = [&](auto&& change) {
    Sequence sequence = bench.sequence({1, 2, 3});
    PlanBuilder builder;
    builder.add(sequence, 3);
    change(builder.plan());
    return bench.model->begin(builder.plan(), *bench.pool).status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.tokens[1] = 384; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.tokens[1] = -1; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.block_tables[0] = Bench::kPages; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.slices[0].range.first = 511; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.slices[0].range.count = 2; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.slices[0].block_table_pages = 2; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.positions[2] = 1; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.samples[0].row = 3; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.samples[0].history_tokens = 1; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan.samples[0].banned_count = 1; }));
  EXPECT_TRUE(refused([](core::StepPlan& plan) { plan = core::StepPlan(); }));
  EXPECT_FALSE(refused([](core::StepPlan&) {}));
}

TEST_F(Damaged, AnotherWeightAnotherIdentity) {
  write();
  const std::string before = load().value()->info().weights_identity;
  EXPECT_EQ(load().value()->info().weights_identity, before);
  tensors[kDown].bytes[0] ^= 1;
  write();
  EXPECT_NE(load().value()->info().weights_identity, before);
}

}  // namespace
}  // namespace levada::model

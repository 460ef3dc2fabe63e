#include "train/frozen_tables.h"

#include <gtest/gtest.h>

#include "files/tensor_source.h"
#include "train/frozen_tensors.h"

namespace levada::train {
namespace {

TEST(FrozenTables, OfAGgufFileAreDequantisedAndATiedHeadIsHeldOnce) {
  const auto tables = load_frozen_tables(LEVADA_SMOLLM2_GGUF, "bfloat16");
  ASSERT_TRUE(tables.ok()) << tables.status().to_string();
  EXPECT_EQ((*tables)->vocabulary(), 49152);
  EXPECT_EQ((*tables)->hidden(), 576);
  EXPECT_EQ((*tables)->target_layers(), 30);
  EXPECT_TRUE((*tables)->tied());
}

TEST(FrozenTables, OfAFolderAreItsTensorsUnchanged) {
  const std::filesystem::path folder = LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama";
  const auto loaded = load_frozen_tables(folder, "float32");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const auto tables = std::static_pointer_cast<const FrozenTensors>(*loaded);
  const auto source = std::move(files::open_safetensors_folder(folder)).value();
  for (const auto& [name, table] :
       {std::pair("model.embed_tokens.weight", tables->embedding), std::pair("lm_head.weight", tables->head)}) {
    const files::TensorInfo* info = source->find(name);
    if (info == nullptr) continue;  // tied
    EXPECT_EQ(std::memcmp(table.data_ptr(), info->bytes.data(), info->bytes.size()), 0) << name;
  }
  EXPECT_NE((*loaded)->identity(), load_frozen_tables(folder, "bfloat16").value()->identity());
  EXPECT_EQ((*loaded)->identity(), load_frozen_tables(folder, "float32").value()->identity());
}

TEST(FrozenTables, WhatCannotBeLoadedIsAStatus) {
  EXPECT_EQ(load_frozen_tables("/nowhere", "float32").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(load_frozen_tables("/nowhere", "int8").status().field(), "torch_dtype");
}

}  // namespace
}  // namespace levada::train

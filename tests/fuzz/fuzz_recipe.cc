// libFuzzer entry: a fan-out recipe from arbitrary bytes, the first line being an override. Whatever it says, the answer is a
// checked recipe, whose plan can be made and printed, or one sentence.
// clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address -Isrc tests/fuzz/fuzz_recipe.cc src/recipe/{recipe,sections,
//   unused_fields,fanout_recipe,fanout_rules,launch_plan,plan_json}.cc src/base/{options,status,hash,hash_avx2}.cc
//   -lyaml-cpp -lxxhash -o fuzz_recipe && ./fuzz_recipe -max_len=4096 recipes/
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "recipe/launch_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace levada;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  auto recipe = recipe::Recipe::parse(text.substr(line), "fuzz");
  if (!recipe.ok()) return 0;
  static_cast<void>(recipe->override_with(text.substr(0, line)));
  const auto read = recipe::read_fanout(std::move(*recipe), {});
  if (!read.ok() && read.status().message().empty()) std::abort();
  if (read.ok() && recipe::plan_json(recipe::make_plan(*read, {.folder = "/"})).empty()) std::abort();
  return 0;
}

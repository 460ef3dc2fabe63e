// Runs a libFuzzer entry without libFuzzer, always the same way: seeds as they are, then seeds changed at random under one
// fixed number, for as many inputs as asked. Short enough for every test run; a long hunt is libFuzzer's (each entry's head
// says how).
// fuzz_NAME INPUTS SEED_FILE…: each file is a seed; of one named *.lines each line is one too.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kLongest = 4096;

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string input = any_seed();
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    input.resize(std::min(input.size(), kLongest));
    return input;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  const std::string& any_seed() { return seeds_[below(seeds_.size())]; }

  std::string tail_of(const std::string& seed) { return seed.substr(below(seed.size() + 1)); }

  void change(std::string& input) {
    static const std::string kWords[] = {
        "null", "-1", "9223372036854775807", "18446744073709551616", "1e999", "\"\"", "[]", "{}", "\\u0000", "true",
        "\xff", "-"};
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = std::min(below(16), input.size() - at);
    switch (below(7)) {
      case 0: input.insert(at, 1, static_cast<char>(below(256))); break;
      case 1: input.erase(at, length); break;
      case 2: input.insert(at, input.substr(at, length)); break;
      case 3: input.replace(at, length, kWords[below(std::size(kWords))]); break;
      case 4: input = input.substr(0, at) + tail_of(any_seed()); break;
      default:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20261129};
};

std::vector<std::string> read_seeds(int count, char** files) {
  std::vector<std::string> seeds{std::string(64, '\0')};
  for (int i = 0; i < count; ++i) {
    const std::string name = files[i];
    std::ifstream file(name, std::ios::binary);
    if (!file) std::exit((std::fprintf(stderr, "cannot read %s\n", name.c_str()), 2));
    std::stringstream whole;
    whole << file.rdbuf();
    seeds.push_back(whole.str());
    if (!name.ends_with(".lines")) continue;
    for (std::string line; std::getline(whole, line);) seeds.push_back(line);
  }
  return seeds;
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s INPUTS SEED_FILE...\n", argv[0]), 2;
  const std::vector<std::string> seeds = read_seeds(argc - 2, argv + 2);
  for (const std::string& seed : seeds) run(seed);
  Mutator mutator(seeds);
  const long inputs = std::atol(argv[1]);
  for (long i = 0; i < inputs; ++i) run(mutator.next());
  std::printf("%zu seeds, %ld inputs\n", seeds.size(), inputs);
  return 0;
}

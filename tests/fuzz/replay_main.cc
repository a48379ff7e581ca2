// Runs a fuzz target once over every seed of a folder, for builds without libFuzzer.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::cerr << "usage: " << argv[0] << " SEED_FOLDER\n";
    return 2;
  }
  std::set<std::filesystem::path> seeds;  // sorted: same order on every machine
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.is_regular_file()) seeds.insert(entry.path());
  for (const auto& seed : seeds) {
    std::cout << seed.string() << std::endl;  // flushed: the last line names the seed that crashed
    std::ifstream in(seed, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::cout << seeds.size() << " seeds\n";
  return seeds.empty() ? 1 : 0;
}

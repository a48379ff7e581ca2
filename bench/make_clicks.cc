// Generates clicks for tests/data/ctr_dnn: what users saw (26 ids, 13 numbers) and whether they
// clicked, according to a rule that a model can learn.
//
//   make_clicks --trainers 2 --steps 100 --batch 512 -o DIR [--vocab 1000000] [--seed 1]
//
// Writes DIR/feeds.npz (members tT/stepK/<var>, for a cluster in one process) and DIR/feeds_T.npz
// (stepK/<var>, for trainer T). Each id has a weight that is computed from the id. Ids are drawn
// from a power law. The odds of a click are the sum of the weights and of the numbers times fixed
// factors. Prints the loss of the rule, which no model can beat, and of the best constant guess.

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "framework/base/file.h"
#include "io/npz.h"

namespace {

using namespace millrace;

constexpr int64_t kSlots = 26;
constexpr int64_t kNumbers = 13;

struct Settings {
  int64_t trainers = 2;
  int64_t steps = 100;
  int64_t batch = 512;
  int64_t vocab = 1000000;
  uint64_t seed = 1;
  std::string out;
};

// A number in [-1, 1) that is computed from the key (the finalizer of SplitMix64).
double weight_of(uint64_t key) {
  key += 0x9e3779b97f4a7c15U;
  key = (key ^ (key >> 30U)) * 0xbf58476d1ce4e5b9U;
  key = (key ^ (key >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((key ^ (key >> 31U)) >> 11U) * 0x1p-52 - 1;
}

class Clicks {
 public:
  explicit Clicks(const Settings& settings) : settings_(settings), engine_(settings.seed) {}

  // One batch by var name.
  StatusOr<std::map<std::string, Value>> batch() {
    const int64_t rows = settings_.batch;
    std::map<std::string, Value> values;
    std::vector<int64_t*> ids;
    for (int64_t slot = 1; slot <= kSlots; ++slot) {
      auto& tensor = values[fmt::format("C{}", slot)].as<Tensor>();
      MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kInt64, {rows, 1}));
      ids.push_back(tensor.data<int64_t>());
    }
    auto& dense = values["dense"].as<Tensor>();
    auto& label = values["label"].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(dense.resize(DType::kFloat32, {rows, kNumbers}));
    MILLRACE_RETURN_IF_ERROR(label.resize(DType::kInt64, {rows, 1}));
    for (int64_t row = 0; row < rows; ++row) {
      double logit = -1;
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        const int64_t id = draw_id();
        ids[static_cast<size_t>(slot)][row] = id;
        logit += 0.8 * weight_of(static_cast<uint64_t>(id));
      }
      for (int64_t k = 0; k < kNumbers; ++k) {
        const double x = 2 * unit() - 1;
        dense.data<float>()[row * kNumbers + k] = static_cast<float>(x);
        logit += x * weight_of(static_cast<uint64_t>(-1 - k));
      }
      const double odds = 1 / (1 + std::exp(-logit));
      const bool click = unit() < odds;
      label.data<int64_t>()[row] = click ? 1 : 0;
      loss_ -= std::log(click ? odds : 1 - odds);
      clicks_ += click ? 1 : 0;
      ++rows_;
    }
    return values;
  }

  [[nodiscard]] double loss() const { return loss_ / rows_; }
  [[nodiscard]] double constant_loss() const {
    const double p = clicks_ / rows_;
    return -p * std::log(p) - (1 - p) * std::log(1 - p);
  }

 private:
  double unit() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }
  // A few ids are frequent, most are rare.
  int64_t draw_id() {
    return static_cast<int64_t>(std::pow(unit(), 8) * static_cast<double>(settings_.vocab));
  }

  const Settings& settings_;
  std::mt19937_64 engine_;
  double loss_ = 0;
  double clicks_ = 0;
  double rows_ = 0;
};

Status write(const std::string& path, const std::map<std::string, Value>& values) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(values));
  return write_file_atomically(path, bytes, Replace::kYes);
}

Status make(const Settings& settings) {
  std::filesystem::create_directories(settings.out);
  Clicks clicks(settings);
  std::map<std::string, Value> all;
  for (int64_t trainer = 0; trainer < settings.trainers; ++trainer) {
    std::map<std::string, Value> own;
    for (int64_t step = 0; step < settings.steps; ++step) {
      StatusOr<std::map<std::string, Value>> batch = clicks.batch();
      if (!batch.ok()) return std::move(batch).status();
      for (auto& [name, value] : *batch) {
        MILLRACE_ASSIGN_OR_RETURN(all[fmt::format("t{}/step{}/{}", trainer, step, name)],
                                  clone(value));
        own[fmt::format("step{}/{}", step, name)] = std::move(value);
      }
    }
    MILLRACE_RETURN_IF_ERROR(write(fmt::format("{}/feeds_{}.npz", settings.out, trainer), own));
  }
  MILLRACE_RETURN_IF_ERROR(write(settings.out + "/feeds.npz", all));
  fmt::print("{} examples; loss of the rule {:.3f}, of the best constant guess {:.3f}\n",
             settings.trainers * settings.steps * settings.batch, clicks.loss(),
             clicks.constant_loss());
  return Ok();
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  CLI::App app("writes clicks that follow a rule, as feeds of tests/data/ctr_dnn");
  app.add_option("--trainers", settings.trainers)->check(CLI::Range(1, 1000));
  app.add_option("--steps", settings.steps)->check(CLI::Range(1, 1000000));
  app.add_option("--batch", settings.batch)->check(CLI::Range(1, 1000000));
  app.add_option("--vocab", settings.vocab)->check(CLI::Range(1, 1000000));
  app.add_option("--seed", settings.seed);
  app.add_option("-o", settings.out, "folder")->required();
  CLI11_PARSE(app, count, arguments);
  const Status status = make(settings);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.to_string());
  return 3;
}

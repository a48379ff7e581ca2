#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/parallel/parallel_executor.h"
#include "frontend/network.h"

namespace millrace::executor {

/// A random network with updates, determined by a number: images, numbers or sparse ids, then
/// layers in any order (convolutions, normalizations, residuals, attention, loops, branches), one
/// or two losses, any optimizer. Devices with equal shards must train it as one device does.
class RandomNet {
 public:
  explicit RandomNet(uint32_t seed);

  [[nodiscard]] const Program& main() const { return net_.main(); }
  [[nodiscard]] const std::string& loss() const { return loss_; }
  /// True if it needs statistics over the rows of all devices.
  [[nodiscard]] bool normalises_batches() const { return normalises_batches_; }
  /// True if gradients of one loss are computed after the update of another.
  [[nodiscard]] bool updates_between() const { return updates_between_; }
  /// Names of layers, optimizer and so on, for messages.
  [[nodiscard]] std::string describe() const;
  /// Rows that are computed from the number of a step.
  [[nodiscard]] NamedValues feeds(int64_t rows, int step) const;

  /// The net on separate devices, with its initial values.
  struct Run {
    std::unique_ptr<Scope> scope;
    std::unique_ptr<ParallelExecutor> executor;
  };
  /// Fails the test on errors.
  [[nodiscard]] Run start(ParallelOptions options) const;
  /// All persistable vars of floats.
  [[nodiscard]] std::vector<std::pair<std::string, std::vector<float>>> variables(
      const Run& run) const;

 private:
  class Maker;

  Network net_;
  std::string loss_;
  std::string text_;
  uint32_t seed_;
  bool normalises_batches_ = false;
  bool updates_between_ = false;
};

}  // namespace millrace::executor

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/array.h"
#include "executor/custom_op.h"
#include "framework/base/status.h"

namespace millrace {

class Program;

/// Options of a session.
struct SessionOptions {
  int threads = 1;    ///< threads that a run may use, including the caller's; at least 1
  uint64_t seed = 0;  ///< initial state of the random numbers of ops whose seed attribute is 0
  /// Programs are rewritten to run faster; results change at most by rounding.
  bool optimize = true;
  /// Factors of matrix products are rounded to bfloat16 if the processor, or the GPU, supports
  /// bfloat16 products; everything else, including parameters, stays float.
  bool bf16_products = false;
  /// Where ops run: "cpu", or "gpu:N" for the GPU with number N; ops that it lacks run on the CPU
  /// (docs/gpu.md). Parameters stay on the GPU and are copied when they are read or saved.
  std::string device = "cpu";
  /// On a GPU: factors of products and convolutions are rounded to 10 bits of mantissa (TF32).
  bool tf32_products = false;
  /// Detects ops that leave parts of their results unwritten or write to memory that is not theirs:
  /// results and released memory are filled with NaN and unusual numbers, and writes to released
  /// memory end the run with kInternal. Costs time.
  bool debug_memory = false;
  /// Ops that the program uses and this library does not have.
  std::vector<CustomOp> custom_ops = {};
  /// Folder that ops such as load and save may use; empty: such programs are rejected.
  std::string allow_dir = {};
  /// Above 1: feeds are divided over this many CPU devices along dim 0, gradients are summed over
  /// them, and the results of a run are concatenated along dim 0 in device order (scalars become a
  /// vector with one element per device). `threads` is then the number for all devices together;
  /// each device has at least one. Below 1 is an error.
  int devices = 1;
  /// Loss of a program that trains on several devices; empty: the loss whose initial gradient the
  /// program sets. An error with one device.
  std::string loss = {};
};

/// A program and its variables, ready to run: inference of a saved model, or training.
///
///   MILLRACE_ASSIGN_OR_RETURN(Session session, Session::open_model("resnet50"));
///   Arrays feeds;
///   feeds[session.inputs()[0]] = Array::of<float>({1, 3, 224, 224}, image);
///   MILLRACE_ASSIGN_OR_RETURN(Arrays results, session.run(feeds));
///
/// There is no global state: sessions share nothing. Movable. Thread-safety: one run at a time per
/// session; any number of sessions in any threads.
class Session {
 public:
  /// Opens an inference model folder of the original: `__model__` or `*.pdmodel` with one file per
  /// parameter or a combined file.
  /// Errors: kNotFound, kInvalidProgram (of the verifier as well), kInvalidData, kUnimplemented for
  /// ops without a kernel, kInvalidArgument for options out of range and for a custom op without a
  /// name or whose type already exists.
  static StatusOr<Session> open_model(const std::string& folder,
                                      const SessionOptions& options = {});

  /// Opens a program and runs its startup program once. startup may be null. Errors: as above,
  /// and, for both, kInvalidArgument or kUnimplemented for a device that is not there, and for a
  /// GPU with `devices` above 1 or `debug_memory`.
  static StatusOr<Session> open(const Program& program, const Program* startup,
                                const SessionOptions& options = {});

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  /// Input and output names of a saved model; empty for other programs.
  [[nodiscard]] const std::vector<std::string>& inputs() const;
  [[nodiscard]] const std::vector<std::string>& outputs() const;

  /// Runs the program once.
  ///
  /// \param feeds    by var name
  /// \param fetches  vars to return; empty: outputs()
  /// Errors: kInvalidArgument for a feed that disagrees with its declaration, that is a parameter,
  /// or that the program does not declare; kNotFound for an unknown fetch; kExecution with the op's
  /// location. The session can run again afterwards.
  StatusOr<Arrays> run(const Arrays& feeds, const std::vector<std::string>& fetches = {});

  /// A persistable var. Errors: kNotFound; kInvalidArgument if it is not a dense array.
  StatusOr<Array> get(const std::string& name) const;
  /// Replaces a persistable var, on all devices. Its dims may differ from the declared ones in axes
  /// of extent 1; it then gets the declared ones. After an error nothing has changed. Errors:
  /// kNotFound if the program has none of that name; kInvalidArgument with the var for a var that
  /// is not dense, for another dtype or other dims than declared, and for a LoD that does not fit.
  Status set(const std::string& name, const Array& value);

  /// Reads parameters: npz, a combined file of the original, or a folder with one file per var.
  /// After an error nothing has changed.
  ///
  /// \param kept  receives the persistable vars that an npz archive lacks and that keep the value
  ///              they have; null: such vars are an error
  /// Errors: kNotFound, kInvalidData with file and var.
  Status load_params(const std::string& path, std::vector<std::string>* kept = nullptr);
  /// Writes the persistable vars in the format of the original: a folder (one file per var) if path
  /// is one or ends in '/', else one combined file. Errors: kIo, kNotFound for a var without value.
  Status save_params(const std::string& path) const;
  /// Writes the part of the program that computes the outputs from the inputs, and its parameters,
  /// as an inference model folder that open_model() reads; the folder is created.
  /// Errors: kInvalidArgument for unknown names, kInvalidProgram if the outputs need more than the
  /// inputs, kUsage if the folder already contains a model, kIo.
  Status save_model(const std::string& folder, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs) const;

 private:
  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);

  PartsPtr<Parts> parts_;
};

}  // namespace millrace

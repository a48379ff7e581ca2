#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace millrace::testing {

inline constexpr int32_t kOnnxFloat = 1;
inline constexpr int32_t kOnnxInt64 = 7;

/// Builds small ONNX models.
class OnnxModel {
 public:
  explicit OnnxModel(int64_t opset = 17);
  OnnxModel(OnnxModel&&) noexcept;
  ~OnnxModel();

  ::onnx::ModelProto& proto() { return *model_; }
  ::onnx::GraphProto& graph();
  /// The serialized model.
  [[nodiscard]] std::string bytes() const;

  /// A dim of -1 gets a name.
  OnnxModel& input(const std::string& name, std::initializer_list<int64_t> dims,
                   int32_t type = kOnnxFloat);
  OnnxModel& output(const std::string& name, int32_t type = kOnnxFloat);
  ::onnx::NodeProto& node(const std::string& type, std::initializer_list<const char*> inputs,
                          std::initializer_list<const char*> outputs);
  /// Constants.
  ::onnx::TensorProto& floats(const std::string& name, std::initializer_list<int64_t> dims,
                              const std::vector<float>& values);
  ::onnx::TensorProto& longs(const std::string& name, const std::vector<int64_t>& values);
  ::onnx::TensorProto& constant(const std::string& name, std::initializer_list<int64_t> dims,
                                int32_t type);

 private:
  std::unique_ptr<::onnx::ModelProto> model_;
};

/// Adds an attribute to a node.
void set_int(::onnx::NodeProto& node, const std::string& name, int64_t value);

}  // namespace millrace::testing

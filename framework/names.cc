#include "framework/names.h"

#include <string_view>

#include <fmt/format.h>

namespace millrace::names {
namespace {
std::string_view view(llvm::StringRef s) {
  return {s.data(), s.size()};
}
}  // namespace

std::string grad(llvm::StringRef var) {
  return fmt::format("{}@GRAD", view(var));
}
std::string block(llvm::StringRef var, int64_t index) {
  return fmt::format("{}.block{}", view(var), index);
}
std::string trainer(llvm::StringRef var, int64_t trainer) {
  return fmt::format("{}.trainer_{}", view(var), trainer);
}
std::string trainer_block(llvm::StringRef var, int64_t index, int64_t trainer) {
  return fmt::format("{}.block{}.trainer_{}", view(var), index, trainer);
}
std::string pserver(llvm::StringRef var, int64_t pserver) {
  return fmt::format("{}.pserver_{}", view(var), pserver);
}
std::string delta(llvm::StringRef var) {
  return fmt::format("{}.delta", view(var));
}
std::string loop_entry(llvm::StringRef var) {
  return var.str() + "@ENTRY";
}
std::string version(llvm::StringRef var, int64_t number) {
  return fmt::format("{}@VERSION@{}", view(var), number);
}
std::string snapshot(llvm::StringRef var) {
  return fmt::format("{}@SNAPSHOT", view(var));
}
std::string federated(llvm::StringRef var, int64_t trainer) {
  return fmt::format("{}.opti.trainer_{}", view(var), trainer);
}
std::string dc_backup(llvm::StringRef block, int64_t trainer) {
  return fmt::format("{}.trainer_{}_bak", view(block), trainer);
}
std::string dc_local_backup(llvm::StringRef block) {
  return fmt::format("{}.local_bak", view(block));
}
std::string comm_id(int64_t ring) {
  return fmt::format("nccl_id_{}", ring);
}
std::string nccl_id(int64_t communicator) {
  return communicator == 0 ? "NCCLID" : fmt::format("NCCLID_{}", communicator);
}
std::string inter_nccl_id(int64_t communicator) {
  return fmt::format("Hierarchical_inter_NCCLID_{}", communicator);
}
std::string exter_nccl_id(int64_t communicator) {
  return fmt::format("Hierarchical_exter_NCCLID_{}", communicator);
}
std::string dc_output(int64_t number) {
  return fmt::format("tmp_dc_output_{}", number);
}
std::string prefetch_in(int64_t pserver) {
  return fmt::format("prefetch_compress_in_tmp_{}", pserver);
}
std::string prefetch_out(int64_t pserver) {
  return fmt::format("prefetch_compress_out_tmp_{}", pserver);
}
std::string upgraded(llvm::StringRef var, llvm::StringRef what) {
  return fmt::format("{}@UPGRADED@{}", view(var), view(what));
}
std::string control(int64_t number) {
  return fmt::format("__control_var@{}", number);
}

}  // namespace millrace::names

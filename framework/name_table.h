#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/Allocator.h>

namespace millrace {

/// Handle of an interned name; valid only with the table that made it. Equal names have equal ids.
enum class NameId : uint32_t {};

/// The names of one Program (vars, op types, slots, attributes), each stored once.
///
/// Ids are dense and count up from 0 in order of first use. Strings never move, so a StringRef from
/// str() lives as long as the table. Thread-safety: concurrent readers, or one writer.
class NameTable {
 public:
  NameTable() = default;
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  /// Id of the name, which is added if it is new.
  NameId intern(llvm::StringRef name);
  /// Id of the name if it was interned before.
  [[nodiscard]] std::optional<NameId> find(llvm::StringRef name) const;
  [[nodiscard]] llvm::StringRef str(NameId id) const { return names_[static_cast<uint32_t>(id)]; }
  [[nodiscard]] size_t size() const { return names_.size(); }

 private:
  llvm::StringMap<uint32_t, llvm::BumpPtrAllocator> ids_;
  std::vector<llvm::StringRef> names_;
};

}  // namespace millrace

/// Lets NameId be a key of llvm::DenseMap.
template <>
struct llvm::DenseMapInfo<millrace::NameId> {
  static millrace::NameId getEmptyKey() { return static_cast<millrace::NameId>(~0U); }
  static millrace::NameId getTombstoneKey() { return static_cast<millrace::NameId>(~0U - 1); }
  static unsigned getHashValue(millrace::NameId id) { return static_cast<unsigned>(id) * 37U; }
  static bool isEqual(millrace::NameId a, millrace::NameId b) { return a == b; }
};

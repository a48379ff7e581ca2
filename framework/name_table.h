#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <llvm/ADT/DenseMapInfo.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/Allocator.h>

namespace millrace {

/// Handle of an interned name; valid only with the table that created it. Equal names have equal
/// ids.
enum class NameId : uint32_t {};

/// The names of one Program (vars, op types, slots, attributes), each stored once.
///
/// Ids are dense and count up from 0 in order of first use. Strings never move, so a StringRef from
/// str() is valid as long as the table lives. Thread-safety: concurrent readers, or one writer.
class NameTable {
 public:
  NameTable() = default;
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  /// Id of the name. The name is added if it is new.
  NameId intern(llvm::StringRef name);
  /// Id of the name; nullopt if it is not in the table.
  [[nodiscard]] std::optional<NameId> find(llvm::StringRef name) const;
  /// The name of an id of this table.
  [[nodiscard]] llvm::StringRef str(NameId id) const { return names_[static_cast<uint32_t>(id)]; }
  [[nodiscard]] size_t size() const { return names_.size(); }

  /// Makes an empty table equal to another, including ids. Both share the characters of the common
  /// names, so no text is hashed or copied.
  void copy_from(const NameTable& other);

 private:
  // One entry of the hash table. Linear probing, at most three quarters full.
  struct Entry {
    uint32_t hash = 0;
    uint32_t id = kFree;
  };
  static constexpr uint32_t kFree = ~0U;

  /// Position of the entry with the name, or of the free entry where it belongs.
  [[nodiscard]] size_t position_of(llvm::StringRef name, uint32_t hash) const;
  /// Doubles the hash table and inserts all ids again.
  void grow();

  std::vector<Entry> entries_;  // the size is a power of two
  std::vector<llvm::StringRef> names_;
  std::shared_ptr<llvm::BumpPtrAllocator> text_;
  // Memory of the names that this table shares with the tables it was copied from.
  std::vector<std::shared_ptr<const llvm::BumpPtrAllocator>> borrowed_;
};

}  // namespace millrace

/// Lets NameId be a key of llvm::DenseMap.
template <>
struct llvm::DenseMapInfo<millrace::NameId> {
  /// The two largest ids mark free and deleted entries; no table has that many names.
  static millrace::NameId getEmptyKey() { return static_cast<millrace::NameId>(~0U); }
  static millrace::NameId getTombstoneKey() { return static_cast<millrace::NameId>(~0U - 1); }
  static unsigned getHashValue(millrace::NameId id) { return static_cast<unsigned>(id) * 37U; }
  static bool isEqual(millrace::NameId a, millrace::NameId b) { return a == b; }
};

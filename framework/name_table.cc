#include "framework/name_table.h"

#include <cassert>
#include <cstring>

#include <llvm/Support/xxhash.h>

namespace millrace {
namespace {

uint32_t hash_of(llvm::StringRef name) {
  return static_cast<uint32_t>(llvm::xxHash64(name));
}

}  // namespace

// Position of the name in the hash table, or of the free entry where it would be inserted.
size_t NameTable::position_of(llvm::StringRef name, uint32_t hash) const {
  const size_t mask = entries_.size() - 1;
  size_t position = hash & mask;
  while (entries_[position].id != kFree &&
         (entries_[position].hash != hash || names_[entries_[position].id] != name)) {
    position = (position + 1) & mask;
  }
  return position;
}

void NameTable::grow() {
  constexpr size_t kSmallest = 64;
  std::vector<Entry> old(entries_.empty() ? kSmallest : entries_.size() * 2);
  old.swap(entries_);
  const size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.id == kFree) continue;
    size_t position = entry.hash & mask;
    while (entries_[position].id != kFree) position = (position + 1) & mask;
    entries_[position] = entry;
  }
}

NameId NameTable::intern(llvm::StringRef name) {
  if (names_.size() >= entries_.size() / 4 * 3) grow();
  const uint32_t hash = hash_of(name);
  Entry& entry = entries_[position_of(name, hash)];
  if (entry.id == kFree) {
    if (text_ == nullptr) text_ = std::make_shared<llvm::BumpPtrAllocator>();
    entry = {hash, static_cast<uint32_t>(names_.size())};
    names_.push_back(name.copy(*text_));
  }
  return static_cast<NameId>(entry.id);
}

std::optional<NameId> NameTable::find(llvm::StringRef name) const {
  if (entries_.empty()) return std::nullopt;
  const Entry& entry = entries_[position_of(name, hash_of(name))];
  if (entry.id == kFree) return std::nullopt;
  return static_cast<NameId>(entry.id);
}

void NameTable::copy_from(const NameTable& other) {
  assert(names_.empty());
  entries_ = other.entries_;
  names_ = other.names_;
  borrowed_ = other.borrowed_;
  if (other.text_ != nullptr) borrowed_.push_back(other.text_);
}

}  // namespace millrace

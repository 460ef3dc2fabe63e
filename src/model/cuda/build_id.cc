#include "model/cuda/build_id.h"

#include <link.h>

#include <cstdio>
#include <cstring>

namespace levada::model {
namespace {

constexpr char kAnchor = 0;  // an address inside this module

std::string id_in_notes(const char* at, const char* end) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* const name = at + sizeof note;
    const char* const value = name + padded(note.n_namesz);
    if (value + note.n_descsz > end) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string hex;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(value[i]));
        hex += digits;
      }
      return hex;
    }
    at = value + padded(note.n_descsz);
  }
  return {};
}

int look_at(dl_phdr_info* object, std::size_t, void* data) {
  const auto address_of = [&](const ElfW(Phdr) & part) {
    return reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
  };
  bool own = false;
  std::string id;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const char* const first = address_of(part);
    if (part.p_type == PT_LOAD && &kAnchor >= first && &kAnchor < first + part.p_memsz) own = true;
    if (part.p_type == PT_NOTE && id.empty()) id = id_in_notes(first, first + part.p_memsz);
  }
  if (!own) return 0;
  *static_cast<std::string*>(data) = id;
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(look_at, &id);
  return id;
}

}  // namespace levada::model

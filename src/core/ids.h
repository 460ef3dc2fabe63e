// What: the identifiers that cross rooms, as types that don't convert into each other.
// Owner: value types.
// Thread: any.
// Invariant: a RequestId is unique for the life of the process (the client's own `rid` is a string kept by serve).
// PageId 0 is an ordinary page; kNoPage marks "none".
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

namespace levada::core {

using Token = std::int32_t;

enum class RequestId : std::uint64_t {};
enum class PageId : std::int32_t {};
enum class StepId : std::uint64_t {};

// Names one loaded draft of this process; given out in ascending order, never reused.
enum class DraftVersion : std::uint32_t {};

inline constexpr PageId kNoPage{-1};
inline constexpr DraftVersion kNoDraft{0};

constexpr std::int32_t index(PageId page) { return static_cast<std::int32_t>(page); }
constexpr std::uint64_t value(RequestId id) { return static_cast<std::uint64_t>(id); }
constexpr std::uint64_t value(StepId id) { return static_cast<std::uint64_t>(id); }
constexpr std::uint32_t value(DraftVersion id) { return static_cast<std::uint32_t>(id); }

}  // namespace levada::core

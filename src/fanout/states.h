// What: the states of entries, consumers and the run, and the small vocabularies of the protocol, with their wire names.
// Owner: values.
// Thread: any.
// Invariant: to_string and named() are inverses. The machines that move between these states stand in fanout/machine.h.
// Format: the names are SpecForge's where it has the state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace levada::fanout {

enum class EntryState : std::uint8_t { kAbsent, kQueued, kCapturing, kCommitting, kReady, kEvicting, kFailed };
enum class ConsumerState : std::uint8_t {
  kExpected,      // named by the run, never registered
  kInitializing,  // registered, its model is being built
  kReady,
  kEof,        // no whole quantum is left
  kDetached,   // its session expired; it still pins its next quantum
  kSuspended,  // detached for too long: no interest, but it may come back
  kCompleted,
  kFailed,
};
enum class RunStatus : std::uint8_t { kActive, kDraining, kCompleted, kCompletedWithFailures, kFailed };
enum class Head : std::uint8_t { kAbsent, kQueued, kCapturing, kCommitting, kReady, kEof };
enum class LossReason : std::uint8_t { kGone, kShortRead, kBadBytes, kIo };
enum class Written : std::uint8_t { kNo, kMaybe };

// The wire names of an enum, in the order of its values.
template <class E>
struct EnumNames;
template <>
struct EnumNames<EntryState> {
  static constexpr std::array<std::string_view, 7> kNames = {"absent", "queued",   "capturing", "committing",
                                                             "ready",  "evicting", "failed"};
};
template <>
struct EnumNames<ConsumerState> {
  static constexpr std::array<std::string_view, 8> kNames = {"expected", "initializing", "ready",     "eof",
                                                             "detached", "suspended",    "completed", "failed"};
};
template <>
struct EnumNames<RunStatus> {
  static constexpr std::array<std::string_view, 5> kNames = {"active", "draining", "completed",
                                                             "completed_with_failures", "failed"};
};
template <>
struct EnumNames<Head> {
  static constexpr std::array<std::string_view, 6> kNames = {"absent",     "queued", "capturing",
                                                             "committing", "ready",  "eof"};
};
template <>
struct EnumNames<LossReason> {
  static constexpr std::array<std::string_view, 4> kNames = {"gone", "short_read", "bad_bytes", "io"};
};
template <>
struct EnumNames<Written> {
  static constexpr std::array<std::string_view, 2> kNames = {"no", "maybe"};
};

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::kNames;
};

template <NamedEnum E>
constexpr std::string_view to_string(E value) {
  return EnumNames<E>::kNames[static_cast<std::size_t>(value)];
}

template <NamedEnum E>
constexpr std::optional<E> named(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) {
    if (EnumNames<E>::kNames[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace levada::fanout

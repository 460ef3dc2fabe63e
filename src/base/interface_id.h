// What: interface_id(), what tells builds apart between which objects must not pass: another in every build whose headers or
// compiler differ.
// Owner: made by cmake/interface_id.cmake.
// Thread: any.
// Invariant: binary and module each have their own; a module is used only if both are equal (device/module.h).
#pragma once

namespace levada {

[[gnu::visibility("hidden")]] const char* interface_id();

// The extern "C" function of every module that returns the module's own, a const char*().
inline constexpr const char* kModuleInterfaceId = "levada_module_interface_id";

}  // namespace levada

// What: the plain twins of kernels/cuda/pages.h, over memory of the CPU.
// Owner: the caller's memory.
// Thread: any.
// Invariant: as kernels/cuda/pages.h says.
// No format of its own.
#pragma once

#include "kernels/page_planes.h"

namespace levada::kernels {

void ref_gather_pages(std::span<const PagePlane> planes, std::span<const std::int32_t> pages, void* packed);
void ref_scatter_pages(std::span<const PagePlane> planes, std::span<const std::int32_t> pages, const void* packed);

}  // namespace levada::kernels
